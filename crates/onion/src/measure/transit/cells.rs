//! What arrives on the connections of a measurement.

use super::circuit::{Flow, State};
use super::conn::{Conn, Side};
use super::{Phase, Transit, TransitFailure};
use crate::cell::msg::{Create2, DestroyReason, HANDSHAKE_NTOR, encode_created2_into};
use crate::cell::{BODY_LEN, CELL_LEN, Cell, CircId, Command};
use crate::circuit::{CircuitError, Step};
use crate::crypto::ntor;
use crate::link::Channel;
use crate::measure::check::compare;
use crate::node::ListenerId;
use crate::time::Instant;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rand_core::Rng;

/// Answers to CREATE2 that may wait on one connection, beyond one for each of our circuits.
const SPARE_ANSWERS: usize = 64;

impl<R: Rng> Transit<R> {
    /// Handles all cells in a stretch of plaintext; an error is the end of the connection.
    pub(super) fn handle_cells(
        &mut self,
        now: Instant,
        conn: &mut Conn,
        plaintext: &[u8],
    ) -> Result<(), String> {
        let Some(channel) = &mut conn.channel else { return Ok(()) };
        let mut input = plaintext;
        while !self.is_over() {
            let cell = channel.handle_bytes(&mut input).map_err(|error| error.to_string())?;
            let Some(cell) = cell else { break };
            if cell.circ_id == CircId::LINK || cell.command == Command::PADDING {
                continue; // link padding and its negotiation
            }
            let known = conn.circuits.find(cell.circ_id);
            match (conn.side, cell.command, known) {
                // By far the most frequent, and the only one that must be fast.
                (Side::Inbound(_), Command::RELAY | Command::RELAY_EARLY, Some(circuit)) => {
                    self.handle_arrival(now, circuit, cell.body);
                }
                (Side::Inbound(listener), Command::CREATE2, None) => {
                    let (cell, body) = detach(cell);
                    if let Some(circuit) =
                        self.answer_create(channel, cell.circ_id, listener, &body)
                    {
                        conn.circuits.add(cell.circ_id, circuit);
                    }
                }
                (Side::Inbound(_), Command::DESTROY, Some(circuit)) => {
                    let error = CircuitError::Destroyed(DestroyReason::parse(cell.body));
                    self.lose_circuit(circuit, &error.to_string());
                }
                (Side::Outbound, _, Some(circuit)) => {
                    let (cell, body) = detach(cell);
                    self.handle_origin_cell(channel, circuit, cell.command, &body);
                }
                // Cells of circuits that are closed already, and strangers' attempts.
                _ => {}
            }
        }
        if channel.is_open() && conn.side == Side::Outbound && !conn.has_begun {
            conn.has_begun = true;
            let circuits: Vec<u32> = conn.circuits.numbers().collect();
            for circuit in circuits {
                self.create_circuit(channel, circuit);
            }
        }
        Ok(())
    }

    /// A cell has come out at one of our landings.
    #[inline]
    fn handle_arrival(&mut self, now: Instant, number: u32, body: &[u8]) {
        let circuit = &mut self.circuits[number as usize];
        let State::Up(flow) = &mut circuit.state else { return };
        let index = flow.window.delivered_cells();
        if index >= flow.window.sent_cells() {
            let sent = flow.window.sent_cells();
            self.fail(TransitFailure::AnsweredEarly { circuit: number, sent });
            return;
        }
        let Phase::Running(running) = &mut self.phase else { return };
        flow.window.handle_delivered(now);
        running.counter.add(CELL_LEN as u64);
        running.last_arrival = now;
        if self.sampler.handle_cell(&mut self.rng) {
            running.counter.add_check();
            if let Err(mismatch) = compare(&mut flow.content, &mut flow.forward, index, body) {
                let (circuit, cell) = (number, index);
                self.fail(TransitFailure::CheckFailed { circuit, cell, mismatch });
                return;
            }
        }
        if flow.window.room_cells() >= flow.window.batch_cells() {
            let origin = circuit.origin;
            self.wake(origin);
        }
    }

    /// A landing is asked to be the second hop of one of our circuits; `None` for a stranger's.
    fn answer_create(
        &mut self,
        channel: &mut Channel,
        circ_id: CircId,
        listener: ListenerId,
        body: &[u8],
    ) -> Option<u32> {
        // Who asks on and on and reads no answers gets no more of them: they would fill our memory.
        if channel.queued_len() > (self.circuits.len() + SPARE_ANSWERS) * CELL_LEN {
            return None;
        }
        let answered = self.answer_handshake(listener, body);
        if let Some((circuit, answer)) = answered {
            let mut created = Vec::new();
            encode_created2_into(&answer, &mut created);
            channel.send(circ_id, Command::CREATED2, &created);
            return Some(circuit);
        }
        channel.send(circ_id, Command::DESTROY, &[DestroyReason::PROTOCOL.get()]);
        None
    }

    fn answer_handshake(
        &mut self,
        listener: ListenerId,
        body: &[u8],
    ) -> Option<(u32, [u8; ntor::SERVER_LEN])> {
        let create = Create2::parse(body).ok()?;
        if create.handshake_type != HANDSHAKE_NTOR {
            return None;
        }
        let public = ntor::client_public(create.data)?;
        let is_ours = |state: &State| matches!(state, State::Building(building) if *building.ntor_public() == public);
        let circuit = self.circuits.iter().position(|circuit| is_ours(&circuit.state))?;
        let landing = self.config.landings.get(listener.0 as usize)?;
        let mut ephemeral_secret = [0; 32];
        self.rng.fill_bytes(&mut ephemeral_secret);
        let identity = &landing.identity;
        let (answer, _keys) =
            ntor::respond(&identity.rsa.0, &identity.onion_secret(), ephemeral_secret, create.data)
                .ok()?;
        // The keys of the second layer are of no use: what arrives is counted and compared with
        // that layer still on, since it was never put on.
        Some((u32::try_from(circuit).ok()?, answer))
    }

    /// A cell has come back on the link that a circuit begins on.
    fn handle_origin_cell(
        &mut self,
        channel: &mut Channel,
        number: u32,
        command: Command,
        body: &[u8],
    ) {
        let circuit = &mut self.circuits[number as usize];
        let result = match &mut circuit.state {
            State::Building(building) => building.handle_cell(command, body),
            State::Up(_) if command == Command::DESTROY => {
                Err(CircuitError::Destroyed(DestroyReason::parse(body)))
            }
            State::Up(_) => Err(CircuitError::Unexpected(command)),
            State::Waiting | State::Dead => return,
        };
        match result {
            Ok(Step::Send { command, body }) => channel.send(circuit.origin_id, command, &body),
            Ok(Step::Built) => {
                let mut content_key = [0; 16];
                self.rng.fill_bytes(&mut content_key);
                if let State::Building(building) = &circuit.state
                    && let Some(keys) = building.first_hop_keys()
                {
                    let cap_cells = self.config.window_cap_cells;
                    circuit.state = State::Up(Flow::new(keys, &content_key, cap_cells));
                    self.is_unsettled = true;
                }
            }
            Err(error) => self.lose_circuit(number, &error.to_string()),
        }
    }
}

/// A rare cell's own copy, so that its channel is free to answer.
fn detach(cell: Cell<'_>) -> (Cell<'static>, [u8; BODY_LEN]) {
    let mut body = [0; BODY_LEN];
    let len = cell.body.len().min(BODY_LEN);
    body[..len].copy_from_slice(&cell.body[..len]);
    (Cell { body: &[], ..cell }, body)
}
