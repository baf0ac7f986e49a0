use super::keys::Token;
use super::packet::{FRAME_LEN_MAX, FrameKind, Packet};
use super::peer::{End, Peer, Phase, Ticks, Verdict};
use super::report::{CapacityPeer, CapacityReport, PeerReport};
use onion::{Duration, Instant, Rate};
use rand::Rng;
use std::net::SocketAddr;

/// Maximum number of peers. The state of a peer is bounded, some 10 KB.
const PEERS_MAX: usize = 255;
/// Longest test.
const SECONDS_MAX: u32 = 600;
/// Longest delay before the test.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// One measurer's part of a capacity test.
#[derive(Clone, Debug)]
pub struct ExchangeConfig {
    /// The common secret of the members of this test.
    pub token: Token,
    /// Our index in the team.
    pub index: u16,
    /// All others.
    pub peers: Vec<CapacityPeer>,
    /// When the flood starts. Before it, the peers must have proved themselves.
    pub start: Instant,
    /// Length of the flood, 1 to 600 seconds; the paper's is 60 (§4.2).
    pub seconds: u32,
    /// Our maximum send rate, to all peers together. Each gets an even share and no more, even if others are lost.
    pub rate: Rate,
}

/// An invalid configuration of a test. The coordinator that ordered it is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// No peer, or too many.
    #[error("a capacity test needs 1 to 255 other measurers, not {0}")]
    PeerCount(usize),
    /// Two members have the same index.
    #[error("two members of the capacity test have the index {0}; each needs its own")]
    SameIndex(u16),
    /// Two members have the same address.
    #[error("two members of the capacity test have the address {0}; each needs its own")]
    SameAddress(SocketAddr),
    /// Too short or too long.
    #[error("a capacity test takes 1 to {SECONDS_MAX} seconds, not {0}")]
    Seconds(u32),
    /// Too far ahead.
    #[error("a capacity test starts within {} seconds, not after {}", DELAY_MAX.as_secs(), .0.as_secs())]
    Delay(Duration),
    /// The rate is zero.
    #[error("the rate of a capacity test is zero; give the rate of the measurer's link")]
    NoRate,
}

/// Datagrams to send to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// The number of bytes written to the buffer.
    pub len: usize,
    /// Length of each datagram in it; `len` is a multiple.
    pub datagram_len: usize,
    place: usize,
    second: Option<u32>,
}

/// One measurer's part of an exchange between all pairs of a team, as a state machine.
///
/// Pass it each datagram ([`handle_datagram`](Self::handle_datagram)) and timeout
/// ([`handle_timeout`](Self::handle_timeout)), and send its datagrams ([`poll_transmit`](Self::poll_transmit)), until it
/// [is over](Self::is_over).
pub struct Exchange {
    index: u16,
    ticks: Ticks,
    start: Instant,
    seconds: u32,
    peers: Vec<Peer>,
    /// The next peer in order.
    turn: usize,
    stranger_packets: u64,
    over: Option<FrameKind>,
}

impl Exchange {
    /// Starts to contact the peers. `rng` provides the nonces.
    ///
    /// # Errors
    /// [`ExchangeError`]: the error in the configuration.
    pub fn new(
        config: &ExchangeConfig,
        rng: &mut impl Rng,
        now: Instant,
    ) -> Result<Self, ExchangeError> {
        config.check(now)?;
        let share = Rate::from_bit_per_s(
            (config.rate.as_bit_per_s() / config.peers.len().max(1) as u64).max(1),
        );
        let seconds = usize::try_from(config.seconds).unwrap_or(0);
        let peers = config.peers.iter().map(|peer| {
            let mut nonce = [0; 16];
            rng.fill_bytes(&mut nonce);
            Peer::new(*peer, config.index, config.token, nonce, share, seconds, now)
        });
        Ok(Self {
            index: config.index,
            ticks: Ticks { origin: now },
            start: config.start,
            seconds: config.seconds,
            peers: peers.collect(),
            turn: 0,
            stranger_packets: 0,
            over: None,
        })
    }

    /// The current second of the test.
    fn second(&self, now: Instant) -> Option<u32> {
        let second = u32::try_from((now - self.start).as_secs()).ok()?;
        (now >= self.start && second < self.seconds).then_some(second)
    }

    fn end(&self) -> Instant {
        self.start + Duration::from_secs(u64::from(self.seconds))
    }

    /// Whether the exchange has ended with all peers.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_silent = |peer: &Peer| peer.timeout(Instant::ORIGIN, false, true).is_none();
        self.over.is_some() && self.peers.iter().all(is_silent)
    }

    /// Whether all peers have proved themselves.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.peers.iter().all(Peer::is_proven)
    }

    /// Handles a datagram from `from`. Invalid datagrams have no effect.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let second = self.second(now);
        let from = canonical(from);
        let peer = self.peers.iter_mut().find(|peer| canonical(peer.known.address) == from);
        let verdict = match (peer, Packet::parse(datagram)) {
            (Some(peer), Some(packet)) => {
                let verdict = match packet {
                    Packet::Hello(hello, tag) => peer.handle_hello(now, &hello, &tag),
                    Packet::Frame(frame, tag) => {
                        peer.handle_frame(now, self.ticks, second, &frame, &tag)
                    }
                };
                peer.repeated_packets += u64::from(verdict == Verdict::Repeated);
                verdict
            }
            _ => Verdict::Stranger,
        };
        self.stranger_packets += u64::from(verdict == Verdict::Stranger);
    }

    /// Handles the passage of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.over.is_some() {
            return;
        }
        let phase = match self.second(now) {
            _ if now >= self.end() => Phase::Over { last: self.seconds.saturating_sub(1) },
            Some(second) => Phase::Flood { second },
            None => Phase::Before,
        };
        for peer in &mut self.peers {
            peer.handle_timeout(now, phase);
        }
        let is_over = matches!(phase, Phase::Over { .. });
        if is_over || self.peers.iter().all(|peer| peer.end.is_some()) {
            self.over = Some(FrameKind::Done);
        }
    }

    /// Gives up and notifies the peers.
    pub fn cancel(&mut self) {
        self.over = self.over.or(Some(FrameKind::Cancelled));
    }

    /// Writes the datagrams to send now, all to one peer, at most `datagrams_max`.
    ///
    /// Only headers are written. The rest of the buffer is sent as filler, and should be random, since a path may compress
    /// it.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        datagrams_max: usize,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let second = self.second(now);
        let may_flood = second.is_some() && self.over.is_none();
        for _ in 0..self.peers.len() {
            let place = self.turn;
            self.turn = (self.turn + 1) % self.peers.len();
            let peer = &mut self.peers[place];
            let (to, over) = (peer.known.address, self.over);
            let small = peer.poll_small(now, self.ticks, over, buffer).map(|len| (len, len));
            let written = small.or_else(|| {
                let len = may_flood
                    .then(|| peer.poll_flood(now, self.ticks, datagrams_max, buffer))
                    .flatten()?;
                Some((len, FRAME_LEN_MAX))
            });
            if let Some((len, datagram_len)) = written {
                let transmit = Transmit { to, len, datagram_len, place, second };
                if let Some(sent) = self.sent_bytes(&transmit) {
                    *sent += len as u64;
                }
                return Some(transmit);
            }
        }
        None
    }

    /// Handles a transmission that the operating system rejected.
    pub fn handle_unsent(&mut self, transmit: &Transmit, error: String) {
        if let Some(sent) = self.sent_bytes(transmit) {
            *sent = sent.saturating_sub(transmit.len as u64);
        }
        if let Some(peer) = self.peers.get_mut(transmit.place) {
            peer.send_error = Some(error);
        }
    }

    fn sent_bytes(&mut self, transmit: &Transmit) -> Option<&mut u64> {
        let second = usize::try_from(transmit.second?).ok()?;
        let second = self.peers.get_mut(transmit.place)?.seconds.get_mut(second)?;
        Some(&mut second.sent_bytes)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) again, if nothing arrives. `None` if it is over.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let is_flooding = self.second(now).is_some() && self.over.is_none();
        let peers =
            self.peers.iter().filter_map(|it| it.timeout(now, is_flooding, self.over.is_some()));
        let phase = if now < self.start { self.start } else { self.end() };
        peers.chain(self.over.is_none().then_some(phase)).min()
    }

    /// The report of the sent and received bytes.
    #[must_use]
    pub fn report(&self) -> CapacityReport {
        let report = |peer: &Peer| PeerReport {
            peer: peer.known,
            seconds: peer.seconds.clone(),
            lost: match peer.end {
                Some(End::Lost(lost)) => Some(lost),
                Some(End::Done) | None => None,
            },
            repeated_packets: peer.repeated_packets,
            send_error: peer.send_error.clone(),
        };
        CapacityReport {
            index: self.index,
            peers: self.peers.iter().map(report).collect(),
            stranger_packets: self.stranger_packets,
        }
    }
}

impl ExchangeConfig {
    fn check(&self, now: Instant) -> Result<(), ExchangeError> {
        if self.peers.is_empty() || self.peers.len() > PEERS_MAX {
            return Err(ExchangeError::PeerCount(self.peers.len()));
        }
        if self.seconds == 0 || self.seconds > SECONDS_MAX {
            return Err(ExchangeError::Seconds(self.seconds));
        }
        let delay = self.start - now;
        if delay > DELAY_MAX {
            return Err(ExchangeError::Delay(delay));
        }
        if self.rate == Rate::ZERO {
            return Err(ExchangeError::NoRate);
        }
        for (place, peer) in self.peers.iter().enumerate() {
            let before = &self.peers[..place];
            if peer.index == self.index || before.iter().any(|it| it.index == peer.index) {
                return Err(ExchangeError::SameIndex(peer.index));
            }
            if before.iter().any(|it| canonical(it.address) == canonical(peer.address)) {
                return Err(ExchangeError::SameAddress(peer.address));
            }
        }
        Ok(())
    }
}

/// The canonical form of an address: a dual-stack socket reports IPv4 addresses as IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
