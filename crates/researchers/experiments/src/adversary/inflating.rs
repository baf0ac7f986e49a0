//! Measurers that report more bytes than they received.

use authority::RemoteTeam;
use authority::shell::Team;
use coordinator::MeasurerId;
use coordinator::period::{Answer, MeasurerConfig};
use measurer::Member;
use measurer::member::{MemberError, MemberReport, Reports, RoundOrder};
use onion::measure::Second;
use onion::{Duration, Rate};
use std::sync::{Arc, Mutex, PoisonError};

/// What a measurer reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// A multiple of what it received.
    Times(u64),
    /// In each second, its whole allocation.
    All,
    /// Nothing at first. In the last seconds, just enough of them to determine the median, its allocation for the whole round.
    Saved,
}

/// Measurers that record their counts, and of which the first reports a claim instead.
pub(super) struct InflatingTeam<'n> {
    pub(super) honest: RemoteTeam,
    pub(super) claim: Claim,
    /// Of each measurer.
    pub(super) notes: &'n [Notes],
}

impl Team for InflatingTeam<'_> {
    fn configured(&self) -> Vec<MeasurerConfig> {
        self.honest.configured()
    }

    fn ask(&self, measurer: MeasurerId, sockets: u32) -> Result<Answer, String> {
        self.honest.ask(measurer, sockets)
    }

    fn member(&self, measurer: MeasurerId) -> Result<Option<Box<dyn Member>>, MemberError> {
        let honest = self.honest.member(measurer)?;
        let claim = if measurer.0 == 0 { self.claim } else { Claim::Times(1) };
        let notes = self.notes.get(measurer.0).cloned().unwrap_or_default();
        Ok(honest.map(|honest| Box::new(Inflating { honest, claim, notes }) as _))
    }
}

/// A measurer that reports a claim instead of its counts, and records the counts.
struct Inflating {
    honest: Box<dyn Member>,
    claim: Claim,
    notes: Notes,
}

/// The order of a measurer's last round, and its true counts. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Round>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// *aᵢ*.
    pub(super) allocated: Rate,
    /// What was received in each complete second.
    pub(super) received: Vec<Rate>,
}

impl Notes {
    /// The last round.
    pub(super) fn round(&self) -> Round {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn begin(&self, allocated: Rate) {
        let round = Round { allocated, received: Vec::new() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = round;
    }

    fn record(&self, received: Rate) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).received.push(received);
    }
}

impl Claim {
    /// The number of seconds that determine the median: just over half.
    const fn decisive(seconds: u32) -> u32 {
        seconds / 2 + 1
    }

    /// The reported bytes of a second in which `bytes` were received.
    fn bytes(self, order: &RoundOrder, second: u32, bytes: u64) -> u64 {
        let each = order.rate.as_byte_per_s();
        let decisive = Self::decisive(order.seconds);
        match self {
            Self::Times(factor) => bytes.saturating_mul(factor),
            Self::All => each,
            Self::Saved if second + decisive < order.seconds => 0,
            Self::Saved => each.saturating_mul(order.seconds.into()) / u64::from(decisive),
        }
    }
}

impl Member for Inflating {
    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError> {
        let (claim, notes) = (self.claim, self.notes.clone());
        notes.begin(order.rate);
        let inflated = Arc::new(move |report| {
            reports(match report {
                MemberReport::Second(second, account) => {
                    notes.record(Rate::from_byte_per_s(second.bytes));
                    let bytes = claim.bytes(&order, second.index, second.bytes);
                    MemberReport::Second(Second { bytes, ..second }, account)
                }
                other => other,
            });
        });
        self.honest.prepare(order, inflated)
    }

    fn start(&mut self, delay: Duration) {
        self.honest.start(delay);
    }

    fn stop(&mut self) {
        self.honest.stop();
    }
}
