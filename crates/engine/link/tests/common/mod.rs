//! Common code of the driver's tests.

use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer};
use onion::link::TlsSession;
use onion::node::{
    CloseCause, ConnId, Dial, DnsAnswer, DnsQuery, ListenerId, Lookup, LookupId, Node, Security,
};
use onion::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Far longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn configs() -> TlsConfigs {
    TlsConfigs::new(&IdentityIssuer::new([9; 32], link::unix_time_s()).expect("keys"))
        .expect("usable")
}

pub(crate) fn driver<N: Node>(
    node: N,
    listeners: Vec<TcpListener>,
    options: DriverOptions,
) -> Driver<N> {
    Driver::new(node, Clock::start(), configs(), listeners, options).expect("a driver")
}

pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("it listens");
    (listener, address)
}

/// Runs the driver until this is true of the node.
pub(crate) fn run<N: Node>(driver: &mut Driver<N>, mut is_done: impl FnMut(&mut N) -> bool) {
    run_driver(driver, |driver| is_done(driver.node_mut()));
}

/// Runs the driver until this is true of it.
pub(crate) fn run_driver<N: Node>(
    driver: &mut Driver<N>,
    mut is_done: impl FnMut(&mut Driver<N>) -> bool,
) {
    let end = driver.now() + PATIENCE;
    while !is_done(driver) {
        assert!(driver.now() < end, "the condition is not reached in time");
        driver.turn(driver.now() + Duration::from_millis(1)).expect("the system waits");
    }
}

/// Bytes that depend on their position.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let byte = |place: usize| u8::try_from((place ^ (place >> 8) ^ (place >> 16)) & 0xff);
    (0..len).map(|place| byte(place).expect("masked")).collect()
}

/// A node controlled by a test, which records events.
#[derive(Default)]
pub(crate) struct Puppet {
    pub(crate) dials: VecDeque<Dial>,
    pub(crate) writable: VecDeque<ConnId>,
    pub(crate) closing: VecDeque<ConnId>,
    pub(crate) readable: VecDeque<ConnId>,
    pub(crate) lookups: VecDeque<Lookup>,
    /// Bytes to be sent.
    pub(crate) outgoing: BTreeMap<ConnId, VecDeque<u8>>,
    /// The number of further bytes that it accepts, if limited.
    pub(crate) limits: BTreeMap<ConnId, usize>,
    pub(crate) connected: Vec<ConnId>,
    pub(crate) received: BTreeMap<ConnId, Vec<u8>>,
    pub(crate) closed: BTreeMap<ConnId, CloseCause>,
    pub(crate) answers: BTreeMap<LookupId, DnsAnswer>,
    pub(crate) accepted: u32,
    /// Refuses TLS handshakes from this address.
    pub(crate) refused: Option<IpAddr>,
    /// The addresses whose admission was requested.
    pub(crate) asked: Vec<IpAddr>,
}

impl Puppet {
    pub(crate) fn dial(&mut self, conn: u32, to: SocketAddr, security: Security) -> ConnId {
        self.dials.push_back(Dial { conn: ConnId(conn), to, security });
        ConnId(conn)
    }

    pub(crate) fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        self.outgoing.entry(conn).or_default().extend(bytes);
        self.writable.push_back(conn);
    }

    /// Accepts this number of further bytes.
    pub(crate) fn take(&mut self, conn: ConnId, more: usize) {
        let limit = self.limits.entry(conn).or_default();
        if *limit == 0 {
            self.readable.push_back(conn);
        }
        *limit += more;
    }

    pub(crate) fn ask(&mut self, id: u32, name: &str) -> LookupId {
        let question = DnsQuery::Addresses(name.to_owned());
        self.lookups.push_back(Lookup { id: LookupId(id), question });
        LookupId(id)
    }

    pub(crate) fn received(&self, conn: ConnId) -> &[u8] {
        self.received.get(&conn).map_or(&[], Vec::as_slice)
    }
}

impl Node for Puppet {
    fn handle_connected(&mut self, _now: Instant, conn: ConnId, _tls: &dyn TlsSession) {
        self.connected.push(conn);
    }

    fn admits(&mut self, _now: Instant, from: IpAddr) -> bool {
        self.asked.push(from);
        self.refused != Some(from)
    }

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        _tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        self.accepted += 1;
        Some(ConnId(1_000_000 + self.accepted))
    }

    fn handle_bytes(&mut self, _now: Instant, conn: ConnId, plaintext: &[u8]) {
        if let Some(limit) = self.limits.get_mut(&conn) {
            *limit = limit.checked_sub(plaintext.len()).expect("no more than it accepts");
        }
        self.received.entry(conn).or_default().extend_from_slice(plaintext);
    }

    fn handle_closed(&mut self, _now: Instant, conn: ConnId, cause: CloseCause) {
        let before = self.closed.insert(conn, cause);
        assert_eq!(before, None, "notified twice");
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        self.dials.pop_front()
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.writable.pop_front()
    }

    fn poll_transmit(&mut self, _now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(waiting) = self.outgoing.get_mut(&conn) else { return 0 };
        let len = waiting.len().min(out.len());
        out.iter_mut().zip(waiting.drain(..len)).for_each(|(to, from)| *to = from);
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        self.closing.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_plain_connected(&mut self, _now: Instant, conn: ConnId) {
        self.connected.push(conn);
    }

    fn receive_limit(&self, conn: ConnId) -> usize {
        self.limits.get(&conn).copied().unwrap_or(usize::MAX)
    }

    fn poll_readable(&mut self) -> Option<ConnId> {
        self.readable.pop_front()
    }

    fn poll_lookup(&mut self) -> Option<Lookup> {
        self.lookups.pop_front()
    }

    fn handle_answer(&mut self, _now: Instant, id: LookupId, answer: DnsAnswer) {
        let before = self.answers.insert(id, answer);
        assert_eq!(before, None, "notified twice");
    }
}
