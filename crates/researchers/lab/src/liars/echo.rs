use super::{LIES_MAX, chance};
use onion::Rate;
use onion::cell::BODY_LEN;
use onion::crypto::Keystream;
use onion::measure::protocol::ClientSecond;
use onion::router::Behavior;
use rand::Rng;
use std::num::NonZeroU64;

/// How a relay that takes part in its measurement cheats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EchoLie {
    /// Answers this share of the cells with random bytes, hoping that others are checked.
    Forges {
        /// The probability of forging each cell, from 0 to 1.
        share: f64,
    },
    /// Returns cells without decrypting them.
    SkipsDecryption,
    /// Answers every n-th cell with the answer to the previous one.
    Replays(NonZeroU64),
    /// Fabricates this number of answers on each circuit before it has received a cell, to hide a slow
    /// download.
    AnswersAhead(u32),
    /// Leaves every n-th cell unanswered.
    Drops(NonZeroU64),
    /// Sends clients nothing while it is measured, and reports a hundred times the measured traffic as theirs:
    /// the maximum gain by reports.
    ShedsClients,
    /// Reports the largest possible numbers, and is honest otherwise.
    OverReports,
    /// Does not limit its clients to their share.
    IgnoresShare,
    /// Sends faster than usual while it is measured.
    OnlyFastWhileMeasured {
        /// The rate.
        rate: Rate,
    },
    /// Stops answering after this number of cells, and keeps its links open.
    Stalls(u64),
    /// Reports each second as the next one.
    MiscountsSeconds,
    /// Sends this number of PADDING cells with each answer. They fill its measurers' download capacity, so that
    /// other relays appear slower.
    Floods(u32),
}

const fn every(n: u64) -> NonZeroU64 {
    match NonZeroU64::new(n) {
        Some(n) => n,
        None => NonZeroU64::MIN,
    }
}

impl EchoLie {
    /// Each lie once, in the order of the experiment.
    pub const ALL: [Self; 12] = [
        Self::Forges { share: 0.1 },
        Self::SkipsDecryption,
        Self::Replays(every(10)),
        Self::AnswersAhead(1000),
        Self::Drops(every(50)),
        Self::ShedsClients,
        Self::OverReports,
        Self::IgnoresShare,
        Self::OnlyFastWhileMeasured { rate: Rate::from_bit_per_s(200_000_000) },
        Self::Stalls(1000),
        Self::MiscountsSeconds,
        Self::Floods(1),
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Forges { .. } => "forges",
            Self::SkipsDecryption => "skips-decryption",
            Self::Replays(_) => "replays",
            Self::AnswersAhead(_) => "answers-ahead",
            Self::Drops(_) => "drops",
            Self::ShedsClients => "sheds-clients",
            Self::OverReports => "over-reports",
            Self::IgnoresShare => "ignores-share",
            Self::OnlyFastWhileMeasured { .. } => "only-fast-while-measured",
            Self::Stalls(_) => "stalls",
            Self::MiscountsSeconds => "miscounts-seconds",
            Self::Floods(_) => "floods",
        }
    }

    /// Its description and its gain, in one sentence.
    #[must_use]
    pub const fn description(&self) -> &'static str {
        match self {
            Self::Forges { .. } => {
                "answers some cells with random bytes: detected by the first of them that is checked"
            }
            Self::SkipsDecryption => {
                "returns cells without decrypting them: detected by the first check"
            }
            Self::Replays(_) => {
                "repeats earlier answers: detected by the first of them that is checked"
            }
            Self::AnswersAhead(_) => {
                "answers cells before it has received them: detected, since more return than were sent"
            }
            Self::Drops(_) => {
                "leaves cells unanswered: detected, since all later answers are out of place"
            }
            Self::ShedsClients => {
                "starves its clients and reports the maximum as theirs: gains at most 1/(1-r), a third"
            }
            Self::OverReports => {
                "reports absurd client traffic: gains at most 1/(1-r), a third, less what clients had"
            }
            Self::IgnoresShare => {
                "does not limit its clients: their traffic beyond their share does not count, and it loses"
            }
            Self::OnlyFastWhileMeasured { .. } => {
                "has capacity only while it is measured: credited, since nothing distinguishes it from others; it \
                 pays for that capacity at times it cannot choose"
            }
            Self::Stalls(_) => "stops answering: has no result",
            Self::MiscountsSeconds => "reports seconds out of their order: has no result",
            Self::Floods(_) => {
                "sends its measurers unsolicited cells: detected when they are more than padding explains"
            }
        }
    }

    /// The lie of [`ALL`](Self::ALL) with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lie| lie.name() == name)
    }
}

/// A router's behavior in its own measurement: a lie, or none.
#[derive(Clone, Debug, Default)]
pub struct EchoLiar {
    lie: Option<EchoLie>,
    answered_cells: u64,
    received_cells: u64,
    last: Option<[u8; BODY_LEN]>,
    lies: Vec<u64>,
}

impl EchoLiar {
    /// Behaves according to this lie; honestly if there is none.
    #[must_use]
    pub fn new(lie: Option<EchoLie>) -> Self {
        Self { lie, ..Self::default() }
    }

    /// The indices of the answers that were lies, over all circuits: the first few thousand.
    #[must_use]
    pub fn lies(&self) -> &[u64] {
        &self.lies
    }

    fn note(&mut self) {
        if self.lies.len() < LIES_MAX {
            self.lies.push(self.answered_cells);
        }
    }
}

impl Behavior for EchoLiar {
    fn answer(&mut self, rng: &mut impl Rng, keystream: &mut Keystream, cell: &mut [u8; BODY_LEN]) {
        let received = *cell;
        keystream.apply(cell);
        let honest = *cell;
        match self.lie {
            Some(EchoLie::Forges { share }) if chance(rng) < share => {
                rng.fill_bytes(cell);
                self.note();
            }
            Some(EchoLie::SkipsDecryption) => {
                *cell = received;
                self.note();
            }
            Some(EchoLie::Replays(n)) if (self.answered_cells + 1).is_multiple_of(n.get()) => {
                *cell = self.last.unwrap_or(honest);
                self.note();
            }
            _ => {}
        }
        self.last = Some(honest);
        self.answered_cells += 1;
    }

    fn drops_answer(&mut self) -> bool {
        self.received_cells += 1;
        match self.lie {
            Some(EchoLie::Stalls(after)) => self.received_cells > after,
            Some(EchoLie::Drops(n)) => self.received_cells.is_multiple_of(n.get()),
            _ => false,
        }
    }

    fn fabricated_answers(&self) -> u32 {
        if let Some(EchoLie::AnswersAhead(cells)) = self.lie { cells } else { 0 }
    }

    fn unsolicited_cells(&mut self) -> u32 {
        if let Some(EchoLie::Floods(cells)) = self.lie { cells } else { 0 }
    }

    fn report(&mut self, honest: ClientSecond, measured_bytes: u64) -> ClientSecond {
        match self.lie {
            Some(EchoLie::ShedsClients) => {
                let claimed = measured_bytes.saturating_mul(100);
                ClientSecond { received_bytes: claimed, sent_bytes: claimed, ..honest }
            }
            Some(EchoLie::OverReports) => {
                ClientSecond { received_bytes: u64::MAX, sent_bytes: u64::MAX, ..honest }
            }
            Some(EchoLie::MiscountsSeconds) => {
                ClientSecond { second: honest.second.saturating_add(1), ..honest }
            }
            _ => honest,
        }
    }

    fn clients_may_send(&self, allowed_bytes: u64) -> u64 {
        match self.lie {
            // There is no limit while nothing is measured.
            Some(EchoLie::ShedsClients) if allowed_bytes < u64::MAX => 0,
            Some(EchoLie::IgnoresShare) => u64::MAX,
            _ => allowed_bytes,
        }
    }

    fn rate_while_measured(&self) -> Option<Rate> {
        match self.lie {
            Some(EchoLie::OnlyFastWhileMeasured { rate }) => Some(rate),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_lie_has_a_unique_name_and_a_description_with_its_result() {
        let names: BTreeSet<&str> = EchoLie::ALL.iter().map(EchoLie::name).collect();
        assert_eq!(names.len(), EchoLie::ALL.len());
        for lie in EchoLie::ALL {
            assert_eq!(EchoLie::by_name(lie.name()), Some(lie));
            assert!(lie.description().contains(": "), "{}", lie.description());
        }
        assert_eq!(EchoLie::by_name("honest"), None);
    }
}
