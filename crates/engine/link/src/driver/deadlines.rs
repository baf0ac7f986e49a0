use onion::Instant;
use std::collections::BTreeSet;

/// Deadlines of sockets that are being opened or closed.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, usize)>);

impl Deadlines {
    pub(super) fn insert(&mut self, at: Instant, place: usize) {
        self.0.insert((at, place));
    }

    pub(super) fn remove(&mut self, at: Instant, place: usize) {
        self.0.remove(&(at, place));
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// A socket whose deadline has passed at `now`. It stays until it is removed.
    pub(super) fn due(&self, now: Instant) -> Option<usize> {
        self.0.first().filter(|(at, _)| *at <= now).map(|(_, place)| *place)
    }
}
