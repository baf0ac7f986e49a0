use crate::input::Input;
use measurer::capacity::packet::{FRAME_LEN_MAX, FRAME_LEN_MIN, HELLO_LEN, Packet};
use measurer::capacity::{CapacityPeer, CapacityReport, Exchange, ExchangeConfig, Token};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

/// Maximum number of datagrams in flight; more are lost.
const QUEUE_LEN: usize = 1000;
/// The validity of a proof of reachability.
const PROOF_LASTS: Duration = Duration::from_secs(1);

/// Two measurers, and an adversary in between who reads, alters, repeats, delays, drops and injects packets:
/// packets that the peer did not send have no effect, nothing is counted twice, an address that was silent for a
/// second is not flooded, and the test ends.
pub fn capacity(data: &[u8]) {
    run(data);
}

fn run(data: &[u8]) -> Vec<CapacityReport> {
    let mut input = Input::new(data);
    let seconds = 1 + u32::from(input.u8() % 3);
    let rate = input.choose(&[100_000, 1_000_000, 8_000_000]);
    let delay = Duration::from_millis(u64::from(input.u8()) * 4);
    let mut world = World {
        now: Instant::ORIGIN,
        start: Instant::ORIGIN + delay,
        sides: [0, 1].map(|index| Side::new(index, delay, seconds, rate)),
        queue: VecDeque::new(),
    };
    while !input.is_empty() {
        world.apply(&mut input);
    }
    world.end();
    world.sides.iter().map(|side| side.exchange.report()).collect()
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, if index == 0 { 4000 } else { 4001 }))
}

struct Side {
    exchange: Exchange,
    /// The packets that it has sent, without filler.
    sent: BTreeSet<Vec<u8>>,
    sent_bytes: u64,
    /// When it last received something that its peer had sent.
    heard_at: Option<Instant>,
}

/// Delivers `bytes` to the side `to`; the other side need not have sent them.
struct Datagram {
    to: usize,
    bytes: Vec<u8>,
}

struct World {
    now: Instant,
    start: Instant,
    sides: [Side; 2],
    queue: VecDeque<Datagram>,
}

/// The authenticated part of a datagram.
fn identity(bytes: &[u8]) -> &[u8] {
    match Packet::parse(bytes) {
        Some(Packet::Frame(..)) => &bytes[..FRAME_LEN_MIN],
        _ => bytes,
    }
}

impl Side {
    fn new(index: u16, delay: Duration, seconds: u32, rate_bit_per_s: u64) -> Self {
        let other = 1 - index;
        let config = ExchangeConfig {
            token: Token::from_bytes([9; 32]),
            index,
            peers: vec![CapacityPeer { index: other, address: address(other.into()) }],
            start: Instant::ORIGIN + delay,
            seconds,
            rate: Rate::from_bit_per_s(rate_bit_per_s),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(index.into());
        let exchange = Exchange::new(&config, &mut rng, Instant::ORIGIN).expect("makes sense");
        Self { exchange, sent: BTreeSet::new(), sent_bytes: 0, heard_at: None }
    }
}

impl World {
    fn apply(&mut self, input: &mut Input<'_>) {
        match input.u8() % 12 {
            0..=4 => {
                for _ in 0..1 + input.u8() % 64 {
                    self.step_honestly();
                }
            }
            5 => {
                let (at, change) = (usize::from(input.u16()), input.u8());
                if let Some(datagram) = self.choose(input) {
                    let (to, mut bytes) = (datagram.to, datagram.bytes.clone());
                    let at = at % bytes.len();
                    bytes[at] ^= change;
                    self.deliver(address(1 - to), to, &bytes);
                }
            }
            6 => {
                if let Some(Datagram { to, bytes }) = self.choose(input) {
                    let (to, bytes) = (*to, bytes.clone());
                    self.deliver(address(1 - to), to, &bytes);
                }
            }
            7 => {
                let place = usize::from(input.u8());
                self.queue.remove(place);
            }
            8 => {
                let (to, from) = (usize::from(input.bool()), usize::from(input.u8() % 3));
                let len = usize::from(input.u8());
                let from = if from == 2 { "[::1]:53".parse().expect("one") } else { address(from) };
                self.deliver(from, to, input.take(len));
            }
            9 => {
                if let Some(Datagram { to, bytes }) = self.choose(input) {
                    let (sender, bytes) = (1 - *to, bytes.clone());
                    self.deliver(address(1 - sender), sender, &bytes);
                }
            }
            10 => {
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.poll();
            }
            _ => {
                if input.u8() == 77 {
                    self.sides[usize::from(input.bool())].exchange.cancel();
                    self.poll();
                }
            }
        }
    }

    fn choose(&self, input: &mut Input<'_>) -> Option<&Datagram> {
        self.queue.get(usize::from(input.u8()) % self.queue.len().max(1))
    }

    /// The honest course: everything arrives, and a little time passes.
    fn step_honestly(&mut self) {
        self.poll();
        for Datagram { to, bytes } in std::mem::take(&mut self.queue) {
            self.deliver(address(1 - to), to, &bytes);
        }
        self.now += Duration::from_millis(10);
        self.poll();
    }

    fn deliver(&mut self, from: SocketAddr, to: usize, bytes: &[u8]) {
        let is_true = from == address(1 - to) && self.sides[1 - to].sent.contains(identity(bytes));
        let now = self.now;
        let exchange = &mut self.sides[to].exchange;
        let (mut before, timeout) = (exchange.report(), exchange.poll_timeout(now));
        exchange.handle_datagram(now, from, bytes);
        if is_true {
            self.sides[to].heard_at = Some(now);
        } else {
            before.stranger_packets += 1;
            assert_eq!((exchange.report(), exchange.poll_timeout(now)), (before, timeout));
        }
    }

    /// Takes everything that both sides want to send.
    fn poll(&mut self) {
        let (now, start) = (self.now, self.start);
        let mut buffer = [0; 3 * FRAME_LEN_MAX];
        for (index, side) in self.sides.iter_mut().enumerate() {
            side.exchange.handle_timeout(now);
            while let Some(transmit) = side.exchange.poll_transmit(now, 3, &mut buffer) {
                assert_eq!(transmit.to, address(1 - index));
                let datagrams = buffer[..transmit.len].chunks_exact(transmit.datagram_len);
                assert!(datagrams.remainder().is_empty());
                for bytes in datagrams {
                    assert!(Packet::parse(bytes).is_some(), "a packet of this side");
                    assert!(side.sent.insert(identity(bytes).to_vec()) || bytes.len() == HELLO_LEN);
                    if bytes.len() > HELLO_LEN {
                        assert!(now >= start, "a flood before the start");
                        let heard = side.heard_at.expect("a flood to a side that never answered");
                        assert!(now - heard < PROOF_LASTS, "a flood to a side that fell silent");
                    }
                    side.sent_bytes += bytes.len() as u64;
                    self.queue.push_back(Datagram { to: 1 - index, bytes: bytes.to_vec() });
                }
            }
            let timeout = side.exchange.poll_timeout(now);
            assert_eq!(timeout.is_none(), side.exchange.is_over());
            assert!(timeout.is_none_or(|at| at > now), "it wants what it did not do");
        }
        let excess = self.queue.len().saturating_sub(QUEUE_LEN);
        self.queue.drain(..excess);
    }

    /// No further input: both sides end.
    fn end(&mut self) {
        for _ in 0..10_000 {
            self.poll();
            self.queue.clear();
            let timeouts = self.sides.iter().filter_map(|it| it.exchange.poll_timeout(self.now));
            let Some(next) = timeouts.min() else {
                return self.check();
            };
            self.now = next;
        }
        panic!("it never ends");
    }

    fn check(&self) {
        for (index, side) in self.sides.iter().enumerate() {
            let report = side.exchange.report();
            let seconds = &report.peers[0].seconds;
            let received: u64 = seconds.iter().map(|second| second.received_bytes).sum();
            let sent: u64 = seconds.iter().map(|second| second.sent_bytes).sum();
            assert!(received <= self.sides[1 - index].sent_bytes, "more than was sent");
            assert!(sent <= side.sent_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_a_flood_or_its_refusal() {
        let told = |wanted: &str| {
            let seeds = crate::seeds().into_iter();
            let seed = seeds.filter(|(target, name, _)| *target == "capacity" && *name == wanted);
            run(&seed.map(|(_, _, content)| content).next().expect("a seed"))
        };
        let received = |report: &CapacityReport| -> u64 {
            report.peers[0].seconds.iter().map(|second| second.received_bytes).sum()
        };
        for report in told("honest") {
            assert!(received(&report) > 400_000 && report.lost().count() == 0, "{report:?}");
            assert_eq!(report.stranger_packets, 0);
        }
        let altered = told("altered");
        assert!(altered.iter().any(|it| received(it) > 0 && it.stranger_packets > 0));
        let repeated = told("repeated");
        assert!(repeated.iter().any(|it| received(it) > 0 && it.peers[0].repeated_packets > 0));
        assert!(told("cancelled").iter().any(|it| received(it) > 0 && it.lost().count() == 1));
        assert!(told("silent").iter().all(|it| received(it) == 0 && it.lost().count() == 1));
    }
}
