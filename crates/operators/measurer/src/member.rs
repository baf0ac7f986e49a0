//! The coordinator's view of a measurer, local or remote.

use onion::Duration;
use std::sync::Arc;

pub use coordinator::{FailureKind, MemberReport, RoundMode, RoundOrder, WorkerLoad};
pub use onion::measure::load::Target;
pub use onion::measure::protocol::{MeasurerKey, Nonce};

/// One measurer: one or more threads of this process, or a remote machine.
///
/// A round is `prepare`, [`MemberReport::Ready`], `start`, then a [`MemberReport::Second`] for each second; a
/// [`MemberReport::Failed`] ends it at any time. No command blocks on the target or the network: results arrive as
/// reports.
pub trait Member: Send {
    /// Opens sockets and circuits for a round without sending yet; results arrive as reports. Replaces an earlier
    /// round, which sends no more reports after this call returns.
    ///
    /// # Errors
    /// [`MemberError`]: it cannot measure.
    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError>;

    /// Starts to send after `delay`; ignored unless it has reported that it is ready. All members of a round start
    /// together: a remote one deducts the latency of the command from the delay.
    fn start(&mut self, delay: Duration);

    /// Ends the current round, if any: all connections are closed.
    fn stop(&mut self);
}

/// The receiver of a round's reports: cheap to clone, callable from any thread, quick to return. It must not call the
/// member that calls it.
pub type Reports = Arc<dyn Fn(MemberReport) + Send + Sync>;

/// A member that cannot measure. Its machine, its configuration or the path to it is to blame, never the target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemberError(pub String);

impl MemberError {
    /// The text of another error.
    #[must_use]
    pub fn from_error(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}
