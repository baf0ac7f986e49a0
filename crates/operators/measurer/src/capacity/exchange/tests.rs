use super::*;
use crate::capacity::Lost;
use crate::capacity::packet::{FRAME_LEN_MIN, HELLO_LEN};
use coordinator::team_capacities;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;

const TOKEN: Token = Token::from_bytes([7; 32]);
const SECONDS: u32 = 4;
const RATE: Rate = Rate::from_bit_per_s(2_000_000);
const START: Instant = Instant::from_millis(1000);
const LATENCY: Duration = Duration::from_millis(10);

/// A datagram in transit between members, by their indices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Datagram {
    sent_at: Instant,
    from: u16,
    to: u16,
    bytes: Vec<u8>,
}

impl Datagram {
    fn is_full(&self) -> bool {
        self.bytes.len() == FRAME_LEN_MAX
    }
}

/// When a datagram arrives: once, several times or never.
type Path = Box<dyn FnMut(&Datagram) -> Vec<Duration>>;

/// A team in virtual time.
struct World {
    now: Instant,
    members: Vec<Option<Exchange>>,
    on_the_way: BTreeMap<(Instant, usize), (SocketAddr, Datagram)>,
    path: Path,
    sent: Vec<Datagram>,
}

fn address(index: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000 + index))
}

fn config(index: u16, of: u16) -> ExchangeConfig {
    let others = (0..of).filter(|other| *other != index);
    ExchangeConfig {
        token: TOKEN,
        index,
        peers: others.map(|index| CapacityPeer { index, address: address(index) }).collect(),
        start: START,
        seconds: SECONDS,
        rate: RATE,
    }
}

fn exchange(index: u16, of: u16, seed: u64) -> Exchange {
    let mut rng = StdRng::seed_from_u64(seed + u64::from(index));
    Exchange::new(&config(index, of), &mut rng, Instant::ORIGIN).expect("well configured")
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

impl World {
    fn new(of: u16) -> Self {
        Self::with_path(of, |_| vec![LATENCY])
    }

    fn with_path(of: u16, path: impl FnMut(&Datagram) -> Vec<Duration> + 'static) -> Self {
        Self {
            now: Instant::ORIGIN,
            members: (0..of).map(|index| Some(exchange(index, of, 100))).collect(),
            on_the_way: BTreeMap::new(),
            path: Box::new(path),
            sent: Vec::new(),
        }
    }

    /// Delivers `bytes` to `to` after the latency, as if they came from `from`.
    fn inject(&mut self, from: SocketAddr, to: u16, bytes: &[u8]) {
        let datagram = Datagram { sent_at: self.now, from: u16::MAX, to, bytes: bytes.to_vec() };
        let key = (self.now + LATENCY, usize::MAX - self.on_the_way.len());
        self.on_the_way.insert(key, (from, datagram));
    }

    fn send_all(&mut self) {
        let mut buffer = [0x55; 4 * FRAME_LEN_MAX];
        for (index, member) in (0..).zip(&mut self.members) {
            let Some(member) = member else { continue };
            member.handle_timeout(self.now);
            while let Some(transmit) = member.poll_transmit(self.now, 4, &mut buffer) {
                for bytes in buffer[..transmit.len].chunks(transmit.datagram_len) {
                    let to = transmit.to.port() - 4000;
                    let datagram =
                        Datagram { sent_at: self.now, from: index, to, bytes: bytes.to_vec() };
                    for delay in (self.path)(&datagram) {
                        let key = (self.now + delay, self.on_the_way.len() + self.sent.len() * 8);
                        self.on_the_way.insert(key, (address(index), datagram.clone()));
                    }
                    self.sent.push(datagram);
                }
            }
        }
    }

    /// Advances time to `until`, or until all exchanges are over.
    fn run_until(&mut self, until: Instant) {
        loop {
            self.send_all();
            let arrival = self.on_the_way.keys().next().map(|(at, _)| *at);
            let members = self.members.iter().flatten();
            let timeouts = members.filter_map(|member| {
                let timeout = member.poll_timeout(self.now)?;
                assert!(timeout > self.now, "its timeout {timeout} has already passed");
                Some(timeout)
            });
            let next = timeouts.chain(arrival).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = next;
            while let Some(entry) = self.on_the_way.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (from, datagram) = entry.remove();
                if let Some(member) = &mut self.members[usize::from(datagram.to)] {
                    member.handle_datagram(self.now, from, &datagram.bytes);
                }
            }
        }
    }

    fn run(&mut self) -> Vec<CapacityReport> {
        self.run_until(at(1000 + 1000 * u64::from(SECONDS) + 1000));
        assert!(self.members.iter().flatten().all(Exchange::is_over));
        self.reports()
    }

    fn reports(&self) -> Vec<CapacityReport> {
        self.members.iter().flatten().map(Exchange::report).collect()
    }

    /// Full frames from one member to another.
    fn flood(&self, from: u16, to: u16) -> impl Iterator<Item = &Datagram> {
        self.sent.iter().filter(move |it| it.from == from && it.to == to && it.is_full())
    }
}

fn capacities_mbit(reports: &[CapacityReport]) -> Vec<f64> {
    let traffic: Vec<_> = reports.iter().map(CapacityReport::traffic).collect();
    let found = team_capacities(SECONDS, &traffic);
    assert!(found.iter().all(|it| it.missing.is_empty()), "{found:?}");
    found.iter().map(|it| it.capacity.expect("a capacity").as_mbit_per_s()).collect()
}

#[test]
fn all_pairs_exchange_both_ways_at_their_rate() {
    let mut world = World::new(3);
    let reports = world.run();
    for report in &reports {
        assert_eq!((report.peers.len(), report.stranger_packets), (2, 0));
        for peer in &report.peers {
            assert_eq!((peer.lost, peer.repeated_packets), (None, 0));
            assert_eq!(peer.seconds.len(), SECONDS as usize);
        }
    }
    for capacity in capacities_mbit(&reports) {
        assert!((1.95..=2.0).contains(&capacity), "{capacity}");
    }
    let first = world.sent.iter().find(|it| it.is_full()).expect("a flood");
    assert!(first.sent_at >= START);
    let last = world.sent.iter().rfind(|it| it.is_full()).expect("a flood");
    assert!(last.sent_at < START + Duration::from_secs(u64::from(SECONDS)));
}

#[test]
fn a_member_never_sends_more_than_its_rate() {
    let mut world = World::new(4);
    world.run();
    let burst = 6 * FRAME_LEN_MAX as u64;
    for from in 0..4 {
        let flood: Vec<_> =
            world.sent.iter().filter(|it| it.from == from && it.is_full()).collect();
        for (place, first) in flood.iter().enumerate() {
            let second = flood[place..]
                .iter()
                .take_while(|it| it.sent_at - first.sent_at < Duration::from_secs(1));
            let bytes: u64 = second.map(|it| it.bytes.len() as u64).sum();
            assert!(bytes <= RATE.as_byte_per_s() + burst, "{bytes} bytes in a second");
        }
    }
}

#[test]
fn packets_of_strangers_have_no_effect() {
    let mut calm = World::new(2);
    let calm_reports = calm.run();

    let mut world = World::new(2);
    let mut injected = 0;
    for millis in (0..4900).step_by(50) {
        world.run_until(at(millis));
        let noise: Vec<Vec<u8>> = match world.sent.last().cloned() {
            Some(real) => {
                let mut altered = real.bytes.clone();
                altered[9] ^= 1; // a nonce, or the sequence number
                let mut done = real.bytes[..FRAME_LEN_MIN.min(real.bytes.len())].to_vec();
                done[0] = 4;
                vec![altered, done, vec![], vec![3; FRAME_LEN_MIN], vec![1; HELLO_LEN]]
            }
            None => vec![vec![0; 2000]],
        };
        for bytes in &noise {
            // From the address of the peer, and from others.
            for from in [address(1), SocketAddr::from(([198, 51, 100, 9], 53))] {
                world.inject(from, 0, bytes);
                injected += 1;
            }
        }
        if let Some(real) = world.sent.last().filter(|it| it.from == 1).cloned() {
            world.inject(address(9), 0, &real.bytes); // authentic, but from another address
            injected += 1;
        }
    }
    let mut reports = world.run();
    assert_eq!(reports[0].stranger_packets, injected);
    reports[0].stranger_packets = 0;
    assert_eq!(reports, calm_reports);
    assert!(world.sent == calm.sent, "nothing more was sent");
}

#[test]
fn spoofed_hellos_do_not_start_a_flood() {
    // The attacker has an authentic hello of member 1, but does not receive packets to that address.
    let mut elsewhere = exchange(1, 2, 500);
    let mut buffer = [0; FRAME_LEN_MAX];
    let hello = elsewhere.poll_transmit(Instant::ORIGIN, 1, &mut buffer).expect("a hello");
    let hello = &buffer[..hello.len];

    let mut world = World::new(2);
    world.members[1] = None;
    let mut questions = 0;
    for millis in (0..5000).step_by(5) {
        world.run_until(at(millis));
        world.inject(address(1), 0, hello);
        questions += 1;
    }
    let reports = world.run();
    assert_eq!(reports[0].peers[0].lost, Some(Lost::NeverProved));
    assert!(reports[0].peers[0].seconds.iter().all(|second| second.sent_bytes == 0));
    let answers = world.sent.iter().filter(|it| it.bytes[0] == 2).count();
    assert!(answers > 0 && answers < questions / 3, "{answers} answers to {questions}");
    assert!(world.sent.iter().all(|it| it.bytes.len() == hello.len()), "not longer than the hello");
    assert!(world.sent.len() - answers <= 11, "a hello each tenth of a second, then silence");
}

#[test]
fn repeated_packets_are_counted_once() {
    let once = World::new(2).run();
    let late = Duration::from_millis(25);
    let mut twice = World::with_path(2, move |_| vec![LATENCY, LATENCY, late]);
    let twice = twice.run();
    for (once, twice) in once.iter().zip(&twice) {
        assert_eq!(once.peers[0].seconds, twice.peers[0].seconds);
        assert_eq!(twice.stranger_packets, 0);
        assert!(twice.peers[0].repeated_packets > 500, "{}", twice.peers[0].repeated_packets);
    }
}

#[test]
fn loss_shows_in_the_result_of_both_sides() {
    let mut count = 0;
    let mut world = World::with_path(2, move |it| {
        count += usize::from(it.from == 0);
        if it.from == 0 && it.is_full() && count % 4 != 0 { vec![] } else { vec![LATENCY] }
    });
    for capacity in capacities_mbit(&world.run()) {
        assert!((0.45..=0.52).contains(&capacity), "{capacity} of 2 Mbit/s");
    }
}

#[test]
fn a_peer_that_dies_is_not_flooded_further() {
    let mut world = World::new(3);
    let death = at(1500);
    world.run_until(death);
    world.members[1] = None;
    world.run_until(at(7000));
    for survivor in [0, 2] {
        let last = world.flood(survivor, 1).last().expect("a flood before");
        assert!(last.sent_at > death);
        assert!(last.sent_at - death <= Duration::from_secs(1), "{}", last.sent_at);
        let other = 2 - survivor;
        assert!(
            world.flood(survivor, other).any(|it| it.sent_at > at(4900)),
            "the exchange with the others continues"
        );
    }
    // The test is shorter than the timeout, but the peer was not present at its end.
    let silent = Lost::Silent { second: Some(SECONDS - 1) };
    for report in world.reports() {
        let lost: Vec<_> = report.lost().map(|(peer, why)| (peer.peer.index, why)).collect();
        assert_eq!(lost, [(1, silent)]);
    }
}

#[test]
fn a_peer_that_never_answers_is_reported_as_lost() {
    let long = ExchangeConfig { seconds: 20, ..config(0, 3) };
    let mut world = World::new(3);
    let mut rng = StdRng::seed_from_u64(1);
    world.members[0] = Exchange::new(&long, &mut rng, Instant::ORIGIN).ok();
    world.run_until(at(1500));
    world.members[1] = None;
    world.members[2].as_mut().expect("there").cancel();
    world.run_until(at(20_000));
    let report = world.reports().remove(0);
    let lost: Vec<_> = report.lost().map(|(peer, why)| (peer.peer.index, why)).collect();
    let silent = Lost::Silent { second: Some(5) };
    assert_eq!(lost, [(1, silent), (2, Lost::Cancelled { second: Some(0) })]);
    let to_the_dead = world.sent.iter().rfind(|it| it.from == 0 && it.to == 1).expect("some");
    assert!(to_the_dead.sent_at < at(6600), "{}", to_the_dead.sent_at);
    assert!(world.members[0].as_ref().expect("there").is_over(), "no peer is left");
    assert!(world.flood(0, 2).all(|it| it.sent_at <= at(1500) + LATENCY));
}

#[test]
fn a_peer_that_receives_nothing_is_not_flooded_although_it_sends() {
    let deaf = at(2000)..at(3500);
    let while_deaf = deaf.clone();
    let mut world = World::with_path(2, move |it| {
        if it.from == 0 && while_deaf.contains(&it.sent_at) { vec![] } else { vec![LATENCY] }
    });
    let reports = world.run();
    let to_deaf =
        |it: &&Datagram| (deaf.start + Duration::from_millis(1020)..deaf.end).contains(&it.sent_at);
    let while_deaf: Vec<_> = world.sent.iter().filter(to_deaf).collect();
    for from in [0, 1] {
        let talk = while_deaf.iter().filter(|it| it.from == from);
        assert!((4..=6).contains(&talk.count()), "an empty packet each tenth of a second");
    }
    assert!(!while_deaf.iter().any(|it| it.is_full()));
    assert!(
        world.flood(0, 1).any(|it| it.sent_at > at(4000)),
        "once it receives packets again, the flood continues"
    );
    assert!(reports.iter().all(|report| report.lost().count() == 0));
}

#[test]
fn packets_of_an_earlier_run_with_the_same_token_are_refused() {
    let mut before = World::new(2);
    before.run();
    let mut world = World::new(2);
    world.members = (0..2).map(|index| Some(exchange(index, 2, 900))).collect();
    world.run_until(at(1500));
    let frames = before.sent.iter().filter(|it| it.from == 1 && it.bytes.len() > HELLO_LEN);
    let mut strangers = 0;
    for frame in frames.take(100) {
        world.inject(address(1), 0, &frame.bytes);
        strangers += 1;
    }
    for hello in before.sent.iter().filter(|it| it.from == 1 && it.bytes.len() == HELLO_LEN) {
        world.inject(address(1), 0, &hello.bytes);
    }
    let reports = world.run();
    assert_eq!(reports[0].stranger_packets, strangers);
    assert!(reports[0].peers[0].repeated_packets > 0);
    assert!(capacities_mbit(&reports).iter().all(|mbit| *mbit > 1.95));
}

#[test]
fn a_member_that_was_suspended_during_the_test_does_not_report_it_as_complete() {
    let mut exchange = exchange(0, 2, 1);
    exchange.handle_timeout(at(60_000));
    let report = exchange.report();
    assert_eq!(report.lost().map(|(_, why)| why).collect::<Vec<_>>(), [Lost::NeverProved]);
    assert!(exchange.is_over());
}

#[test]
fn a_rejected_packet_is_not_counted_as_sent() {
    let mut world = World::new(2);
    world.run_until(at(1500));
    let member = world.members[0].as_mut().expect("there");
    let mut buffer = [0; 4 * FRAME_LEN_MAX];
    let sent = |member: &Exchange| member.report().peers[0].seconds[0].sent_bytes;
    let before = sent(member);
    let transmit = member.poll_transmit(at(1600), 4, &mut buffer).expect("something");
    assert!(sent(member) > before);
    member.handle_unsent(&transmit, "not permitted".to_owned());
    assert_eq!(sent(member), before);
    assert_eq!(member.report().peers[0].send_error.as_deref(), Some("not permitted"));
}

#[test]
fn an_invalid_test_is_refused() {
    let good = config(0, 3);
    let refused = |config: &ExchangeConfig| {
        let mut rng = StdRng::seed_from_u64(0);
        Exchange::new(config, &mut rng, Instant::ORIGIN).err().expect("refused")
    };
    let mut twins = good.clone();
    twins.peers[1].address = SocketAddr::new("::ffff:10.0.0.1".parse().expect("an address"), 4001);
    assert!(matches!(refused(&twins), ExchangeError::SameAddress(_)));
    assert_eq!(refused(&ExchangeConfig { index: 2, ..good.clone() }), ExchangeError::SameIndex(2));
    assert_eq!(refused(&ExchangeConfig { seconds: 0, ..good.clone() }), ExchangeError::Seconds(0));
    let alone = ExchangeConfig { peers: vec![], ..config(0, 3) };
    assert_eq!(refused(&alone), ExchangeError::PeerCount(0));
    let late = ExchangeConfig { start: at(61_000), ..good.clone() };
    assert!(refused(&late).to_string().contains("within 60 seconds, not after 61"));
    assert_eq!(refused(&ExchangeConfig { rate: Rate::ZERO, ..good }), ExchangeError::NoRate);
}
