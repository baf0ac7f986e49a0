//! Conflux sets at the client (proposal 329): how they are linked, and what happens if a leg is lost.
//!
//! [`receiving`] handles messages on the legs, [`retransmit`] keeps copies of sent ones.

mod leg_timeout;
mod receiving;
mod retransmit;

pub(super) use leg_timeout::LEG_CHECK_INTERVAL;

use super::application::Application;
use super::circuit::{Circuit, Passage, Stage, Up};
use super::core::Core;
use super::event::{CircuitNumber, ClientEvent, Loss};
use super::plan::{CircuitPlan, SetPlan};
use super::streams::Streams;
use crate::cell::Command;
use crate::cell::msg::{
    ConfluxLink, ConfluxNonce, ConfluxNote, ConfluxSwitch, DesiredUx, DestroyReason, Sendme,
};
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell_model::{CellModel, Message, PayloadSlice, StreamId};
use crate::time::{Duration, Instant};
use crate::tunnel::conflux::{Conflux, LEGS_MAX, LegState, Removed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use rand_core::Rng;

/// A message that waits for its predecessors, or that may have to be retransmitted.
#[derive(Debug)]
pub(super) struct Held<S: CellModel> {
    pub(super) format: RelayFormat,
    pub(super) body: S::Body,
}

/// The state shared by the circuits of a set.
#[derive(Debug)]
pub(super) struct LinkedSet<S: CellModel> {
    pub(super) conflux: Conflux<u8, Held<S>>,
    desired: DesiredUx,
    /// Whether retransmission is requested from the last hop.
    offers_resumption: bool,
    /// Whether its legs have Counter Galois Onion, if all must have the same format.
    has_cgo: bool,
    /// The content and time of the client's LINKs that have not been answered.
    asked: Vec<(u8, ConfluxLink, Instant)>,
    /// All initial legs are linked or lost.
    pub(super) is_usable: bool,
    began_at: Instant,
    legs_opened: u8,
}

impl<S: CellModel> LinkedSet<S> {
    /// The next message goes on this leg. Returns the SWITCH that must precede it, if any.
    pub(super) fn begin_message(&mut self, circuit: &mut Circuit<S>) -> Option<S::Cell> {
        let skipped = self.conflux.handle_chosen(circuit.leg);
        self.conflux.handle_sent(circuit.leg);
        circuit.seal_switch(skipped?)
    }
}

impl<S: CellModel> Circuit<S> {
    /// The cell of a SWITCH.
    fn seal_switch(&mut self, skipped: u32) -> Option<S::Cell> {
        let mut data = Vec::new();
        ConfluxSwitch { skipped }.encode_into(&mut data);
        let (command, stream_id) = (RelayCommand::CONFLUX_SWITCH, StreamId::CIRCUIT);
        let data = S::PayloadSlice::from_bytes(&data);
        self.seal(None, &Message { command, stream_id, data })
    }
}

/// The scheduler's view of a leg.
pub(super) fn leg_state<S: CellModel>(legs: &[Circuit<S>], leg: u8) -> LegState {
    let circuit = legs.iter().find(|circuit| circuit.leg == leg);
    circuit.and_then(Circuit::up).map(|up| up.leg.state()).unwrap_or_default()
}

/// The current statistics of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegFigures {
    /// Its index in the plan; legs that were added later follow.
    pub leg: u8,
    /// Stream messages received on it.
    pub received: u64,
    /// Stream messages sent on it.
    pub sent: u64,
    /// Its round-trip time, if known.
    pub rtt: Option<Duration>,
}

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// Opens circuits to the same last hop and links them there into one tunnel. [`ClientEvent::Built`] reports
    /// when it can be used, [`ClientEvent::LegLost`] each leg that is lost without harm, [`ClientEvent::Lost`]
    /// the loss of the whole set.
    ///
    /// The caller ensures that the paths share only their last hop. Congestion control is requested on all of
    /// them: Conflux requires it.
    pub fn open_set(&mut self, now: Instant, plan: &SetPlan) -> CircuitNumber {
        self.now = now;
        let number = self.next_circuit();
        let nonce = ConfluxNonce(self.random());
        let set = LinkedSet {
            conflux: Conflux::new(nonce, plan.scheduler, plan.early_max_cells),
            // A retransmitted message must fit into the cells of any leg.
            has_cgo: plan.legs.first().is_some_and(|leg| leg.has_cgo),
            offers_resumption: plan.resumes
                && plan.legs.is_sorted_by(|one, other| one.has_cgo == other.has_cgo),
            desired: plan.desired,
            asked: Vec::new(),
            is_usable: false,
            began_at: now,
            legs_opened: 0,
        };
        let set = Some(Box::new(set));
        self.passages
            .insert(number, Passage { legs: Vec::new(), streams: Streams::default(), set });
        for leg in &plan.legs {
            self.add_leg(now, number, leg);
        }
        number
    }

    /// Adds a circuit to a set. Returns its leg number; `None` if there is no such set, or the set is full.
    pub fn add_leg(
        &mut self,
        now: Instant,
        number: CircuitNumber,
        path: &CircuitPlan,
    ) -> Option<u8> {
        self.now = now;
        let Passage { legs, set, .. } = self.passages.get_mut(&number)?;
        let set = set.as_mut().filter(|_| legs.len() < LEGS_MAX)?;
        let leg = set.legs_opened;
        set.legs_opened = leg.checked_add(1)?;
        let has_cgo = if set.offers_resumption { set.has_cgo } else { path.has_cgo };
        let path = CircuitPlan { has_congestion_control: true, has_cgo, ..path.clone() };
        self.open_leg(number, leg, &path);
        Some(leg)
    }

    /// The linked legs of a set; empty if the circuit is not a set.
    #[must_use]
    pub fn legs(&self, number: CircuitNumber) -> Vec<LegFigures> {
        let Some(Passage { legs, set: Some(set), .. }) = self.passages.get(&number) else {
            return Vec::new();
        };
        let figures = |leg| {
            let figures = set.conflux.figures(leg).unwrap_or_default();
            let rtt = leg_state(legs, leg).rtt.or(set.conflux.first_rtt(leg));
            LegFigures { leg, received: figures.received, sent: figures.sent, rtt }
        };
        set.conflux.legs().map(figures).collect()
    }

    /// Whether the set survives the loss of a leg without losing messages: the last hop has agreed to
    /// retransmission.
    #[must_use]
    pub fn resumes(&self, number: CircuitNumber) -> bool {
        let set = self.passages.get(&number).and_then(|passage| passage.set.as_ref());
        set.is_some_and(|set| set.conflux.resumes())
    }

    /// Maximum number of out-of-order messages that the set has buffered at once.
    #[must_use]
    pub fn early_peak_cells(&self, number: CircuitNumber) -> usize {
        let set = self.passages.get(&number).and_then(|passage| passage.set.as_ref());
        set.map_or(0, |set| set.conflux.early_peak())
    }

    /// A circuit of a set is open: sends LINK.
    pub(super) fn link_leg(&mut self, number: CircuitNumber, leg: u8) {
        let now = self.now;
        let Some(set) = self.set_mut(number) else { return };
        let resumes = set.offers_resumption;
        let link = ConfluxLink { resumes, leg, ..set.conflux.link(set.desired) };
        set.asked.push((leg, link, now));
        let mut data = Vec::new();
        link.encode_into(&mut data);
        self.queue_on_leg(number, leg, RelayCommand::CONFLUX_LINK, &data);
    }

    /// Opens a set for streams as soon as no leg is pending.
    fn finish_set(&mut self, number: CircuitNumber) {
        let Some(Passage { legs, set: Some(set), .. }) = self.passages.get_mut(&number) else {
            return;
        };
        if set.is_usable || legs.is_empty() || set.conflux.leg_count() < legs.len() {
            return;
        }
        set.is_usable = true;
        let took = self.now - set.began_at;
        self.report(ClientEvent::Built { circuit: number, took });
        self.begin_waiting(number);
    }

    fn set_mut(&mut self, number: CircuitNumber) -> Option<&mut LinkedSet<S>> {
        self.passages.get_mut(&number)?.set.as_deref_mut()
    }

    /// Queues a message that concerns one leg only.
    pub(super) fn queue_on_leg(
        &mut self,
        number: CircuitNumber,
        leg: u8,
        command: RelayCommand,
        data: &[u8],
    ) {
        let Some(Passage { legs, .. }) = self.passages.get_mut(&number) else { return };
        let Some(circuit) = legs.iter_mut().find(|circuit| circuit.leg == leg) else { return };
        let data = S::PayloadSlice::from_bytes(data);
        let message = Message { command, stream_id: StreamId::CIRCUIT, data };
        let (conn, cell) = (circuit.conn, circuit.seal(None, &message));
        if let (Some(link), Some(cell)) = (self.links.get_mut(&conn), cell) {
            link.push(cell);
            self.wake(conn);
        }
    }

    /// Acknowledges cells of a leg.
    pub(super) fn queue_sendme(&mut self, number: CircuitNumber, leg: u8, tag: &[u8]) {
        let mut data = Vec::new();
        Sendme::Tagged(tag).encode_into(&mut data);
        self.queue_on_leg(number, leg, RelayCommand::SENDME, &data);
    }

    /// A leg or a single circuit is lost. The reason may affect the whole set.
    pub(super) fn lose_leg(&mut self, number: CircuitNumber, leg: u8, cause: Loss) {
        let Some(passage) = self.passages.get_mut(&number) else { return };
        let Some(place) = passage.legs.iter().position(|circuit| circuit.leg == leg) else {
            return;
        };
        let Passage { legs, streams, set } = passage;
        let Some(set) = set.as_deref_mut() else {
            self.lose_circuit(number, cause);
            return;
        };
        let circuit = legs.remove(place);
        let in_flight_cells = match &circuit.stage {
            Stage::Up(Up { leg, .. }) => leg.flow.state().in_flight_cells,
            Stage::Building(_) => 0,
        };
        set.asked.retain(|(asked, ..)| *asked != leg);
        let is_idle = streams.is_empty();
        let removed = set.conflux.remove_leg(leg, in_flight_cells, is_idle);
        if let Some(link) = self.links.get_mut(&circuit.conn) {
            link.circuits.remove(&circuit.circ_id);
        }
        let is_of_all = matches!(cause, Loss::Conflux(_) | Loss::Flow(_));
        // Streams may have begun, and none of the remaining legs can report it.
        let is_mute = set.is_usable && set.conflux.leg_count() == 0;
        let is_broken = removed == Removed::Broken || is_of_all || is_mute;
        if self.passages.get(&number).is_some_and(|passage| passage.legs.is_empty()) || is_broken {
            self.end_legs(number);
            self.lose_circuit(number, cause);
            return;
        }
        self.report(ClientEvent::LegLost { circuit: number, leg, cause });
        self.report_lost_leg_on_all(number, leg);
        self.resend(number);
        self.finish_set(number);
    }

    /// A leg has blocked the others for too long.
    pub(super) fn give_up_leg(&mut self, number: CircuitNumber, leg: u8) {
        let Some(Passage { legs, .. }) = self.passages.get(&number) else { return };
        let Some(circuit) = legs.iter().find(|circuit| circuit.leg == leg) else { return };
        let (conn, circ_id) = (circuit.conn, circuit.circ_id);
        self.send(conn, circ_id, Command::DESTROY, &[DestroyReason::NONE.get()]);
        self.lose_leg(number, leg, Loss::Silent);
    }

    /// A leg is lost: reports it on all linked legs if the set retransmits. The relays between may not know it,
    /// and the last hop would continue to send on it.
    fn report_lost_leg_on_all(&mut self, number: CircuitNumber, leg: u8) {
        let Some(set) = self.set_mut(number) else { return };
        set.conflux.handle_lost_legs(&[leg]);
        let linked: Vec<u8> = set.conflux.legs().collect();
        for leg in linked {
            self.report_lost_leg(number, leg);
        }
    }

    /// Reports on a leg which legs are lost: all lost ones, since earlier reports may have been lost with
    /// another leg.
    pub(super) fn report_lost_leg(&mut self, number: CircuitNumber, leg: u8) {
        let Some(set) = self.set_mut(number).filter(|set| set.conflux.resumes()) else { return };
        let lost = set.conflux.lost_legs();
        if !lost.is_empty() {
            self.queue_note(number, leg, ConfluxNote::LostLegs(&lost));
        }
    }

    pub(super) fn queue_note(&mut self, number: CircuitNumber, leg: u8, note: ConfluxNote<'_>) {
        let mut data = Vec::new();
        note.encode_into(&mut data);
        self.queue_on_leg(number, leg, RelayCommand::CONFLUX_LINKED_ACK, &data);
    }

    /// Destroys all remaining legs.
    fn end_legs(&mut self, number: CircuitNumber) {
        let Some(passage) = self.passages.get(&number) else { return };
        let all: Vec<_> = passage.legs.iter().map(|leg| (leg.conn, leg.circ_id)).collect();
        for (conn, circ_id) in all {
            self.send(conn, circ_id, Command::DESTROY, &[DestroyReason::NONE.get()]);
        }
    }
}
