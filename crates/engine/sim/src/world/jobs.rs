//! The data that an end of a stream sends, and when.

use super::markov::Bursts;

/// The data of one end.
#[derive(Clone, Debug, Default)]
pub(super) struct Sending {
    bursts: Bursts,
    place: usize,
    next_at: Option<u64>,
}

impl Sending {
    pub(super) const fn new(bursts: Bursts) -> Self {
        Self { bursts, place: 0, next_at: None }
    }

    pub(super) fn at_once(bytes: u64) -> Self {
        Self::new(Bursts::one(bytes))
    }

    /// Starts the clock of its pauses.
    pub(super) fn begin(&mut self, now: u64) {
        self.next_at = self.bursts.get(0).map(|(delay_ns, _)| now + delay_ns);
    }

    /// When the next data is due; `None` when everything is sent.
    pub(super) const fn next_at(&self) -> Option<u64> {
        self.next_at
    }

    /// Bytes that are due now.
    pub(super) fn due(&mut self, now: u64) -> u64 {
        let mut bytes = 0;
        while let Some(at) = self.next_at.filter(|at| *at <= now) {
            bytes += self.bursts.get(self.place).map_or(0, |(_, bytes)| bytes);
            self.place += 1;
            self.next_at = self.bursts.get(self.place).map(|(delay_ns, _)| at + delay_ns);
        }
        bytes
    }
}
