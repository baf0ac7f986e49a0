//! Conflux: one tunnel over several circuits that end at the same relay (proposal 329).
//!
//! [`Conflux`] is one end's state of a set: which leg carries the next message, the order of received messages,
//! and the consequences of losing a leg. It is the same for client and exit. Cells, layers and windows belong
//! to the owner, who names a leg by `L` and a buffered message by `M`.
//!
//! Multiplexed messages ([`is_multiplexed`](crate::cell::relay::RelayCommand::is_multiplexed)) are numbered
//! from one over all legs. The numbers are not transmitted: a leg counts its own messages, and SWITCH states
//! how many others precede the next one.
//!
//! A [scheduler](schedulers::LegScheduler) is a pure function of the legs' state. Exits choose a leg once per
//! read from a destination, up to a SENDME's worth of data; clients choose for each cell. Every violation
//! closes the set: nothing is delivered twice or out of order. If a leg is lost while a message on it may be
//! missing, the set is closed as in C tor; C tor can overlook up to 30 cells, and a stream that waits for them
//! hangs. Between ends that retransmit (`retransmit`), the set survives.

mod error;
mod leg_timeout;
mod order;
mod retransmit;
pub mod schedulers;

pub use error::ConfluxError;
pub use leg_timeout::LEG_TIMEOUT;
use leg_timeout::Look;
pub use order::Order;
use retransmit::RetransmitBuffer;
pub use schedulers::{LegScheduler, LegState};

use crate::cell::msg::{ConfluxLink, ConfluxNonce, DesiredUx};
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Maximum number of legs of a set: C tor's default of `cfx_max_legs_set`.
pub const LEGS_MAX: usize = 8;

/// One end's state of a leg.
#[derive(Debug)]
struct Sequence<L, M> {
    leg: L,
    /// The leg's number for both ends, with retransmission.
    number: u8,
    /// The number of the leg with which the relay's state of the set began, as LINKED stated it.
    first_leg: u8,
    /// The number of the last message sent on it, including skipped ones.
    sent: u64,
    /// The number of the last message received on it, including skipped ones.
    received: u64,
    /// The messages that it has carried itself in each direction.
    sent_here: u64,
    received_here: u64,
    /// Received messages that no SENDME acknowledges, since the last report to the other end.
    unreported: u32,
    /// Whether the last message was a SWITCH.
    is_switched: bool,
    /// Its round-trip time, measured by the handshake.
    rtt: Option<Duration>,
    /// When this end's part of the handshake was sent.
    asked_at: Instant,
    /// Sent messages that are not acknowledged, with retransmission.
    kept: RetransmitBuffer<M>,
    /// The number of acknowledgements at the last check.
    look: Look,
}

/// The traffic of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegFigures {
    /// Stream messages sent on it.
    pub sent: u64,
    /// Stream messages received on it.
    pub received: u64,
}

/// The consequence of losing a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Nothing is lost, or everything will be retransmitted: the other legs continue.
    Spare,
    /// Messages were in flight, or may have been: the set is broken, since they are not retransmitted (proposal
    /// 329 §2.4.3).
    Broken,
}

/// One end of a Conflux set.
#[derive(Debug)]
pub struct Conflux<L, M> {
    nonce: ConfluxNonce,
    legs: Vec<Sequence<L, M>>,
    /// The number of the leg with which the relay's state of the set began.
    first_leg: Option<u8>,
    /// The number of the last message sent, on any leg.
    sent: u64,
    /// Whether both ends keep unacknowledged messages and retransmit those of lost legs.
    resumes: bool,
    /// Messages of lost legs that are to be retransmitted, by number.
    lost: BTreeMap<u64, M>,
    /// Messages that are kept or lost.
    again_len: usize,
    scheduler: &'static dyn LegScheduler,
    /// The leg on which the last message was sent.
    current: Option<L>,
    /// Messages received in order.
    delivered: u64,
    /// Messages received out of order.
    early: BTreeMap<u64, M>,
    /// Their maximum number.
    early_max: usize,
    /// The largest number so far.
    early_peak: usize,
    /// At this number, the leg that they wait for is given up.
    overdue_at: usize,
    /// The number of messages received in order at the last check.
    look: Look,
    looked_at: Option<Instant>,
    /// Lost legs that the client has reported, by their numbers.
    lost_legs: BTreeSet<u8>,
}

impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// A set without legs and with a reordering buffer of at most `early_max` messages.
    #[must_use]
    pub fn new(
        nonce: ConfluxNonce,
        scheduler: &'static dyn LegScheduler,
        early_max: usize,
    ) -> Self {
        Self {
            nonce,
            legs: Vec::new(),
            first_leg: None,
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
            lost_legs: BTreeSet::new(),
        }
    }

    /// The nonce that its legs share.
    #[must_use]
    pub const fn nonce(&self) -> &ConfluxNonce {
        &self.nonce
    }

    /// The legs, in the order in which they were added.
    pub fn legs(&self) -> impl Iterator<Item = L> {
        self.legs.iter().map(|leg| leg.leg)
    }

    /// The number of legs.
    #[must_use]
    pub const fn leg_count(&self) -> usize {
        self.legs.len()
    }

    /// The traffic of a leg.
    #[must_use]
    pub fn figures(&self, leg: L) -> Option<LegFigures> {
        self.find(leg).map(|sequence| LegFigures {
            sent: sequence.sent_here,
            received: sequence.received_here,
        })
    }

    /// A leg's round-trip time, measured by the handshake.
    #[must_use]
    pub fn first_rtt(&self, leg: L) -> Option<Duration> {
        self.find(leg)?.rtt
    }

    /// Messages in the reordering buffer.
    #[must_use]
    pub fn early_len(&self) -> usize {
        self.early.len()
    }

    /// The largest number of messages that were in the reordering buffer.
    #[must_use]
    pub const fn early_peak(&self) -> usize {
        self.early_peak
    }

    /// Messages received in order.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Messages sent on all legs.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// The content of this end's LINK or LINKED.
    #[must_use]
    pub fn link(&self, desired: DesiredUx) -> ConfluxLink {
        let (last_sent, last_received, resumes) = (self.sent, self.delivered, self.resumes);
        let (nonce, first_leg) = (self.nonce, self.first_leg.unwrap_or(0));
        ConfluxLink { nonce, last_sent, last_received, desired, resumes, leg: 0, first_leg }
    }

    /// With retransmission, the leg with which the relay's state of the set began: at the relay, the first one
    /// that is linked; at the client, the one that LINKED states.
    ///
    /// # Errors
    /// If the number has changed, and messages were sent or received since: the relay has lost all legs in
    /// between, and forgotten what it had received.
    pub fn set_first_leg(&mut self, number: u8) -> Result<(), ConfluxError> {
        // LINKEDs of a lost state may arrive late: each open leg confirms the state in which it was linked.
        let is_known = self.legs.iter().any(|leg| leg.first_leg == number);
        if self.first_leg.is_some() && !is_known && self.has_carried() {
            return Err(ConfluxError::Desynchronised);
        }
        self.first_leg = Some(number);
        Ok(())
    }

    /// Whether messages were sent or received.
    fn has_carried(&self) -> bool {
        self.sent > 0 || self.delivered > 0 || !self.early.is_empty()
    }

    fn find(&self, leg: L) -> Option<&Sequence<L, M>> {
        self.legs.iter().find(|sequence| sequence.leg == leg)
    }

    fn find_mut(&mut self, leg: L) -> Option<&mut Sequence<L, M>> {
        self.legs.iter_mut().find(|sequence| sequence.leg == leg)
    }

    /// Adds a leg, by the LINK and LINKED of both ends. This end's was sent at `asked_at`.
    ///
    /// C tor trusts each end's LINK or LINKED about its counters: it counts messages received on the leg from
    /// what this end has stated as sent, and sent ones from what this end has stated as received. So this end
    /// counts from its own statements, too, although a LINK is old when it arrives: C tor writes it before the
    /// circuit is built, and the set may have carried many messages since. Ends that retransmit count from what
    /// has arrived.
    ///
    /// # Errors
    /// If there are too many legs, if the other end has sent messages that have not arrived, or if it claims
    /// messages that were never sent.
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
        // The missing messages are in flight on another leg, or will be retransmitted.
        let is_lost = theirs.last_sent > self.delivered && !self.resumes;
        if is_lost || theirs.last_received > self.sent {
            return Err(ConfluxError::Desynchronised);
        }
        self.legs.push(Sequence {
            leg,
            number: theirs.leg,
            first_leg: self.first_leg.unwrap_or(0),
            sent: if self.resumes { theirs.last_received } else { ours.last_sent },
            received: ours.last_received,
            sent_here: 0,
            received_here: 0,
            unreported: 0,
            is_switched: false,
            rtt: None,
            asked_at,
            kept: RetransmitBuffer::default(),
            look: Look::default(),
        });
        Ok(())
    }

    /// The other end has answered the handshake: its round-trip time is known.
    ///
    /// # Errors
    /// If it is known already, or there is no such leg.
    pub fn handle_answered(&mut self, now: Instant, leg: L) -> Result<(), ConfluxError> {
        let sequence = self
            .find_mut(leg)
            .filter(|sequence| sequence.rtt.is_none())
            .ok_or(ConfluxError::Handshake)?;
        sequence.rtt = Some(now - sequence.asked_at);
        Ok(())
    }

    /// A leg is lost. Its window states the number of cells in flight; `is_idle` that no stream is open.
    ///
    /// C tor's rule, made stricter: there, up to a SENDME's worth of cells can be in flight unnoticed, and a
    /// stream with cells among them would hang. Here a leg can be lost without harm only if everything on it is
    /// known to have arrived, or nothing can be missed.
    pub fn remove_leg(&mut self, leg: L, in_flight_cells: u32, is_idle: bool) -> Removed {
        let Some(place) = self.legs.iter().position(|sequence| sequence.leg == leg) else {
            return Removed::Spare;
        };
        let sequence = self.legs.remove(place);
        if self.resumes {
            return self.lose(sequence);
        }
        let was_current = self.current == Some(leg);
        if was_current {
            self.current = None;
        }
        let has_carried = sequence.sent_here + sequence.received_here > 0;
        let others_sent = self.legs.iter().map(|leg| leg.sent).max().unwrap_or(0);
        let was_ahead = others_sent < sequence.sent || self.received() < sequence.received;
        let is_missed = in_flight_cells > 0 || was_current || was_ahead || !self.early.is_empty();
        if has_carried && (is_missed || !is_idle) { Removed::Broken } else { Removed::Spare }
    }

    fn received(&self) -> u64 {
        self.legs.iter().map(|leg| leg.received).max().unwrap_or(0)
    }
}

/// Handling of sent messages.
impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// The scheduler's view of the legs, from what their owner knows.
    fn with_states<T>(
        &self,
        state: impl Fn(L) -> LegState,
        look: impl FnOnce(&[LegState]) -> T,
    ) -> T {
        let mut states = [LegState::default(); LEGS_MAX];
        for (sequence, place) in self.legs.iter().zip(&mut states) {
            *place = state(sequence.leg);
            if place.rtt.is_none() {
                place.rtt = sequence.rtt;
                place.last_rtt = sequence.rtt;
            }
        }
        look(&states[..self.legs.len().min(LEGS_MAX)])
    }

    /// The leg for the next DATA cell; `None` if it has to wait.
    pub fn choose(&self, state: impl Fn(L) -> LegState) -> Option<L> {
        let place = self.with_states(state, |states| self.scheduler.choose(states))?;
        self.legs.get(place).map(|leg| leg.leg)
    }

    /// The leg for a message other than data, which no window limits. If the scheduler chooses none, it is the
    /// last one used, so that the message does not wait.
    pub fn choose_for_message(&self, state: impl Fn(L) -> LegState) -> Option<L> {
        let first = || {
            let of = |sequence: &&Sequence<L, M>| sequence.rtt.unwrap_or(Duration::MAX);
            self.legs.iter().min_by_key(of).map(|leg| leg.leg)
        };
        self.choose(state).or(self.current).or_else(first)
    }

    /// The next message goes on this leg. Returns the content of the SWITCH that must precede it, if any.
    pub fn handle_chosen(&mut self, leg: L) -> Option<u32> {
        self.current = Some(leg);
        let sent = self.sent;
        let sequence = self.find_mut(leg)?;
        // Beyond 32 bits the set would need two SWITCHes: two terabytes on one leg without interruption.
        let skipped = u32::try_from(sent.saturating_sub(sequence.sent)).unwrap_or(u32::MAX);
        sequence.sent += u64::from(skipped);
        (skipped > 0).then_some(skipped)
    }

    /// The message was sent.
    pub fn handle_sent(&mut self, leg: L) {
        if let Some(sequence) = self.legs.iter_mut().find(|sequence| sequence.leg == leg) {
            sequence.sent += 1;
            sequence.sent_here += 1;
            self.sent = self.sent.max(sequence.sent);
        }
    }
}

#[cfg(test)]
mod tests;
