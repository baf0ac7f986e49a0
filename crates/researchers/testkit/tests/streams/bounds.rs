//! Limits under floods, and with peers that read nothing.

use super::world::{CIRCUIT, World, content, exit};
use onion::Duration;
use onion::cell::msg::DestroyReason;
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand, RelayMessage};
use onion::cell::{CELL_LEN, CircId, Command};
use onion::node::{CloseCause, ConnId, DnsAnswer, Node};
use onion::router::{Parameters, RouterConfig};
use proptest::prelude::*;

const LIMIT: Option<DestroyReason> = Some(DestroyReason::RESOURCE_LIMIT);

fn id(number: u32) -> CircId {
    CircId::of_initiator(number)
}

/// Sends this number of DATA cells on a stream.
fn fill(world: &mut World, circ_id: CircId, stream_id: u16, cells: usize) {
    for _ in 0..cells {
        world.send_on(circ_id, RelayCommand::DATA, stream_id, &[1; MAX_DATA_LEN]);
    }
}

#[test]
fn out_of_memory_the_oldest_queue_is_dropped_until_a_tenth_is_free() {
    let held_bytes_max = 400_000;
    let mut world = World::new(RouterConfig { held_bytes_max, ..exit() }, false);
    let mut conns = Vec::new();
    for number in 1..=4 {
        if number > 1 {
            world.create(id(number));
        }
        let conn = world.open_on(id(number), 5);
        world.destination(conn).reads = false;
        conns.push(conn);
    }
    for (number, cells) in [(2, 100), (1, 300), (3, 200)] {
        fill(&mut world, id(number), 5, cells);
        world.advance(Duration::from_secs(1));
    }
    assert!(world.router.held_bytes() <= held_bytes_max);
    assert!(world.circuits.values().all(|circuit| circuit.destroyed.is_none()));
    // Another circuit exceeds the limit.
    while world.router.totals().oom_runs == 0 {
        fill(&mut world, id(4), 5, 1);
    }
    assert!(world.router.held_bytes() <= held_bytes_max / 10 * 9);
    assert_eq!(world.circuits[&id(2)].destroyed, LIMIT);
    assert_eq!(world.closed, [conns[1]], "closed at once, before its data is written");
    assert_eq!(world.router.open_circuits(), 3);
}

/// The Sniper attack: a little data on each of many circuits, which nobody reads.
#[test]
fn many_circuits_that_read_nothing_do_not_cause_the_loss_of_one_that_does() {
    let held_bytes_max = 1_000_000;
    let mut world = World::new(RouterConfig { held_bytes_max, ..exit() }, false);
    let honest = world.open(5);
    world.destination(honest).reads = false;
    for number in 2..1000 {
        // It queues more than each of the others, but reads.
        world.destination(honest).reads = true;
        fill(&mut world, CIRCUIT, 5, 1);
        world.destination(honest).reads = false;
        fill(&mut world, CIRCUIT, 5, 20);
        world.advance(Duration::from_millis(50));
        world.create(id(number));
        let conn = world.open_on(id(number), 5);
        world.destination(conn).reads = false;
        fill(&mut world, id(number), 5, 5);
        assert!(world.router.held_bytes() <= held_bytes_max);
        assert_eq!(world.destroyed(), None, "with {number} circuits");
    }
    // Each run of the OOM handler frees a tenth of the limit.
    let (sheds, reclaimed_bytes) =
        (world.router.totals().oom_runs, world.router.totals().reclaimed_bytes);
    assert!(
        sheds > 5 && reclaimed_bytes >= sheds * held_bytes_max as u64 / 10,
        "{sheds}, {reclaimed_bytes}"
    );
}

#[test]
fn circuits_that_open_all_permitted_streams_leave_some_to_others() {
    let directory = Some("127.0.0.1:9".parse().expect("an address"));
    let config = RouterConfig { directory, streams_max: 400, ..exit() };
    let mut world = World::new(config, false);
    let flood = |world: &mut World, circ_id: CircId, command: RelayCommand, data: &[u8]| {
        world.create(circ_id);
        for stream_id in 1..=320 {
            world.send_on(circ_id, command, stream_id, data);
        }
    };
    // Directory streams may be a quarter of all; they do not use up the others.
    let floods =
        [(RelayCommand::BEGIN_DIR, &b""[..], 100), (RelayCommand::BEGIN, b"192.0.2.1:80\0", 300)];
    for (of_kind, (command, data, most)) in (0u32..).zip(floods) {
        let before = world.router.open_streams();
        let first = 10 + 100 * of_kind;
        for number in first..first + 9 {
            flood(&mut world, id(number), command, data);
            let taken = world.router.open_streams() - before;
            assert!((most..=most + 1).contains(&taken), "{command:?}: {taken} of {most}");
        }
        // A further circuit gets the same share as each of them.
        let last = id(first + 50);
        flood(&mut world, last, command, data);
        let messages = world.circuits[&last].messages.iter();
        let refused = messages.filter(|message| message.command == RelayCommand::END);
        let had = 320 - refused.count();
        assert!((most / 10 - 1..=most / 10 + 1).contains(&had), "{command:?}: {had} of {most}");
    }
}

/// END closes the stream, but its DNS query stays pending until the name server answers.
#[test]
fn unanswered_lookups_of_one_circuit_do_not_block_those_of_others() {
    let mut world = World::new(exit(), false);
    for stream_id in 1..=70 {
        world.send_on(CIRCUIT, RelayCommand::RESOLVE, stream_id, b"slow.example");
        world.send_on(CIRCUIT, RelayCommand::END, stream_id, &[1]);
    }
    assert_eq!((world.queries.len(), world.router.open_streams()), (64, 0));
    let refused = world.circuits[&CIRCUIT].messages.iter();
    assert_eq!(refused.filter(|refused| refused.command == RelayCommand::RESOLVED).count(), 6);
    world.begin(200, "slow.example", 80);
    assert_eq!(world.queries.len(), 64, "BEGIN is refused as well");
    world.create(id(2));
    world.send_on(id(2), RelayCommand::RESOLVE, 1, b"a.b");
    assert_eq!(world.queries.len(), 65);
    // Each answer allows another query.
    world.answer(DnsAnswer::Failed);
    world.send_on(CIRCUIT, RelayCommand::RESOLVE, 300, b"a.b");
    assert_eq!(world.queries.len(), 65);
}

/// A relay whose consensus permits a circuit 10 streams at once, and 2 more each second.
fn with_stream_defence(defence_type: i32) -> World {
    let directory = Some("127.0.0.1:9".parse().expect("an address"));
    let mut world = World::new(RouterConfig { directory, ..exit() }, false);
    world.router.set_parameters(Parameters::from_consensus([
        ("DoSStreamCreationEnabled", 1),
        ("DoSStreamCreationDefenseType", defence_type),
        ("DoSStreamCreationRate", 2),
        ("DoSStreamCreationBurst", 10),
    ]));
    world
}

#[test]
fn the_consensus_limits_the_streams_and_lookups_of_a_circuit_per_second() {
    let mut world = with_stream_defence(2);
    for stream_id in 1..=6 {
        world.send_on(CIRCUIT, RelayCommand::BEGIN_DIR, stream_id, b"");
        world.send_on(CIRCUIT, RelayCommand::RESOLVE, 100 + stream_id, b"a.b");
    }
    assert_eq!(world.router.totals().streams, 10);
    assert_eq!(world.router.totals().refused_streams, 2);
    // Another circuit has its own limit.
    world.create(id(2));
    world.send_on(id(2), RelayCommand::BEGIN_DIR, 1, b"");
    assert_eq!(world.router.totals().streams, 11);
    world.advance(Duration::from_secs(1));
    for stream_id in 11..=13 {
        world.send_on(CIRCUIT, RelayCommand::BEGIN_DIR, stream_id, b"");
    }
    assert_eq!((world.router.totals().streams, world.destroyed()), (13, None));
}

#[test]
fn a_circuit_that_requests_too_many_streams_is_closed_if_the_consensus_says_so() {
    let mut world = with_stream_defence(3);
    world.create(id(2));
    for stream_id in 1..=11 {
        world.send_on(id(2), RelayCommand::BEGIN_DIR, stream_id, b"");
    }
    assert_eq!(world.circuits[&id(2)].destroyed, LIMIT);
    assert_eq!(world.destroyed(), None, "the other circuit stays open");
}

#[test]
fn circuits_without_data_take_at_most_half_of_the_memory() {
    let held_bytes_max = 1_000_000;
    let mut world = World::new(RouterConfig { held_bytes_max, ..exit() }, false);
    for number in 2..=1000 {
        world.queue(id(number), Command::CREATE_FAST, &[3; 20]);
        world.exchange();
    }
    assert!((200..500).contains(&world.router.open_circuits()));
    assert!(world.router.held_bytes() <= held_bytes_max / 2 + 2000);
    assert_eq!(world.router.totals().oom_runs, 0, "no circuit is closed for them");
}

#[test]
fn queued_data_of_ended_streams_is_dropped_as_well() {
    let held_bytes_max = 300_000;
    let mut world = World::new(RouterConfig { held_bytes_max, ..exit() }, false);
    for round in 0..20 {
        let conn = world.open(5);
        world.destination(conn).reads = false;
        fill(&mut world, CIRCUIT, 5, 99);
        world.send(RelayCommand::END, 5, &[6]);
        world.circuits.get_mut(&CIRCUIT).expect("one").messages.clear();
        assert!(world.router.held_bytes() <= held_bytes_max, "round {round}");
    }
    assert_eq!(world.destroyed(), None, "its streams have ended");
    assert_eq!(world.router.open_streams(), 5);
    world.advance(Duration::from_secs(30));
    assert_eq!((world.router.open_streams(), world.router.queued_bytes()), (0, 0));
}

#[test]
fn a_client_that_does_not_read_its_answers_loses_the_circuit() {
    for message in [RelayCommand::BEGIN, RelayCommand::BEGIN_DIR, RelayCommand::RESOLVE] {
        let config = RouterConfig { directory: None, streams_max: 0, ..exit() };
        let mut world = World::new(config, false);
        world.set_reads(false);
        for _ in 0..2501 {
            assert!(world.router.queued_bytes() <= 2500 * CELL_LEN);
            let data = b"192.0.2.1:80\0";
            let message = RelayMessage { command: message, stream_id: 5, data };
            world.queue_message(CIRCUIT, Command::RELAY, message);
            world.exchange();
        }
        assert_eq!(world.router.open_circuits(), 0);
        world.set_reads(true);
        world.read_link(usize::MAX);
        assert_eq!(world.destroyed(), LIMIT);
    }
}

#[test]
fn circuits_on_a_link_have_a_bound() {
    let mut world = World::exit();
    world.set_reads(false);
    for number in 2..=10_050 {
        world.queue(id(number), Command::CREATE_FAST, &[3; 20]);
        if number % 31 == 0 {
            world.exchange();
        }
    }
    world.exchange();
    assert_eq!(world.router.open_circuits(), 10_000);
    assert_eq!((world.router.open_streams(), world.router.queued_bytes()), (0, 0));
    world.close_link();
    assert_eq!(world.router.open_circuits(), 0);
}

#[test]
fn abandoned_requests_leave_no_state() {
    let mut world = World::exit();
    for _ in 0..2000 {
        world.begin(5, "a.b", 80);
        world.send(RelayCommand::END, 5, &[6]);
        world.send(RelayCommand::RESOLVE, 6, b"a.b");
        world.send(RelayCommand::END, 6, &[6]);
        world.begin(7, "192.0.2.1", 80);
        world.send(RelayCommand::END, 7, &[6]);
        assert_eq!(world.router.open_streams(), 0);
        // A circuit has at most this number in flight.
        while world.queries.len() > 60 {
            world.answer(DnsAnswer::Failed);
        }
    }
    let highest = world.closed.iter().max().expect("some");
    assert!(highest.0 < 5, "connection IDs are reused: {highest:?}");
    // Late answers are ignored.
    while !world.queries.is_empty() {
        world.answer(DnsAnswer::Addresses(vec![[192, 0, 2, 1].into()]));
    }
    assert!(world.destinations.is_empty());
    world.expect_nothing();
}

/// An event.
#[derive(Clone, Debug)]
enum Step {
    Begin(u16, bool),
    Directory(u16),
    Resolve(u16),
    Data(u16, usize),
    End(u16),
    Sendme(u16),
    Acknowledge,
    Connect(usize),
    Lose(usize),
    Feed(usize, usize),
    Read(usize, bool),
    DnsAnswer(u8),
    Link(bool),
    ReadLink(usize),
    Pass(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let stream = || 1u16..6;
    prop_oneof![
        1 => (stream(), any::<bool>()).prop_map(|(stream, named)| Step::Begin(stream, named)),
        1 => stream().prop_map(Step::Directory),
        1 => stream().prop_map(Step::Resolve),
        4 => (stream(), 0..=MAX_DATA_LEN).prop_map(|(stream, len)| Step::Data(stream, len)),
        1 => stream().prop_map(Step::End),
        1 => stream().prop_map(Step::Sendme),
        1 => Just(Step::Acknowledge),
        3 => any::<usize>().prop_map(Step::Connect),
        1 => any::<usize>().prop_map(Step::Lose),
        4 => (any::<usize>(), 1usize..200_000).prop_map(|(place, len)| Step::Feed(place, len)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(place, reads)| Step::Read(place, reads)),
        2 => any::<u8>().prop_map(Step::DnsAnswer),
        1 => any::<bool>().prop_map(Step::Link),
        1 => (0usize..100_000).prop_map(Step::ReadLink),
        1 => (0u64..20_000).prop_map(Step::Pass),
    ]
}

struct Player {
    world: World,
    acknowledged: usize,
}

impl Player {
    fn conn(&self, index: usize) -> Option<ConnId> {
        let index = index.checked_rem(self.world.destinations.len())?;
        self.world.destinations.keys().nth(index).copied()
    }

    fn apply(&mut self, step: Step) {
        let world = &mut self.world;
        if world.destroyed().is_some() {
            world.circuits.remove(&CIRCUIT);
            self.acknowledged = 0;
            let reads = core::mem::replace(&mut world.peers[0].reads, true);
            world.read_link(usize::MAX);
            world.create(CIRCUIT);
            world.set_reads(reads);
        }
        match step {
            Step::Begin(stream, true) => world.begin(stream, "a.b", 80),
            Step::Begin(stream, false) => world.begin(stream, "192.0.2.1", 80),
            Step::Directory(stream) => world.send(RelayCommand::BEGIN_DIR, stream, &[]),
            Step::Resolve(stream) => world.send(RelayCommand::RESOLVE, stream, b"a.b"),
            Step::Data(stream, len) => world.send(RelayCommand::DATA, stream, &content(len)),
            Step::End(stream) => world.send(RelayCommand::END, stream, &[6]),
            Step::Sendme(stream) => world.send(RelayCommand::SENDME, stream, &[]),
            Step::Acknowledge => {
                let tags = &world.circuits[&CIRCUIT].tags;
                if let Some(tag) = tags.get(self.acknowledged * 100 + 99).copied() {
                    self.acknowledged += 1;
                    world.send_sendme(&tag);
                    assert!(world.destroyed().is_none(), "it was due");
                }
            }
            Step::Connect(index) => {
                if let Some(conn) = self.conn(index)
                    && !self.world.destination(conn).is_connected
                {
                    self.world.connect(conn);
                }
            }
            Step::Lose(index) => {
                if let Some(conn) = self.conn(index) {
                    self.world.close_destination(conn, CloseCause::ByPeer);
                }
            }
            Step::Feed(index, len) => {
                if let Some(conn) = self.conn(index)
                    && self.world.destination(conn).is_connected
                {
                    self.world.feed(conn, &content(len));
                }
            }
            Step::Read(index, reads) => {
                if let Some(conn) = self.conn(index) {
                    self.world.destination(conn).reads = reads;
                    if reads && self.world.destination(conn).is_connected {
                        self.world.resume(conn);
                    }
                }
            }
            Step::DnsAnswer(how) => {
                if !world.queries.is_empty() {
                    let addresses = vec![[192, 0, 2, 1].into()];
                    world.answer(match how % 4 {
                        0 => DnsAnswer::Failed,
                        1 => DnsAnswer::Name("a.b".into()),
                        _ => DnsAnswer::Addresses(addresses),
                    });
                }
            }
            Step::Link(reads) => {
                world.set_reads(reads);
                if reads {
                    world.read_link(usize::MAX);
                }
            }
            Step::ReadLink(most) => world.read_link(most),
            Step::Pass(time_ms) => world.advance(Duration::from_millis(time_ms)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever clients, destinations and names do: bounds hold, what is to be read can be, and
    /// nothing is left in the end.
    #[test]
    fn whatever_happens_bounds_hold_and_nothing_is_left(
        steps in prop::collection::vec(any_step(), 1..200),
    ) {
        let config = RouterConfig { held_bytes_max: 200_000, queue_limit_cells: 300, ..exit() };
        let mut player = Player { world: World::new(config, false), acknowledged: 0 };
        for step in steps {
            player.apply(step);
            let world = &player.world;
            prop_assert!(world.router.queued_bytes() <= 200_000);
            prop_assert!(world.circuits[&CIRCUIT].tags.len() <= 1000 + player.acknowledged * 100);
            for (conn, destination) in &world.destinations {
                if !destination.is_connected {
                    prop_assert_eq!(world.router.receive_limit(*conn), 0);
                }
            }
        }
        let mut world = player.world;
        world.close_link();
        prop_assert_eq!(world.router.open_circuits(), 0);
        while let Some((conn, _)) = world.destinations.first_key_value() {
            let conn = *conn;
            world.close_destination(conn, CloseCause::Reset);
        }
        prop_assert_eq!((world.router.open_streams(), world.router.queued_bytes()), (0, 0));
        prop_assert_eq!(world.router.poll_timeout(), None);
    }
}
