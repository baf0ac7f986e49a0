/// Written and unsent bytes of links' sockets, and the sum of their delays there. Like
/// [`waited_cell_s`](onion::router::Core::waited_cell_s) it is an integral over time: nothing is stored per
/// cell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    bytes: u64,
    since: u64,
    byte_ns: u128,
}

impl Backlog {
    /// Bytes were written.
    pub(super) fn handle_written(&mut self, now: u64, bytes: u64) {
        self.pass(now);
        self.bytes += bytes;
    }

    /// Bytes were sent for the first time, or never will be.
    pub(super) fn handle_left(&mut self, now: u64, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "{bytes} left of {} that were there", self.bytes);
        self.pass(now);
        self.bytes -= bytes;
    }

    /// Bytes that were sent wait for so long in the device's queue.
    pub(super) fn handle_queued(&mut self, bytes: u64, wait_ns: u64) {
        self.byte_ns += u128::from(bytes) * u128::from(wait_ns);
    }

    fn pass(&mut self, now: u64) {
        self.byte_ns += u128::from(self.bytes) * u128::from(now - self.since);
        self.since = now;
    }

    /// The sum of delays until now, in cell-seconds.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(super) fn waited_cell_s(mut self, now: u64) -> f64 {
        self.pass(now);
        self.byte_ns as f64 * 1e-9 / 514.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_integrates_bytes_over_their_waiting_time() {
        let mut backlog = Backlog::default();
        backlog.handle_written(1_000_000_000, 514);
        backlog.handle_written(2_000_000_000, 2 * 514);
        backlog.handle_left(4_000_000_000, 514);
        backlog.handle_left(5_000_000_000, 514);
        // One from 1 to 4, another from 2 to 5, the last from 2 until now.
        let waited = backlog.waited_cell_s(7_000_000_000);
        assert!((waited - (3.0 + 3.0 + 5.0)).abs() < 1e-9, "{waited}");
    }
}
