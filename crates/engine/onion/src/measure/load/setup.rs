//! Opening sockets and circuits, and the consequences of losing them.

use super::circuit::{Circuit, State};
use super::config::ReturnPath;
use super::conn::{CircuitTable, Conn, Side, Stage};
use super::{Event, LoadFailure, LoadGenerator, Phase};
use crate::cell::msg::DestroyReason;
use crate::cell::{CircId, Command};
use crate::circuit::{Builder, CircuitError, NextHop};
use crate::crypto::fast;
use crate::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use crate::measure::protocol::{EXPORTER_LABEL, Proof};
use crate::node::{ConnId, ListenerId};
use crate::time::{Duration, Instant};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rand_core::Rng;

/// How much earlier than this side's the target's last second may end: it begins with the first measurer's
/// cells.
const END_SLACK: Duration = Duration::from_millis(500);

impl<R: Rng> LoadGenerator<R> {
    /// Plans all sockets and circuits.
    pub(super) fn plan(&mut self) {
        for socket in 0..self.config.sockets {
            let mut conn = Conn::new(Side::Outbound, None);
            let held_back = self.config.held_back;
            conn.is_held_back =
                held_back.is_some_and(|held_back| (held_back.sockets_before + socket) % 2 == 1);
            conn.has_few_circuits = self
                .config
                .few_circuits
                .is_none_or(|few| few.includes(few.sockets_before + socket));
            let mut numbers = Vec::new();
            for place in 0..self.config.circuits_per_socket {
                let number = u32::try_from(self.circuits.len() + numbers.len()).unwrap_or(u32::MAX);
                let origin_id = CircId::of_initiator(place + 1);
                conn.circuits.add(origin_id, number);
                numbers.push(origin_id);
            }
            let origin = self.conns.add(conn);
            self.to_dial.push_back(origin);
            self.circuits.extend(numbers.into_iter().map(|origin_id| Circuit {
                origin,
                origin_id,
                state: State::Waiting,
                is_second_try: false,
            }));
        }
    }

    /// TLS to the target is established: begins the link.
    pub(super) fn open_channel(&mut self, now: Instant, id: ConnId, tls: &dyn TlsSession) {
        let target = self.config.target;
        let expected = ExpectedPeer { ids: target.ids, address: target.address.ip() };
        let (authentication, proof) = match &self.config.return_path {
            ReturnPath::Transit { authenticate_as, .. } => match authenticate_as.len() {
                0 => (Authentication::Anonymous, None),
                count => {
                    let identity = Arc::clone(&authenticate_as[id.0 as usize % count]);
                    (Authentication::AsRelay(identity), None)
                }
            },
            ReturnPath::Echo { nonce, key_seed } => {
                let Some(exported) = tls.export_keying_material(EXPORTER_LABEL, &[]) else {
                    self.lose_conn(id, "our TLS session cannot export keying material");
                    self.settle(now);
                    return;
                };
                let proof = Proof::sign(key_seed, *nonce, &target.ids, &exported);
                (Authentication::Anonymous, Some(proof))
            }
        };
        let mut random = [0; 24];
        self.rng.fill_bytes(&mut random);
        let unix_time_s = self.config.unix_time_s;
        match Channel::initiator(expected, authentication, tls, random, unix_time_s) {
            Ok(channel) => {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.channel = Some(channel);
                    conn.proof = proof;
                    self.wake(id);
                }
            }
            Err(error) => {
                self.lose_conn(id, &error.to_string());
                self.settle(now);
            }
        }
    }

    /// The target has connected to a return relay.
    pub(super) fn answer_channel(
        &mut self,
        listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        if self.is_over() {
            return None;
        }
        let landing = self.config.return_path.landings().get(listener.0 as usize)?;
        let mut challenge = [0; 32];
        self.rng.fill_bytes(&mut challenge);
        let identity = Arc::clone(&landing.identity);
        let channel = Channel::responder(identity, tls, challenge, self.config.unix_time_s);
        Some(self.conns.add(Conn::new(Side::Inbound(listener), Some(channel))))
    }

    /// The link is open: creates its circuits.
    pub(super) fn create_circuits(&mut self, channel: &mut Channel, circuits: &CircuitTable) {
        for number in circuits.numbers() {
            self.create_circuit(channel, number);
        }
    }

    pub(super) fn create_circuit(&mut self, channel: &mut Channel, number: u32) {
        // A circuit that set-up has given up stays closed, however late its link opens.
        if !matches!(self.circuits[number as usize].state, State::Waiting) {
            return;
        }
        let (mut x, mut ephemeral_secret) = ([0; 20], [0; 32]);
        self.rng.fill_bytes(&mut x);
        self.rng.fill_bytes(&mut ephemeral_secret);
        let circ_id = self.circuits[number as usize].origin_id;
        let state = match &self.config.return_path {
            ReturnPath::Transit { landings, .. } => {
                let place = self.config.landing_of(number, landings.len());
                let Some(landing) = landings.get(place) else {
                    self.lose_circuit(number, "the measurement has no landings");
                    return;
                };
                let next = NextHop::to_own(&landing.identity, landing.address);
                State::Building(Builder::two_hops(circ_id, next, x, ephemeral_secret))
            }
            ReturnPath::Echo { .. } => State::Creating(fast::Client::new(x)),
        };
        channel.send(circ_id, Command::CREATE_FAST, &x);
        self.circuits[number as usize].state = state;
    }

    /// A connection is unusable: closes it with its circuits.
    pub(super) fn lose_conn(&mut self, id: ConnId, problem: &str) {
        let Some(conn) = self.conns.get(id) else { return };
        // A stranger's connection to a return relay carries no circuit.
        let circuits: Vec<u32> = conn.circuits.numbers().collect();
        for circuit in circuits {
            self.lose_circuit(circuit, problem);
        }
        self.to_close.push_back(id);
    }

    pub(super) fn lose_circuit(&mut self, number: u32, problem: &str) {
        let circuit = &mut self.circuits[number as usize];
        if !matches!(circuit.state, State::Dead) {
            circuit.state = State::Dead;
            self.is_unsettled = true;
            self.last_problem = Some(problem.to_string());
        }
    }

    /// Notes the loss of a circuit, with the error of the relay.
    pub(super) fn lose_circuit_for(&mut self, number: u32, error: &CircuitError) {
        let is_lost = matches!(self.circuits[number as usize].state, State::Dead);
        let is_for_room = *error == CircuitError::Destroyed(DestroyReason::RESOURCE_LIMIT);
        self.ended_for_room += u32::from(is_for_room && !is_lost);
        self.lose_circuit(number, &error.to_string());
    }

    /// Whether most lost circuits were destroyed for lack of resources.
    fn lacks_room(&self) -> bool {
        let lost =
            self.circuits.iter().filter(|circuit| matches!(circuit.state, State::Dead)).count();
        lost > 0 && 2 * self.ended_for_room as usize >= lost
    }

    fn too_few_open(&self, open: u32) -> LoadFailure {
        let wanted = self.config.sockets;
        if self.lacks_room() {
            return LoadFailure::NoRoom { open, wanted };
        }
        if self.is_not_valid_now && matches!(self.phase, Phase::SettingUp { .. }) {
            return LoadFailure::NotValidNow { open, wanted, problem: self.last_problem() };
        }
        LoadFailure::TooFewOpen { open, wanted, last_problem: self.last_problem() }
    }

    /// The number of sockets to the target with at least one circuit for which `holds` is true.
    fn sockets_where(&self, holds: impl Fn(&Circuit) -> bool) -> u32 {
        let per_socket = self.config.circuits_per_socket.max(1) as usize;
        let sockets = self.circuits.chunks(per_socket);
        let count = sockets.filter(|circuits| circuits.iter().any(&holds)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn circuits_up(&self) -> u32 {
        let up = self.circuits.iter().filter(|circuit| circuit.is_up()).count();
        u32::try_from(up).unwrap_or(u32::MAX)
    }

    /// Whether at least half of the sockets work: with fewer, the result would say little about the relay.
    const fn is_enough(&self, open: u32) -> bool {
        open > 0 && open >= self.config.sockets.div_ceil(2)
    }

    fn last_problem(&self) -> String {
        if let Some(problem) = &self.last_problem {
            return problem.clone();
        }
        let is_proving = |id| self.conns.get(id).is_some_and(|conn| conn.stage == Stage::Proving);
        if self.conns.ids().any(is_proving) {
            return "the relay does not answer our proof: does it speak FlashFlow?".to_string();
        }
        "the relay does not answer".to_string()
    }

    /// Whether the target may close its links since, by its clock, the last second is over: it began with the
    /// first cell of any measurer.
    fn may_be_closed(&self, now: Instant) -> bool {
        let Phase::Running(running) = &self.phase else { return false };
        let end = running.start + Duration::from_secs(u64::from(self.config.seconds));
        self.config.return_path.is_echo() && now + END_SLACK >= end
    }

    /// Evaluates circuits that have opened or were lost.
    pub(super) fn settle(&mut self, now: Instant) {
        if !core::mem::take(&mut self.is_unsettled) {
            return;
        }
        let open = self.sockets_where(Circuit::is_up);
        match &self.phase {
            Phase::SettingUp { .. } => {
                let possible = self.sockets_where(|circuit| !matches!(circuit.state, State::Dead));
                if !self.is_enough(possible) {
                    self.fail(self.too_few_open(open));
                } else if self.circuits.iter().all(Circuit::is_settled) {
                    self.get_ready();
                }
            }
            Phase::Running(_) if self.may_be_closed(now) => {}
            Phase::Ready | Phase::Running(_) => {
                let (circuits, of) = (self.circuits_up(), self.ready_circuits);
                // A socket that has lost most of its circuits loads the relay no better than a closed one.
                if !self.is_enough(open) || circuits < of.div_ceil(2) {
                    self.fail(self.too_few_open(open));
                } else if circuits < of {
                    let (problem, lacks_room) = (self.last_problem(), self.lacks_room());
                    self.events.push_back(Event::Lost { circuits, of, problem, lacks_room });
                }
            }
            Phase::Over => {}
        }
    }

    /// Whether cells are in flight: only then can the relay stall.
    pub(super) fn is_loaded(&self) -> bool {
        self.circuits.iter().any(|circuit| match &circuit.state {
            State::Up(flow) => flow.window.sent_cells() > flow.window.delivered_cells(),
            _ => false,
        })
    }

    fn get_ready(&mut self) {
        self.phase = Phase::Ready;
        self.to_dial.clear(); // too late for further connections
        let circuits = self.circuits_up();
        self.ready_circuits = circuits;
        let sockets = self.sockets_where(Circuit::is_up);
        self.events.push_back(Event::Ready { sockets, circuits });
    }

    /// A relay that has been given no cells, since all sockets are held back or the rate is low, is not silent.
    pub(super) fn put_off_silence(&mut self, now: Instant) {
        let is_loaded = self.is_loaded();
        if let Phase::Running(running) = &mut self.phase
            && !is_loaded
        {
            running.silent_since = running.silent_since.max(now);
        }
    }

    /// When it gives up unless a cell returns, which is postponed as long as nothing is in flight; `None`
    /// unless it is running.
    #[must_use]
    pub fn stalls_at(&self) -> Option<Instant> {
        let Phase::Running(running) = &self.phase else { return None };
        Some(running.silent_since + self.config.stall_timeout)
    }

    /// Enforces the set-up time and the maximum silence.
    pub(super) fn check_deadlines(&mut self, now: Instant) {
        match &self.phase {
            Phase::SettingUp { began } if now >= *began + self.config.setup_timeout => {
                let open = self.sockets_where(Circuit::is_up);
                if self.is_enough(open) {
                    let timed_out = self.circuits.iter_mut().filter(|circuit| !circuit.is_up());
                    timed_out.for_each(|circuit| circuit.state = State::Dead);
                    self.get_ready();
                } else if self.lacks_room() || self.is_not_valid_now {
                    self.fail(self.too_few_open(open));
                } else {
                    let (wanted, last_problem) = (self.config.sockets, self.last_problem());
                    self.fail(LoadFailure::SetUpTimedOut { open, wanted, last_problem });
                }
            }
            Phase::Running(running) if self.stalls_at().is_some_and(|at| now >= at) => {
                let silent = now - running.silent_since;
                let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
                self.fail(LoadFailure::Stalled { silent_ms });
            }
            _ => {}
        }
    }
}
