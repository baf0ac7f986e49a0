//! The current state of a measurer, and its totals.

use super::InForce;
use super::resources::Resources;
use crate::RefusalCode;
use onion::Rate;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The current state of a measurer's daemon, and its totals since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasurerStatus {
    /// Its send and receive rate.
    pub capacity: Rate,
    /// The part of it that is reserved for rounds.
    pub reserved: Rate,
    /// Open sessions with coordinators.
    pub sessions: usize,
    /// Rounds that are being prepared or run.
    pub rounds: usize,
    /// The number of sockets to relays that these may open.
    pub sockets: u32,
    /// The number of sockets for which it has file descriptors.
    pub sockets_max: u32,
    /// Relays on its opt-in list.
    pub opted_in: usize,
    /// Sums since its start.
    pub totals: MeasurerTotals,
}

/// Sums since the start of a measurer's daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasurerTotals {
    /// Started rounds.
    pub rounds: u64,
    /// Failed rounds.
    pub failed_rounds: u64,
    /// Bytes of cells that came back from relays.
    pub measured_bytes: u64,
    /// Refused orders, by reason.
    pub refused_orders: BTreeMap<RefusalCode, u64>,
}

/// Reads a daemon's status, for as long as the daemon runs and after.
#[derive(Clone)]
pub struct StatusReader {
    pub(super) resources: Arc<Resources>,
    pub(super) in_force: watch::Receiver<Arc<InForce>>,
}

impl StatusReader {
    /// The status now.
    #[must_use]
    pub fn read(&self) -> MeasurerStatus {
        MeasurerStatus {
            opted_in: self.in_force.borrow().rules.consent.listed(),
            ..self.resources.status()
        }
    }
}
