//! One pump's part of an exchange between all pairs of a team, as a state machine at the seam of bytes.
//!
//! The dialler of a connection sends its index and a proof, the acceptor answers with a proof, and then the dialler sends
//! records of whole cells, which TLS makes unpredictable. An acceptor sends no load.

use super::token::{Proof, Prover, Token, binding, is_same, proof};
use coordinator::PairSecond;
use onion::cell::{CELL_LEN, CELLS_PER_RECORD};
use onion::flow::TokenBucket;
use onion::link::TlsSession;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};
use onion::{Duration, Instant, Rate};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// The depth of the rate limit's bucket, as in a measurement.
const RATE_BURST: Duration = Duration::from_millis(5);
/// Bytes that a connection sends before the others, so that all get the same share of a limited rate.
const TURN_BYTES: usize = 64 * 1024;
/// Time after the last second in which connections stay open: the other members' last seconds may end later.
const LINGER: Duration = Duration::from_secs(1);
/// The dialler's index and its proof.
const CLAIM_LEN: usize = 2 + size_of::<Proof>();
const RECORD_BYTES: usize = CELLS_PER_RECORD * CELL_LEN;

/// The connections to another member.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// Its index in the team.
    pub(super) index: u16,
    /// The only address from which it may connect.
    pub(super) from: IpAddr,
    /// The destination of each connection to it.
    pub(super) to: Vec<SocketAddr>,
}

/// One pump's part.
#[derive(Clone, Debug)]
pub(super) struct ExchangeConfig {
    pub(super) token: Token,
    /// Our index in the team.
    pub(super) index: u16,
    pub(super) routes: Vec<Route>,
    /// Maximum number of accepted connections; more are refused.
    pub(super) accepted_max: usize,
    /// When the load starts. Until then connections are opened.
    pub(super) start: Instant,
    /// Length of the load.
    pub(super) seconds: u32,
    /// Maximum rate to all members together.
    pub(super) rate: Rate,
}

/// What a pump counted of one other member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Payload of TLS.
    pub(super) seconds: Vec<PairSecond>,
    /// Planned connections to the member.
    pub(super) planned: u32,
    /// Those that were open at the end.
    pub(super) open: u32,
    /// Whether the member has proved itself on any connection.
    pub(super) is_proven: bool,
    /// Why the last lost connection to the member was lost.
    pub(super) problem: Option<String>,
}

impl Counts {
    /// Adds another pump's counts of the same member.
    pub(super) fn add(&mut self, other: Self) {
        for (sum, more) in self.seconds.iter_mut().zip(&other.seconds) {
            sum.sent_bytes += more.sent_bytes;
            sum.received_bytes += more.received_bytes;
        }
        self.planned += other.planned;
        self.open += other.open;
        self.is_proven |= other.is_proven;
        self.problem = self.problem.take().or(other.problem);
    }
}

enum State {
    Connecting,
    /// The bytes of the other side's proof so far.
    Unproven {
        binding: [u8; 32],
        received: Vec<u8>,
    },
    Proven,
}

struct Conn {
    /// The member's place in the list. `None` for accepted connections without proof.
    place: Option<usize>,
    is_dialled: bool,
    state: State,
    /// The rest of our proof.
    to_send: VecDeque<u8>,
    is_queued: bool,
    /// What is left of [`TURN_BYTES`].
    turn_bytes: usize,
}

impl Conn {
    const fn new(place: Option<usize>, is_dialled: bool, state: State) -> Self {
        Self { place, is_dialled, state, to_send: VecDeque::new(), is_queued: false, turn_bytes: 0 }
    }

    const fn carries_load(&self) -> bool {
        self.is_dialled && matches!(self.state, State::Proven)
    }
}

/// One pump's part of an exchange. It [is over](Self::is_over) a second after the load.
pub(super) struct Exchange {
    config: ExchangeConfig,
    counts: Vec<Counts>,
    conns: BTreeMap<ConnId, Conn>,
    next_id: u32,
    to_dial: VecDeque<(ConnId, SocketAddr)>,
    to_close: VecDeque<ConnId>,
    /// Connections with a proof to send.
    urgent: VecDeque<ConnId>,
    /// Connections that wait for their turn to send load.
    queue: VecDeque<ConnId>,
    /// How many of them are served before the driver reads again, or the rate limit has passed.
    turns_left: usize,
    bucket: TokenBucket,
    has_begun: bool,
    has_ended: bool,
    is_over: bool,
    strangers: u64,
}

impl Exchange {
    pub(super) fn new(config: ExchangeConfig) -> Self {
        let mut exchange = Self {
            counts: Vec::new(),
            conns: BTreeMap::new(),
            next_id: 0,
            to_dial: VecDeque::new(),
            to_close: VecDeque::new(),
            urgent: VecDeque::new(),
            queue: VecDeque::new(),
            turns_left: 0,
            bucket: TokenBucket::new(config.rate, RATE_BURST, RECORD_BYTES as u64, config.start),
            has_begun: false,
            has_ended: false,
            is_over: false,
            strangers: 0,
            config,
        };
        for place in 0..exchange.config.routes.len() {
            let to = exchange.config.routes[place].to.clone();
            exchange.counts.push(Counts {
                seconds: vec![PairSecond::default(); exchange.config.seconds as usize],
                planned: u32::try_from(to.len()).unwrap_or(u32::MAX),
                ..Counts::default()
            });
            for address in to {
                let id = exchange.add(Conn::new(Some(place), true, State::Connecting));
                exchange.to_dial.push_back((id, address));
            }
        }
        exchange
    }

    /// Whether it has ended.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The counts, in the order of the routes, and the number of connections without a proof.
    pub(super) fn report(&self) -> (Vec<Counts>, u64) {
        (self.counts.clone(), self.strangers)
    }

    fn add(&mut self, conn: Conn) -> ConnId {
        let id = ConnId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.conns.insert(id, conn);
        id
    }

    /// The counts of a member in the current second; `None` before and after the load.
    fn second(&mut self, now: Instant, place: usize) -> Option<&mut PairSecond> {
        if now < self.config.start {
            return None;
        }
        let second = usize::try_from((now - self.config.start).as_secs()).ok()?;
        self.counts.get_mut(place)?.seconds.get_mut(second)
    }

    fn enqueue(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.carries_load()
            && !conn.is_queued
        {
            conn.is_queued = true;
            self.queue.push_back(id);
        }
    }

    /// Queues our proof.
    fn prove(&mut self, id: ConnId, prefix: &[u8], proof: &Proof) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.to_send.extend(prefix.iter().chain(proof));
            self.urgent.push_back(id);
        }
    }

    fn close(&mut self, now: Instant, id: ConnId, problem: &str) {
        self.to_close.push_back(id);
        self.lose(now, id, problem);
    }

    fn lose(&mut self, now: Instant, id: ConnId, problem: &str) {
        let Some(conn) = self.conns.remove(&id) else { return };
        match conn.place.and_then(|place| self.counts.get_mut(place)) {
            None => self.strangers += 1,
            Some(counts) if conn.is_dialled && !self.has_ended && now < self.config.end() => {
                counts.problem = Some(problem.to_owned());
            }
            Some(_) => {}
        }
    }

    /// Handles a complete proof of the other side.
    fn check(&mut self, now: Instant, id: ConnId, binding: &[u8; 32], received: &[u8]) {
        let (token, own) = (self.config.token, self.config.index);
        let dialled = self.conns.get(&id).and_then(|conn| conn.place);
        let proven = if let Some(place) = dialled {
            let to = self.config.routes[place].index;
            let expected = proof(&token, Prover::Acceptor, own, to, binding);
            received.try_into().is_ok_and(|shown| is_same(shown, &expected)).then_some(place)
        } else {
            received.split_first_chunk().and_then(|(index, shown)| {
                let from = u16::from_be_bytes(*index);
                let place = self.config.routes.iter().position(|route| route.index == from)?;
                let expected = proof(&token, Prover::Dialler, from, own, binding);
                let answer = proof(&token, Prover::Acceptor, from, own, binding);
                shown.try_into().is_ok_and(|shown| is_same(shown, &expected)).then(|| {
                    self.prove(id, &[], &answer);
                    place
                })
            })
        };
        let Some(place) = proven else {
            return self.close(now, id, "it does not know the token of this test");
        };
        self.counts[place].is_proven = true;
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.place, conn.state) = (Some(place), State::Proven);
        }
        if self.has_begun && !self.has_ended {
            self.enqueue(id);
        }
    }

    /// Notes which connections have survived.
    fn end_load(&mut self) {
        self.has_ended = true;
        self.queue.clear();
        for conn in self.conns.values().filter(|conn| conn.carries_load()) {
            if let Some(counts) = conn.place.and_then(|place| self.counts.get_mut(place)) {
                counts.open += 1;
            }
        }
    }
}

impl ExchangeConfig {
    fn end(&self) -> Instant {
        self.start + Duration::from_secs(u64::from(self.seconds))
    }
}

impl Node for Exchange {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        let Some(place) = self.conns.get(&conn).and_then(|conn| conn.place) else { return };
        let Some(binding) = binding(tls) else {
            return self.close(now, conn, "TLS exports no keying material");
        };
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.state = State::Unproven { binding, received: Vec::new() };
        }
        let (own, to) = (self.config.index, self.config.routes[place].index);
        let shown = proof(&self.config.token, Prover::Dialler, own, to, &binding);
        self.prove(conn, &own.to_be_bytes(), &shown);
    }

    fn admits(&mut self, _now: Instant, from: IpAddr) -> bool {
        let admits = !self.has_ended && self.config.routes.iter().any(|route| route.from == from);
        self.strangers += u64::from(!admits);
        admits
    }

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        let accepted = self.conns.values().filter(|conn| !conn.is_dialled).count();
        let binding = binding(tls).filter(|_| accepted < self.config.accepted_max);
        let Some(binding) = binding else {
            self.strangers += 1;
            return None;
        };
        let state = State::Unproven { binding, received: Vec::new() };
        Some(self.add(Conn::new(None, false, state)))
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, mut plaintext: &[u8]) {
        let id = conn;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let State::Unproven { binding, received } = &mut conn.state {
            let len = if conn.is_dialled { size_of::<Proof>() } else { CLAIM_LEN };
            let (proof, rest) = plaintext.split_at(plaintext.len().min(len - received.len()));
            received.extend_from_slice(proof);
            if received.len() < len {
                return;
            }
            let (binding, received) = (*binding, std::mem::take(received));
            self.check(now, id, &binding, &received);
            plaintext = rest;
        }
        let Some(conn) = self.conns.get(&id) else { return };
        if let (false, State::Proven, Some(place)) = (conn.is_dialled, &conn.state, conn.place)
            && let Some(second) = self.second(now, place)
        {
            second.received_bytes += plaintext.len() as u64;
        }
    }

    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.to_close.retain(|closing| *closing != conn);
        self.lose(now, conn, &cause.to_string());
    }

    fn handle_timeout(&mut self, now: Instant) {
        if now >= self.config.start && !self.has_begun {
            self.has_begun = true;
            let ids: Vec<ConnId> = self.conns.keys().copied().collect();
            ids.into_iter().for_each(|id| self.enqueue(id));
        }
        if now >= self.config.end() && !self.has_ended {
            self.end_load();
        }
        let is_alone = self.has_begun && self.conns.is_empty();
        if (is_alone || now >= self.config.end() + LINGER) && !self.is_over {
            self.is_over = true;
            self.to_close.extend(self.conns.keys().copied());
            self.conns.clear();
        }
        self.turns_left = self.queue.len();
    }

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        let (conn, to) = self.to_dial.pop_front()?;
        Some(Dial { conn, to, security: Security::Tls })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        if let Some(id) = self.urgent.pop_front() {
            return Some(id);
        }
        while self.turns_left > 0 {
            self.turns_left -= 1;
            let id = self.queue.pop_front()?;
            if let Some(conn) = self.conns.get_mut(&id) {
                (conn.is_queued, conn.turn_bytes) = (false, TURN_BYTES);
                return Some(id);
            }
        }
        None
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let id = conn;
        let Some(conn) = self.conns.get_mut(&id) else { return 0 };
        if !conn.to_send.is_empty() {
            let len = conn.to_send.len().min(out.len());
            out.iter_mut().zip(conn.to_send.drain(..len)).for_each(|(out, byte)| *out = byte);
            return len;
        }
        let (true, Some(place)) = (conn.carries_load(), conn.place) else { return 0 };
        if !self.has_begun || self.has_ended {
            return 0;
        }
        let len = out.len() - out.len() % CELL_LEN;
        let can_pay = self.bucket.available_bytes(now) >= len as u64;
        if conn.turn_bytes < len || !can_pay {
            if !can_pay {
                self.turns_left = 0;
            }
            self.enqueue(id);
            return 0;
        }
        conn.turn_bytes -= len;
        self.bucket.take(len as u64);
        out[..len].fill(0);
        if let Some(second) = self.second(now, place) {
            second.sent_bytes += len as u64;
        }
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over {
            return None;
        }
        let phase = match (self.has_begun, self.has_ended) {
            (false, _) => self.config.start,
            (true, false) => self.config.end(),
            (true, true) => self.config.end() + LINGER,
        };
        let has_turns = !self.queue.is_empty() && self.turns_left == 0;
        let turn = has_turns.then(|| self.bucket.available_at(RECORD_BYTES as u64));
        Some(turn.map_or(phase, |turn| turn.min(phase)))
    }
}

#[cfg(test)]
mod tests;
