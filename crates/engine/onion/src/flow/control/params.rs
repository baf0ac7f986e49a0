use crate::flow::stream::XonXoffParams;
use core::ops::RangeInclusive;

/// Cells in one TLS record, the unit of most defaults.
const RECORD_CELLS: u32 = 31;

/// The capacity of a link's buffer in cells, from which Vegas' thresholds are derived.
const BUFFER_CELLS: u32 = 2 * RECORD_CELLS;

const INT32_MAX: u32 = i32::MAX.unsigned_abs();

/// The kind of a circuit: how many relays the DATA cells of this end pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathKind {
    /// Three hops, seen from either end. Relays take this for all circuits.
    #[default]
    Exit,
    /// To an onion service.
    Onion,
    /// Two hops, as built by a bandwidth scanner.
    Scanner,
}

/// Vegas' queue length thresholds (proposal 324 §3.3), in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Below it, the window grows.
    pub alpha_cells: u32,
    /// Above it, the window shrinks.
    pub beta_cells: u32,
    /// From here on slow start ends.
    pub gamma_cells: u32,
    /// Above it, the window falls at once to what this queue length allows.
    pub delta_cells: u32,
    /// The window above which slow start grows less than by doubling.
    pub slow_start_cap_cells: u32,
}

/// The congestion control parameters (proposal 324 §6.5), the same for all circuits that begin under one
/// consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionParams {
    /// Whether circuits may request it: `cc_alg` is 2.
    pub is_enabled: bool,
    /// The number of cells that one SENDME acknowledges: `cc_sendme_inc`.
    pub sendme_cells: u8,
    /// The window of a new circuit: `cc_cwnd_init`.
    pub window_initial_cells: u32,
    /// The minimum window: `cc_cwnd_min`.
    pub window_min_cells: u32,
    /// The maximum window: `cc_cwnd_max`.
    pub window_max_cells: u32,
    /// The step of the window after slow start: `cc_cwnd_inc`.
    pub step_cells: u32,
    /// The number of steps for each window of cells: `cc_cwnd_inc_rate`.
    pub steps_per_window: u32,
    /// Growth in slow start, in percent of the acknowledged cells: `cc_cwnd_inc_pct_ss`.
    pub slow_start_percent: u32,
    /// The window at which slow start ends: `cc_ss_max`.
    pub slow_start_max_cells: u32,
    /// The share of a window's SENDMEs over which round-trip times are averaged: `cc_ewma_cwnd_pct`.
    pub average_percent: u32,
    /// The maximum number of SENDMEs over which they are averaged: `cc_ewma_max`.
    pub average_max: u32,
    /// The maximum number in slow start: `cc_ewma_ss`.
    pub average_slow_start: u32,
    /// How far the shortest round-trip time is forgotten at the smallest window: `cc_rtt_reset_pct`.
    pub rtt_reset_percent: u32,
    /// A window counts as full if at most this number of SENDME increments is missing: `cc_cwnd_full_gap`.
    pub full_gap_sendmes: u32,
    /// A window counts as not full below this percentage: `cc_cwnd_full_minpct`.
    pub full_min_percent: u32,
    /// Whether a full window is forgotten once per window instead of with each step: `cc_cwnd_full_per_cwnd`.
    pub is_full_per_window: bool,
    /// Thresholds of circuits to exits: `cc_vegas_alpha_exit` etc.
    pub exit: QueueLimits,
    /// Thresholds of circuits to onion services: `cc_vegas_alpha_onion` etc.
    pub onion: QueueLimits,
    /// Thresholds of circuits of scanners: `cc_vegas_alpha_sbws` etc.
    pub scanner: QueueLimits,
    /// Streams at exits; `cc_xoff_exit` and `cc_xon_*`.
    pub exit_streams: XonXoffParams,
    /// Streams at clients and onion services: `cc_xoff_client` and `cc_xon_*`.
    pub client_streams: XonXoffParams,
}

impl Default for CongestionParams {
    fn default() -> Self {
        Self {
            is_enabled: true,
            sendme_cells: 31,
            window_initial_cells: 4 * RECORD_CELLS,
            window_min_cells: 4 * RECORD_CELLS,
            window_max_cells: INT32_MAX,
            step_cells: 1,
            steps_per_window: RECORD_CELLS,
            slow_start_percent: 100,
            slow_start_max_cells: 5000,
            average_percent: 50,
            average_max: 10,
            average_slow_start: 2,
            rtt_reset_percent: 100,
            full_gap_sendmes: 4,
            full_min_percent: 25,
            is_full_per_window: true,
            exit: QueueLimits {
                alpha_cells: 3 * BUFFER_CELLS,
                beta_cells: 4 * BUFFER_CELLS,
                gamma_cells: 3 * BUFFER_CELLS,
                delta_cells: 5 * BUFFER_CELLS,
                slow_start_cap_cells: 600,
            },
            onion: QueueLimits {
                alpha_cells: 3 * BUFFER_CELLS,
                beta_cells: 6 * BUFFER_CELLS,
                gamma_cells: 4 * BUFFER_CELLS,
                delta_cells: 7 * BUFFER_CELLS,
                slow_start_cap_cells: 475,
            },
            scanner: QueueLimits {
                alpha_cells: 2 * BUFFER_CELLS - RECORD_CELLS,
                beta_cells: 2 * BUFFER_CELLS + RECORD_CELLS,
                gamma_cells: 2 * BUFFER_CELLS,
                delta_cells: 4 * BUFFER_CELLS,
                slow_start_cap_cells: 400,
            },
            exit_streams: XonXoffParams::default(),
            client_streams: XonXoffParams::default(),
        }
    }
}

impl CongestionParams {
    /// Reads the parameters of a consensus. `param` returns a parameter by name; missing ones keep their
    /// defaults, and values out of range are clamped, as in tor.
    #[must_use]
    pub fn from_consensus(param: impl Fn(&str) -> Option<i32>) -> Self {
        let look_up = |name: &str, default: u32, range: RangeInclusive<u32>| {
            param(name).map_or(default, |value| {
                u32::try_from(value).unwrap_or(0).clamp(*range.start(), *range.end())
            })
        };
        let byte = |name: &str, default: u8, range: RangeInclusive<u32>| {
            u8::try_from(look_up(name, u32::from(default), range)).unwrap_or(u8::MAX)
        };
        let short = |name: &str, default: u16, range: RangeInclusive<u32>| {
            u16::try_from(look_up(name, u32::from(default), range)).unwrap_or(u16::MAX)
        };
        let limits = |names: [&str; 5], default: QueueLimits| QueueLimits {
            alpha_cells: look_up(names[0], default.alpha_cells, 0..=1000),
            beta_cells: look_up(names[1], default.beta_cells, 0..=1000),
            gamma_cells: look_up(names[2], default.gamma_cells, 0..=1000),
            delta_cells: look_up(names[3], default.delta_cells, 0..=INT32_MAX),
            slow_start_cap_cells: look_up(names[4], default.slow_start_cap_cells, 100..=INT32_MAX),
        };
        let streams = |limit: &str, default: XonXoffParams| XonXoffParams {
            xoff_cells: short(limit, default.xoff_cells, 1..=10_000),
            xon_rate_cells: short("cc_xon_rate", default.xon_rate_cells, 1..=5000),
            change_percent: byte("cc_xon_change_pct", default.change_percent, 1..=99),
            average_count: byte("cc_xon_ewma_cnt", default.average_count, 2..=100),
        };
        let default = Self::default();
        Self {
            // Westwood and Nola were never implemented: tor uses Vegas instead.
            is_enabled: look_up("cc_alg", 2, 0..=3) != 0,
            sendme_cells: byte("cc_sendme_inc", default.sendme_cells, 1..=254),
            window_initial_cells: look_up(
                "cc_cwnd_init",
                default.window_initial_cells,
                RECORD_CELLS..=10_000,
            ),
            window_min_cells: look_up("cc_cwnd_min", default.window_min_cells, RECORD_CELLS..=1000),
            window_max_cells: look_up("cc_cwnd_max", default.window_max_cells, 500..=INT32_MAX),
            step_cells: look_up("cc_cwnd_inc", default.step_cells, 1..=1000),
            steps_per_window: look_up("cc_cwnd_inc_rate", default.steps_per_window, 1..=250),
            slow_start_percent: look_up("cc_cwnd_inc_pct_ss", default.slow_start_percent, 1..=500),
            slow_start_max_cells: look_up(
                "cc_ss_max",
                default.slow_start_max_cells,
                500..=INT32_MAX,
            ),
            average_percent: look_up("cc_ewma_cwnd_pct", default.average_percent, 1..=255),
            average_max: look_up("cc_ewma_max", default.average_max, 2..=INT32_MAX),
            average_slow_start: look_up("cc_ewma_ss", default.average_slow_start, 2..=INT32_MAX),
            rtt_reset_percent: look_up("cc_rtt_reset_pct", default.rtt_reset_percent, 0..=100),
            full_gap_sendmes: look_up("cc_cwnd_full_gap", default.full_gap_sendmes, 0..=32_767),
            full_min_percent: look_up("cc_cwnd_full_minpct", default.full_min_percent, 0..=100),
            is_full_per_window: look_up("cc_cwnd_full_per_cwnd", 1, 0..=1) == 1,
            exit: limits(
                [
                    "cc_vegas_alpha_exit",
                    "cc_vegas_beta_exit",
                    "cc_vegas_gamma_exit",
                    "cc_vegas_delta_exit",
                    "cc_sscap_exit",
                ],
                default.exit,
            ),
            onion: limits(
                [
                    "cc_vegas_alpha_onion",
                    "cc_vegas_beta_onion",
                    "cc_vegas_gamma_onion",
                    "cc_vegas_delta_onion",
                    "cc_sscap_onion",
                ],
                default.onion,
            ),
            scanner: limits(
                [
                    "cc_vegas_alpha_sbws",
                    "cc_vegas_beta_sbws",
                    "cc_vegas_gamma_sbws",
                    "cc_vegas_delta_sbws",
                    "cc_sscap_sbws",
                ],
                default.scanner,
            ),
            exit_streams: streams("cc_xoff_exit", default.exit_streams),
            client_streams: streams("cc_xoff_client", default.client_streams),
        }
    }

    /// The thresholds of a circuit.
    #[must_use]
    pub const fn limits(&self, path: PathKind) -> &QueueLimits {
        match path {
            PathKind::Exit => &self.exit,
            PathKind::Onion => &self.onion,
            PathKind::Scanner => &self.scanner,
        }
    }

    /// Whether a client may accept a relay's `sendme_inc`: it differs by at most one from the consensus.
    #[must_use]
    pub const fn accepts_sendme_cells(&self, offered: u8) -> bool {
        offered > 0 && offered.abs_diff(self.sendme_cells) <= 1
    }
}
