//! Cells that arrive on the connections of a measurement.

use super::circuit::{Circuit, Flow, State};
use super::conn::{CircuitTable, Conn, Side, Stage};
use super::{LoadFailure, LoadGenerator, Phase};
use crate::cell::msg::{Create2, CreatedFast, DestroyReason, HANDSHAKE_NTOR, encode_created2_into};
use crate::cell::{BODY_LEN, CELL_LEN, Cell, CircId, Command};
use crate::circuit::{CircuitError, Step};
use crate::crypto::{HopKeys, LayerKeys, fast, ntor};
use crate::link::Channel;
use crate::measure::check::compare;
use crate::measure::protocol::Message;
use crate::node::ListenerId;
use crate::time::Instant;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rand_core::Rng;

/// For this number of returned cells, the relay may send one unsolicited cell.
const LOAD_PER_UNSOLICITED: u64 = 20;

/// Additional unsolicited cells allowed on each connection, and one per second: link padding is sent every 1.5
/// to 9.5 s (padding-spec §2).
const UNSOLICITED_PER_CONN: u64 = 16;

/// Maximum number of queued answers to CREATE2 on a connection, beyond one for each of the measurer's circuits.
const SPARE_ANSWERS: usize = 64;

impl<R: Rng> LoadGenerator<R> {
    /// Handles all cells of some plaintext; an error closes the connection.
    pub(super) fn handle_cells(
        &mut self,
        now: Instant,
        conn: &mut Conn,
        plaintext: &[u8],
    ) -> Result<(), String> {
        let Some(channel) = &mut conn.channel else { return Ok(()) };
        let is_echo = self.config.return_path.is_echo();
        let mut input = plaintext;
        let mut unsolicited = 0;
        while !self.is_over() {
            let cell = channel.handle_bytes(&mut input).map_err(|error| {
                // Anybody can show old certificates to a return relay.
                self.is_not_valid_now |= conn.side == Side::Outbound && error.is_about_dates();
                error.to_string()
            })?;
            let Some(cell) = cell else { break };
            if cell.circ_id == CircId::LINK || cell.command == Command::PADDING {
                if is_echo && cell.command == Command::MEASURE {
                    let message = Message::parse(cell.body).map_err(|error| error.to_string())?;
                    self.handle_message(channel, &mut conn.stage, &conn.circuits, message)?;
                } else {
                    unsolicited += 1; // link padding and its negotiation
                }
                continue;
            }
            let known = conn.circuits.find(cell.circ_id);
            match (conn.side, cell.command, known) {
                // The hot path: the only cells that must be fast.
                (Side::Inbound(_), Command::RELAY | Command::RELAY_EARLY, Some(circuit)) => {
                    let has_room = self.handle_arrival(now, circuit, cell.body);
                    if has_room {
                        self.wake(self.circuits[circuit as usize].origin);
                    }
                }
                (Side::Outbound, Command::RELAY, Some(circuit)) if is_echo => {
                    conn.has_room |= self.handle_arrival(now, circuit, cell.body);
                }
                (Side::Inbound(listener), Command::CREATE2, None) => {
                    let (cell, body) = detach(cell);
                    if let Some(circuit) =
                        self.answer_create(channel, cell.circ_id, listener, &body)
                    {
                        conn.circuits.add(cell.circ_id, circuit);
                    } else {
                        unsolicited += 1;
                    }
                }
                (Side::Inbound(_), Command::DESTROY, Some(circuit)) => {
                    let error = CircuitError::Destroyed(DestroyReason::parse(cell.body));
                    self.lose_circuit_for(circuit, &error);
                }
                (Side::Outbound, _, Some(circuit)) => {
                    let (cell, body) = detach(cell);
                    self.handle_origin_cell(channel, circuit, cell.command, &body);
                }
                // Cells of closed circuits, and strangers' attempts.
                _ => unsolicited += 1,
            }
        }
        unsolicited += core::mem::take(&mut self.strays);
        // Anybody can connect to a return relay: the target is responsible only if it has authenticated.
        let is_relays = conn.side == Side::Outbound
            || channel.peer().is_some_and(|peer| peer.ids.rsa == self.config.target.ids.rsa);
        if unsolicited > 0 && is_relays {
            self.count_unsolicited(unsolicited);
        }
        if channel.is_open() && conn.side == Side::Outbound && conn.stage == Stage::Opening {
            if let Some(proof) = conn.proof {
                conn.stage = Stage::Proving;
                channel.send(CircId::LINK, Command::MEASURE, &Message::Proof(proof).encode());
            } else {
                conn.stage = Stage::Begun;
                self.create_circuits(channel, &conn.circuits);
            }
        }
        Ok(())
    }

    /// Counts unsolicited cells of the relay. Each of them takes the place of a returned cell on the measurer's
    /// path: a relay that floods its measurers would reduce their capacity for other relays.
    #[cold]
    fn count_unsolicited(&mut self, cells: u64) {
        self.unsolicited_cells += cells;
        let per_conn = UNSOLICITED_PER_CONN + u64::from(self.config.seconds);
        // This side's links to the relay, and its links to return relays.
        let explained = 2 * u64::from(self.config.sockets) * per_conn;
        if self.unsolicited_cells <= explained {
            return;
        }
        let returned = |circuit: &Circuit| match &circuit.state {
            State::Up(flow) => flow.window.delivered_cells(),
            _ => 0,
        };
        let load_cells = self.circuits.iter().map(returned).sum();
        if self.unsolicited_cells > explained + load_cells / LOAD_PER_UNSOLICITED {
            let cells = self.unsolicited_cells;
            self.fail(LoadFailure::Unsolicited { cells, load_cells });
        }
    }

    /// The target has sent a message about the measurement.
    fn handle_message(
        &mut self,
        channel: &mut Channel,
        stage: &mut Stage,
        circuits: &CircuitTable,
        message: Message,
    ) -> Result<(), String> {
        match (message, *stage) {
            (Message::Proven, Stage::Proving) => {
                *stage = Stage::Begun;
                self.create_circuits(channel, circuits);
                Ok(())
            }
            (Message::Error { code, text }, _) => {
                self.fail(LoadFailure::Refused { code, text });
                Ok(())
            }
            _ => Err(String::from("the relay sends a MEASURE message that is not allowed here")),
        }
    }

    /// A cell has returned. Returns whether its circuit has space for a batch of others.
    #[inline]
    fn handle_arrival(&mut self, now: Instant, number: u32, body: &[u8]) -> bool {
        let circuit = &mut self.circuits[number as usize];
        let State::Up(flow) = &mut circuit.state else {
            self.handle_stray(number);
            return false;
        };
        let index = flow.window.delivered_cells();
        if index >= flow.window.sent_cells() {
            let sent = flow.window.sent_cells();
            self.fail(LoadFailure::AnsweredEarly { circuit: number, sent });
            return false;
        }
        let Phase::Running(running) = &mut self.phase else { return false };
        flow.window.handle_delivered(now);
        running.counter.add(CELL_LEN as u64);
        running.silent_since = now;
        if self.sampler.handle_cell(&mut self.rng) {
            running.counter.add_check();
            let Flow { content, forward, cells_before, .. } = flow;
            if let Err(mismatch) = compare(content, forward, *cells_before, index, body) {
                let (circuit, cell) = (number, index);
                self.fail(LoadFailure::CheckFailed { circuit, cell, mismatch });
                return false;
            }
        }
        flow.window.room_cells() >= flow.window.batch_cells()
    }

    /// A cell has arrived on an unfinished circuit.
    #[cold]
    fn handle_stray(&mut self, number: u32) {
        self.strays += 1;
        // In transit it may be a stranger's at a return relay; on a link to the target nobody else can send.
        if self.config.return_path.is_echo() {
            self.lose_circuit(number, &CircuitError::Unexpected(Command::RELAY).to_string());
        }
    }

    /// A return relay gets the CREATE2 of one of the measurer's circuits; `None` for a stranger's.
    fn answer_create(
        &mut self,
        channel: &mut Channel,
        circ_id: CircId,
        listener: ListenerId,
        body: &[u8],
    ) -> Option<u32> {
        // A peer that sends requests and reads no answers gets no more of them: they would fill the memory.
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
        let is_ours = |state: &State| matches!(state, State::Building(building) if building.last_public() == Some(&public));
        let circuit = self.circuits.iter().position(|circuit| is_ours(&circuit.state))?;
        let landing = self.config.return_path.landings().get(listener.0 as usize)?;
        let mut ephemeral_secret = [0; 32];
        self.rng.fill_bytes(&mut ephemeral_secret);
        let identity = &landing.identity;
        let (answer, _keys) =
            ntor::respond(&identity.rsa.0, &identity.onion_secret(), ephemeral_secret, create.data)
                .ok()?;
        // The keys of the second layer are unused: cells are sent and compared without that layer.
        Some((u32::try_from(circuit).ok()?, answer))
    }

    /// A cell has arrived on the link where a circuit begins.
    fn handle_origin_cell(
        &mut self,
        channel: &mut Channel,
        number: u32,
        command: Command,
        body: &[u8; BODY_LEN],
    ) {
        let circuit = &mut self.circuits[number as usize];
        let result = match &mut circuit.state {
            State::Building(building) => match building.handle_cell(command, body) {
                Ok(Step::Send { command, body }) => {
                    channel.send(circuit.origin_id, command, &body);
                    Ok(None)
                }
                Ok(Step::Built) => Ok(building.first_hop_keys().and_then(LayerKeys::tor1).cloned()),
                Err(error) => Err(error),
            },
            State::Creating(client) => finish_fast(*client, command, body).map(Some),
            State::Up(_) if command == Command::DESTROY => {
                Err(CircuitError::Destroyed(DestroyReason::parse(body)))
            }
            State::Up(_) => Err(CircuitError::Unexpected(command)),
            State::Waiting | State::Dead => {
                self.strays += 1;
                return;
            }
        };
        match result {
            Ok(None) => {}
            Ok(Some(keys)) => {
                let mut content_key = [0; 16];
                self.rng.fill_bytes(&mut content_key);
                let cap_cells = self.config.window_cells();
                let cells_before = self.config.return_path.cells_before();
                circuit.state = State::Up(Flow::new(&keys, &content_key, cap_cells, cells_before));
                self.is_unsettled = true;
            }
            Err(error) if circuit.is_swept(&error) && self.second_tries > 0 => {
                self.second_tries -= 1;
                circuit.state = State::Waiting;
                circuit.is_second_try = true;
                self.create_circuit(channel, number);
            }
            Err(error) => self.lose_circuit_for(number, &error),
        }
    }
}

/// The target's answer to CREATE_FAST, if the circuit ends at the target.
fn finish_fast(
    client: fast::Client,
    command: Command,
    body: &[u8],
) -> Result<HopKeys, CircuitError> {
    match command {
        Command::CREATED_FAST => {
            let created = CreatedFast::parse(body).map_err(CircuitError::Malformed)?;
            client.finish(&created).map_err(CircuitError::Handshake)
        }
        Command::DESTROY => Err(CircuitError::Destroyed(DestroyReason::parse(body))),
        other => Err(CircuitError::Unexpected(other)),
    }
}

/// A copy of a rare cell, so that its channel is free for the answer.
fn detach(cell: Cell<'_>) -> (Cell<'static>, [u8; BODY_LEN]) {
    let mut body = [0; BODY_LEN];
    let len = cell.body.len().min(BODY_LEN);
    body[..len].copy_from_slice(&cell.body[..len]);
    (Cell { body: &[], ..cell }, body)
}
