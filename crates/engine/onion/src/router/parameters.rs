//! The consensus parameters of a relay (param-spec).

use super::dos::{CircuitLimit, ConnectionLimit, DosParams, StreamLimit};
use crate::flow::QUEUE_LIMIT_CELLS;
use crate::time::Duration;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// Consensus parameters of the engine, each within its bounds.
///
/// The shell derives them from each new consensus and passes them to
/// [`Core::set_parameters`](super::Core::set_parameters).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// `circ_max_cell_queue_size`: maximum number of queued cells of a circuit towards its client.
    pub circ_max_cell_queue_size: u32,
    /// `circ_max_cell_queue_size_out`: maximum number of queued cells of a circuit away from its client.
    pub circ_max_cell_queue_size_out: u32,
    /// `KISTSchedRunInterval`: the interval of scheduler runs.
    pub kist_sched_run_interval: Duration,
    /// `CircuitPriorityHalflifeMsec`: the half-life of a cell in a circuit's priority.
    pub circuit_priority_halflife: Duration,
    /// `nf_ito_low`: minimum idle time of a padded link before a cell is sent (padding-spec §2.6).
    pub nf_ito_low: Duration,
    /// `nf_ito_high`: maximum of that time. If both are zero, no link is padded.
    pub nf_ito_high: Duration,
    /// `nf_pad_before_usage`: links are padded from the first circuit that is extended, not only after it has
    /// carried data.
    pub nf_pad_before_usage: bool,
    /// `nf_pad_relays`: links between relays are padded.
    pub nf_pad_relays: bool,
    /// `nf_conntimeout_relays`: how long links between relays stay open without circuits, plus or minus a
    /// quarter.
    pub nf_conntimeout_relays: Duration,
    /// `DoSCircuitCreation…`, `DoSConnection…` and `DoSStreamCreation…`: the limits for an address or a
    /// circuit.
    pub dos: DosParams,
    /// `cfx_enabled`: circuits may be linked (proposal 329 §5).
    pub cfx_enabled: bool,
    /// The congestion control parameters `cc_…`, by name (proposal 324 §6.5). The code that uses them applies
    /// bounds and defaults.
    pub congestion_control: BTreeMap<String, i32>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self::from_consensus(core::iter::empty::<(&str, i32)>())
    }
}

impl Parameters {
    /// Reads the parameters of a consensus by name. Missing ones have C tor's default; values out of bounds are
    /// clamped.
    ///
    /// ```
    /// use flashflow_onion::router::Parameters;
    ///
    /// let params = Parameters::from_consensus([("circ_max_cell_queue_size", 7), ("cc_alg", 2)]);
    /// assert_eq!(params.circ_max_cell_queue_size, 50);
    /// assert_eq!(params.circ_max_cell_queue_size_out, 50);
    /// assert_eq!(params.congestion_control["cc_alg"], 2);
    /// ```
    #[must_use]
    pub fn from_consensus<'a>(all: impl IntoIterator<Item = (&'a str, i32)>) -> Self {
        let all: BTreeMap<&str, i32> = all.into_iter().collect();
        // No bound is negative.
        let get = |name, default: u32, least: u32, most: u32| {
            all.get(name)
                .map_or(default, |value| u32::try_from(*value).unwrap_or(0))
                .clamp(least, most)
        };
        let millis = |name, default, least, most| {
            Duration::from_millis(get(name, default, least, most).into())
        };
        const MOST: u32 = i32::MAX.unsigned_abs();
        let seconds = |name, default| Duration::from_secs(get(name, default, 0, MOST).into());
        const IDLE_MS_MOST: u32 = 60_000;
        const WEEK_S: u32 = 7 * 24 * 3600;
        let low_ms = get("nf_ito_low", 1500, 0, IDLE_MS_MOST);
        let high_ms = get("nf_ito_high", 9500, low_ms, IDLE_MS_MOST);
        let idle_s = get("nf_conntimeout_relays", 3600, 60, WEEK_S);
        let back = get("circ_max_cell_queue_size", QUEUE_LIMIT_CELLS, 50, MOST);
        let is_of_congestion_control = |name: &&&str| name.starts_with("cc_");
        Self {
            circ_max_cell_queue_size: back,
            circ_max_cell_queue_size_out: get("circ_max_cell_queue_size_out", back, 50, MOST),
            kist_sched_run_interval: millis("KISTSchedRunInterval", 2, 2, 100),
            circuit_priority_halflife: millis("CircuitPriorityHalflifeMsec", 30_000, 1, MOST),
            nf_ito_low: Duration::from_millis(low_ms.into()),
            nf_ito_high: Duration::from_millis(high_ms.into()),
            nf_pad_before_usage: get("nf_pad_before_usage", 1, 0, 1) == 1,
            nf_pad_relays: get("nf_pad_relays", 0, 0, 1) == 1,
            nf_conntimeout_relays: Duration::from_secs(idle_s.into()),
            dos: DosParams {
                circuits: (get("DoSCircuitCreationEnabled", 0, 0, 1) == 1
                    && get("DoSCircuitCreationDefenseType", 2, 1, 2) == 2)
                    .then(|| CircuitLimit {
                        links_min: get("DoSCircuitCreationMinConnections", 3, 1, MOST),
                        per_s: get("DoSCircuitCreationRate", 3, 1, MOST),
                        burst: get("DoSCircuitCreationBurst", 90, 1, MOST),
                        period: seconds("DoSCircuitCreationDefenseTimePeriod", 3600),
                    }),
                links: (get("DoSConnectionEnabled", 0, 0, 1) == 1
                    && get("DoSConnectionDefenseType", 2, 1, 2) == 2)
                    .then(|| ConnectionLimit {
                        max: get("DoSConnectionMaxConcurrentCount", 100, 1, MOST),
                        per_s: get("DoSConnectionConnectRate", 20, 1, MOST),
                        burst: get("DoSConnectionConnectBurst", 40, 1, MOST),
                    }),
                streams: (get("DoSStreamCreationEnabled", 0, 0, 1) == 1
                    && get("DoSStreamCreationDefenseType", 2, 1, 3) > 1)
                    .then(|| StreamLimit {
                        per_s: get("DoSStreamCreationRate", 100, 1, MOST),
                        burst: get("DoSStreamCreationBurst", 300, 1, MOST),
                        closes_circuit: get("DoSStreamCreationDefenseType", 2, 1, 3) == 3,
                    }),
            },
            cfx_enabled: get("cfx_enabled", 1, 0, 1) == 1,
            congestion_control: all
                .keys()
                .filter(is_of_congestion_control)
                .map(|name| (String::from(*name), all[name]))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parameters_have_defaults_and_others_are_clamped() {
        let params = Parameters::default();
        assert_eq!(params.circ_max_cell_queue_size, 2_500);
        assert_eq!(params.circ_max_cell_queue_size_out, 2_500);
        assert_eq!(params.kist_sched_run_interval, Duration::from_millis(2));
        assert_eq!(params.circuit_priority_halflife, Duration::from_secs(30));
        assert_eq!(params.nf_ito_low, Duration::from_millis(1500));
        assert_eq!(params.nf_ito_high, Duration::from_millis(9500));
        assert!(params.nf_pad_before_usage && !params.nf_pad_relays);
        assert_eq!(params.nf_conntimeout_relays, Duration::from_secs(3600));
        assert!(params.congestion_control.is_empty());
        assert_eq!(params.dos, DosParams::default(), "none, as in C tor");

        let params = Parameters::from_consensus([
            ("circ_max_cell_queue_size", 1_250),
            ("circ_max_cell_queue_size_out", -7),
            ("KISTSchedRunInterval", 1_000),
            ("CircuitPriorityHalflifeMsec", -1),
            ("nf_ito_low", 12_000),
            ("nf_ito_high", 9000),
            ("nf_pad_before_usage", 0),
            ("nf_pad_relays", 2),
            ("nf_conntimeout_relays", 59),
            ("DoSCircuitCreationEnabled", 1),
            ("DoSCircuitCreationBurst", 60),
            ("DoSConnectionEnabled", 1),
            ("DoSConnectionMaxConcurrentCount", 50),
            ("cc_sendme_inc", 31),
            ("cc_alg", -2),
            ("circwindow", 9),
        ]);
        assert_eq!(params.circ_max_cell_queue_size, 1_250);
        assert_eq!(params.circ_max_cell_queue_size_out, 50);
        assert_eq!(params.kist_sched_run_interval, Duration::from_millis(100));
        assert_eq!(params.circuit_priority_halflife, Duration::from_millis(1));
        assert_eq!(params.nf_ito_low, Duration::from_secs(12));
        assert_eq!(params.nf_ito_high, params.nf_ito_low, "never below");
        assert!(!params.nf_pad_before_usage && params.nf_pad_relays);
        assert_eq!(params.nf_conntimeout_relays, Duration::from_mins(1));
        let circuits = params.dos.circuits.expect("enabled");
        assert_eq!((circuits.links_min, circuits.per_s, circuits.burst), (3, 3, 60));
        assert_eq!(circuits.period, Duration::from_hours(1));
        let links = ConnectionLimit { max: 50, per_s: 20, burst: 40 };
        assert_eq!(params.dos.links, Some(links));
        let names: alloc::vec::Vec<_> = params.congestion_control.into_iter().collect();
        assert_eq!(names, [("cc_alg".into(), -2), ("cc_sendme_inc".into(), 31)]);
    }
}
