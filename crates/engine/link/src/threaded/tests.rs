use super::*;
use crate::identity_issuer::IdentityIssuer;
use onion::node::CloseCause;
use std::collections::{BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::mem;
use std::net::Ipv4Addr;
use std::net::{SocketAddr, TcpStream};
use std::thread;

const CONNS: u32 = 12;
/// More than queues, chunks and bounds hold.
const LEN: usize = 3_000_000;

/// Byte `at` of what goes over connection `conn`.
fn byte(conn: ConnId, at: usize) -> u8 {
    u8::try_from((at * 7 + at / 251 + conn.0 as usize) % 256).expect("below 256")
}

/// Dials, sends, and checks the echo; or echoes.
#[derive(Default)]
struct Party {
    /// The address that it dials; `None` if it echoes.
    to: Option<(SocketAddr, Security)>,
    dialled: u32,
    conns: BTreeMap<ConnId, Ends>,
    writable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    accepted: u32,
    done: u32,
    closed: Vec<CloseCause>,
    exported: Vec<[u8; 32]>,
    /// Bytes that it sends on each connection, if not all.
    sends: Option<usize>,
    /// Bytes that it accepts before it must be polled again, if it is slow.
    slowly: Option<usize>,
    takes_none: BTreeSet<ConnId>,
    readable: VecDeque<ConnId>,
    /// How it is read, if that is limited.
    pace: Option<Pace>,
}

/// Bytes that a party permits to read in each step of time, over all connections and handshakes.
#[derive(Default)]
struct Pace {
    left: i64,
    /// Handshakes are not limited.
    are_handshakes_free: bool,
    read: i64,
    handshakes_read: i64,
    steps: i64,
    next: Instant,
    /// Those to be polled again. A connection asks again whenever data arrives.
    waiting: BTreeSet<ConnId>,
}

/// Bytes of a step, at most permitted at once, and its length.
const STEP: i64 = 60_000;
const AT_ONCE: i64 = 20_000;
const STEP_TIME: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Ends {
    sent: usize,
    received: usize,
    to_mirror: VecDeque<u8>,
}

impl Node for Party {
    fn handle_connected(&mut self, _: Instant, conn: ConnId, tls: &dyn TlsSession) {
        assert!(tls.peer_certificate().is_some());
        self.exported.extend(tls.export_keying_material(b"EXPORTER FOR TESTS", b""));
        self.writable.push_back(conn);
    }

    fn handle_plain_connected(&mut self, _: Instant, conn: ConnId) {
        self.writable.push_back(conn);
    }

    fn handle_accepted(
        &mut self,
        _: Instant,
        listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        assert_eq!(listener, ListenerId(0));
        self.exported.extend(tls.export_keying_material(b"EXPORTER FOR TESTS", b""));
        let conn = ConnId(self.accepted);
        self.accepted += 1;
        self.conns.insert(conn, Ends::default());
        Some(conn)
    }

    fn handle_bytes(&mut self, _: Instant, conn: ConnId, plaintext: &[u8]) {
        assert!(plaintext.len() <= self.receive_limit(conn), "more than it takes");
        if self.slowly.is_some() {
            self.takes_none.insert(conn);
            self.readable.push_back(conn);
        }
        let ends = self.conns.get_mut(&conn).expect("known");
        if self.to.is_none() {
            ends.to_mirror.extend(plaintext);
            self.writable.push_back(conn);
            return;
        }
        for found in plaintext {
            assert_eq!(*found, byte(conn, ends.received), "byte {} of {conn:?}", ends.received);
            ends.received += 1;
        }
        if ends.received == LEN {
            self.done += 1;
            self.conns.remove(&conn);
            self.to_close.push_back(conn);
        }
    }

    fn handle_closed(&mut self, _: Instant, conn: ConnId, cause: CloseCause) {
        if let Some(place) = self.to_close.iter().position(|closing| *closing == conn) {
            // Both ends wanted that.
            self.to_close.remove(place);
            return;
        }
        assert!(self.conns.remove(&conn).is_some(), "{conn:?} was closed before");
        self.closed.push(cause);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(pace) = &mut self.pace {
            pace.steps += 1;
            pace.left = (pace.left + STEP).min(STEP);
            pace.next = now + STEP_TIME;
            if pace.left > 0 {
                self.readable.extend(mem::take(&mut pace.waiting));
            }
        }
    }

    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        let (to, security) = self.to.filter(|_| self.dialled < CONNS)?;
        let conn = ConnId(self.dialled);
        self.dialled += 1;
        self.conns.insert(conn, Ends::default());
        Some(Dial { conn, to, security })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.writable.pop_front()
    }

    fn poll_transmit(&mut self, _: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(ends) = self.conns.get_mut(&conn) else { return 0 };
        if self.to.is_none() {
            let len = out.len().min(ends.to_mirror.len());
            out.iter_mut().zip(ends.to_mirror.drain(..len)).for_each(|(slot, byte)| *slot = byte);
            return len;
        }
        let len = out.len().min(self.sends.unwrap_or(LEN) - ends.sent);
        for slot in &mut out[..len] {
            *slot = byte(conn, ends.sent);
            ends.sent += 1;
        }
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pace.as_ref().map(|pace| pace.next)
    }

    fn poll_read_limit(&mut self, _: Instant, conn: Option<ConnId>) -> usize {
        let Some(pace) = &mut self.pace else { return usize::MAX };
        let is_free = conn.is_none() && pace.are_handshakes_free;
        let left = if is_free { AT_ONCE } else { pace.left.min(AT_ONCE) };
        let limit = usize::try_from(left).unwrap_or(0);
        pace.waiting.extend(conn.filter(|_| limit == 0));
        limit
    }

    fn handle_read(&mut self, _: Instant, conn: Option<ConnId>, bytes: usize) {
        if let Some(pace) = &mut self.pace {
            let bytes = i64::try_from(bytes).expect("few");
            pace.left -= bytes;
            pace.read += bytes;
            pace.handshakes_read += if conn.is_none() { bytes } else { 0 };
        }
    }

    fn receive_limit(&self, conn: ConnId) -> usize {
        let limit = self.slowly.unwrap_or(usize::MAX);
        if self.takes_none.contains(&conn) { 0 } else { limit }
    }

    fn poll_readable(&mut self) -> Option<ConnId> {
        let conn = self.readable.pop_front()?;
        self.takes_none.remove(&conn);
        Some(conn)
    }
}

fn tls() -> TlsConfigs {
    TlsConfigs::new(&IdentityIssuer::new([8; 32], 1_700_000_000).expect("keys")).expect("usable")
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

fn threaded(party: Party, listeners: &[TcpListener], threads: usize) -> ThreadedDriver<Party> {
    let threads = NonZeroUsize::new(threads).expect("some");
    let options = DriverOptions::default();
    ThreadedDriver::new(party, Clock::start(), &tls(), listeners, options, threads)
        .expect("threads")
}

/// Turns both until `is_done` of the dialler and the other.
fn turn(
    dialler: &mut ThreadedDriver<Party>,
    mirror: &mut ThreadedDriver<Party>,
    is_done: impl Fn(&Party, &Party) -> bool,
) {
    let deadline = dialler.now() + Duration::from_secs(300);
    while !is_done(dialler.node(), mirror.node()) {
        assert!(dialler.now() < deadline, "not done in five minutes");
        for threaded in [&mut *dialler, &mut *mirror] {
            let soon = threaded.now() + Duration::from_millis(1);
            threaded.turn(soon).expect("alive");
        }
    }
}

#[test]
fn data_of_many_threads_arrives_complete_and_in_order() {
    for (dialling, mirroring) in [(1, 1), (3, 2)] {
        let (listener, address) = listener();
        let mut mirror = threaded(Party::default(), &[listener], mirroring);
        let to = Some((address, Security::Tls));
        let mut dialler = threaded(Party { to, ..Party::default() }, &[], dialling);
        turn(&mut dialler, &mut mirror, |dialler, mirror| {
            dialler.done == CONNS && mirror.closed.len() == CONNS as usize
        });
        let (mut ours, mut theirs) =
            (dialler.node().exported.clone(), mirror.node().exported.clone());
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours.len(), CONNS as usize);
        assert_eq!(ours, theirs, "both ends export the same");
        assert!(dialler.node().closed.is_empty(), "{:?}", dialler.node().closed);
        assert_eq!(dialler.traffic().sent_bytes, u64::from(CONNS) * LEN as u64);
        assert_eq!(mirror.traffic().received_bytes, dialler.traffic().sent_bytes);
        assert!(dialler.conns.is_empty() && dialler.by_serial.is_empty());
        assert!(mirror.conns.is_empty() && mirror.by_serial.is_empty());
    }
}

#[test]
fn a_party_is_read_no_faster_than_it_permits_and_completely() {
    for threads in [1, 3] {
        let (listener, address) = listener();
        let paced = Party { pace: Some(Pace::default()), ..Party::default() };
        let mut mirror = threaded(paced, &[listener], threads);
        let to = Some((address, Security::Tls));
        let mut dialler = threaded(Party { to, ..Party::default() }, &[], 1);
        turn(&mut dialler, &mut mirror, |dialler, _| dialler.done == CONNS);
        assert!(dialler.node().closed.is_empty(), "{:?}", dialler.node().closed);
        let pace = mirror.node().pace.as_ref().expect("paced");
        let (len, conns) = (i64::try_from(LEN).expect("few"), i64::from(CONNS));
        // All bytes of the sockets: records have a header, and handshakes are counted. The last read of a
        // handshake may contain the first data.
        assert!(pace.read > len * conns * 1_001 / 1_000, "{}", pace.read);
        assert!(
            (conns * 200..conns * (5_000 + AT_ONCE)).contains(&pace.handshakes_read),
            "{}",
            pace.handshakes_read
        );
        // What each thread and connection may read before it asks again.
        let first = i64::try_from(messages::FIRST_GRANT).expect("few");
        let ahead =
            conns * (AT_ONCE + first) + i64::try_from(threads).expect("few") * (AT_ONCE + first);
        let permitted = (pace.steps + 1) * STEP + ahead;
        assert!(pace.read <= permitted, "{} bytes in {} steps", pace.read, pace.steps);
    }
}

#[test]
fn what_may_not_be_read_waits_without_spinning() {
    let (listener, address) = listener();
    let never = Instant::ORIGIN + Duration::from_hours(1);
    let party =
        || Party { pace: Some(Pace { next: never, ..Pace::default() }), ..Party::default() };
    let options = DriverOptions::default();
    let mut mirror =
        Driver::new(party(), Clock::start(), tls(), vec![listener], options).expect("a driver");
    let to = Some((address, Security::Tls));
    let mut dialler = threaded(Party { to, ..Party::default() }, &[], 1);
    let conns = CONNS as usize;
    let until = |mirror: &mut Driver<Party>,
                 dialler: &mut ThreadedDriver<Party>,
                 is_done: &dyn Fn(&Driver<Party>, &Party) -> bool| {
        let end = dialler.now() + Duration::from_secs(300);
        while !is_done(mirror, dialler.node()) {
            assert!(dialler.now() < end, "not done in five minutes");
            let soon = dialler.now() + Duration::from_millis(1);
            dialler.turn(soon).expect("alive");
            let soon = mirror.now() + Duration::from_millis(1);
            mirror.turn(soon).expect("alive");
        }
    };
    // A turn without work lasts until its deadline.
    let becomes_idle = |mirror: &mut Driver<Party>| {
        (0..1_000).any(|_| {
            let deadline = mirror.now() + Duration::from_millis(50);
            mirror.turn(deadline).expect("alive");
            mirror.now() >= deadline
        })
    };
    until(&mut mirror, &mut dialler, &|mirror, _| mirror.open_sockets() == conns);
    assert!(becomes_idle(&mut mirror), "handshakes wait");
    assert_eq!(mirror.node().accepted, 0);
    mirror.node_mut().pace.as_mut().expect("paced").are_handshakes_free = true;
    until(&mut mirror, &mut dialler, &|mirror, _| {
        mirror.node().pace.as_ref().is_some_and(|pace| pace.waiting.len() >= conns)
    });
    assert_eq!(mirror.node().accepted, CONNS);
    assert!(becomes_idle(&mut mirror), "links wait");
    let pace = mirror.node_mut().pace.take().expect("paced");
    mirror.node_mut().readable.extend(pace.waiting);
    until(&mut mirror, &mut dialler, &|_, dialler| dialler.done == CONNS);
}

/// Sends its bytes to each peer, identified by the peer's first byte; then closes.
fn destination() -> SocketAddr {
    let (listener, address) = listener();
    thread::spawn(move || {
        for stream in listener.incoming().take(CONNS as usize) {
            let mut stream = stream.expect("accepted");
            thread::spawn(move || {
                let mut first = [0];
                stream.read_exact(&mut first).expect("a byte");
                let bytes: Vec<u8> =
                    (0..LEN).map(|at| byte(ConnId(u32::from(first[0])), at)).collect();
                stream.write_all(&bytes).expect("all is taken");
            });
        }
    });
    address
}

#[test]
fn a_node_never_gets_more_than_it_accepts_and_everything_before_the_close() {
    let to = Some((destination(), Security::Plain));
    let party = Party { to, slowly: Some(20_000), ..Party::default() };
    let mut dialler = threaded(Party { sends: Some(1), ..party }, &[], 2);
    let mut mirror = threaded(Party::default(), &[], 1);
    turn(&mut dialler, &mut mirror, |dialler, _| dialler.done == CONNS);
    assert!(dialler.node().closed.is_empty(), "{:?}", dialler.node().closed);
    assert!(dialler.conns.is_empty() && dialler.by_serial.is_empty());
}

#[test]
fn an_unreachable_destination_is_reported_with_its_cause() {
    let (listener, address) = listener();
    drop(listener);
    let mut mirror = threaded(Party::default(), &[], 1);
    for security in [Security::Tls, Security::Plain] {
        let mut dialler =
            threaded(Party { to: Some((address, security)), ..Party::default() }, &[], 2);
        turn(&mut dialler, &mut mirror, |dialler, _| dialler.closed.len() == CONNS as usize);
        assert!(dialler.node().closed.iter().all(|cause| *cause == CloseCause::Refused));
        assert!(dialler.conns.is_empty() && dialler.by_serial.is_empty());
    }
}

#[test]
fn closing_a_listener_keeps_accepted_connections() {
    for threads in [1, 3] {
        let (listener, address) = listener();
        let mut mirror = threaded(Party::default(), &[listener], threads);
        let to = Some((address, Security::Tls));
        let mut dialler = threaded(Party { to, ..Party::default() }, &[], 1);
        turn(&mut dialler, &mut mirror, |_, mirror| mirror.accepted == CONNS);
        assert_eq!(dialler.node().done, 0, "nothing was delivered yet");
        mirror.stop_listening();
        turn(&mut dialler, &mut mirror, |dialler, _| dialler.done == CONNS);
        assert!(dialler.node().closed.is_empty(), "{:?}", dialler.node().closed);
        assert!(TcpStream::connect(address).is_err(), "the port is closed");
        TcpListener::bind(address).expect("the address is free again");
        assert_eq!(mirror.node().accepted, CONNS);
    }
}

#[test]
fn dropping_the_driver_ends_its_threads() {
    let (listener, address) = listener();
    let mut mirror = threaded(Party::default(), &[listener], 2);
    let to = Some((address, Security::Tls));
    let mut dialler = threaded(Party { to, ..Party::default() }, &[], 2);
    turn(&mut dialler, &mut mirror, |_, mirror| mirror.accepted == CONNS);
    // Joins the threads: it would block if one kept running.
    drop(mirror);
    let deadline = dialler.now() + Duration::from_secs(300);
    while dialler.node().closed.len() < CONNS as usize {
        assert!(dialler.now() < deadline, "the close of the other end is not detected");
        let soon = dialler.now() + Duration::from_millis(10);
        dialler.turn(soon).expect("alive");
    }
}

#[test]
fn data_beyond_one_turn_is_delivered_in_the_next() {
    let mut threaded = threaded(Party::default(), &[], 1);
    for _ in 0..EVENTS_PER_TURN {
        threaded.to_us.try_send((0, IoEvent::Wake)).expect("room");
    }
    threaded.to_us.try_send((0, IoEvent::Failed("the last".to_owned()))).expect("room");
    let soon = threaded.now();
    threaded.turn(soon).expect("all but the last");
    let error = threaded.turn(soon).expect_err("the last");
    assert!(error.to_string().contains("the last"), "{error}");
}
