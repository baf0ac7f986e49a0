use onion::cell::CELL_LEN;
use onion::measure::pump::Pace;
use onion::{Duration, Rate};
use std::num::NonZeroU32;

/// How long a queue the windows must be able to keep standing at the assigned rate, which is more
/// than twice what the relay carries: a relay that limits its rate refills its buckets every tenth of
/// a second by default, and must never find its queue empty.
const STANDING_QUEUE: Duration = Duration::from_millis(120);

/// Circuits that suffice for a standing queue whatever the rate: a relay that is bound by its
/// processor needs none, and gets slower with every circuit.
const CIRCUITS_FOR_QUEUE_MAX: u32 = 24;

/// Round trip to expect of a relay that has not been timed: few are farther.
pub(crate) const RTT_UNKNOWN: Duration = Duration::from_millis(300);

/// Fewer sockets would make the loss of one matter too much.
const SOCKETS_MIN: u32 = 8;

/// Connections and circuits left to others who share our address.
const RESERVE: u32 = 4;

/// Most circuits on one socket.
const CIRCUITS_PER_SOCKET_MAX: u32 = 16;

/// What a stock relay lets one address do, by the consensus that it follows.
///
/// A relay's own configuration may override it; then set-up fails, with the relay's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defences {
    /// Cells in a circuit's queue at which the relay kills the circuit.
    pub queue_limit_cells: u32,
    /// Connections that one address may have at once; `None` without that defence.
    pub max_connections: Option<u32>,
    /// Connections that one address may open at once and per second.
    pub connect: Pace,
    /// Circuits that one address may open on links that do not authenticate as a relay's, before it
    /// is refused for an hour; `None` without that defence.
    pub max_client_circuits: Option<u32>,
}

impl Defences {
    /// Reads the consensus parameters, with C tor's defaults and bounds (its `dos.h` and `relay.c`).
    #[must_use]
    pub fn from_consensus_params(get: impl Fn(&str) -> Option<i32>) -> Self {
        let at_least = |name: &str, default: u32, least: u32| {
            let value = get(name).map(|value| u32::try_from(value).unwrap_or(0));
            value.unwrap_or(default).max(least)
        };
        let is_on = |name: &str| get(name).is_some_and(|value| value != 0);
        let queue = at_least("circ_max_cell_queue_size", 2500, 50);
        let queue_limit_cells = at_least("circ_max_cell_queue_size_out", queue, 50);
        let limits_connections = is_on("DoSConnectionEnabled");
        let max_connections = at_least("DoSConnectionMaxConcurrentCount", 100, 1);
        let burst = at_least("DoSConnectionConnectBurst", 40, 1);
        let per_s = at_least("DoSConnectionConnectRate", 20, 1);
        let circuits = at_least("DoSCircuitCreationBurst", 90, 1);
        Self {
            queue_limit_cells,
            max_connections: limits_connections.then_some(max_connections),
            // Half and three quarters of what is allowed, for those who share our address.
            connect: Pace {
                burst: (burst / 2).max(1),
                per_s: NonZeroU32::new(per_s - per_s / 4).unwrap_or(NonZeroU32::MIN),
            },
            max_client_circuits: is_on("DoSCircuitCreationEnabled").then_some(circuits),
        }
    }

    /// Most cells that we keep under way on one circuit: a tenth below the relay's limit, which
    /// also counts what it originates itself.
    #[must_use]
    pub const fn window_cap_cells(&self) -> u32 {
        self.queue_limit_cells - self.queue_limit_cells / 10 - 1
    }

    /// Sockets for a team that shares one address, to load a relay with up to `rate`.
    ///
    /// As many as the bandwidth-delay product of its path asks for, a circuit's window on each; at
    /// most `wanted` and what the relay lets one address have. `rtt` is the round trip to it.
    #[must_use]
    pub fn sockets(&self, wanted: u32, rate: Rate, rtt: Duration) -> u32 {
        let allowed =
            self.max_connections.map_or(u32::MAX, |max| max.saturating_sub(RESERVE).max(1));
        self.circuits_under_way(rate, rtt).max(SOCKETS_MIN).min(wanted).min(allowed)
    }

    /// Circuits whose windows together hold what is on the way: a cell passes twice, to the relay and
    /// from there to the landing.
    fn circuits_under_way(&self, rate: Rate, rtt: Duration) -> u32 {
        self.circuits_holding(rate, rtt * 2)
    }

    /// Circuits whose windows together hold `time`'s worth of cells at `rate`.
    fn circuits_holding(&self, rate: Rate, time: Duration) -> u32 {
        let window_bytes = u64::from(self.window_cap_cells()) * CELL_LEN as u64;
        u32::try_from(rate.bytes_in(time).div_ceil(window_bytes)).unwrap_or(u32::MAX)
    }

    /// Circuits for what is on the way and for the standing queue.
    fn circuits_for(&self, rate: Rate, rtt: Duration) -> u32 {
        let queue = self.circuits_holding(rate, STANDING_QUEUE).min(CIRCUITS_FOR_QUEUE_MAX);
        self.circuits_under_way(rate, rtt).max(queue)
    }
}

impl Default for Defences {
    /// Without a consensus: C tor's defaults.
    fn default() -> Self {
        Self::from_consensus_params(|_| None)
    }
}

/// One measurer's part: its sockets, and the circuits on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Sockets.
    pub sockets: u32,
    /// Circuits on each.
    pub circuits_per_socket: u32,
    /// Whether its links must authenticate as a relay's, to escape the limit on clients' circuits.
    pub must_authenticate: bool,
    /// How fast it may open its sockets.
    pub pace: Pace,
}

impl Load {
    /// Plans for an assignment of `sockets` and `rate`, where `measurers` share one address.
    #[must_use]
    pub fn plan(
        defences: &Defences,
        sockets: u32,
        rate: Rate,
        rtt: Duration,
        measurers: u32,
    ) -> Self {
        let sockets = sockets.max(1);
        let circuits = defences.circuits_for(rate, rtt).max(sockets);
        let circuits_per_socket = circuits.div_ceil(sockets).min(CIRCUITS_PER_SOCKET_MAX);
        let share = measurers.max(1);
        let in_all = sockets.saturating_mul(circuits_per_socket).saturating_mul(share);
        let must_authenticate = defences
            .max_client_circuits
            .is_some_and(|allowed| in_all > allowed.saturating_sub(RESERVE));
        let pace = Pace {
            burst: (defences.connect.burst / share).max(1),
            per_s: NonZeroU32::new(defences.connect.per_s.get() / share).unwrap_or(NonZeroU32::MIN),
        };
        Self { sockets, circuits_per_socket, must_authenticate, pace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAR: Duration = Duration::from_millis(200);

    #[test]
    fn a_relay_nearby_gets_few_sockets_and_a_far_one_as_many_as_its_path_holds() {
        let (defences, rate) = (Defences::default(), Rate::from_mbit_per_s(3000.0));
        assert_eq!(defences.sockets(160, rate, Duration::ZERO), SOCKETS_MIN);
        let load = Load::plan(&defences, SOCKETS_MIN, rate, Duration::ZERO, 1);
        assert_eq!(load.sockets * load.circuits_per_socket, CIRCUITS_FOR_QUEUE_MAX);
        assert_eq!(defences.sockets(160, rate, FAR), 130);
        assert_eq!(defences.sockets(160, Rate::from_mbit_per_s(1.0), FAR), SOCKETS_MIN);
    }

    /// As the live consensus of July 2026 says.
    fn live(name: &str) -> Option<i32> {
        Some(match name {
            "circ_max_cell_queue_size" => 1750,
            "circ_max_cell_queue_size_out" => 1500,
            "DoSConnectionEnabled" | "DoSCircuitCreationEnabled" => 1,
            "DoSConnectionMaxConcurrentCount" => 50,
            "DoSCircuitCreationBurst" => 60,
            _ => return None,
        })
    }

    #[test]
    fn the_consensus_bounds_windows_and_sockets() {
        let defences = Defences::from_consensus_params(live);
        assert_eq!(defences.window_cap_cells(), 1349);
        assert_eq!(defences.sockets(160, Rate::from_mbit_per_s(3000.0), FAR), 46);
        assert_eq!(Defences::default().window_cap_cells(), 2249);
        let fallback = Defences::from_consensus_params(|name| {
            (name == "circ_max_cell_queue_size").then_some(1750)
        });
        assert_eq!(fallback.queue_limit_cells, 1750);
    }

    #[test]
    fn links_authenticate_where_clients_would_be_refused() {
        let defences = Defences::from_consensus_params(live);
        let modest = Load::plan(&defences, 23, Rate::from_mbit_per_s(100.0), FAR, 2);
        assert!(!modest.must_authenticate, "{modest:?}");
        let large = Load::plan(&defences, 23, Rate::from_mbit_per_s(3000.0), FAR, 2);
        assert!(large.must_authenticate && large.circuits_per_socket > 1, "{large:?}");
        let undefended =
            Load::plan(&Defences::default(), 23, Rate::from_mbit_per_s(3000.0), FAR, 2);
        assert!(!undefended.must_authenticate);
    }

    proptest! {
        #[test]
        fn no_parameter_leads_to_nonsense(value: i32, mbit in 0.0..100_000.0, sockets in 1u32..200) {
            let defences = Defences::from_consensus_params(|_| Some(value));
            prop_assert!(defences.window_cap_cells() >= 1);
            prop_assert!(defences.window_cap_cells() < defences.queue_limit_cells);
            let rate = Rate::from_mbit_per_s(mbit);
            let planned = defences.sockets(sockets, rate, FAR);
            prop_assert!((1..=sockets).contains(&planned));
            let load = Load::plan(&defences, planned, rate, FAR, 3);
            prop_assert!(load.circuits_per_socket >= 1 && load.pace.burst >= 1);
        }
    }
}
