//! Linked circuits that end at this relay (proposal 329), as on C tor's exits.
//!
//! [`Conflux`] restores the order of stream messages that arrive on the legs. Outgoing data uses the leg that
//! the scheduler chooses for each read from a destination. [`retransmit`] keeps what may have to be sent again
//! on another leg.

mod leg_timeout;
mod retransmit;
mod sets;

pub(super) use sets::Sets;

use super::circuits::{CircuitIndex, Circuits, End, Hop, NextLink, TunnelIndex};
use super::queue_age::QueueAge;
use super::{Behavior, Core};
use crate::cell::Command;
use crate::cell::msg::{ConfluxLink, ConfluxNote, ConfluxSwitch, DesiredUx, DestroyReason};
use crate::cell::relay::RelayCommand;
use crate::cell_model::{Body, CellModel, Layer, Message, StreamId};
use crate::tunnel::conflux::schedulers::for_desired_ux;
use crate::tunnel::conflux::{Conflux, ConfluxError, LegState, Order, Removed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use rand_core::Rng;
use sets::{Held, Set};

/// Maximum number of out-of-order messages of a set. Clients are asked to send on one leg at a time, so there
/// are usually few.
const EARLY_MAX: usize = 1 << 14;

/// The scheduling that this relay requests from clients, like C tor's exits.
const DESIRED: DesiredUx = DesiredUx::MinLatency;

fn leg_state<S: CellModel>(circuits: &Circuits<S>, leg: CircuitIndex) -> LegState {
    let end = circuits.get(leg).and_then(|circuit| circuit.end.as_ref());
    end.map(|end| end.leg.state()).unwrap_or_default()
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Handles a Conflux control message.
    pub(super) fn handle_conflux(
        &mut self,
        index: CircuitIndex,
        command: RelayCommand,
        data: &[u8],
    ) {
        let now = self.outputs.now();
        let outcome = match command {
            RelayCommand::CONFLUX_LINK => self.link(index, data),
            RelayCommand::CONFLUX_LINKED_ACK if !data.is_empty() && self.resumes(index) => {
                if self.handle_note(index, data).is_err() {
                    self.destroy_all_legs(index, DestroyReason::PROTOCOL);
                }
                return;
            }
            RelayCommand::CONFLUX_LINKED_ACK => match self.set_of(index) {
                Some(set) => set.conflux.handle_answered(now, index),
                None => Err(ConfluxError::Handshake),
            },
            RelayCommand::CONFLUX_SWITCH => self.handle_switch(index, data),
            // Only relays send these.
            _ => Err(ConfluxError::Handshake),
        };
        if outcome.is_err() {
            self.destroy_all_legs(index, DestroyReason::PROTOCOL);
        } else if command == RelayCommand::CONFLUX_LINKED_ACK {
            self.resend(index);
            self.wake_streams(index);
        }
    }

    fn resumes(&mut self, index: CircuitIndex) -> bool {
        self.set_of(index).is_some_and(|set| set.conflux.resumes())
    }

    /// Handles a resumption report of the client about its legs. The leg numbers are local to the set, so it
    /// cannot affect other sets.
    fn handle_note(&mut self, index: CircuitIndex, data: &[u8]) -> Result<(), ConfluxError> {
        let now = self.outputs.now();
        let note = ConfluxNote::parse(data).map_err(|_| ConfluxError::Malformed)?;
        match note {
            ConfluxNote::Arrived(count) => {
                if let Some(tunnel) = self.tunnel_of_leg(index) {
                    self.sets.change(now, tunnel, |set| set.conflux.handle_arrived(index, count));
                }
            }
            ConfluxNote::LostLegs(numbers) => {
                let set = self.set_of(index).ok_or(ConfluxError::Handshake)?;
                let lost = set.conflux.handle_lost_legs(numbers);
                if lost.contains(&index) {
                    return Err(ConfluxError::Handshake);
                }
                for leg in lost {
                    self.destroy(leg, DestroyReason::FINISHED, None);
                }
            }
        }
        Ok(())
    }

    fn handle_switch(&mut self, index: CircuitIndex, data: &[u8]) -> Result<(), ConfluxError> {
        let switch = ConfluxSwitch::parse(data).map_err(|_| ConfluxError::Malformed)?;
        self.totals.conflux_switches += 1;
        self.set_of(index).ok_or(ConfluxError::Switch)?.conflux.handle_switch(index, switch)
    }

    fn set_of(&mut self, index: CircuitIndex) -> Option<&mut Set<S>> {
        let tunnel = self.circuits.get(index)?.end.as_ref().filter(|end| end.is_linked)?.tunnel;
        self.sets.all.get_mut(&tunnel)
    }

    /// Handles LINK: the circuit becomes a leg of a set, or the first leg of a new one.
    fn link(&mut self, index: CircuitIndex, data: &[u8]) -> Result<(), ConfluxError> {
        let now = self.outputs.now();
        let theirs = ConfluxLink::parse(data).map_err(|_| ConfluxError::Malformed)?;
        let circuit = self.circuits.get(index).ok_or(ConfluxError::Unsuitable)?;
        let Hop::Relay(layer) = &circuit.hop else { return Err(ConfluxError::Unsuitable) };
        let format = layer.format();
        let ends_here = circuit.next_link == NextLink::None;
        let has_congestion_control = circuit.agreed.congestion_sendme_cells.is_some();
        if !ends_here || !has_congestion_control || !self.parameters.cfx_enabled {
            return Err(ConfluxError::Unsuitable);
        }
        let end = self.end_mut(index).ok_or(ConfluxError::Unsuitable)?;
        let (own, is_linked) = (end.tunnel, end.is_linked);
        if is_linked {
            return Err(ConfluxError::Handshake);
        }
        // Its streams would belong to two tunnels.
        if self.tunnels.get(own).is_none_or(|tunnel| !tunnel.streams.is_empty()) {
            return Err(ConfluxError::Misplaced);
        }
        let known = self.sets.by_nonce.get(&theirs.nonce).copied();
        let tunnel = known.unwrap_or(own);
        let scheduler =
            self.config.conflux_scheduler.unwrap_or_else(|| for_desired_ux(theirs.desired));
        let mut new = Set {
            conflux: Conflux::new(theirs.nonce, scheduler, EARLY_MAX),
            age: QueueAge::default(),
            kept_age: QueueAge::default(),
        };
        new.conflux.set_resumes(theirs.resumes);
        new.conflux.set_first_leg(theirs.leg)?;
        let set = match known {
            Some(tunnel) => self.sets.all.get_mut(&tunnel).ok_or(ConfluxError::Handshake)?,
            None => &mut new,
        };
        if theirs.resumes != set.conflux.resumes() {
            return Err(ConfluxError::Handshake);
        }
        // A retransmitted message must fit into the cells of any leg.
        let has_format = |leg| match self.circuits.get(leg).map(|circuit| &circuit.hop) {
            Some(Hop::Relay(layer)) => layer.format() == format,
            _ => false,
        };
        if theirs.resumes && !set.conflux.legs().all(has_format) {
            return Err(ConfluxError::Unsuitable);
        }
        let ours = ConfluxLink { leg: theirs.leg, ..set.conflux.link(DESIRED) };
        set.conflux.add_leg(index, &ours, &theirs, now)?;
        if known.is_some() {
            self.tunnels.remove(own);
            self.streams.handle_tunnel_over(own);
        } else {
            self.sets.by_nonce.insert(theirs.nonce, own);
            self.sets.all.insert(own, new);
            self.totals.conflux_sets += 1;
        }
        if let Some(tunnel) = self.tunnels.get_mut(tunnel) {
            tunnel.is_set = true;
        }
        if let Some(end) = self.end_mut(index) {
            (end.tunnel, end.is_linked) = (tunnel, true);
        }
        self.totals.conflux_legs += 1;
        let mut data = Vec::new();
        ours.encode_into(&mut data);
        self.originate(index, RelayCommand::CONFLUX_LINKED, StreamId::CIRCUIT, &data);
        Ok(())
    }

    /// A stream message has arrived on a leg.
    pub(super) fn handle_set_message(
        &mut self,
        index: CircuitIndex,
        command: Command,
        body: &S::Body,
        message: &Message<S::PayloadSlice<'_>>,
    ) {
        let now = self.outputs.now();
        let Some(circuit) = self.circuits.get(index) else { return };
        let Hop::Relay(layer) = &circuit.hop else { return };
        let format = layer.format();
        let Some(tunnel) = circuit.end.as_ref().map(|end| end.tunnel) else { return };
        let is_data = message.command == RelayCommand::DATA;
        let mut silent = None;
        let receive = |set: &mut Set<S>| -> Result<(bool, Option<u64>), ConfluxError> {
            let order = set.conflux.handle_received(index)?;
            let report = set.conflux.take_report(index, is_data);
            if let Order::Early(number) = order {
                let held = Held { leg: Some(index), format, body: Box::new(body.clone()) };
                set.conflux.hold(number, held)?;
                set.age.handle_added(now, 1);
                silent = set.conflux.take_overdue();
            }
            Ok((order == Order::Next, report))
        };
        let outcome = self.sets.change(now, tunnel, receive);
        let Some(outcome) = outcome else { return };
        if let Ok((_, Some(count))) = outcome {
            let mut data = Vec::new();
            ConfluxNote::Arrived(count).encode_into(&mut data);
            self.originate(index, RelayCommand::CONFLUX_LINKED_ACK, StreamId::CIRCUIT, &data);
        }
        if let Some(leg) = silent {
            self.announce_timed_out(tunnel, leg);
        }
        match outcome {
            Ok((true, _)) => {
                self.handle_message_in_turn(index, command, message);
                self.deliver_early(tunnel);
            }
            Ok((false, _)) => {}
            Err(_) => self.destroy_all_legs(index, DestroyReason::PROTOCOL),
        }
    }

    /// Delivers messages whose predecessors have arrived.
    fn deliver_early(&mut self, tunnel: TunnelIndex) {
        let now = self.outputs.now();
        let next = |set: &mut Set<S>| {
            let held = set.conflux.poll_early()?;
            set.age.handle_taken(now, 1, set.conflux.early_len());
            Some(held)
        };
        while let Some(Held { leg, format, body }) = self.sets.change(now, tunnel, next).flatten() {
            // The leg that the message arrived on may be gone, and its index reused.
            let leg = leg.filter(|leg| self.sets.has_leg(tunnel, *leg));
            let lead = self.tunnels.get(tunnel).map(|tunnel| tunnel.circuit);
            // It was parsed when it arrived.
            if let (Some(leg), Ok(message)) = (leg.or(lead), body.message(format)) {
                self.handle_message_in_turn(leg, Command::RELAY, &message);
            }
        }
    }

    /// The leg for a message other than data; `index` itself if it is not a leg. The set counts the message as
    /// sent.
    pub(super) fn leg_for_message(&mut self, index: CircuitIndex) -> CircuitIndex {
        let Some(circuit) = self.circuits.get(index) else { return index };
        let Some(end) = circuit.end.as_ref().filter(|end| end.is_linked) else { return index };
        let (tunnel, circuits) = (end.tunnel, &self.circuits);
        let Some(set) = self.sets.all.get(&tunnel) else { return index };
        let leg = set.conflux.choose_for_message(|leg| leg_state(circuits, leg)).unwrap_or(index);
        self.begin_message(tunnel, leg);
        leg
    }

    /// The circuit for a tunnel's next data; `None` if all are blocked.
    pub(super) fn leg_for_data(&self, tunnel: TunnelIndex) -> Option<CircuitIndex> {
        let known = self.tunnels.get(tunnel)?;
        if !known.is_set {
            return Some(known.circuit);
        }
        self.sets.all.get(&tunnel)?.conflux.choose(|leg| leg_state(&self.circuits, leg))
    }

    /// The next message of a set goes on this leg: sends SWITCH first if necessary.
    pub(super) fn begin_message(&mut self, tunnel: TunnelIndex, leg: CircuitIndex) {
        let Some(set) = self.sets.all.get_mut(&tunnel) else { return };
        let skipped = set.conflux.handle_chosen(leg);
        set.conflux.handle_sent(leg);
        if let Some(skipped) = skipped {
            self.switch(leg, skipped);
        }
    }

    fn switch(&mut self, leg: CircuitIndex, skipped: u32) {
        self.totals.conflux_switches += 1;
        let mut data = Vec::new();
        ConfluxSwitch { skipped }.encode_into(&mut data);
        self.originate(leg, RelayCommand::CONFLUX_SWITCH, StreamId::CIRCUIT, &data);
    }

    /// Removes a leg. Returns the other legs to destroy if the set is broken by that; its tunnel then ends.
    pub(super) fn unlink(&mut self, index: CircuitIndex, end: &End) -> Vec<CircuitIndex> {
        let tunnel = end.tunnel;
        let is_idle = self.tunnels.get(tunnel).is_none_or(|tunnel| tunnel.streams.is_empty());
        let in_flight_cells = end.leg.flow.state().in_flight_cells;
        let remove = |set: &mut Set<S>| {
            let removed = set.conflux.remove_leg(index, in_flight_cells, is_idle);
            (removed, set.conflux.legs().collect::<Vec<CircuitIndex>>())
        };
        let Some((removed, others)) = self.sets.change(self.outputs.now(), tunnel, remove) else {
            return Vec::new();
        };
        if let Some(other) = others.first()
            && removed == Removed::Spare
        {
            if let Some(tunnel) = self.tunnels.get_mut(tunnel) {
                tunnel.circuit = *other;
            }
            self.resend(*other);
            self.wake_streams(*other);
            return Vec::new();
        }
        self.sets.remove(tunnel);
        for other in &others {
            if let Some(circuit) = self.circuits.get_mut(*other) {
                circuit.end = None;
            }
        }
        self.end_tunnel(tunnel);
        others
    }

    /// Destroys a circuit and all circuits linked with it.
    pub(super) fn destroy_all_legs(&mut self, index: CircuitIndex, reason: DestroyReason) {
        let legs = self.set_of(index).map(|set| set.conflux.legs().collect::<Vec<_>>());
        self.destroy(index, reason, None);
        for leg in legs.unwrap_or_default() {
            self.destroy(leg, reason, None);
        }
    }
}
