//! A lying exit, built from the engine's parts: links, handshakes and layers are genuine, and messages are arbitrary.

use super::transcript::Transcript;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer, NodeThread};
use onion::cell::msg::{ConfluxLink, ConfluxNonce, ConfluxNote, ConfluxSwitch, Create2, Sendme};
use onion::cell::msg::{DestroyReason, encode_created2_into};
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::cell_model::{CellModel, Tor};
use onion::crypto::RelayLayer;
use onion::flow::control::Agreed;
use onion::identity::OwnIdentity;
use onion::link::{Channel, TlsSession};
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The exit's behaviour, which the client selects by the port of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitBehavior {
    /// Honest.
    Honest,
    /// Endless data, whose first message is missing.
    FloodBehindGap,
    /// Endless data in order, without regard to flow control.
    Flood,
    /// One lie in this number of messages, at random from this seed.
    Lies(u16),
}

impl ExitBehavior {
    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::Honest => 1,
            Self::FloodBehindGap => 2,
            Self::Flood => 3,
            Self::Lies(seed) => 1000 + seed,
        }
    }

    fn of_port(port: u16) -> Option<Self> {
        [Self::Honest, Self::FloodBehindGap, Self::Flood]
            .into_iter()
            .find(|behavior| behavior.port() == port)
            .or_else(|| port.checked_sub(1000).map(Self::Lies))
    }
}

/// Messages of a stream, its CONNECTED and END among them.
const MESSAGES: u32 = 400;
/// One message in this number is a lie.
const ONE_IN: u32 = 60;
/// The length of a flood, far above the client's limits.
const FLOOD_CELLS: u32 = 600_000;
/// As fast as C tor relays forward them. They destroy circuits with too many queued cells, and then the client's own limit is not
/// tested.
const FLOOD_AT_ONCE: u32 = 16;
const FLOOD_EVERY: Duration = Duration::from_millis(1);

/// A circuit that ends at the exit.
struct Circuit {
    layer: RelayLayer,
    nonce: Option<ConfluxNonce>,
    /// The number of the last message that was sent on it, as the client counts.
    number: u64,
}

/// A set of linked circuits.
#[derive(Default)]
struct Set {
    resumes: bool,
    first_leg: u8,
    legs: Vec<(ConnId, CircId)>,
    sent: u64,
    flood: u32,
    stream: u16,
    transcript: Transcript,
}

/// The transcripts of sets by the requested port, one for each set on which it was requested.
pub(crate) type Transcripts = Arc<Mutex<BTreeMap<u16, Vec<Transcript>>>>;

/// The exit.
pub(crate) struct LyingExit {
    identity: Arc<OwnIdentity>,
    links: BTreeMap<ConnId, Channel>,
    accepted: u32,
    circuits: BTreeMap<(ConnId, CircId), Circuit>,
    sets: BTreeMap<ConfluxNonce, Set>,
    writable: VecDeque<ConnId>,
    rng: StdRng,
    /// Whether it also lies when it links circuits.
    lies_at_links: Arc<AtomicBool>,
    transcripts: Transcripts,
    flood_at: Option<Instant>,
}

impl LyingExit {
    /// Listens at this address with the keys of this folder, on a separate thread.
    pub(crate) fn start(
        keys: &Path,
        listen: SocketAddr,
        lies_at_links: Arc<AtomicBool>,
        transcripts: Transcripts,
    ) -> NodeThread<Self> {
        let mut rng = StdRng::from_seed([7; 32]);
        let keys = relay::keys::open(keys, &mut rng).expect("its keys");
        let mut issuer = IdentityIssuer::new([8; 32], link::unix_time_s()).expect("made");
        let identity = Arc::new(issuer.certify(&keys).expect("certified").identity);
        let node = Self {
            identity,
            links: BTreeMap::new(),
            accepted: 0,
            circuits: BTreeMap::new(),
            sets: BTreeMap::new(),
            writable: VecDeque::new(),
            rng,
            lies_at_links,
            transcripts,
            flood_at: None,
        };
        let listener = TcpListener::bind(listen).expect("the port is free again");
        let tls = TlsConfigs::new(&issuer).expect("sound");
        let options = DriverOptions::default();
        let driver = Driver::new(node, Clock::start(), tls, vec![listener], options);
        let driver = Box::new(driver.expect("it runs"));
        NodeThread::start("lying-exit", driver, ()).expect("a thread")
    }

    fn send(&mut self, (conn, circ_id): (ConnId, CircId), command: Command, body: &[u8]) {
        if let Some(channel) = self.links.get_mut(&conn) {
            channel.send(circ_id, command, body);
            self.writable.push_back(conn);
        }
    }

    /// Sends a message on a circuit, without regard to its set.
    fn send_message(
        &mut self,
        at: (ConnId, CircId),
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        let Some(circuit) = self.circuits.get_mut(&at) else { return };
        let mut body = [0; BODY_LEN];
        let message = RelayMessage { command, stream_id, data };
        circuit.layer.format().write(&message, &mut body).expect("it fits");
        circuit.layer.originate(&mut body);
        self.send(at, Command::RELAY, &body);
    }

    fn handle_cell(&mut self, at: (ConnId, CircId), command: Command, body: &[u8]) {
        match command {
            Command::CREATE2 => self.create(at, body),
            Command::RELAY | Command::RELAY_EARLY => self.handle_relay(at, command, body),
            Command::DESTROY => self.forget(at),
            // Other requests, such as for directories.
            _ if at.1 != CircId::LINK => self.send(at, Command::DESTROY, &[1]),
            _ => {}
        }
    }

    fn create(&mut self, at: (ConnId, CircId), body: &[u8]) {
        let offered = Agreed { congestion_sendme_cells: Some(31) };
        let ephemeral = self.rng.random();
        let create = Create2::parse(body).expect("from a C tor relay");
        let answer = Tor::answer(&self.identity, &create, offered, || ephemeral);
        let Some(answer) = answer else { return self.send(at, Command::DESTROY, &[1]) };
        let mut created = Vec::new();
        encode_created2_into(&answer.data, &mut created);
        self.send(at, Command::CREATED2, &created);
        let layer = RelayLayer::new(&answer.keys);
        self.circuits.insert(at, Circuit { layer, nonce: None, number: 0 });
    }

    fn forget(&mut self, at: (ConnId, CircId)) {
        let nonce = self.circuits.remove(&at).and_then(|circuit| circuit.nonce);
        if let Some(set) = nonce.and_then(|nonce| self.sets.get_mut(&nonce)) {
            set.legs.retain(|leg| *leg != at);
        }
    }

    fn handle_relay(&mut self, at: (ConnId, CircId), command: Command, body: &[u8]) {
        let Some(circuit) = self.circuits.get_mut(&at) else { return };
        let Ok(mut body) = <[u8; BODY_LEN]>::try_from(body) else { return };
        if !circuit.layer.decrypt(command, &mut body) {
            return;
        }
        let Ok(message) = circuit.layer.format().parse(&body) else { return };
        match message.command {
            RelayCommand::CONFLUX_LINK => {
                let link = ConfluxLink::parse(message.data).expect("from our client");
                self.link(at, link);
            }
            RelayCommand::BEGIN => {
                let text = String::from_utf8_lossy(message.data).into_owned();
                let port = text.split('\0').next().and_then(|target| target.rsplit(':').next());
                let port = port.and_then(|port| port.parse().ok()).unwrap_or(0);
                let stream_id = message.stream_id;
                self.begin(at, stream_id, port);
            }
            // The rest of a flood would test nothing, and would delay others.
            RelayCommand::END => {
                let set = circuit.nonce.and_then(|nonce| self.sets.get_mut(&nonce));
                set.into_iter().for_each(|set| set.flood = 0);
            }
            _ => {}
        }
    }

    fn link(&mut self, at: (ConnId, CircId), theirs: ConfluxLink) {
        let Some(circuit) = self.circuits.get_mut(&at) else { return };
        circuit.nonce = Some(theirs.nonce);
        // The client compares the cells received on a leg with the announced number.
        circuit.number = theirs.last_received;
        let is_new = !self.sets.contains_key(&theirs.nonce);
        let lies = self.lies_at_links.load(Ordering::Relaxed);
        // Some sets do not retransmit, like those of C tor exits.
        let resumes = theirs.resumes && !(lies && self.rng.random_ratio(1, 3));
        let set = self.sets.entry(theirs.nonce).or_default();
        if is_new {
            set.resumes = resumes;
            set.first_leg = theirs.leg;
        }
        set.legs.push(at);
        let mut ours = ConfluxLink {
            last_sent: set.sent,
            last_received: theirs.last_sent,
            resumes: set.resumes,
            first_leg: set.first_leg,
            ..theirs
        };
        let lie = if lies { self.rng.random_range(0..30) } else { 99 };
        match lie {
            // The leg carries data although it is never linked.
            0 if !is_new => return,
            1 => ours.nonce.0[3] ^= 1,
            2 => ours.last_received += 5,
            3 => ours.leg ^= 1,
            _ => {}
        }
        let mut data = Vec::new();
        ours.encode_into(&mut data);
        self.send_message(at, RelayCommand::CONFLUX_LINKED, 0, &data);
        if lie == 4 {
            self.send_message(at, RelayCommand::CONFLUX_LINKED, 0, &data);
        }
    }

    fn begin(&mut self, at: (ConnId, CircId), stream_id: u16, port: u16) {
        let Some(nonce) = self.circuits.get(&at).and_then(|circuit| circuit.nonce) else { return };
        let Some(behavior) = ExitBehavior::of_port(port) else { return };
        let Some(set) = self.sets.get_mut(&nonce) else { return };
        // A client whose leg is lost retransmits its messages with their old numbers.
        if set.stream == stream_id {
            return;
        }
        set.stream = stream_id;
        set.transcript.begin(stream_id, set.sent);
        let connected = [127, 0, 0, 1, 0, 0, 0, 60];
        match behavior {
            ExitBehavior::Flood | ExitBehavior::FloodBehindGap => {
                set.flood = FLOOD_CELLS;
                self.send_next(nonce, 0, RelayCommand::CONNECTED, &connected);
                if behavior == ExitBehavior::FloodBehindGap
                    && let Some(set) = self.sets.get_mut(&nonce)
                {
                    set.sent += 1;
                }
            }
            ExitBehavior::Honest => self.send_stream(nonce, &connected, None),
            ExitBehavior::Lies(seed) => self.send_stream(nonce, &connected, Some(seed)),
        }
        if let Some(set) = self.sets.get(&nonce) {
            let mut transcripts = self.transcripts.lock().unwrap_or_else(PoisonError::into_inner);
            transcripts.entry(port).or_default().push(set.transcript.clone());
        }
    }

    /// Sends a whole stream at once, more than any window permits.
    fn send_stream(&mut self, nonce: ConfluxNonce, connected: &[u8], seed: Option<u16>) {
        let mut rng = StdRng::seed_from_u64(seed.unwrap_or(0).into());
        self.send_next(nonce, 0, RelayCommand::CONNECTED, connected);
        for number in 2..MESSAGES {
            // Some in a row on each leg.
            let leg = (number / 7) as usize;
            let mut data = vec![0; rng.random_range(1..400)];
            rng.fill(&mut data[..]);
            let is_lie = seed.is_some() && rng.random_ratio(1, ONE_IN);
            match is_lie {
                true => self.lie(nonce, leg, &data, &mut rng),
                false => self.send_next(nonce, leg, RelayCommand::DATA, &data),
            }
        }
        self.send_next(nonce, 0, RelayCommand::END, &[6]);
    }

    /// The leg of a set with this index.
    fn leg(&self, nonce: ConfluxNonce, place: usize) -> Option<(ConnId, CircId)> {
        let legs = &self.sets.get(&nonce)?.legs;
        legs.get(place % legs.len().max(1)).copied()
    }

    /// Sends the next message according to the protocol.
    fn send_next(&mut self, nonce: ConfluxNonce, place: usize, command: RelayCommand, data: &[u8]) {
        let Some(at) = self.leg(nonce, place) else { return };
        let sent = self.sets.get(&nonce).map_or(0, |set| set.sent);
        let number = self.circuits.get(&at).map_or(0, |circuit| circuit.number);
        if sent != number {
            // In two's complement.
            let skipped = sent.wrapping_sub(number) & u64::from(u32::MAX);
            self.switch(at, u32::try_from(skipped).expect("32 bits"));
        }
        self.send_on_leg(at, command, None, data);
        if let Some(set) = self.sets.get_mut(&nonce) {
            set.sent += 1;
        }
    }

    fn switch(&mut self, at: (ConnId, CircId), skipped: u32) {
        let mut data = Vec::new();
        ConfluxSwitch { skipped }.encode_into(&mut data);
        self.send_message(at, RelayCommand::CONFLUX_SWITCH, 0, &data);
        let Some(circuit) = self.circuits.get_mut(&at) else { return };
        let set = circuit.nonce.and_then(|nonce| self.sets.get(&nonce));
        let skipped = match set.is_some_and(|set| set.resumes) {
            true => i64::from(skipped.cast_signed()),
            false => i64::from(skipped),
        };
        circuit.number = circuit.number.saturating_add_signed(skipped);
    }

    /// Sends a message on this leg, whatever its sequence number is for the client.
    fn send_on_leg(
        &mut self,
        at: (ConnId, CircId),
        command: RelayCommand,
        stream: Option<u16>,
        data: &[u8],
    ) {
        let Some(circuit) = self.circuits.get_mut(&at) else { return };
        circuit.number += 1;
        let number = circuit.number;
        let Some(set) = circuit.nonce.and_then(|nonce| self.sets.get_mut(&nonce)) else { return };
        let stream = stream.unwrap_or(set.stream);
        // Nothing is stored of a flood: it would take as much memory as the flood.
        if set.flood == 0 {
            set.transcript.note(number, stream, command, data);
        }
        self.send_message(at, command, stream, data);
    }

    fn lie(&mut self, nonce: ConfluxNonce, place: usize, data: &[u8], rng: &mut StdRng) {
        let Some(at) = self.leg(nonce, place) else { return };
        let mut note = Vec::new();
        match rng.random_range(0..11) {
            // A wrong sequence number, close or far.
            0 => self.switch(at, rng.random_range(0..8)),
            1 => self.switch(at, rng.random::<u32>() >> rng.random_range(0..32)),
            2 => self.switch(at, rng.random_range(1_u32..50).wrapping_neg()),
            // A message on the wrong leg.
            3 | 4 => {
                let other = self.leg(nonce, place + 1).unwrap_or(at);
                self.send_on_leg(other, RelayCommand::DATA, None, data);
                if let Some(set) = self.sets.get_mut(&nonce) {
                    set.sent += 1;
                }
                return;
            }
            // A message for a stream that does not exist.
            5 => {
                self.send_on_leg(at, RelayCommand::DATA, Some(rng.random()), b"no stream");
            }
            // The leg is closed.
            6 => {
                self.send(at, Command::DESTROY, &[DestroyReason::FINISHED.get()]);
                self.forget(at);
            }
            7 => ConfluxNote::Arrived(rng.random::<u64>() >> rng.random_range(0..64))
                .encode_into(&mut note),
            8 => {
                ConfluxNote::LostLegs(&rng.random::<[u8; 2]>().map(|random| random % 3))
                    .encode_into(&mut note);
            }
            9 => {
                let mut sendme = Vec::new();
                Sendme::Tagged(&rng.random::<[u8; 20]>()).encode_into(&mut sendme);
                self.send_message(at, RelayCommand::SENDME, 0, &sendme);
            }
            // The stream continues after END.
            _ => self.send_on_leg(at, RelayCommand::END, None, &[6]),
        }
        if !note.is_empty() {
            self.send_message(at, RelayCommand::CONFLUX_LINKED_ACK, 0, &note);
        }
        self.send_next(nonce, place, RelayCommand::DATA, data);
    }

    /// Sends more of each flood.
    fn flood(&mut self) {
        let is_flooded = |set: &Set| set.flood > 0 && !set.legs.is_empty();
        let all = self.sets.iter().filter(|(_, set)| is_flooded(set));
        let all: Vec<_> = all.map(|(nonce, set)| (*nonce, set.flood)).collect();
        for (nonce, left) in all {
            for _ in 0..FLOOD_AT_ONCE.min(left - 1) {
                self.send_next(nonce, (left / 100) as usize, RelayCommand::DATA, &[7; 480]);
            }
            if let Some(set) = self.sets.get_mut(&nonce) {
                set.flood -= FLOOD_AT_ONCE.min(left - 1);
            }
        }
    }
}

impl Node for LyingExit {
    fn handle_connected(&mut self, _: Instant, _: ConnId, _: &dyn TlsSession) {}

    fn handle_accepted(
        &mut self,
        _: Instant,
        _: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        let identity = Arc::clone(&self.identity);
        let channel = Channel::responder(identity, tls, self.rng.random(), link::unix_time_s());
        let conn = ConnId(self.accepted);
        self.accepted += 1;
        self.links.insert(conn, channel);
        Some(conn)
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        // The channel is taken out, since its cells borrow from it.
        let Some(mut channel) = self.links.remove(&conn) else { return };
        let mut cells = Vec::new();
        while let Ok(Some(cell)) = channel.handle_bytes(&mut bytes) {
            cells.push((cell.circ_id, cell.command, cell.body.to_vec()));
        }
        self.links.insert(conn, channel);
        self.writable.push_back(conn);
        for (circ_id, command, body) in cells {
            self.handle_cell((conn, circ_id), command, &body);
        }
        if self.sets.values().any(|set| set.flood > 0) {
            self.flood_at.get_or_insert(now);
        }
    }

    fn handle_closed(&mut self, _: Instant, conn: ConnId, _: CloseCause) {
        self.links.remove(&conn);
        let of_link = |at: &&(ConnId, CircId)| at.0 == conn;
        let closed: Vec<_> = self.circuits.keys().filter(of_link).copied().collect();
        closed.into_iter().for_each(|at| self.forget(at));
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.flood_at.is_some_and(|at| at <= now) {
            self.flood_at = Some(now + FLOOD_EVERY);
            self.flood();
        }
    }

    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        None
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.writable.pop_front()
    }

    fn poll_transmit(&mut self, _: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        self.links.get_mut(&conn).map_or(0, |channel| channel.poll_transmit(out))
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.flood_at
    }
}
