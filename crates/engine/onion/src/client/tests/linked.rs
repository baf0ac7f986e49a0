//! A client's Conflux set against an arbitrarily misbehaving exit.

use super::path;
use crate::cell::msg::{
    ConfluxLink, ConfluxNote, ConfluxSwitch, Create2, DesiredUx, DestroyReason,
    encode_created2_into,
};
use crate::cell::relay::RelayCommand;
use crate::cell::{CircId, Command};
use crate::cell_model::fixture::Staged;
use crate::cell_model::{Body, Cell, CellModel, Layer, Message, StreamId, Tor};
use crate::client::{
    Application, CircuitNumber, ClientEvent, Core, Destination, Loss, Progress, SetPlan,
};
use crate::flow::control::Agreed;
use crate::node::ConnId;
use crate::time::{Duration, Instant};
use crate::tunnel::conflux::ConfluxError;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::SocketAddr;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

type TorLayer = <Tor as CellModel>::Layer;

/// Consumes everything and sends nothing.
struct Collector(Rc<RefCell<Vec<u8>>>);

impl Application<Tor> for Collector {
    fn has_more(&self, _sent_bytes: u64) -> bool {
        false
    }

    fn fill(&mut self, _sent_bytes: u64, _room: &mut [u8]) -> usize {
        0
    }

    fn take(&mut self, received_bytes: u64, data: &[u8]) -> Progress {
        let mut all = self.0.borrow_mut();
        assert_eq!(received_bytes, all.len() as u64);
        all.extend_from_slice(data);
        Progress::Open
    }
}

/// The limit of the reordering buffer.
const EARLY_MAX: usize = 40;

/// A client with a linked set, a stream on it, and the exit's side of its legs.
struct World {
    core: Core<Tor, Collector, ChaCha8Rng>,
    now: Instant,
    conn: ConnId,
    set: CircuitNumber,
    link: ConfluxLink,
    layers: Vec<TorLayer>,
    /// The number of the last message sent on each leg.
    numbers: Vec<u64>,
    got: Rc<RefCell<Vec<u8>>>,
    events: Vec<ClientEvent>,
}

impl World {
    fn new(legs: usize) -> Self {
        let mut core = Core::new(ChaCha8Rng::seed_from_u64(1));
        let now = Instant::ORIGIN;
        let plan = SetPlan {
            early_max_cells: EARLY_MAX,
            ..SetPlan::new(vec![path(1, false, true); legs])
        };
        let set = core.open_set(now, &plan);
        let conn = core.poll_dial().expect("a link is wanted").conn;
        core.handle_link_open(now, conn, false);
        let nonce = crate::cell::msg::ConfluxNonce([0; 32]);
        let link = ConfluxLink {
            nonce,
            last_sent: 0,
            last_received: 0,
            desired: DesiredUx::NoOpinion,
            resumes: false,
            leg: 0,
            first_leg: 0,
        };
        let (layers, numbers) = (Vec::new(), vec![0; legs]);
        let (got, events) = (Rc::default(), Vec::new());
        let mut world = Self { core, now, conn, set, link, layers, numbers, got, events };
        world.answer_creates(legs);
        world
    }

    /// A set with linked legs and an open stream: CONNECTED was the first message.
    fn linked(legs: usize) -> Self {
        Self::linked_by(legs, false)
    }

    /// A set whose exit retransmits or does not.
    fn linked_by(legs: usize, resumes: bool) -> Self {
        let mut world = Self::new(legs);
        world.expect_links();
        for (leg, number) in (0..legs).zip(0..) {
            let link = ConfluxLink { resumes, leg: number, ..world.link };
            let mut data = Vec::new();
            link.encode_into(&mut data);
            world.send(leg, RelayCommand::CONFLUX_LINKED, 0, &data);
        }
        assert!(world.core.is_built(world.set));
        assert_eq!(world.core.resumes(world.set), resumes);
        let to = Destination::from(SocketAddr::from(([192, 0, 2, 99], 80)));
        world.core.begin(world.now, world.set, to, Collector(Rc::clone(&world.got)));
        let sent = world.take_sent();
        let sent: Vec<u8> = sent.iter().map(|(_, command, _)| command.0).collect();
        assert_eq!(
            sent.iter().filter(|command| **command == 21).count(),
            legs,
            "LINKED_ACK on each"
        );
        assert_eq!(sent.last(), Some(&RelayCommand::BEGIN.0), "no SWITCH before the first");
        world.send(0, RelayCommand::CONNECTED, 1, &[]);
        world.numbers[0] = 1;
        world
    }

    fn answer_creates(&mut self, legs: usize) {
        let mut out = vec![Cell::EMPTY; 20];
        let count = self.core.poll_cells(self.now, self.conn, &mut out);
        assert_eq!(count, legs);
        let offered = Agreed { congestion_sendme_cells: Some(31) };
        for cell in &out[..count] {
            let create = Create2::parse(Cell::body(cell)).expect("well-formed");
            let answer = Tor::answer(&Tor::identity(1), &create, offered, || [9; 32]);
            let answer = answer.expect("honest");
            self.layers.push(Layer::<Tor>::new(&answer.keys));
            let mut created = Vec::new();
            encode_created2_into(&answer.data, &mut created);
            let body = Body::<Tor>::from_bytes(&created);
            self.core.handle_cell(self.now, self.conn, cell.circ_id(), Command::CREATED2, &body);
        }
    }

    fn expect_links(&mut self) {
        let sent = self.take_sent();
        assert_eq!(sent.len(), self.layers.len());
        for (_, command, data) in sent {
            assert_eq!(command, RelayCommand::CONFLUX_LINK);
            self.link.nonce = ConfluxLink::parse(&data).expect("well-formed").nonce;
        }
    }

    /// The client's messages by leg.
    fn take_sent(&mut self) -> Vec<(usize, RelayCommand, Vec<u8>)> {
        let mut out = vec![Cell::EMPTY; 64];
        let mut sent = Vec::new();
        loop {
            let count = self.core.poll_cells(self.now, self.conn, &mut out);
            if count == 0 {
                return sent;
            }
            for cell in &out[..count] {
                let leg = (Cell::circ_id(cell).get() & 0xff) as usize - 1;
                if Cell::command(cell) != Command::RELAY {
                    continue;
                }
                let mut body = *Cell::body(cell);
                let layer = &mut self.layers[leg];
                assert!(Layer::<Tor>::decrypt(layer, Command::RELAY, &mut body), "it is for us");
                let message = Body::<Tor>::message(&body, Layer::<Tor>::format(layer));
                let Message { command, data, .. } = message.expect("well-formed");
                sent.push((leg, command, data.to_vec()));
            }
        }
    }

    fn send(&mut self, leg: usize, command: RelayCommand, stream_id: u16, data: &[u8]) {
        self.now += Duration::from_millis(1);
        let layer = &mut self.layers[leg];
        let mut body = Body::<Tor>::from_bytes(&[]);
        let message = Message { command, stream_id: StreamId(stream_id), data };
        Body::<Tor>::write(&mut body, Layer::<Tor>::format(layer), &message).expect("it fits");
        Layer::<Tor>::originate(layer, &mut body);
        let circ_id = CircId::of_initiator(u32::try_from(leg).expect("few") + 1);
        self.core.handle_cell(self.now, self.conn, circ_id, Command::RELAY, &body);
        self.events.extend(core::iter::from_fn(|| self.core.poll_event()));
    }

    fn switch(&mut self, leg: usize, skipped: i32) {
        let mut data = Vec::new();
        ConfluxSwitch { skipped: skipped.cast_unsigned() }.encode_into(&mut data);
        self.send(leg, RelayCommand::CONFLUX_SWITCH, 0, &data);
        self.numbers[leg] = self.numbers[leg].saturating_add_signed(skipped.into());
    }

    fn data(&mut self, leg: usize, data: &[u8]) -> u64 {
        self.send(leg, RelayCommand::DATA, 1, data);
        self.numbers[leg] += 1;
        self.numbers[leg]
    }

    fn loss(&self) -> Option<&Loss> {
        self.events.iter().find_map(|event| match event {
            ClientEvent::Lost { cause, .. } => Some(cause),
            _ => None,
        })
    }
}

#[test]
fn a_set_is_usable_once_all_its_legs_are_linked() {
    let mut world = World::new(3);
    world.expect_links();
    let mut data = Vec::new();
    world.link.encode_into(&mut data);
    for leg in 0..3 {
        assert!(!world.core.is_built(world.set));
        world.send(leg, RelayCommand::CONFLUX_LINKED, 0, &data);
    }
    assert!(world.core.is_built(world.set));
    assert!(matches!(world.events.last(), Some(ClientEvent::Built { .. })), "{:?}", world.events);
}

#[test]
fn a_leg_destroyed_before_linking_is_reported_and_dropped() {
    let mut world = World::new(2);
    world.expect_links();
    let mut data = Vec::new();
    world.link.encode_into(&mut data);
    world.send(1, RelayCommand::CONFLUX_LINKED, 0, &data);
    let body = Body::<Tor>::from_bytes(&[DestroyReason::RESOURCE_LIMIT.get()]);
    let circ_id = CircId::of_initiator(1);
    world.core.handle_cell(world.now, world.conn, circ_id, Command::DESTROY, &body);
    let events: Vec<_> = core::iter::from_fn(|| world.core.poll_event()).collect();
    assert!(matches!(events[0], ClientEvent::LegLost { leg: 0, .. }), "{events:?}");
    assert!(matches!(events[1], ClientEvent::Built { .. }), "{events:?}");
}

/// Proposal 329 §4.2.1, and C tor's checks of LINKED: each violation would at least be a side channel.
#[test]
fn a_conflux_handshake_violation_closes_the_set() {
    let link = |world: &World, change: fn(&mut ConfluxLink)| {
        let (mut link, mut data) = (world.link, Vec::new());
        change(&mut link);
        link.encode_into(&mut data);
        data
    };
    type Change = fn(&mut ConfluxLink);
    let wrong: [(&str, Change, ConfluxError); 3] = [
        ("another set's nonce", |link| link.nonce.0[5] ^= 1, ConfluxError::Handshake),
        ("data that has not arrived", |link| link.last_sent = 1, ConfluxError::Desynchronised),
        ("data that we have not sent", |link| link.last_received = 1, ConfluxError::Desynchronised),
    ];
    for (what, change, expected) in wrong {
        let mut world = World::new(2);
        world.expect_links();
        let data = link(&world, change);
        world.send(0, RelayCommand::CONFLUX_LINKED, 0, &data);
        assert_eq!(world.loss(), Some(&Loss::Conflux(expected)), "{what}");
        assert_eq!(world.core.open_circuits(), 0, "{what}");
    }
    for command in
        [RelayCommand::CONFLUX_LINKED, RelayCommand::CONFLUX_LINK, RelayCommand::CONFLUX_LINKED_ACK]
    {
        let mut world = World::linked(2);
        let data = link(&world, |_| ());
        world.send(1, command, 0, &data);
        assert_eq!(world.loss(), Some(&Loss::Conflux(ConfluxError::Handshake)), "{command:?}");
    }
    let mut world = World::new(2);
    world.expect_links();
    world.send(0, RelayCommand::CONFLUX_LINKED, 0, &[1; 30]);
    assert_eq!(world.loss(), Some(&Loss::Conflux(ConfluxError::Malformed)));
}

#[test]
fn data_before_linked_closes_the_set() {
    let mut world = World::new(2);
    world.expect_links();
    world.data(0, b"early");
    assert_eq!(world.loss(), Some(&Loss::Conflux(ConfluxError::Misplaced)));
    let mut world = World::new(2);
    world.expect_links();
    world.switch(0, 1);
    assert_eq!(world.loss(), Some(&Loss::Conflux(ConfluxError::Switch)));
}

#[test]
fn out_of_order_data_is_buffered_and_acknowledged_on_arrival() {
    let mut world = World::linked(2);
    world.switch(1, 32);
    for _ in 0..31 {
        world.data(1, b"b");
    }
    assert!(world.got.borrow().is_empty(), "earlier data is missing");
    // Congestion control counts arrivals, whatever their order.
    let sent = world.take_sent();
    let sendmes = sent
        .iter()
        .filter(|(leg, command, _)| (*leg, *command) == (1, RelayCommand::SENDME))
        .count();
    assert_eq!(sendmes, 1, "{sent:?}");
    for _ in 0..31 {
        world.data(0, b"a");
    }
    let expected = [[b'a'; 31], [b'b'; 31]].concat();
    assert_eq!(*world.got.borrow(), expected);
    assert_eq!(world.core.early_peak_cells(world.set), 31);
}

/// The client's reports for a leg with nothing but answers: their number, after every 128.
#[test]
fn messages_without_sendme_are_acknowledged_by_reports() {
    for resumes in [false, true] {
        let mut world = World::linked_by(2, resumes);
        world.switch(1, 1);
        for _ in 0..300 {
            world.send(1, RelayCommand::XON, 1, &[0, 0, 0, 0, 0]);
        }
        assert_eq!(world.loss(), None);
        let reports: Vec<_> =
            world.take_sent().into_iter().filter(|(_, command, _)| command.0 == 21).collect();
        let arrived = |count: u64| {
            let mut data = Vec::new();
            ConfluxNote::Arrived(count).encode_into(&mut data);
            (1, RelayCommand::CONFLUX_LINKED_ACK, data)
        };
        let expected = if resumes { vec![arrived(128), arrived(256)] } else { vec![] };
        assert_eq!(reports, expected);
        world.send(1, RelayCommand::CONFLUX_LINKED_ACK, 0, &arrived(1).2);
        assert_eq!(
            world.loss().is_some(),
            !resumes,
            "only an exit with retransmission may report that"
        );
        let mut lost = Vec::new();
        ConfluxNote::LostLegs(&[0]).encode_into(&mut lost);
        world.send(0, RelayCommand::CONFLUX_LINKED_ACK, 0, &lost);
        // The leg that blocks the set, if it retransmits: the client gives it up.
        let expected = (!resumes).then_some(&Loss::Conflux(ConfluxError::Handshake));
        assert_eq!(world.loss(), expected);
        let legs: Vec<u8> = world.core.legs(world.set).iter().map(|leg| leg.leg).collect();
        assert_eq!(legs, if resumes { vec![1] } else { vec![] });
    }
}

/// A message of the exit on a leg.
#[derive(Clone, Copy, Debug)]
enum ExitMessage {
    Data,
    Switch(i32),
    /// For the next number in order, so that runs continue.
    ToNext,
}

fn exit_message() -> impl Strategy<Value = ExitMessage> {
    prop_oneof![
        5 => Just(ExitMessage::Data),
        1 => (0i32..4).prop_map(ExitMessage::Switch),
        3 => Just(ExitMessage::ToNext),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// For an exit that numbers messages arbitrarily: the application gets the messages in order from the
    /// first, without gaps and duplicates, or the set is closed; the reordering buffer stays within its limit.
    #[test]
    fn any_exit_behavior_preserves_order_or_closes_the_set(
        resumes: bool,
        steps in prop::collection::vec((0usize..3, exit_message()), 1..200),
    ) {
        let mut world = World::linked_by(3, resumes);
        // The content sent under each number, from the first that is data.
        let mut by_number: BTreeMap<u64, [u8; 4]> = BTreeMap::new();
        for (count, (leg, message)) in (0u32..).zip(steps) {
            let content = count.to_be_bytes();
            match message {
                ExitMessage::Data => {
                    let number = world.data(leg, &content);
                    by_number.entry(number).or_insert(content);
                }
                ExitMessage::Switch(skipped) => world.switch(leg, skipped),
                ExitMessage::ToNext => {
                    let next = (2..).find(|number| !by_number.contains_key(number)).expect("endless");
                    let skipped = (next - 1).cast_signed() - world.numbers[leg].cast_signed();
                    if skipped < 0 && !resumes {
                        continue;
                    }
                    world.switch(leg, i32::try_from(skipped).expect("few"));
                }
            }
            let expected: Vec<u8> = (2..)
                .map_while(|number| by_number.get(&number))
                .flatten()
                .copied()
                .collect();
            let got = world.got.borrow();
            prop_assert!(expected.starts_with(&got), "{got:?} of {expected:?}");
            // Messages on a leg that was given up are ignored.
            if world.loss().is_some() || world.core.legs(world.set).len() < 3 {
                break;
            }
            prop_assert_eq!(&*got, &expected);
            prop_assert!(world.core.early_peak_cells(world.set) <= EARLY_MAX);
        }
    }
}
