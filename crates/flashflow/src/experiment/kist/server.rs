//! Servers: where circuits end. They send what clients ask for, as fast as the relay takes it.

use super::client::{ANSWER_CELLS, SENDME_CELLS};
use super::trace::{Kind, Shared};
use onion::Instant;
use onion::cell::msg::{Create2, encode_created2_into};
use onion::cell::{BODY_LEN, CELL_LEN, Cell, CircId, Command};
use onion::crypto::ntor;
use onion::identity::OwnIdentity;
use onion::link::{Channel, TlsSession};
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Cells that may be under way to a client: tor's circuit window.
const WINDOW_CELLS: u32 = 1000;

/// Cells of one circuit before the next has its turn.
const QUANTUM_CELLS: u32 = 8;

/// All servers, as one node.
pub(super) struct Servers {
    identity: Arc<OwnIdentity>,
    rng: StdRng,
    links: Vec<ServerLink>,
    writable: VecDeque<ConnId>,
    shared: Shared,
}

struct ServerLink {
    channel: Option<Channel>,
    circuits: BTreeMap<CircId, Circuit>,
    /// Circuits that may send.
    turns: VecDeque<CircId>,
    cell: Vec<u8>,
}

struct Circuit {
    kind: Kind,
    has_begun: bool,
    /// Cells that it may send.
    credit: u32,
}

impl Servers {
    pub(super) fn new(identity: Arc<OwnIdentity>, rng: StdRng, shared: Shared) -> Self {
        Self { identity, rng, links: Vec::new(), writable: VecDeque::new(), shared }
    }

    /// The relay extends a circuit to us.
    fn create(&mut self, circ_id: CircId, body: &[u8]) -> Option<(Vec<u8>, Circuit)> {
        let create = Create2::parse(body).ok()?;
        let mut secret = [0; 32];
        self.rng.fill_bytes(&mut secret);
        let (identity, data) = (&self.identity, create.data);
        let (answer, _keys) =
            ntor::respond(&identity.rsa.0, &identity.onion_secret(), secret, data).ok()?;
        // It ends with the client's public key.
        let public: [u8; 32] = data.last_chunk().copied()?;
        let kind = self.shared.lock().known.get(&public).copied()?;
        let mut created = Vec::new();
        encode_created2_into(&answer, &mut created);
        debug_assert!(circ_id != CircId::LINK);
        Some((created, Circuit { kind, has_begun: false, credit: 0 }))
    }
}

impl ServerLink {
    /// A client asks for more.
    fn grant(&mut self, circ_id: CircId) {
        let Some(circuit) = self.circuits.get_mut(&circ_id) else { return };
        let was_silent = circuit.credit == 0;
        circuit.credit += match circuit.kind {
            Kind::Quiet(_) => ANSWER_CELLS,
            Kind::Bulk if circuit.has_begun => SENDME_CELLS,
            Kind::Bulk => WINDOW_CELLS,
        };
        circuit.has_begun = true;
        if was_silent {
            // Quiet circuits wait nowhere but in the relay.
            match circuit.kind {
                Kind::Quiet(_) => self.turns.push_front(circ_id),
                Kind::Bulk => self.turns.push_back(circ_id),
            }
        }
    }

    fn fill(&mut self, now: Instant, shared: &Shared, out: &mut [u8]) -> usize {
        let mut written = 0;
        while out.len() - written >= CELL_LEN
            && let Some(circ_id) = self.turns.pop_front()
        {
            let Some(circuit) = self.circuits.get_mut(&circ_id) else { continue };
            let room = u32::try_from((out.len() - written) / CELL_LEN).unwrap_or(u32::MAX);
            let count = circuit.credit.min(QUANTUM_CELLS).min(room);
            self.cell.clear();
            Cell { circ_id, command: Command::RELAY, body: &[0x5a; BODY_LEN] }
                .encode_into(&mut self.cell);
            for _ in 0..count {
                out[written..written + CELL_LEN].copy_from_slice(&self.cell);
                written += CELL_LEN;
            }
            if let Kind::Quiet(number) = circuit.kind {
                let sent = &mut shared.lock().quiet[number].sent;
                sent.extend((0..count).map(|_| now));
            }
            circuit.credit -= count;
            if circuit.credit > 0 {
                match circuit.kind {
                    Kind::Quiet(_) => self.turns.push_front(circ_id),
                    Kind::Bulk => self.turns.push_back(circ_id),
                }
            }
        }
        written
    }
}

impl Node for Servers {
    fn handle_connected(&mut self, _now: Instant, _conn: ConnId, _tls: &dyn TlsSession) {}

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        let mut challenge = [0; 32];
        self.rng.fill_bytes(&mut challenge);
        let channel = Some(Channel::responder(
            Arc::clone(&self.identity),
            tls,
            challenge,
            link::unix_time_s(),
        ));
        let (circuits, turns, cell) = (BTreeMap::new(), VecDeque::new(), Vec::new());
        self.links.push(ServerLink { channel, circuits, turns, cell });
        Some(ConnId(u32::try_from(self.links.len() - 1).unwrap_or(u32::MAX)))
    }

    fn handle_bytes(&mut self, _now: Instant, conn: ConnId, plaintext: &[u8]) {
        let taken = self.links.get_mut(conn.0 as usize).and_then(|link| link.channel.take());
        let Some(mut channel) = taken else { return };
        let mut input = plaintext;
        while let Ok(Some(cell)) = channel.handle_bytes(&mut input) {
            let circ_id = cell.circ_id;
            match cell.command {
                Command::CREATE2 => {
                    let body = cell.body.to_vec();
                    if let Some((created, circuit)) = self.create(circ_id, &body) {
                        channel.send(circ_id, Command::CREATED2, &created);
                        self.links[conn.0 as usize].circuits.insert(circ_id, circuit);
                    }
                }
                Command::RELAY => self.links[conn.0 as usize].grant(circ_id),
                _ => {}
            }
        }
        self.links[conn.0 as usize].channel = Some(channel);
        self.writable.push_back(conn);
    }

    fn handle_closed(&mut self, _now: Instant, conn: ConnId, _cause: CloseCause) {
        if let Some(link) = self.links.get_mut(conn.0 as usize) {
            link.channel = None;
            link.turns.clear();
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        None
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.writable.pop_front()
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(link) = self.links.get_mut(conn.0 as usize) else { return 0 };
        let Some(channel) = &mut link.channel else { return 0 };
        match channel.poll_transmit(out) {
            0 => link.fill(now, &self.shared, out),
            written => written,
        }
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
