//! Conflux: one tunnel over several circuits that end at the same relay (proposal 329).
//!
//! [`Conflux`] is one end's account of such a set: which leg carries what is sent next, in which order comes what has
//! arrived, and what may become of the set when a leg goes. It is the same for client and exit. Cells, their layers and
//! windows are the owner's, who knows a leg as `L` and a message that waits as `M`.
//!
//! Messages of streams ([`is_multiplexed`](crate::cell::relay::RelayCommand::is_multiplexed)) are numbered from one, over
//! all legs. No number is on the wire: a leg counts its own, and SWITCH says how many others come before the next.

mod error;
mod leg_timeout;
mod order;
mod retransmit;
pub mod schedulers;

pub use error::ConfluxError;
pub use leg_timeout::LEG_TIMEOUT;
use leg_timeout::Look;
pub use order::Order;
use retransmit::Kept;
pub use schedulers::{LegScheduler, LegState};

use crate::cell::msg::{ConfluxLink, ConfluxNonce, DesiredUx};
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Legs of one set, at most: C tor's default for `cfx_max_legs_set`.
pub const LEGS_MAX: usize = 8;

/// What one end knows of one leg.
#[derive(Debug)]
struct Sequence<L, M> {
    leg: L,
    /// What both ends call it, if they send again.
    number: u8,
    /// The number of the last message that was sent on it, those that it skipped counted.
    sent: u64,
    /// The same of what has come.
    received: u64,
    /// Messages that it has carried itself, both ways.
    sent_here: u64,
    received_here: u64,
    /// Of those that have come: that no SENDME acknowledges, since the other end was told of any.
    untold: u32,
    /// The last that came was a SWITCH.
    is_switched: bool,
    /// Its round trip by the handshake.
    rtt: Option<Duration>,
    /// When our part of the handshake was sent.
    asked_at: Instant,
    /// What was sent on it and is not acknowledged, if it can be sent again.
    kept: Kept<M>,
    /// How much of that was acknowledged when one looked.
    look: Look,
}

/// Cells that a leg has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegFigures {
    /// Messages of streams that were sent on it.
    pub sent: u64,
    /// Messages of streams that have come on it.
    pub received: u64,
}

/// What a leg that goes leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Nothing is lost, or all of it will be sent again: the other legs go on.
    Spare,
    /// Something was under way on it, or may have been: the set is broken. Nobody sends it again (proposal 329 §2.4.3).
    Broken,
}

/// One end of a set of linked circuits.
#[derive(Debug)]
pub struct Conflux<L, M> {
    nonce: ConfluxNonce,
    legs: Vec<Sequence<L, M>>,
    /// The number of the last message that was sent, on whatever leg.
    sent: u64,
    /// Both ends keep what is not acknowledged, and send it again if its leg is lost.
    resumes: bool,
    /// Of legs that are lost: what is to be sent again, by number.
    lost: BTreeMap<u64, M>,
    /// Messages that are kept or lost.
    again_len: usize,
    scheduler: &'static dyn LegScheduler,
    /// The leg that was sent on last.
    current: Option<L>,
    /// Messages that have come in order.
    delivered: u64,
    /// What has come before its turn.
    early: BTreeMap<u64, M>,
    /// Of those, at most.
    early_max: usize,
    /// Most that there were at once.
    early_peak: usize,
    /// With so many of them, the leg that they wait for is given up.
    overdue_at: usize,
    /// How much had come in order when one looked.
    look: Look,
    looked_at: Option<Instant>,
    /// Legs that are gone by what the client knows, as both ends call them.
    gone: BTreeSet<u8>,
}

impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// A set without legs. No more than `early_max` messages may wait for others that come before them.
    #[must_use]
    pub fn new(
        nonce: ConfluxNonce,
        scheduler: &'static dyn LegScheduler,
        early_max: usize,
    ) -> Self {
        Self {
            nonce,
            legs: Vec::new(),
            sent: 0,
            resumes: false,
            lost: BTreeMap::new(),
            again_len: 0,
            scheduler,
            current: None,
            delivered: 0,
            early: BTreeMap::new(),
            early_max,
            early_peak: 0,
            overdue_at: order::overdue_at(0, early_max),
            look: Look::default(),
            looked_at: None,
            gone: BTreeSet::new(),
        }
    }

    /// What its legs have in common.
    #[must_use]
    pub const fn nonce(&self) -> &ConfluxNonce {
        &self.nonce
    }

    /// Its legs, in the order in which they were added.
    pub fn legs(&self) -> impl Iterator<Item = L> {
        self.legs.iter().map(|it| it.leg)
    }

    /// How many there are.
    #[must_use]
    pub const fn leg_count(&self) -> usize {
        self.legs.len()
    }

    /// What a leg has carried.
    #[must_use]
    pub fn figures(&self, leg: L) -> Option<LegFigures> {
        self.find(leg).map(|it| LegFigures { sent: it.sent_here, received: it.received_here })
    }

    /// A leg's round trip by the handshake.
    #[must_use]
    pub fn first_rtt(&self, leg: L) -> Option<Duration> {
        self.find(leg)?.rtt
    }

    /// Messages that wait for others that come before them.
    #[must_use]
    pub fn early_len(&self) -> usize {
        self.early.len()
    }

    /// Most of them that there were at once.
    #[must_use]
    pub const fn early_peak(&self) -> usize {
        self.early_peak
    }

    /// Messages that have come in order.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Messages that were sent, on whatever leg.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// What our LINK or LINKED says.
    #[must_use]
    pub fn link(&self, desired: DesiredUx) -> ConfluxLink {
        let (last_sent, last_received, resumes) = (self.sent, self.delivered, self.resumes);
        ConfluxLink { nonce: self.nonce, last_sent, last_received, desired, resumes, leg: 0 }
    }

    fn find(&self, leg: L) -> Option<&Sequence<L, M>> {
        self.legs.iter().find(|it| it.leg == leg)
    }

    fn find_mut(&mut self, leg: L) -> Option<&mut Sequence<L, M>> {
        self.legs.iter_mut().find(|it| it.leg == leg)
    }

    /// A leg joins, by what both ends say in their LINK and LINKED. Ours was sent at `asked_at`.
    ///
    /// C tor takes each end's word for what that end has sent and received, as it stands in LINK and LINKED: it counts what
    /// comes on the leg from what we have said that we had sent, and what it sends from what we have said that had come. So we
    /// count from our own words, too, although a LINK is old by the time it comes: C tor writes it before the circuit is built,
    /// and the set may have carried much meanwhile. Ends that send lost messages again count from what has come.
    ///
    /// # Errors
    /// Where there are too many legs, where the other end has sent what has not come, and where it says that it got what
    /// was never sent.
    pub fn add_leg(
        &mut self,
        leg: L,
        ours: &ConfluxLink,
        theirs: &ConfluxLink,
        asked_at: Instant,
    ) -> Result<(), ConfluxError> {
        if self.legs.len() >= LEGS_MAX {
            return Err(ConfluxError::TooManyLegs);
        }
        let is_known = theirs.resumes && self.has_had(theirs.leg);
        if theirs.nonce != self.nonce || self.find(leg).is_some() || is_known {
            return Err(ConfluxError::Handshake);
        }
        // What is missing is on its way on another leg, or will be sent again.
        let is_lost = theirs.last_sent > self.delivered && !self.resumes;
        if is_lost || theirs.last_received > self.sent {
            return Err(ConfluxError::Desynchronised);
        }
        self.legs.push(Sequence {
            leg,
            number: theirs.leg,
            sent: if self.resumes { theirs.last_received } else { ours.last_sent },
            received: ours.last_received,
            sent_here: 0,
            received_here: 0,
            untold: 0,
            is_switched: false,
            rtt: None,
            asked_at,
            kept: Kept::default(),
            look: Look::default(),
        });
        Ok(())
    }

    /// The other end has answered our part of the handshake: the first round trip is known.
    ///
    /// # Errors
    /// Where it is known already, or the leg is none.
    pub fn handle_answered(&mut self, now: Instant, leg: L) -> Result<(), ConfluxError> {
        let it = self.find_mut(leg).filter(|it| it.rtt.is_none()).ok_or(ConfluxError::Handshake)?;
        it.rtt = Some(now - it.asked_at);
        Ok(())
    }

    /// A leg is gone. Its window says how many cells are under way; `is_idle` that no stream is open.
    ///
    /// C tor's rule is kept, and drawn tighter: up to a SENDME's worth of cells is under way unnoticed there, and a stream
    /// whose cells were among them would wait for ever. Here a leg is spare only if all that it has carried is known to have
    /// arrived, or nobody can miss any of it.
    pub fn remove_leg(&mut self, leg: L, in_flight_cells: u32, is_idle: bool) -> Removed {
        let Some(place) = self.legs.iter().position(|it| it.leg == leg) else {
            return Removed::Spare;
        };
        let it = self.legs.remove(place);
        if self.resumes {
            return self.lose(it);
        }
        let was_current = self.current == Some(leg);
        if was_current {
            self.current = None;
        }
        let has_carried = it.sent_here + it.received_here > 0;
        let others_sent = self.legs.iter().map(|it| it.sent).max().unwrap_or(0);
        let was_ahead = others_sent < it.sent || self.received() < it.received;
        let is_missed = in_flight_cells > 0 || was_current || was_ahead || !self.early.is_empty();
        if has_carried && (is_missed || !is_idle) { Removed::Broken } else { Removed::Spare }
    }

    fn received(&self) -> u64 {
        self.legs.iter().map(|it| it.received).max().unwrap_or(0)
    }
}

/// What is sent.
impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// What the scheduler has to know of the legs, by what their owner knows of them.
    fn with_states<T>(
        &self,
        state: impl Fn(L) -> LegState,
        look: impl FnOnce(&[LegState]) -> T,
    ) -> T {
        let mut states = [LegState::default(); LEGS_MAX];
        for (it, place) in self.legs.iter().zip(&mut states) {
            *place = state(it.leg);
            if place.rtt.is_none() {
                place.rtt = it.rtt;
                place.last_rtt = it.rtt;
            }
        }
        look(&states[..self.legs.len().min(LEGS_MAX)])
    }

    /// The leg that the next cell of data goes on; none if it is to wait.
    pub fn choose(&self, state: impl Fn(L) -> LegState) -> Option<L> {
        let place = self.with_states(state, |states| self.scheduler.choose(states))?;
        self.legs.get(place).map(|it| it.leg)
    }

    /// The leg that a message other than of data goes on: no window holds it back. If the scheduler has none, the one that
    /// was sent on last, so that nothing waits for it.
    pub fn choose_for_message(&self, state: impl Fn(L) -> LegState) -> Option<L> {
        let first = || {
            let of = |it: &&Sequence<L, M>| it.rtt.unwrap_or(Duration::MAX);
            self.legs.iter().min_by_key(of).map(|it| it.leg)
        };
        self.choose(state).or(self.current).or_else(first)
    }

    /// A message goes on this leg next. What its SWITCH must say, if one must come before it.
    pub fn handle_chosen(&mut self, leg: L) -> Option<u32> {
        self.current = Some(leg);
        let sent = self.sent;
        let it = self.find_mut(leg)?;
        // Beyond 32 bits the set would have to switch to and fro: two terabytes on one leg, without a break.
        let skipped = u32::try_from(sent.saturating_sub(it.sent)).unwrap_or(u32::MAX);
        it.sent += u64::from(skipped);
        (skipped > 0).then_some(skipped)
    }

    /// It was sent.
    pub fn handle_sent(&mut self, leg: L) {
        if let Some(it) = self.legs.iter_mut().find(|it| it.leg == leg) {
            it.sent += 1;
            it.sent_here += 1;
            self.sent = self.sent.max(it.sent);
        }
    }
}

#[cfg(test)]
mod tests;
