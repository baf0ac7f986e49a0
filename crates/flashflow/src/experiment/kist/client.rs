//! Clients: some links to the relay, with bulk circuits and a quiet one on each.

use super::trace::{Kind, Quiet, Shared};
use onion::cell::{CircId, Command};
use onion::circuit::{Builder, NextHop, Step};
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::measure::pump::Target;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};
use onion::{Duration, Instant};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, VecDeque};

/// Cells after which a client lets the server send so many more, as tor's SENDME.
pub(super) const SENDME_CELLS: u32 = 100;

/// Cells of an answer to a quiet circuit: what a small page takes.
pub(super) const ANSWER_CELLS: u32 = 10;

/// Least time from one request of a quiet circuit to the next.
const PAUSE: Duration = Duration::from_millis(150);

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) links: u32,
    pub(super) bulk_per_link: u32,
}

/// All clients of the relay, as one node.
pub(super) struct Clients {
    load: Load,
    target: Target,
    landing: NextHop,
    rng: StdRng,
    unix_time_s: u64,
    links: Vec<ClientLink>,
    to_dial: VecDeque<Dial>,
    writable: VecDeque<ConnId>,
    built: usize,
    cells: u64,
    noted: u64,
    shared: Shared,
}

#[derive(Default)]
struct ClientLink {
    channel: Option<Channel>,
    circuits: BTreeMap<CircId, Circuit>,
    /// The next request of the quiet circuit; none while an answer is under way.
    asks_at: Option<Instant>,
}

struct Circuit {
    kind: Kind,
    /// Until it stands.
    building: Option<Builder>,
    cells: u32,
}

impl Clients {
    pub(super) fn new(
        load: Load,
        target: Target,
        landing: NextHop,
        rng: StdRng,
        unix_time_s: u64,
        shared: Shared,
    ) -> Self {
        let dial = |conn| Dial { conn: ConnId(conn), to: target.address, security: Security::Tls };
        shared.lock().quiet = vec![Quiet::default(); load.links as usize];
        Self {
            load,
            target,
            landing,
            rng,
            unix_time_s,
            links: (0..load.links).map(|_| ClientLink::default()).collect(),
            to_dial: (0..load.links).map(dial).collect(),
            writable: VecDeque::new(),
            built: 0,
            cells: 0,
            noted: 0,
            shared,
        }
    }

    /// Bulk circuits begin: each asks for the first window.
    pub(super) fn start_bulk(&mut self) {
        for (number, link) in (0..).zip(&mut self.links) {
            let Some(channel) = &mut link.channel else { continue };
            for (circ_id, circuit) in &link.circuits {
                if circuit.kind == Kind::Bulk {
                    channel.send(*circ_id, Command::RELAY, &[]);
                }
            }
            self.writable.push_back(ConnId(number));
        }
    }

    /// Notes what has arrived.
    pub(super) fn note(&mut self, now: Instant) {
        if self.cells > self.noted {
            self.noted = self.cells;
            self.shared.lock().cells.push((now, self.cells));
        }
    }

    fn create(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(conn.0 as usize) else { return };
        let Some(channel) = &mut link.channel else { return };
        for place in 0..=self.load.bulk_per_link {
            // The quiet one is first, and so the relay's numbers of circuits favour nobody else.
            let kind = if place == 0 { Kind::Quiet(conn.0 as usize) } else { Kind::Bulk };
            let (mut x, mut secret) = ([0; 20], [0; 32]);
            self.rng.fill_bytes(&mut x);
            self.rng.fill_bytes(&mut secret);
            let circ_id = CircId::of_initiator(place + 1);
            let building = Builder::two_hops(circ_id, self.landing, x, secret);
            let public = building.last_public().copied();
            self.shared.lock().known.extend(public.map(|public| (public, kind)));
            channel.send(circ_id, Command::CREATE_FAST, &x);
            link.circuits.insert(circ_id, Circuit { kind, building: Some(building), cells: 0 });
        }
        self.writable.push_back(conn);
    }

    fn handle_cell(
        &mut self,
        now: Instant,
        channel: &mut Channel,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: &[u8],
    ) -> Result<(), String> {
        let Some(link) = self.links.get_mut(conn.0 as usize) else { return Ok(()) };
        let Some(circuit) = link.circuits.get_mut(&circ_id) else { return Ok(()) };
        if let Some(building) = &mut circuit.building {
            match building.handle_cell(command, body).map_err(|error| error.to_string())? {
                Step::Send { command, body } => channel.send(circ_id, command, &body),
                Step::Built => {
                    circuit.building = None;
                    self.built += 1;
                    if matches!(circuit.kind, Kind::Quiet(_)) {
                        link.asks_at = Some(now);
                    }
                }
            }
            let wanted = self.load.links as usize * (1 + self.load.bulk_per_link as usize);
            self.shared.lock().is_ready = self.built == wanted;
            return Ok(());
        }
        if command != Command::RELAY {
            return Err(format!("{command} on a circuit"));
        }
        circuit.cells += 1;
        self.cells += 1;
        match circuit.kind {
            Kind::Bulk => {
                if circuit.cells.is_multiple_of(SENDME_CELLS) {
                    channel.send(circ_id, Command::RELAY, &[]);
                }
            }
            Kind::Quiet(number) => {
                let mut trace = self.shared.lock();
                trace.quiet[number].arrived.push(now);
                if circuit.cells.is_multiple_of(ANSWER_CELLS)
                    && let Some((asked, _)) = trace.quiet[number].asked.last()
                {
                    link.asks_at = Some(now.max(*asked + PAUSE));
                }
            }
        }
        Ok(())
    }

    fn fail(&self, problem: String) {
        self.shared.lock().failure.get_or_insert(problem);
    }
}

impl Node for Clients {
    fn handle_connected(&mut self, _now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        let mut random = [0; 24];
        self.rng.fill_bytes(&mut random);
        let peer = ExpectedPeer { ids: self.target.ids, address: self.target.address.ip() };
        let channel =
            Channel::initiator(peer, Authentication::Anonymous, tls, random, self.unix_time_s);
        match channel {
            Ok(channel) => self.links[conn.0 as usize].channel = Some(channel),
            Err(error) => self.fail(error.to_string()),
        }
        self.writable.push_back(conn);
    }

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        _tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        None
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        let taken = self.links.get_mut(conn.0 as usize).and_then(|link| link.channel.take());
        let Some(mut channel) = taken else { return };
        let mut input = plaintext;
        let was_open = channel.is_open();
        loop {
            let (circ_id, command, body) = match channel.handle_bytes(&mut input) {
                Ok(Some(cell)) => (cell.circ_id, cell.command, cell.body.to_vec()),
                Ok(None) => break,
                Err(error) => {
                    self.fail(error.to_string());
                    break;
                }
            };
            let result = self.handle_cell(now, &mut channel, conn, circ_id, command, &body);
            if let Err(problem) = result {
                self.fail(problem);
            }
        }
        let is_open = channel.is_open();
        self.links[conn.0 as usize].channel = Some(channel);
        if is_open && !was_open {
            self.create(conn);
        }
        self.writable.push_back(conn);
    }

    fn handle_closed(&mut self, _now: Instant, _conn: ConnId, cause: CloseCause) {
        self.fail(format!("a client's link: {cause}"));
    }

    fn handle_timeout(&mut self, now: Instant) {
        for (number, link) in (0..).zip(&mut self.links) {
            let Some(channel) = &mut link.channel else { continue };
            if link.asks_at.is_none_or(|at| at > now) {
                continue;
            }
            link.asks_at = None;
            channel.send(CircId::of_initiator(1), Command::RELAY, &[]);
            let mut trace = self.shared.lock();
            let quiet = &mut trace.quiet[number as usize];
            let before = quiet.asked.len() * ANSWER_CELLS as usize;
            quiet.asked.push((now, before));
            self.writable.push_back(ConnId(number));
        }
    }

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.writable.pop_front()
    }

    fn poll_transmit(&mut self, _now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let link = self.links.get_mut(conn.0 as usize);
        link.and_then(|link| link.channel.as_mut()).map_or(0, |channel| channel.poll_transmit(out))
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.links.iter().filter_map(|link| link.asks_at).min()
    }
}
