//! Measurers that claim more than came back to them.

use measurer::Member;
use measurer::member::{MeasurerKey, MemberError, MemberReport, Reports, RoundOrder};
use onion::measure::Second;
use onion::{Duration, Rate};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// What a measurer says that it got back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// So many times as much as it did.
    Times(u64),
    /// In each second all that it may have sent.
    All,
    /// Nothing at first, and in the last seconds, which are just enough to have the median among them, all
    /// that it may have sent in the whole round.
    Saved,
}

/// A measurer that says something else than it knows. What it knows is noted.
pub(super) struct Inflating<M> {
    pub(super) honest: M,
    pub(super) claim: Claim,
    pub(super) notes: Notes,
}

/// What a measurer was ordered in its last round, and what really came back to it: shared by all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Round>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// *aᵢ*.
    pub(super) allocated: Rate,
    /// What came back in each second, as reported so far.
    pub(super) came_back: Vec<Rate>,
}

impl Notes {
    /// The last round.
    pub(super) fn round(&self) -> Round {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn begin(&self, allocated: Rate) {
        let round = Round { allocated, came_back: Vec::new() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = round;
    }

    fn note(&self, came_back: Rate) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).came_back.push(came_back);
    }
}

impl Claim {
    /// The last of `seconds` whose sum decides the median: just over half.
    const fn decisive(seconds: u32) -> u32 {
        seconds / 2 + 1
    }

    /// What is said of a second in which `bytes` came back.
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

impl<M: Member> Member for Inflating<M> {
    fn key(&self) -> MeasurerKey {
        self.honest.key()
    }

    fn address(&self) -> Option<IpAddr> {
        self.honest.address()
    }

    fn anticipate(&mut self, order: &RoundOrder, cancel: &AtomicBool) -> Result<(), MemberError> {
        self.honest.anticipate(order, cancel)
    }

    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError> {
        let (claim, notes) = (self.claim, self.notes.clone());
        notes.begin(order.rate);
        let inflated = Arc::new(move |report| {
            reports(match report {
                MemberReport::Second(second, account) => {
                    notes.note(Rate::from_byte_per_s(second.bytes));
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
