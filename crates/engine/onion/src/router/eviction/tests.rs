use super::*;
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell::{CircId, Command};
use crate::cell_model::fixture::Staged;
use crate::cell_model::{
    Body, HeaderOnly, HeaderOnlyPayload, Layers, Message, PayloadSlice, StreamId,
};
use crate::identity::RelayIds;
use crate::router::{Honest, KnownRelays, LinkPeer, RouterConfig, table_lookups};
use alloc::vec;
use core::net::{IpAddr, Ipv6Addr};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

type HeaderOnlyBody = <HeaderOnly as CellModel>::Body;

/// The number of circuits that fit, on few links.
const ROOM: u32 = 2_000;

const CIRCUIT_CELLS: usize = 3;

const LISTED: RsaId = RsaId([7; 20]);

/// A relay with little memory, and its surroundings.
struct World {
    relay: Core<HeaderOnly, ChaCha8Rng>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let cell = size_of::<<HeaderOnly as CellModel>::Cell>();
        let config = RouterConfig {
            held_bytes_max: 2 * ROOM as usize * CIRCUIT_CELLS * cell,
            relays: KnownRelays::default().with_identities([LISTED]),
            ..RouterConfig::new(HeaderOnly::identity(1), 0)
        };
        let now = Instant::ORIGIN;
        Self { relay: Core::new(config, Honest, ChaCha8Rng::seed_from_u64(1), now), now }
    }

    fn wait(&mut self, seconds: u64) {
        // The driver's part; no link is padded in such a short time.
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            self.relay.handle_timeout(self.now);
        }
    }

    fn link(&mut self, from: IpAddr, relay: Option<RsaId>) -> ConnId {
        let conn = self.relay.accept(self.now, Some(from), None).expect("room");
        let relay = relay.map(|rsa| RelayIds { rsa, ed25519: None });
        let peer = LinkPeer { relay, ..LinkPeer::default() };
        self.relay.handle_link_open(self.now, conn, &peer);
        conn
    }

    /// Whether a circuit with this number begins.
    fn create(&mut self, conn: ConnId, number: u32) -> bool {
        let circ_id = CircId::of_initiator(number);
        let body = HeaderOnlyBody::from_bytes(&[]);
        self.relay.handle_cell(self.now, conn, circ_id, Command::CREATE_FAST, &body);
        let mut is_created = false;
        while let Some(control) = self.relay.poll_control(self.now, conn) {
            is_created |= control.command == Command::CREATED_FAST;
        }
        is_created
    }

    /// Begins this number of circuits.
    fn flood(&mut self, conn: ConnId, circuits: u32) {
        let created = (1..=circuits).filter(|number| self.create(conn, *number)).count();
        assert_eq!(created, circuits as usize, "none is refused");
    }

    /// A cell passes.
    fn touch(&mut self, conn: ConnId, number: u32) {
        let data = HeaderOnlyPayload::from_bytes(&[]);
        // Ignored, as it names no stream. DROP is padding, of which a client may send little.
        let message = Message { command: RelayCommand::END, stream_id: StreamId::CIRCUIT, data };
        let mut body = HeaderOnlyBody::default();
        body.write(RelayFormat::V0, &message).expect("it fits");
        let mut layers = <HeaderOnly as CellModel>::Layers::default();
        layers.push(&RelayFormat::V0);
        layers.seal(0, Command::RELAY, &mut body);
        let circ_id = CircId::of_initiator(number);
        self.relay.handle_cell(self.now, conn, circ_id, Command::RELAY, &body);
    }

    fn has(&mut self, conn: ConnId, number: u32) -> bool {
        let link = self.relay.conns.link_mut(conn);
        link.is_some_and(|link| link.circuits.find(CircId::of_initiator(number)).is_some())
    }

    fn count(&self, conn: ConnId) -> usize {
        self.relay.conns.link(conn).map_or(0, |link| link.circuits.len())
    }

    fn evicted(&self) -> u64 {
        self.relay.totals().evicted_circuits
    }
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::from([a, b, c, d])
}

/// The addresses and relay identities of an attacker's links.
fn places(kind: usize, link: u8) -> (IpAddr, Option<RsaId>) {
    match kind {
        0 => (v4(10, 0, 0, 1), None),
        1 => (v4(10, 0, 0, link), None),
        2 => (v4(10, link, 0, 1), None),
        3 => (IpAddr::from([0x2001, 0xdb8, 0, link.into(), 0, 0, 0, 1]), None),
        4 => (v4(10, 0, 0, 1), Some(RsaId([100 + link; 20]))),
        // A stranger at a relay's address.
        5 => (v4(192, 0, 2, 1), None),
        // Circuits that are extended through an honest relay.
        _ => (v4(192, 0, 2, 1), Some(LISTED)),
    }
}

#[test]
fn idle_circuits_from_any_number_of_links_never_exclude_newcomers() {
    for kind in 0..=6 {
        for links in [1, 3, 40] {
            let mut world = World::new();
            let honest = world.link(v4(198, 51, 100, 1), None);
            let through_relay = world.link(v4(192, 0, 2, 1), Some(LISTED));
            world.flood(honest, 10);
            world.flood(through_relay, 100);
            let flooders: Vec<ConnId> = (0..links)
                .map(|link| {
                    let (from, relay) = places(kind, link);
                    world.link(from, relay)
                })
                .collect();
            let each = 3 * ROOM / u32::from(links);
            for step in 0..each {
                for flooder in &flooders {
                    assert!(world.create(*flooder, step + 1));
                }
                if step % (each / 60).max(1) == 0 {
                    world.wait(1);
                    (1..=10).for_each(|number| world.touch(honest, number));
                    (1..=100).for_each(|number| world.touch(through_relay, number));
                }
            }
            assert_eq!(world.count(honest), 10, "kind {kind}, {links} links");
            assert_eq!(world.count(through_relay), 100, "kind {kind}, {links} links");
            // A newcomer is served, and stays.
            for newcomer in 0..100 {
                let conn = world.link(v4(203, 0, newcomer, 1), None);
                assert!(world.create(conn, 1), "kind {kind}, {links} links, {newcomer}");
                world.wait(1);
                world.touch(conn, 1);
                assert!(world.has(conn, 1));
            }
            assert!(world.evicted() > u64::from(ROOM), "kind {kind}, {links} links");
            assert!(world.relay.open_circuits() <= ROOM as usize);
            world.relay.check_accounts();
        }
    }
}

#[test]
fn the_largest_neighbour_loses_unused_circuits_first_then_the_longest_idle() {
    let mut world = World::new();
    let (small, big) = (world.link(v4(10, 1, 0, 1), None), world.link(v4(10, 2, 0, 1), None));
    // The oldest of all, and of a neighbour that has little.
    world.flood(small, 50);
    world.flood(big, 1_800);
    // The first hundred were used, the lower the number the later.
    for number in (1..=100).rev() {
        world.touch(big, number);
        world.wait(1);
    }
    world.wait(40);
    let newcomer = world.link(v4(10, 3, 0, 1), None);
    world.flood(newcomer, 150);
    assert_eq!(world.evicted(), world.relay.totals().evicted_circuits);
    assert_eq!(world.count(small), 50, "a small neighbour loses nothing");
    let lost = 1_800 - world.count(big);
    assert!((150..400).contains(&lost), "{lost}");
    assert!((1..=100).all(|number| world.has(big, number)), "unused circuits are evicted first");
    assert!((101..=1_800).filter(|number| !world.has(big, *number)).count() == lost);
    // All unused circuits are evicted: the longest idle of the used ones follow.
    let others: Vec<ConnId> =
        (0..150).map(|number| world.link(v4(11, number, 0, 1), None)).collect();
    for number in 1..=25 {
        others.iter().for_each(|conn| assert!(world.create(*conn, number)));
    }
    let left: Vec<u32> = (1..=1_800).filter(|number| world.has(big, *number)).collect();
    assert!(left.len() < 100 && left.iter().copied().eq((1..).take(left.len())), "{left:?}");
}

#[test]
fn an_active_circuit_outlives_thousands_of_idle_ones_at_its_own_address() {
    let mut world = World::new();
    let from = v4(10, 0, 0, 1);
    let (greedy, honest) = (world.link(from, None), world.link(from, None));
    // On the greedy one's link, too.
    assert!(world.create(greedy, 99_999) && world.create(honest, 1));
    for step in 0..5 * ROOM {
        assert!(world.create(greedy, step + 1));
        if step % 100 == 0 {
            world.wait(1);
            world.touch(greedy, 99_999);
            world.touch(honest, 1);
        }
    }
    assert!(world.has(greedy, 99_999) && world.has(honest, 1));
}

#[test]
fn active_circuits_have_a_limit_too() {
    let mut world = World::new();
    let greedy: Vec<ConnId> = (0..4).map(|number| world.link(v4(10, number, 0, 1), None)).collect();
    for number in 1..=ROOM {
        for conn in &greedy {
            assert!(world.create(*conn, number));
            world.touch(*conn, number);
        }
    }
    let honest: Vec<ConnId> =
        (0..50).map(|number| world.link(v4(11, number, 0, 1), None)).collect();
    for number in 1..=4 {
        honest.iter().for_each(|conn| assert!(world.create(*conn, number)));
    }
    assert!(honest.iter().all(|conn| world.count(*conn) == 4));
}

#[test]
fn measurement_circuits_are_never_evicted_or_refused() {
    let mut world = World::new();
    let from = v4(10, 0, 0, 1);
    let (measurer, greedy) = (world.link(from, None), world.link(from, None));
    world.relay.conns.link_mut(measurer).expect("open").role = Role::Measurer;
    world.flood(measurer, 10);
    world.wait(60);
    world.flood(greedy, 3 * ROOM);
    assert_eq!(world.count(measurer), 10);
    // More than there is room for, so that nothing else can be evicted.
    let measurers: Vec<ConnId> = (0..ROOM / 16).map(|_| world.link(from, None)).collect();
    for conn in measurers {
        world.relay.conns.link_mut(conn).expect("open").role = Role::Measurer;
        world.flood(conn, 16);
    }
    assert!(world.relay.open_circuits() >= ROOM as usize);
    let others = world.count(greedy);
    assert!((100..ROOM as usize / 4).contains(&others), "{others}");
    assert!(world.create(greedy, 4 * ROOM), "a quarter of the room is left for others");
    assert_eq!(world.count(measurer), 10);
}

#[test]
fn links_without_circuits_do_not_prevent_new_circuits() {
    let mut world = World::new();
    let idle: Vec<ConnId> = (0..1_000).map(|_| world.link(v4(10, 0, 0, 1), None)).collect();
    world.wait(20);
    let honest = world.link(v4(11, 0, 0, 1), None);
    world.flood(honest, 800);
    assert_eq!(world.count(honest), 800);
    assert!(world.relay.totals().evicted_links > 100);
    let left = idle.iter().filter(|conn| world.relay.conns.link(**conn).is_some()).count();
    assert!(left < 900, "{left}");
    world.relay.check_accounts();
}

#[test]
fn a_large_network_gets_no_more_room_than_a_few_addresses() {
    let mut world = World::new();
    let honest = world.link(v4(198, 51, 100, 1), None);
    world.flood(honest, 100);
    for number in 0..1_000u128 {
        let ip = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | (number << 64));
        let conn = world.link(ip.into(), None);
        assert!(world.create(conn, 1));
    }
    assert_eq!(world.count(honest), 100);
}

#[test]
fn with_full_memory_a_new_circuit_has_constant_amortized_cost() {
    let mut world = World::new();
    let flooders: Vec<ConnId> =
        (0..10).map(|number| world.link(v4(10, number, 0, 1), None)).collect();
    for flooder in &flooders {
        world.flood(*flooder, ROOM / 10);
    }
    let lookups = table_lookups::during(|| {
        for number in 0..ROOM {
            let conn = flooders[number as usize % 10];
            assert!(world.create(conn, ROOM + number));
        }
    });
    assert!(world.evicted() >= u64::from(ROOM) * 9 / 10);
    assert!(lookups / u64::from(ROOM) < 150, "{lookups} lookups for {ROOM} circuits");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_the_largest_neighbours_lose_circuits_and_never_measurers(
        held in prop::collection::vec((0u8..4, 1u32..500, any::<bool>()), 2..12),
        waits in 0u64..60,
    ) {
        let mut world = World::new();
        let mut links: Vec<(ConnId, u32, bool)> = vec![];
        // Addresses of different providers; some have several links.
        for (number, (more, circuits, is_measurers)) in held.iter().enumerate() {
            let ip = v4(10, u8::try_from(number).expect("few"), 0, 1);
            for _ in 0..=*more {
                let conn = world.link(ip, None);
                if *is_measurers {
                    world.relay.conns.link_mut(conn).expect("open").role = Role::Measurer;
                }
                let circuits = if *is_measurers { circuits % 16 } else { circuits / (u32::from(*more) + 1) };
                for circuit in 1..=circuits {
                    if world.relay.open_circuits() < ROOM as usize * 9 / 10 {
                        prop_assert!(world.create(conn, circuit));
                    }
                }
                links.push((conn, u32::try_from(number).expect("few"), *is_measurers));
            }
        }
        world.wait(waits);
        let sums = |world: &World, is_measurers| {
            let mut sums = vec![0; held.len()];
            for (conn, number, is) in &links {
                if *is == is_measurers {
                    sums[*number as usize] += world.count(*conn);
                }
            }
            sums
        };
        let (before, measurers) = (sums(&world, false), sums(&world, true));
        let newcomer = world.link(v4(11, 0, 0, 1), None);
        let mut begun = 0;
        while world.evicted() == 0 && begun < ROOM {
            begun += 1;
            prop_assert!(world.create(newcomer, begun));
        }
        prop_assert_eq!(sums(&world, true), measurers);
        let mut after = sums(&world, false);
        let keeps_newcomer = world.count(newcomer);
        after.push(keeps_newcomer);
        let mut before = before;
        before.push(usize::try_from(begun).expect("few"));
        // The newcomer's are active, and so are the others' if they are as new.
        let levels = if waits < 5 { 1 } else { usize::try_from(ACTIVE_LEVELS).expect("few") };
        for loser in (0..after.len()).filter(|place| after[*place] < before[*place]) {
            for keeper in 0..after.len() {
                let levels = if keeper == held.len() { levels } else { 1 };
                // A link counts as much as some circuits, and there are up to four at an address. Shares are in cells: each link may lose a
                // circuit more than its share, and what ends last keeps as many more.
                let tolerance = 16 + links.len();
                prop_assert!((before[loser] + tolerance) * levels >= after[keeper], "{before:?} {after:?}");
            }
        }
        world.relay.check_accounts();
    }
}
