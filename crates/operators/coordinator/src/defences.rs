//! A relay's limits for a single address.

use core::num::NonZeroU32;
use onion::measure::load::Pace;
use serde::{Deserialize, Serialize};

/// Connections and circuits left to others who share our address.
pub const RESERVED_FOR_OTHERS: u32 = 4;

/// The limits of a relay that runs C tor for one address, by the consensus that it follows.
///
/// A relay's own configuration may override it; then set-up fails, with the relay's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
            // Half and three quarters of the limit; the rest is for others who share our address.
            connect: Pace {
                burst: (burst / 2).max(1),
                per_s: NonZeroU32::new(per_s - per_s / 4).unwrap_or(NonZeroU32::MIN),
            },
            max_client_circuits: is_on("DoSCircuitCreationEnabled").then_some(circuits),
        }
    }

    /// The maximum number of cells in flight on one circuit: a tenth below the relay's limit, which also counts cells
    /// that it originates.
    #[must_use]
    pub const fn window_cap_cells(&self) -> u32 {
        self.queue_limit_cells - self.queue_limit_cells / 10 - 1
    }

    /// The number of sockets that a team at one address may open to a relay, at most `wanted`.
    #[must_use]
    pub fn sockets(&self, wanted: u32) -> u32 {
        let allowed = self
            .max_connections
            .map_or(u32::MAX, |max| max.saturating_sub(RESERVED_FOR_OTHERS).max(1));
        wanted.min(allowed)
    }
}

impl Default for Defences {
    /// Without a consensus: C tor's defaults.
    fn default() -> Self {
        Self::from_consensus_params(|_| None)
    }
}
