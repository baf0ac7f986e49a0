//! A measurer as its coordinator sees it, wherever it runs.

use onion::Duration;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use coordinator::{FailureKind, MemberReport, RoundMode, RoundOrder, WorkerLoad};
pub use onion::measure::load::Target;
pub use onion::measure::protocol::{MeasurerKey, Nonce};

/// One measurer: a thread or several of this process, or a machine somewhere else.
///
/// A round goes `prepare`, [`MemberReport::Ready`], `start`, then a [`MemberReport::Second`] for each
/// second; a [`MemberReport::Failed`] ends it at any time. No command waits for the target or for the
/// network: what comes of it is reported.
pub trait Member: Send {
    /// Its public key.
    fn key(&self) -> MeasurerKey;

    /// Where the target sees it, as far as known; `None` for one of this very machine.
    ///
    /// Members at one address share what a relay lets one address do.
    fn address(&self) -> Option<IpAddr> {
        None
    }

    /// Does ahead of time what takes long and can be done before a round's clock runs, such as making
    /// keys. `order` is the round as it will most likely be. May take seconds, and ends early if
    /// `cancel` is set.
    ///
    /// # Errors
    /// [`MemberError`]: it cannot measure.
    fn anticipate(&mut self, order: &RoundOrder, cancel: &AtomicBool) -> Result<(), MemberError> {
        let (_, _) = (order, cancel);
        Ok(())
    }

    /// Opens sockets and circuits for a round and sends nothing yet; what follows comes as reports.
    /// Replaces an earlier round, of which no report comes any more once this has returned.
    ///
    /// # Errors
    /// [`MemberError`]: it cannot measure.
    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError>;

    /// Sends from `delay` from now on; ignored unless it has reported that it is ready. All members of a
    /// round begin together: one elsewhere takes the way of the command off the delay.
    fn start(&mut self, delay: Duration);

    /// Ends the round, if one is on: all connections get closed.
    fn stop(&mut self);
}

/// Where a round's reports go: cheap to clone, callable from any thread, quick to return. It must not
/// command the member that calls it.
pub type Reports = Arc<dyn Fn(MemberReport) + Send + Sync>;

/// A member that cannot measure: its machine, its configuration or the way to it is to blame, never
/// the target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemberError(pub String);

impl MemberError {
    /// What another error says.
    #[must_use]
    pub fn of(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}
