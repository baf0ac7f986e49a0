/// The schedule before a period: the rounds of commitments, the same number of rounds of reveals, then one silent
/// round.
///
/// All authorities use wall-clock time, so their clocks must agree to within a round, less the latency of a message. A
/// few seconds of difference are acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timetable {
    begin_unix_s: u64,
    round_s: u64,
    rounds: u32,
}

impl Timetable {
    /// For the period that begins at this time, with this number of rounds in each phase
    /// ([`Group::rounds`](super::Group::rounds)).
    #[must_use]
    pub const fn new(begin_unix_s: u64, round_s: u64, rounds: u32) -> Self {
        Self { begin_unix_s, round_s: if round_s == 0 { 1 } else { round_s }, rounds }
    }

    /// The start of the period.
    #[must_use]
    pub const fn begin_unix_s(&self) -> u64 {
        self.begin_unix_s
    }

    /// The duration of the agreement before the period, in seconds.
    #[must_use]
    pub const fn lead_s(&self) -> u64 {
        (2 * self.rounds as u64 + 1).saturating_mul(self.round_s)
    }

    /// The start of the agreement.
    #[must_use]
    pub const fn start_unix_s(&self) -> u64 {
        self.begin_unix_s.saturating_sub(self.lead_s())
    }

    /// The current round, counted from zero over both phases; `None` before the first. From twice `rounds` on the
    /// agreement is over.
    #[must_use]
    pub fn step(&self, now_unix_s: u64) -> Option<u32> {
        let passed_s = now_unix_s.checked_sub(self.start_unix_s())?;
        Some(u32::try_from(passed_s / self.round_s).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exchange_ends_one_round_before_the_period() {
        let table = Timetable::new(1000, 10, 2);
        assert_eq!((table.lead_s(), table.start_unix_s()), (50, 950));
        let steps = [949, 950, 959, 960, 989, 990, 1000].map(|now| table.step(now));
        assert_eq!(steps, [None, Some(0), Some(0), Some(1), Some(3), Some(4), Some(5)]);
    }
}
