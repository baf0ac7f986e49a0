use super::*;
use crate::cell_model::fixture::{Staged, hop};
use crate::cell_model::{Handshake, HeaderOnly};
use crate::identity::RelayIds;
use crate::measure::protocol::{ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order, Proof};
use crate::measure::target::TargetParams;
use crate::rate::Rate;
use crate::router::{Honest, LinkPeer, RateLimit, RouterConfig};
use crate::time::Duration;
use alloc::vec;
use alloc::vec::Vec;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const COORDINATOR: [u8; 32] = [1; 32];
const MEASURER: [u8; 32] = [2; 32];
const NONCE: Nonce = Nonce([3; 32]);
/// The keying material of all links.
const EXPORTED: [u8; 32] = [4; 32];
const UNIX_TIME_S: u64 = 1_000_000_000;

/// A relay that may be measured, and its surroundings.
struct World {
    relay: Core<HeaderOnly, ChaCha8Rng>,
    now: Instant,
}

impl World {
    fn new(change: impl FnOnce(&mut RouterConfig<RelayIds>)) -> Self {
        let target = TargetParams {
            is_allowed: true,
            coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
            ..TargetParams::default()
        };
        let mut config =
            RouterConfig { target, ..RouterConfig::new(HeaderOnly::identity(1), UNIX_TIME_S) };
        change(&mut config);
        let now = Instant::ORIGIN;
        Self { relay: Core::new(config, Honest, ChaCha8Rng::seed_from_u64(1), now), now }
    }

    fn link(&mut self) -> ConnId {
        let conn = self.relay.accept(self.now, None, Some(EXPORTED)).expect("room");
        self.relay.handle_link_open(self.now, conn, &LinkPeer::default());
        conn
    }

    /// Lets time pass.
    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.relay.handle_timeout(self.now);
    }

    /// The messages that the relay sends on a link.
    fn messages(&mut self, conn: ConnId) -> Vec<Message> {
        let controls = core::iter::from_fn(|| self.relay.poll_control(self.now, conn));
        let messages = controls.filter(|control| control.command == Command::MEASURE);
        messages.map(|control| Message::parse(&control.body).expect("readable")).collect()
    }

    /// The errors among them.
    fn errors(&mut self, conn: ConnId) -> Vec<ErrorCode> {
        let code = |message| match message {
            Message::Error { code, .. } => Some(code),
            _ => None,
        };
        self.messages(conn).into_iter().filter_map(code).collect()
    }

    fn say(&mut self, conn: ConnId, message: &Message) {
        self.relay.handle_measure(self.now, conn, &message.encode());
    }

    /// Orders a measurement of one second over one link.
    fn order(&mut self, conn: ConnId) {
        let order = Order {
            coordinator: CoordinatorKey::of_seed(&COORDINATOR),
            target: HeaderOnly::identity(1),
            measurers: vec![MeasurerKey::of_seed(&MEASURER)],
            seconds: 1,
            client_share: ClientShare::DEFAULT,
            sockets: 1,
            expires_unix_s: UNIX_TIME_S + 600,
            nonce: NONCE,
        };
        self.say(conn, &Message::Order(order.sign(&COORDINATOR, &EXPORTED)));
        assert_eq!(self.messages(conn), [Message::Accepted { nonce: NONCE }]);
    }

    /// The measurer sends its proof.
    fn send_proof(&mut self, conn: ConnId) {
        let proof = Proof::sign(&MEASURER, NONCE, &HeaderOnly::identity(1), &EXPORTED);
        self.say(conn, &Message::Proof(proof));
    }

    /// The measurer proves itself.
    fn prove(&mut self, conn: ConnId) {
        self.send_proof(conn);
        assert_eq!(self.messages(conn), [Message::Proven]);
    }

    /// The links of the coordinator and the measurer.
    fn measurement(&mut self) -> (ConnId, ConnId) {
        let (coordinator, measurer) = (self.link(), self.link());
        self.order(coordinator);
        self.prove(measurer);
        (coordinator, measurer)
    }

    /// A cell arrives. Returns false if the link is closed.
    fn cell(&mut self, conn: ConnId, circ_id: CircId, command: Command, bytes: &[u8]) -> bool {
        let body = <HeaderOnly as CellModel>::Body::from_bytes(bytes);
        self.relay.handle_cell(self.now, conn, circ_id, command, &body)
    }

    /// A client requests a circuit.
    fn create2(&mut self, conn: ConnId) {
        let handshake = <HeaderOnly as CellModel>::Handshake::ntor(&hop(1), [7; 32]);
        let (command, bytes) = handshake.create_cell();
        assert_eq!(command, Command::CREATE2);
        assert!(self.cell(conn, CircId::of_initiator(1), command, &bytes));
    }

    /// Creates a measurement circuit.
    fn create_fast(&mut self, measurer: ConnId) {
        let is_open = self.cell(measurer, CircId::of_initiator(1), Command::CREATE_FAST, &[1; 20]);
        assert!(is_open);
    }
}

#[test]
fn a_proof_behind_a_queued_or_outstanding_handshake_is_refused() {
    for is_outstanding in [false, true] {
        let mut world = World::new(|config| config.handshakes_at_once = 1);
        let (coordinator, measurer) = (world.link(), world.link());
        world.order(coordinator);
        world.create2(measurer);
        let job = is_outstanding.then(|| world.relay.poll_handshake(world.now).expect("one"));
        world.send_proof(measurer);
        assert_eq!(world.errors(measurer), [ErrorCode::OUT_OF_ORDER], "{is_outstanding}");
        if let Some(job) = job {
            world.relay.handle_handshake(world.now, job.run());
        }
        assert_eq!(world.relay.open_circuits(), 0);
        assert_eq!(world.messages(coordinator), []);
        world.relay.check_accounts();
    }
}

#[test]
fn handshakes_of_other_links_and_destroyed_ones_do_not_prevent_a_proof() {
    let mut world = World::new(|config| config.handshakes_at_once = 1);
    let (before, measurer, after) = (world.link(), world.link(), world.link());
    let coordinator = world.link();
    world.order(coordinator);
    for conn in [before, measurer, after] {
        world.create2(conn);
    }
    let reason = [DestroyReason::REQUESTED.get()];
    assert!(world.cell(measurer, CircId::of_initiator(1), Command::DESTROY, &reason));
    world.prove(measurer);
    // The clients' circuits begin, and none on the measurer's link.
    while let Some(job) = world.relay.poll_handshake(world.now) {
        world.relay.handle_handshake(world.now, job.run());
    }
    assert_eq!(world.relay.open_circuits(), 2);
    world.create_fast(measurer);
    assert_eq!(world.relay.open_circuits(), 3);
    world.relay.check_accounts();
}

#[test]
fn a_measurer_may_never_try_to_create_a_clients_circuit() {
    let circuits = [
        ("free", CircId::of_initiator(2), false),
        ("in use", CircId::of_initiator(1), false),
        ("of the relay's half", CircId::of_responder(1), false),
        ("zero", CircId::LINK, false),
        ("while the relay shuts down", CircId::of_initiator(2), true),
    ];
    for command in [Command::CREATE, Command::CREATE2] {
        for (circuit, circ_id, is_shutting_down) in circuits {
            let mut world = World::new(|_| {});
            let (coordinator, measurer) = world.measurement();
            world.create_fast(measurer);
            if is_shutting_down {
                world.relay.shut_down();
            }
            assert!(!world.cell(measurer, circ_id, command, &[]), "{command} {circuit}");
            for conn in [measurer, coordinator] {
                assert_eq!(world.errors(conn), [ErrorCode::VIOLATION], "{command} {circuit}");
            }
            assert_eq!(world.relay.open_circuits(), 0);
        }
    }
}

impl World {
    /// A relay with a read limit of 100,000 bytes per second.
    fn with_read_limit() -> Self {
        let rate = Rate::from_byte_per_s(100_000);
        Self::new(|config| config.limit = Some(RateLimit { rate, burst_bytes: 100_000 }))
    }

    /// A client sends a megabyte, which uses up the limit for nine seconds.
    fn use_up_the_read_limit(&mut self) {
        let client = self.link();
        self.relay.handle_read(self.now, Some(client), 1_000_000);
    }

    /// The number of bytes that may be read from each link.
    fn readable_bytes<const N: usize>(&mut self, conns: [ConnId; N]) -> [usize; N] {
        conns.map(|conn| self.relay.poll_read_limit(self.now, Some(conn)))
    }

    /// The links that may be read again.
    fn readable(&mut self) -> Vec<ConnId> {
        core::iter::from_fn(|| self.relay.poll_readable()).collect()
    }
}

#[test]
fn the_read_limit_spares_measurers_and_no_coordinators() {
    let mut world = World::with_read_limit();
    let (coordinator, measurer) = world.measurement();
    // The coordinator's bytes count, the measurer's do not.
    world.relay.handle_read(world.now, Some(measurer), 1_000_000);
    assert!(world.readable_bytes([coordinator])[0] > 0);
    world.relay.handle_read(world.now, Some(coordinator), 1_000_000);
    assert_eq!(world.readable_bytes([coordinator, measurer]), [0, usize::MAX]);
    world.wait(11);
    assert_eq!(world.readable(), [coordinator]);
    let [bytes, _] = world.readable_bytes([coordinator, measurer]);
    assert!((1..usize::MAX).contains(&bytes), "{bytes}");
}

#[test]
fn a_waiting_link_is_read_at_once_if_it_becomes_a_measurers() {
    let mut world = World::with_read_limit();
    let (coordinator, measurer) = (world.link(), world.link());
    world.use_up_the_read_limit();
    assert_eq!(world.readable_bytes([coordinator, measurer]), [0, 0]);
    // Their messages arrived before.
    world.order(coordinator);
    world.prove(measurer);
    assert_eq!(world.readable(), [measurer]);
    assert_eq!(world.readable_bytes([coordinator, measurer]), [0, usize::MAX]);
}

#[test]
fn a_coordinators_link_keeps_its_turn_when_the_measurement_ends() {
    let mut world = World::with_read_limit();
    let (coordinator, measurer) = world.measurement();
    world.create_fast(measurer);
    assert!(world.cell(measurer, CircId::of_initiator(1), Command::RELAY, &[]));
    world.use_up_the_read_limit();
    assert_eq!(world.readable_bytes([coordinator]), [0]);
    world.wait(1);
    assert!(matches!(world.messages(coordinator)[..], [Message::ClientSecond(..)]));
    assert_eq!(world.readable_bytes([coordinator]), [0], "an ordinary link again");
    assert_eq!(world.readable(), []);
    world.wait(10);
    assert_eq!(world.readable(), [coordinator]);
    world.relay.check_accounts();
}
