//! Graceful shutdown of a relay, on cells: existing circuits and streams continue, and nothing new begins.

use onion::cell::msg::{DestroyReason, EndReason};
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::cell_model::{HeaderOnly, StreamId, Tor};
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, ErrorCode, MeasurerKey, Message, Nonce, Order,
};
use onion::measure::target::TargetParams;
use onion::node::{ConnId, DnsAnswer};
use onion::router::{ExitConfig, ExitPolicy, LinkPeer, RouterConfig, RouterEvent};
use onion::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use testkit::stage::{DecryptedMessage, HandshakeKind, Stage, StageModel};

type TestStage<S> = Stage<S, ChaCha8Rng>;

/// Bytes that each destination sends after the beginning of the shutdown: several cells.
const LEN: u32 = 5_000;

fn circuit(number: u32) -> CircId {
    CircId::of_initiator(number)
}

/// An exit with a directory whose links come from a relay.
fn stage<S: StageModel>() -> TestStage<S> {
    Stage::new(ChaCha8Rng::seed_from_u64(1), |config: &mut RouterConfig<S::Identity>| {
        let policy = ExitPolicy::accept_all();
        config.exit = Some(ExitConfig { policy, ipv6: false, allows_single_hop: true });
        config.directory = Some(([127, 0, 0, 1], 9030).into());
    })
}

fn begin<S: StageModel>(stage: &mut TestStage<S>, link: usize, stream: u16, to: &[u8]) {
    let begin = (0, RelayCommand::BEGIN);
    stage.send_message(link, circuit(1), begin, StreamId(stream), to);
}

/// The relay's messages for a stream since the last call.
fn messages<S: StageModel>(stage: &TestStage<S>, stream: u16) -> Vec<DecryptedMessage> {
    let all = stage.sent_cells().iter().filter_map(|seen| seen.message.clone());
    all.filter(|message| message.stream_id == StreamId(stream)).collect()
}

fn data<S: StageModel>(stage: &TestStage<S>, stream: u16) -> usize {
    let messages = messages(stage, stream);
    messages
        .iter()
        .filter(|message| message.command == RelayCommand::DATA)
        .map(|message| message.len)
        .sum()
}

/// Circuits refused since the last call, with the reason.
fn refused<S: StageModel>(stage: &TestStage<S>) -> Vec<(usize, CircId, DestroyReason)> {
    let seen = stage.sent_cells().iter();
    seen.filter_map(|cell| Some((cell.link, cell.circ_id, cell.destroyed?))).collect()
}

fn check_shutdown<S: StageModel>() {
    let mut stage = stage::<S>();
    let link = stage.accept(Some(7), None);
    stage.create(link, circuit(1), HandshakeKind::Congestion);
    begin(&mut stage, link, 1, b"192.0.2.80:80\0");
    stage.connect(0);
    // Its name is still being resolved when the relay shuts down.
    begin(&mut stage, link, 2, b"name.example:80\0");
    stage.clear_sent_cells();

    assert!(!stage.relay.is_shutting_down());
    stage.relay.shut_down();
    assert!(stage.relay.is_shutting_down());
    let later = stage.accept(Some(8), None);
    for kind in [HandshakeKind::Fast, HandshakeKind::Ntor, HandshakeKind::Congestion] {
        stage.create(link, circuit(2), kind);
        stage.create(later, circuit(1), kind);
    }
    let hibernating = DestroyReason::HIBERNATING;
    let both = [(link, circuit(2), hibernating), (later, circuit(1), hibernating)];
    assert_eq!(refused(&stage), [both; 3].concat());
    assert_eq!(stage.relay.open_circuits(), 1);

    // Long enough for a run of KIST.
    let runs = Duration::from_millis(100);
    // Streams that would begin get the same reason, so that their clients try the next exit.
    begin(&mut stage, link, 3, b"192.0.2.80:80\0");
    stage.send_message(link, circuit(1), (0, RelayCommand::BEGIN_DIR), StreamId(4), &[]);
    stage.advance(runs);
    for stream in [3, 4] {
        let messages = messages(&stage, stream);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(
            (messages[0].command, &messages[0].bytes[..]),
            (RelayCommand::END, &[EndReason::HIBERNATING.0][..])
        );
    }
    assert_eq!((stage.relay.open_streams(), stage.destinations()), (2, 1));

    // Existing streams complete.
    stage.answer(&DnsAnswer::Addresses(vec![[192, 0, 2, 81].into()]));
    stage.connect(1);
    for (destination, stream) in [(0, 1), (1, 2)] {
        assert_eq!(stage.feed(destination, LEN), LEN);
        stage.advance(runs);
        assert_eq!(data(&stage, stream), LEN as usize);
    }
    // An open circuit may still be extended.
    stage.extend(link, circuit(1), HandshakeKind::Ntor, 3);
    stage.advance(runs);
    assert_eq!(stage.hops(link, circuit(1)), 2);
    assert_eq!(refused(&stage).len(), 6, "only new circuits are refused");
    stage.relay.check_accounts();

    stage.send_bytes(link, circuit(1), Command::DESTROY, &[DestroyReason::NONE.get()]);
    assert_eq!((stage.relay.open_circuits(), stage.relay.open_streams()), (0, 0));
}

#[test]
fn shutdown_keeps_open_circuits_and_refuses_new_ones_with_tors_cells() {
    check_shutdown::<Tor>();
}

#[test]
fn shutdown_keeps_open_circuits_and_refuses_new_ones_with_header_only_cells() {
    check_shutdown::<HeaderOnly>();
}

/// The seed of a coordinator's key.
const COORDINATOR: [u8; 32] = [1; 32];
/// The keying material of each link.
const SESSION: [u8; 32] = [3; 32];

/// Orders a measurement on a new link; returns the relay's answer.
fn order<S: StageModel>(stage: &mut TestStage<S>, nonce: u8) -> Message {
    let now = Instant::ORIGIN;
    let conn: ConnId = stage.relay.accept(now, None, Some(SESSION)).expect("admitted");
    let peer = LinkPeer { has_padding: true, ..LinkPeer::default() };
    stage.relay.handle_link_open(now, conn, &peer);
    let order = Order {
        coordinator: CoordinatorKey::of_seed(&COORDINATOR),
        target: S::ids(&S::identity(0)),
        measurers: vec![MeasurerKey::of_seed(&[2; 32])],
        seconds: 3,
        client_share: ClientShare::DEFAULT,
        sockets: 2,
        expires_unix_s: 1_600_000_060,
        nonce: Nonce([nonce; 32]),
    };
    let order = Message::Order(order.sign(&COORDINATOR, &SESSION));
    let _ = stage.relay.handle_measure(now, conn, &order.encode());
    let control = stage.relay.poll_control(now, conn).expect("an answer");
    assert_eq!(control.command, Command::MEASURE);
    Message::parse(&control.body).expect("a message")
}

#[test]
fn shutdown_keeps_a_running_measurement_and_refuses_new_ones() {
    let mut stage = Stage::<Tor, _>::new(ChaCha8Rng::seed_from_u64(1), |config| {
        config.target = TargetParams {
            is_allowed: true,
            coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
            ..TargetParams::default()
        };
    });
    assert!(matches!(order(&mut stage, 1), Message::Accepted { .. }));
    let event = stage.relay.poll_event();
    assert!(matches!(event, Some(RouterEvent::MeasurementAccepted(_))), "{event:?}");
    stage.relay.shut_down();
    let text = "the relay is shutting down".to_owned();
    let refusal = Message::Error { code: ErrorCode::NOT_ALLOWED, text };
    assert_eq!(order(&mut stage, 2), refusal);
    assert!(matches!(stage.relay.poll_event(), Some(RouterEvent::MeasurementRefused(_))));
    assert_eq!(stage.relay.poll_event(), None, "the first measurement continues");
}
