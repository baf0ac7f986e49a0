//! Many connections to one relay, and circuits of one hop on them.

use onion::Instant;
use onion::cell::msg::CreatedFast;
use onion::cell::{CircId, Command};
use onion::crypto::fast;
use onion::link::{Authentication, Channel, ChannelError, ExpectedPeer, TlsSession};
use onion::measure::load::Target;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of connections that are being created.
const DIALS_MAX: u32 = 64;

/// Maximum number of temporary circuits of a connection at a time.
const TEMPORARY_MAX: u32 = 2;

/// CREATED_FAST arrived on an unknown circuit, or with a wrong key hash.
const INVALID_ANSWER: &str = "the relay's answer to CREATE_FAST is invalid";

/// Opens permanent circuits, and then temporary ones.
pub struct CircuitLoad {
    target: Target,
    unix_time_s: u64,
    rng: StdRng,
    connections: u32,
    /// Permanent circuits on each connection.
    permanent_per_conn: u32,
    dialed: u32,
    connecting: u32,
    links: Vec<Link>,
    writable: VecDeque<ConnId>,
    open_circuits: u64,
    /// The number of temporary circuits still to begin.
    to_begin: u64,
    destroyed_circuits: u64,
    failure: Option<String>,
}

#[derive(Default)]
struct Link {
    channel: Option<Channel>,
    has_opened_circuits: bool,
    created: u32,
    /// Pending handshakes: tor need not answer in order.
    handshakes: BTreeMap<CircId, fast::Client>,
    is_queued: bool,
}

impl CircuitLoad {
    /// Creates a load of this number of permanent circuits over this number of connections.
    pub fn new(
        target: Target,
        connections: u32,
        circuits: u32,
        unix_time_s: u64,
        rng: StdRng,
    ) -> Self {
        Self {
            target,
            unix_time_s,
            rng,
            connections,
            permanent_per_conn: circuits.div_ceil(connections),
            dialed: 0,
            connecting: 0,
            links: Vec::new(),
            writable: VecDeque::new(),
            open_circuits: 0,
            to_begin: 0,
            destroyed_circuits: 0,
            failure: None,
        }
    }

    /// The number of permanent circuits that are open.
    pub const fn open_circuits(&self) -> u64 {
        self.open_circuits
    }

    /// The number of permanent circuits to open.
    pub fn target_circuits(&self) -> u64 {
        u64::from(self.permanent_per_conn) * u64::from(self.connections)
    }

    /// The number of temporary circuits that were opened and destroyed.
    pub const fn destroyed_circuits(&self) -> u64 {
        self.destroyed_circuits
    }

    /// The reason that the load cannot continue.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Opens this number of temporary circuits, and destroys each once it is open.
    pub fn open_and_destroy(&mut self, circuits: u64) {
        self.to_begin = circuits;
        for _ in 0..TEMPORARY_MAX {
            for place in 0..self.links.len() {
                self.begin_temporary(place);
            }
        }
    }

    fn begin_temporary(&mut self, place: usize) {
        if self.to_begin > 0 {
            self.to_begin -= 1;
            self.begin(place);
        }
    }

    /// Begins another circuit on this connection.
    fn begin(&mut self, place: usize) {
        let mut x = [0; 20];
        self.rng.fill_bytes(&mut x);
        let Some(link) = self.links.get_mut(place) else { return };
        let Some(channel) = &mut link.channel else { return };
        link.created += 1;
        let circ_id = CircId::of_initiator(link.created);
        channel.send(circ_id, Command::CREATE_FAST, &x);
        link.handshakes.insert(circ_id, fast::Client::new(x));
        self.wake(place);
    }

    fn wake(&mut self, place: usize) {
        let Some(link) = self.links.get_mut(place) else { return };
        if !link.is_queued {
            link.is_queued = true;
            self.writable.push_back(conn(place));
        }
    }

    fn fail(&mut self, problem: impl ToString) {
        self.failure.get_or_insert(problem.to_string());
    }

    fn handle_created(&mut self, place: usize, circ_id: CircId, body: &[u8]) {
        let Some(link) = self.links.get_mut(place) else { return };
        let client = link.handshakes.remove(&circ_id);
        let created = CreatedFast::parse(body).ok();
        let keys = client.zip(created).and_then(|(client, created)| client.finish(&created).ok());
        if keys.is_none() {
            self.fail(INVALID_ANSWER);
            return;
        }
        if circ_id.get() <= CircId::of_initiator(self.permanent_per_conn).get() {
            self.open_circuits += 1;
            return;
        }
        if let Some(channel) = &mut link.channel {
            channel.send(circ_id, Command::DESTROY, &[0]);
        }
        self.destroyed_circuits += 1;
        self.wake(place);
        self.begin_temporary(place);
    }

    fn handle_cells(&mut self, place: usize, mut plaintext: &[u8]) -> Result<(), ChannelError> {
        // The channel is moved out of its link, since cells borrow from it.
        let channel = self.links.get_mut(place).and_then(|link| link.channel.take());
        let Some(mut channel) = channel else { return Ok(()) };
        let mut answers = Vec::new();
        while let Some(cell) = channel.handle_bytes(&mut plaintext)? {
            match cell.command {
                Command::CREATED_FAST => answers.push((cell.circ_id, cell.body.to_vec())),
                Command::DESTROY => {
                    self.fail(format!(
                        "the relay has destroyed a circuit: reason {}",
                        cell.body[0]
                    ));
                }
                _ => {}
            }
        }
        let has_opened = channel.is_open() && !self.links[place].has_opened_circuits;
        self.links[place].channel = Some(channel);
        if has_opened {
            self.links[place].has_opened_circuits = true;
            (0..self.permanent_per_conn).for_each(|_| self.begin(place));
        }
        self.wake(place);
        for (circ_id, body) in answers {
            self.handle_created(place, circ_id, &body);
        }
        Ok(())
    }
}

fn conn(place: usize) -> ConnId {
    ConnId(u32::try_from(place).unwrap_or(u32::MAX))
}

impl Node for CircuitLoad {
    fn handle_connected(&mut self, _: Instant, conn: ConnId, tls: &dyn TlsSession) {
        self.connecting -= 1;
        let expected = ExpectedPeer { ids: self.target.ids, address: self.target.address.ip() };
        let mut random = [0; 24];
        self.rng.fill_bytes(&mut random);
        let begun =
            Channel::initiator(expected, Authentication::Anonymous, tls, random, self.unix_time_s);
        match begun {
            Ok(channel) => {
                self.links[conn.0 as usize].channel = Some(channel);
                self.wake(conn.0 as usize);
            }
            Err(error) => self.fail(error),
        }
    }

    fn handle_accepted(&mut self, _: Instant, _: ListenerId, _: &dyn TlsSession) -> Option<ConnId> {
        None
    }

    fn handle_bytes(&mut self, _: Instant, conn: ConnId, plaintext: &[u8]) {
        if let Err(error) = self.handle_cells(conn.0 as usize, plaintext) {
            self.fail(error);
        }
    }

    fn handle_closed(&mut self, _: Instant, _: ConnId, cause: CloseCause) {
        self.fail(format!("a connection to the relay has closed: {cause}"));
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        if self.dialed == self.connections || self.connecting == DIALS_MAX {
            return None;
        }
        let conn = ConnId(self.dialed);
        self.dialed += 1;
        self.connecting += 1;
        self.links.push(Link::default());
        Some(Dial { conn, to: self.target.address, security: Security::Tls })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        let conn = self.writable.pop_front()?;
        self.links[conn.0 as usize].is_queued = false;
        Some(conn)
    }

    fn poll_transmit(&mut self, _: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let channel = self.links.get_mut(conn.0 as usize).and_then(|link| link.channel.as_mut());
        channel.map_or(0, |channel| channel.poll_transmit(out))
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
