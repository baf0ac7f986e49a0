//! Limits open connections: a new connection replaces the slowest.

use super::body::Progress;
use onion::router::DIRECTORY_STREAMS_MAX;
use tokio::task::AbortHandle;

/// Maximum number of connections. The router opens at most half of them and chooses among clients itself, so clients behind it never
/// displace each other here. The other half is for connections that the router has closed but the server has not yet seen close, and
/// for programs on this machine.
pub(super) const CONNECTIONS_MAX: usize = 2 * DIRECTORY_STREAMS_MAX;

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    /// Some may have ended.
    all: Vec<(AbortHandle, Progress)>,
}

impl Connections {
    /// No connections, and at most `max` at a time.
    pub(super) const fn new(max: usize) -> Self {
        Self { max, all: Vec::new() }
    }

    /// Serves another connection. If there are too many, ends the one that has been without progress for longest.
    pub(super) fn add(
        &mut self,
        progress: Progress,
        serve: impl Future<Output = ()> + Send + 'static,
    ) {
        if self.all.len() >= self.max {
            self.all.retain(|(task, _)| !task.is_finished());
        }
        if self.all.len() >= self.max {
            let slowest =
                self.all.iter().enumerate().min_by_key(|(_, (_, progress))| progress.last());
            if let Some((place, _)) = slowest {
                self.all.swap_remove(place).0.abort();
            }
        }
        self.all.push((tokio::spawn(serve).abort_handle(), progress));
    }
}
