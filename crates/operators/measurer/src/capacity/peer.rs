//! One measurer's state for another one, and the packets that are due.

use super::keys::{Direction, FrameKey, HelloKey, Token, is_same};
use super::packet::{
    FRAME_BODY_LEN, FRAME_LEN_MAX, FRAME_LEN_MIN, Frame, FrameKind, HELLO_BODY_LEN, HELLO_LEN,
    Hello, Nonce, Tag,
};
use super::replay::ReplayWindow;
use super::report::{CapacityPeer, Lost};
use coordinator::PairSecond;
use onion::flow::TokenBucket;
use onion::{Duration, Instant, Rate};

/// The unit of the times in packets.
const TICK: Duration = Duration::from_millis(20);
/// A hello is repeated until it is answered.
const HELLO_PACE: Duration = Duration::from_millis(100);
/// The maximum number of answers to a peer's hello, which others may replay.
const ANSWER_PACE: Duration = Duration::from_millis(20);
/// The minimum rate of packets to a peer.
const ALIVE_PACE: Duration = Duration::from_millis(100);
/// The flood stops when the last proof of life is this old. It includes the round trip.
const PROOF_LASTS: Duration = Duration::from_secs(1);
/// Without proof of life for this time, the exchange with a peer is aborted.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The final packet is repeated, since it may get lost.
const FAREWELLS: u8 = 2;
/// The maximum burst after a late wake-up.
const BURST: Duration = Duration::from_millis(4);
/// The minimum number of frames that justifies a wake-up.
const QUANTUM: Duration = Duration::from_millis(1);
/// The maximum batch of full frames: one system call.
const BATCH_LEN_MAX: usize = (u16::MAX as usize - 100) / FRAME_LEN_MAX * FRAME_LEN_MAX;

/// Our time in the packets' format.
#[derive(Clone, Copy)]
pub(super) struct Ticks {
    pub(super) origin: Instant,
}

impl Ticks {
    /// From one on; the longest test fits.
    fn at(self, now: Instant) -> u16 {
        let ticks = (now - self.origin).as_nanos() / TICK.as_nanos();
        u16::try_from(ticks).unwrap_or(u16::MAX).saturating_add(1)
    }

    /// The start of a tick; `None` if there was none yet.
    fn began(self, tick: u16, now: Instant) -> Option<Instant> {
        let before = tick.checked_sub(1)?;
        let began = self.origin + TICK * u32::from(before);
        (began <= now).then_some(began)
    }
}

/// The phase of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Before,
    Flood { second: u32 },
    Over { last: u32 },
}

/// The kind of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Authentic,
    /// Authentic, but a replay, or from another run.
    Repeated,
    Stranger,
}

/// The reason why the exchange with a peer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its time is over, as it reports.
    Done,
    Lost(Lost),
}

/// Keys and counters that depend on the nonces of both sides.
struct Session {
    nonce: Nonce,
    outward: FrameKey,
    inward: FrameKey,
    next_sequence: u64,
    window: ReplayWindow,
    /// The newest tick of the peer's.
    echoed_tick: u16,
}

pub(super) struct Peer {
    pub(super) known: CapacityPeer,
    pub(super) end: Option<End>,
    pub(super) seconds: Vec<PairSecond>,
    pub(super) repeated_packets: u64,
    pub(super) send_error: Option<String>,
    token: Token,
    outward: Direction,
    hello_outward: HelloKey,
    hello_inward: HelloKey,
    nonce: Nonce,
    session: Option<Session>,
    /// When the peer had proved its address and its knowledge of the token.
    proven_at: Option<Instant>,
    /// The send time of our newest packet that the peer has confirmed.
    proof_at: Option<Instant>,
    hello_at: Instant,
    answer: Option<Nonce>,
    answer_at: Instant,
    alive_at: Instant,
    farewells: u8,
    bucket: TokenBucket,
    quantum_bytes: u64,
}

impl Peer {
    pub(super) fn new(
        known: CapacityPeer,
        own_index: u16,
        token: Token,
        nonce: Nonce,
        rate: Rate,
        seconds: usize,
        now: Instant,
    ) -> Self {
        let outward = Direction { from: own_index, to: known.index };
        let (least, most) = (FRAME_LEN_MAX as u64, BATCH_LEN_MAX as u64);
        let quantum_bytes = rate.bytes_in(QUANTUM).clamp(least, most);
        Self {
            known,
            end: None,
            seconds: vec![PairSecond::default(); seconds],
            repeated_packets: 0,
            send_error: None,
            token,
            outward,
            hello_outward: HelloKey::new(&token, outward),
            hello_inward: HelloKey::new(&token, outward.reversed()),
            nonce,
            session: None,
            proven_at: None,
            proof_at: None,
            hello_at: now,
            answer: None,
            answer_at: now,
            alive_at: now,
            farewells: FAREWELLS,
            bucket: TokenBucket::new(rate, BURST, quantum_bytes, now),
            quantum_bytes,
        }
    }

    pub(super) const fn is_proven(&self) -> bool {
        self.proven_at.is_some()
    }

    fn is_alive(&self, now: Instant) -> bool {
        self.proof_at.is_some_and(|at| now - at < PROOF_LASTS)
    }

    pub(super) fn handle_hello(&mut self, now: Instant, hello: &Hello, tag: &Tag) -> Verdict {
        let direction = Direction { from: hello.from, to: hello.to };
        if direction != self.outward.reversed()
            || !is_same(&self.hello_inward.tag(&hello.to_bytes()), tag)
        {
            return Verdict::Stranger;
        }
        let is_current = self.session.as_ref().is_some_and(|it| it.nonce == hello.nonce);
        if self.is_proven() && !is_current || hello.is_answer && hello.echo != self.nonce {
            return Verdict::Repeated;
        }
        if !is_current {
            self.session = Some(self.session_with(hello.nonce));
        }
        if hello.is_answer {
            self.prove(now);
        } else {
            self.answer = Some(hello.nonce);
        }
        Verdict::Authentic
    }

    fn session_with(&self, theirs: Nonce) -> Session {
        let (there, ours) = (self.outward, &self.nonce);
        Session {
            nonce: theirs,
            outward: FrameKey::new(&self.token, there, [ours, &theirs]),
            inward: FrameKey::new(&self.token, there.reversed(), [&theirs, ours]),
            next_sequence: 0,
            window: ReplayWindow::new(),
            echoed_tick: 0,
        }
    }

    /// The peer at this address knows the token and our nonce.
    fn prove(&mut self, now: Instant) {
        if self.proven_at.is_none() {
            self.proven_at = Some(now);
            self.alive_at = now;
        }
    }

    pub(super) fn handle_frame(
        &mut self,
        now: Instant,
        ticks: Ticks,
        second: Option<u32>,
        frame: &Frame,
        tag: &Tag,
    ) -> Verdict {
        let Some(session) = &mut self.session else { return Verdict::Stranger };
        if !is_same(&session.inward.tag(&frame.to_bytes()), tag) {
            return Verdict::Stranger;
        }
        if !session.window.accept(frame.sequence) {
            return Verdict::Repeated;
        }
        session.echoed_tick = session.echoed_tick.max(frame.tick);
        self.prove(now);
        self.proof_at = self.proof_at.max(ticks.began(frame.echoed_tick, now));
        let place = second.and_then(|second| usize::try_from(second).ok());
        if let Some(second) = place.and_then(|place| self.seconds.get_mut(place)) {
            second.received_bytes += u64::from(frame.len);
        }
        let end = match frame.kind {
            FrameKind::Data => None,
            FrameKind::Done => Some(End::Done),
            FrameKind::Cancelled => Some(End::Lost(Lost::Cancelled { second })),
        };
        self.end = self.end.or(end);
        Verdict::Authentic
    }

    /// Aborts the exchange with the peer on timeout. At the end the peer must be alive, or have finished: an
    /// interrupted exchange does not count as a low rate.
    pub(super) fn handle_timeout(&mut self, now: Instant, phase: Phase) {
        if self.end.is_some() {
            return;
        }
        let silence = self.proven_at.max(self.proof_at).map(|proof| now - proof);
        let lost = match (silence, phase) {
            (None, Phase::Flood { .. } | Phase::Over { .. }) => Lost::NeverProved,
            (Some(silence), Phase::Over { last }) if silence >= PROOF_LASTS => {
                Lost::Silent { second: Some(last) }
            }
            (Some(silence), Phase::Flood { second }) if silence >= SILENCE_MAX => {
                Lost::Silent { second: Some(second) }
            }
            (Some(silence), Phase::Before) if silence >= SILENCE_MAX => {
                Lost::Silent { second: None }
            }
            _ => return,
        };
        self.end = Some(End::Lost(lost));
    }

    /// Writes a hello, an answer or an empty frame that is due; returns its length.
    pub(super) fn poll_small(
        &mut self,
        now: Instant,
        ticks: Ticks,
        over: Option<FrameKind>,
        buffer: &mut [u8],
    ) -> Option<usize> {
        if let Some(kind) = over {
            if !self.wants_farewell() {
                return None;
            }
            self.farewells -= 1;
            return self.write_frames(now, ticks, kind, FRAME_LEN_MIN, 1, buffer);
        }
        if self.end.is_some() {
            return None;
        }
        if now >= self.answer_at
            && let Some(nonce) = self.answer.take()
        {
            self.answer_at = now + ANSWER_PACE;
            return self.write_hello(Some(nonce), buffer);
        }
        if !self.is_proven() {
            if now < self.hello_at {
                return None;
            }
            self.hello_at = now + HELLO_PACE;
            return self.write_hello(None, buffer);
        }
        if now < self.alive_at {
            return None;
        }
        self.write_frames(now, ticks, FrameKind::Data, FRAME_LEN_MIN, 1, buffer)
    }

    fn wants_farewell(&self) -> bool {
        let has_gone = matches!(self.end, Some(End::Done | End::Lost(Lost::Cancelled { .. })));
        self.farewells > 0 && self.is_proven() && !has_gone
    }

    /// Writes up to `frames_max` full frames, if the peer is alive and its share permits.
    pub(super) fn poll_flood(
        &mut self,
        now: Instant,
        ticks: Ticks,
        frames_max: usize,
        buffer: &mut [u8],
    ) -> Option<usize> {
        if self.end.is_some() || !self.is_alive(now) {
            return None;
        }
        let available = self.bucket.available_bytes(now);
        if available < self.quantum_bytes {
            return None;
        }
        let room = buffer.len().min(BATCH_LEN_MAX) / FRAME_LEN_MAX;
        let affordable = usize::try_from(available).unwrap_or(usize::MAX) / FRAME_LEN_MAX;
        let frames = room.min(affordable).min(frames_max.max(1));
        let len = self.write_frames(now, ticks, FrameKind::Data, FRAME_LEN_MAX, frames, buffer)?;
        self.bucket.take(len as u64);
        Some(len)
    }

    /// The next deadline, if nothing arrives.
    pub(super) fn timeout(
        &self,
        now: Instant,
        is_flooding: bool,
        is_over: bool,
    ) -> Option<Instant> {
        if is_over {
            return self.wants_farewell().then_some(now);
        }
        if self.end.is_some() {
            return None;
        }
        let answer_at = self.answer.map(|_| self.answer_at);
        let send_at = if self.is_proven() { self.alive_at } else { self.hello_at };
        let flood_at = (is_flooding && self.is_alive(now))
            .then(|| self.bucket.available_at(self.quantum_bytes));
        let give_up_at = self.proven_at.max(self.proof_at).map(|at| at + SILENCE_MAX);
        [answer_at, Some(send_at), flood_at, give_up_at].into_iter().flatten().min()
    }

    fn write_hello(&self, echo: Option<Nonce>, buffer: &mut [u8]) -> Option<usize> {
        let hello = Hello {
            is_answer: echo.is_some(),
            from: self.outward.from,
            to: self.outward.to,
            nonce: self.nonce,
            echo: echo.unwrap_or_default(),
        };
        let (body, tag) = buffer.get_mut(..HELLO_LEN)?.split_at_mut(HELLO_BODY_LEN);
        let bytes = hello.to_bytes();
        body.copy_from_slice(&bytes);
        tag.copy_from_slice(&self.hello_outward.tag(&bytes));
        Some(HELLO_LEN)
    }

    /// Writes the headers of `count` frames of `len` bytes each; the filler is unchanged.
    fn write_frames(
        &mut self,
        now: Instant,
        ticks: Ticks,
        kind: FrameKind,
        len: usize,
        count: usize,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let session = self.session.as_mut()?;
        let buffer = buffer.get_mut(..len * count).filter(|buffer| !buffer.is_empty())?;
        for datagram in buffer.chunks_exact_mut(len) {
            let frame = Frame {
                kind,
                len: u16::try_from(len).ok()?,
                tick: ticks.at(now),
                echoed_tick: session.echoed_tick,
                sequence: session.next_sequence,
            };
            session.next_sequence += 1;
            let bytes = frame.to_bytes();
            datagram[..FRAME_BODY_LEN].copy_from_slice(&bytes);
            datagram[FRAME_BODY_LEN..FRAME_LEN_MIN].copy_from_slice(&session.outward.tag(&bytes));
        }
        self.alive_at = now + ALIVE_PACE;
        Some(buffer.len())
    }
}
