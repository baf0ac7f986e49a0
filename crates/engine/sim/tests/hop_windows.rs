//! Hop-by-hop windows at a relay with simulated neighbours: its reports, their reports, and lies.

use onion::cell::msg::{DestroyReason, FeedbackEntry};
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::cell_model::{HeaderOnly, StreamId, Tor};
use onion::flow::hop::HopWindows;
use onion::identity::RsaId;
use onion::router::schedule::SchedulerConfig;
use onion::router::{ExitConfig, ExitPolicy, RouterConfig, RouterEvent, Violation};
use onion::{Duration, Instant};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;
use testkit::stage::{HandshakeKind, SentCell, Stage, StageModel};

/// The window of most tests.
const WINDOW: u32 = 10;

/// The queue limit of a circuit.
const QUEUE_LIMIT_CELLS: u32 = 60;

/// The maximum window.
const SIZE_MAX_CELLS: u32 = 2_000;

fn ids_of(relay: u8) -> RsaId {
    <HeaderOnly as StageModel>::identity(relay).rsa
}

fn stage<S: StageModel>(windows: HopWindows) -> Stage<S, ChaCha8Rng> {
    Stage::new(ChaCha8Rng::seed_from_u64(7), |config: &mut RouterConfig<S::Identity>| {
        let policy = ExitPolicy::accept_all();
        config.exit = Some(ExitConfig { policy, ipv6: false, allows_single_hop: true });
        config.queue_limit_cells = QUEUE_LIMIT_CELLS;
        config.padding = false;
        config.flows = Arc::new(windows.flows(SchedulerConfig::INTERVAL));
    })
}

/// A circuit from a client through the relay to a next hop.
struct Middle<S: StageModel> {
    stage: Stage<S, ChaCha8Rng>,
    client: usize,
    circ_id: CircId,
    next: usize,
    onward: CircId,
}

impl<S: StageModel> Middle<S> {
    /// `has_feedback` selects the peers with windows: clients, and the next hop, which is relay 3.
    fn new(windows: HopWindows, has_feedback: fn(Option<u8>) -> bool) -> Self {
        let mut stage = stage::<S>(windows);
        stage.has_feedback = has_feedback;
        let (client, circ_id) = (stage.accept(None, None), CircId::of_initiator(1));
        stage.create(client, circ_id, HandshakeKind::Ntor);
        stage.extend(client, circ_id, HandshakeKind::Ntor, 3);
        let mut middle = Self { stage, client, circ_id, next: 1, onward: CircId::LINK };
        // The cells of its construction are reported.
        middle.pass(10);
        middle.stage.report_forwarded(client, circ_id, u16::MAX);
        middle.onward = middle.stage.created_circuits(1)[0];
        assert_eq!(middle.stage.hops(client, circ_id), 2);
        middle
    }

    fn pass(&mut self, ms: u64) {
        self.stage.advance(Duration::from_millis(ms));
        self.stage.relay.check_accounts();
    }

    fn send_forward(&mut self, cells: usize) {
        for _ in 0..cells {
            self.stage.send_data(self.client, self.circ_id, 1, StreamId(1), 498);
        }
        self.pass(5);
    }

    fn send_backward(&mut self, cells: usize) {
        for _ in 0..cells {
            self.stage.reply_data(self.next, self.onward, StreamId(1), 498);
        }
        self.pass(5);
    }

    fn sent_count(&self, link: usize, command: Command) -> usize {
        let of = |seen: &&SentCell| seen.link == link && seen.command == command;
        self.stage.sent_cells().iter().filter(of).count()
    }

    /// The peer whose silence ended a circuit, if one did: a relay or a client.
    fn stalled_by(&mut self) -> Option<Option<RsaId>> {
        core::iter::from_fn(|| self.stage.relay.poll_event()).find_map(|event| match event {
            RouterEvent::CircuitStalled { peer } => Some(peer),
            _ => None,
        })
    }

    /// Why a link was closed, if one was.
    fn refusal(&mut self) -> Option<Violation> {
        core::iter::from_fn(|| self.stage.relay.poll_event()).find_map(|event| match event {
            RouterEvent::FeedbackRefused { violation, .. } => Some(violation),
            _ => None,
        })
    }
}

/// In both directions, with both cell models.
fn check_reports<S: StageModel>() {
    let mut middle = Middle::<S>::new(HopWindows::Fixed { cells: WINDOW }, |_| true);
    let sent_before = middle.sent_count(0, Command::FEEDBACK);
    assert!(sent_before > 0, "the EXTEND2 was for the relay itself");
    middle.send_forward(4);
    assert_eq!(middle.stage.unreported_by_relay(0, middle.circ_id), 0, "all cells are forwarded");
    // The first leaves at once, the others in the scheduler's next run: cells that leave together are reported
    // together.
    assert_eq!(middle.sent_count(0, Command::FEEDBACK), sent_before + 2);
    middle.send_backward(4);
    assert_eq!(middle.stage.unreported_by_relay(1, middle.onward), 0);
    // Blocked cells are not reported.
    middle.send_forward(20);
    assert_eq!(middle.stage.unreported_by_relay(0, middle.circ_id), 24 - WINDOW);
    assert_eq!(middle.stage.unreported_by_peer(1, middle.onward), WINDOW);
    middle.stage.report_forwarded(1, middle.onward, 3);
    middle.pass(5);
    assert_eq!(middle.stage.unreported_by_relay(0, middle.circ_id), 24 - WINDOW - 3);
    assert_eq!(middle.stage.unreported_by_peer(1, middle.onward), WINDOW, "three more were sent");
}

#[test]
fn exactly_the_forwarded_cells_are_reported_to_the_previous_hop() {
    check_reports::<Tor>();
    check_reports::<HeaderOnly>();
}

#[test]
fn a_hop_without_windows_gets_no_feedback_and_no_limit() {
    // An unmodified next hop: all cells are sent to it at once, and reported to the client.
    let windows = HopWindows::Fixed { cells: WINDOW };
    let mut middle = Middle::<HeaderOnly>::new(windows, |relay| relay.is_none());
    middle.send_forward(40);
    assert_eq!(middle.sent_count(1, Command::RELAY), 40);
    assert_eq!(middle.stage.unreported_by_relay(0, middle.circ_id), 0);
    middle.send_backward(40);
    assert_eq!(middle.sent_count(1, Command::FEEDBACK), 0);
    assert_eq!(u64::from(WINDOW), middle.stage.data_cells(0, middle.circ_id));
    // An unmodified client: it gets all cells at once, and they are reported to the next hop.
    let mut middle = Middle::<HeaderOnly>::new(windows, |relay| relay.is_some());
    middle.send_backward(40);
    assert_eq!(middle.stage.data_cells(0, middle.circ_id), 40);
    assert_eq!(middle.stage.unreported_by_relay(1, middle.onward), 0);
    assert_eq!(middle.sent_count(0, Command::FEEDBACK), 0);
    middle.send_forward(40);
    assert_eq!(middle.sent_count(1, Command::RELAY), WINDOW as usize);
}

#[test]
fn a_relay_without_windows_neither_offers_nor_accepts_them() {
    let mut stage: Stage<HeaderOnly, ChaCha8Rng> = Stage::new(ChaCha8Rng::seed_from_u64(7), |_| ());
    assert!(!stage.relay.has_hop_windows());
    let link = stage.accept(None, None);
    stage.send_feedback(link, CircId::of_initiator(1), 9);
    stage.send_feedback_bytes(link, b"noise");
    assert!(stage.is_open(link), "unknown cells are ignored");
}

#[test]
fn cells_dropped_by_truncate_count_as_forwarded() {
    let mut middle = Middle::<HeaderOnly>::new(HopWindows::Fixed { cells: WINDOW }, |_| true);
    middle.send_forward(30);
    assert_eq!(middle.stage.unreported_by_relay(0, middle.circ_id), 30 - WINDOW);
    let truncate = (0, RelayCommand::TRUNCATE);
    middle.stage.send_message(0, middle.circ_id, truncate, StreamId::CIRCUIT, &[0]);
    middle.pass(5);
    assert_eq!(middle.stage.unreported_by_relay(0, middle.circ_id), 0, "no cell is queued");
    assert_eq!(middle.sent_count(0, Command::DESTROY), 0);
}

/// An entry in a link's circuit mux outlives its circuit until the link is served, and the next
/// circuit gets the index.
#[test]
fn a_reused_circuit_id_is_blocked_only_once() {
    let mut middle = Middle::<HeaderOnly>::new(HopWindows::Fixed { cells: WINDOW }, |_| true);
    for _ in 0..5 {
        middle.stage.send_data(0, middle.circ_id, 1, StreamId(1), 498);
    }
    middle.stage.send_bytes(0, middle.circ_id, Command::DESTROY, &[0]);
    middle.stage.relay.check_accounts();
    let circ_id = CircId::of_initiator(2);
    middle.stage.create(0, circ_id, HandshakeKind::Ntor);
    middle.stage.extend(0, circ_id, HandshakeKind::Ntor, 3);
    middle.pass(10);
    let before = middle.sent_count(1, Command::RELAY);
    for _ in 0..30 {
        middle.stage.send_data(0, circ_id, 1, StreamId(1), 498);
    }
    middle.pass(10);
    assert_eq!(middle.sent_count(1, Command::RELAY) - before, WINDOW as usize);
}

#[test]
fn an_exit_stops_reading_until_feedback_arrives() {
    let mut stage = stage::<HeaderOnly>(HopWindows::CircuitStart);
    let (client, circ_id) = (stage.accept(None, None), CircId::of_initiator(1));
    stage.create(client, circ_id, HandshakeKind::Congestion);
    let begin = (0, RelayCommand::BEGIN);
    stage.send_message(client, circ_id, begin, StreamId(1), b"192.0.2.80:80\0");
    stage.connect(0);
    stage.feed(0, 100_000);
    stage.advance(Duration::from_millis(50));
    // CONNECTED and one DATA cell: a window begins with two cells.
    assert_eq!(stage.data_cells(client, circ_id), 1);
    let mut most = 0;
    for _ in 0..40 {
        most = most.max(stage.unreported_by_peer(client, circ_id));
        stage.advance(Duration::from_millis(20));
        stage.report_forwarded(client, circ_id, u16::MAX);
        while stage.acknowledge(client, circ_id) {}
        stage.feed(0, 100_000);
        stage.relay.check_accounts();
    }
    assert!(most > 20, "the window has grown: {most}");
    assert!(stage.data_cells(client, circ_id) > 200);
}

#[test]
fn excessive_feedback_closes_only_the_links_of_the_liar() {
    let mut middle = Middle::<HeaderOnly>::new(HopWindows::Fixed { cells: WINDOW }, |_| true);
    let (bystander, circ_id) = (middle.stage.accept(None, None), CircId::of_initiator(1));
    middle.stage.create(bystander, circ_id, HandshakeKind::Ntor);
    middle.send_forward(5);
    middle.stage.send_feedback(1, middle.onward, 5);
    assert!(middle.stage.is_open(1));
    middle.stage.send_feedback(1, middle.onward, 1);
    assert!(!middle.stage.is_open(1) && middle.stage.is_open(bystander));
    assert_eq!(middle.refusal(), Some(Violation::ExcessFeedback));
    assert_eq!(middle.stage.relay.totals().feedback_refused, 1);
    assert_eq!(middle.stage.relay.open_circuits(), 1, "the circuit over that link is closed");
    assert_eq!(middle.sent_count(0, Command::DESTROY), 1, "its client is notified");
}

#[test]
fn feedback_for_a_closed_circuit_is_limited_to_its_cells() {
    let windows = HopWindows::Fixed { cells: WINDOW };
    for (reported, is_open) in [(5, true), (6, false)] {
        let mut middle = Middle::<HeaderOnly>::new(windows, |_| true);
        middle.send_forward(5);
        middle.stage.send_bytes(0, middle.circ_id, Command::DESTROY, &[0]);
        assert_eq!(middle.stage.relay.open_circuits(), 0);
        // It sent the report before it received DESTROY.
        middle.stage.send_feedback(1, middle.onward, reported);
        assert_eq!(middle.stage.is_open(1), is_open);
    }
    // For a circuit that never existed.
    let mut middle = Middle::<HeaderOnly>::new(windows, |_| true);
    middle.stage.send_feedback(1, CircId::of_initiator(77), 1);
    assert!(!middle.stage.is_open(1));
}

#[test]
fn empty_or_malformed_feedback_closes_the_link() {
    let long = vec![1; 6 * (FeedbackEntry::PER_CELL_MAX + 1)];
    for body in [&b""[..], &b"12345"[..], &b"\x80\0\0\x01\0\0"[..], &long[..]] {
        let mut middle = Middle::<HeaderOnly>::new(HopWindows::Fixed { cells: WINDOW }, |_| true);
        middle.stage.send_feedback_bytes(1, body);
        assert!(!middle.stage.is_open(1), "{} bytes", body.len());
        assert!(middle.refusal().is_some());
    }
}

/// Frequent events are not all reported: they are logged.
#[test]
fn reports_of_many_liars_are_limited_and_all_are_counted() {
    let mut stage = stage::<HeaderOnly>(HopWindows::Fixed { cells: WINDOW });
    for _ in 0..100 {
        let link = stage.accept(None, None);
        stage.send_feedback_bytes(link, b"noise");
        assert!(!stage.is_open(link));
    }
    assert_eq!(stage.relay.totals().feedback_refused, 100);
    let is_refusal = |event: &RouterEvent| matches!(event, RouterEvent::FeedbackRefused { .. });
    let reported = core::iter::from_fn(|| stage.relay.poll_event()).filter(is_refusal).count();
    assert!((1..=20).contains(&reported), "{reported}");
}

/// Any relay can do this to circuits through it, with or without windows.
#[test]
fn a_silent_next_hop_causes_at_most_one_full_queue() {
    let mut middle = Middle::<HeaderOnly>::new(HopWindows::Fixed { cells: WINDOW }, |_| true);
    middle.send_forward(WINDOW as usize);
    middle.send_forward(QUEUE_LIMIT_CELLS as usize);
    assert_eq!(middle.sent_count(0, Command::DESTROY), 0);
    assert_eq!(middle.sent_count(1, Command::RELAY), WINDOW as usize);
    middle.pass(3000);
    middle.send_forward(1);
    let why = middle.stage.sent_cells().iter().find_map(|seen| seen.destroyed);
    assert_eq!(why, Some(DestroyReason::RESOURCE_LIMIT));
    assert_eq!(middle.stage.relay.totals().stalled_circuits, 1);
    assert_eq!(middle.stage.relay.queued_bytes(), 0);
    assert_eq!(middle.stalled_by(), Some(Some(ids_of(3))), "the report names the next hop");
}

#[test]
fn a_merely_slow_next_hop_is_not_blamed() {
    let mut middle = Middle::<HeaderOnly>::new(HopWindows::Fixed { cells: WINDOW }, |_| true);
    middle.send_forward(WINDOW as usize);
    middle.send_forward(QUEUE_LIMIT_CELLS as usize);
    middle.pass(2990);
    middle.stage.report_forwarded(1, middle.onward, 1);
    middle.pass(1000);
    // One was forwarded, and two arrive.
    middle.send_forward(2);
    assert_eq!(middle.sent_count(0, Command::DESTROY), 1);
    assert_eq!(middle.stage.relay.totals().stalled_circuits, 0);
    assert_eq!(middle.stalled_by(), None);
}

#[test]
fn a_silent_client_loses_its_circuit_and_is_reported_as_a_client() {
    let mut middle = Middle::<HeaderOnly>::new(HopWindows::Fixed { cells: WINDOW }, |_| true);
    middle.send_backward(WINDOW as usize);
    middle.send_backward(QUEUE_LIMIT_CELLS as usize);
    assert_eq!(middle.sent_count(0, Command::DESTROY), 0);
    assert_eq!(middle.stage.data_cells(0, middle.circ_id), u64::from(WINDOW));
    middle.pass(3000);
    middle.send_backward(1);
    assert_eq!(middle.stage.relay.totals().stalled_circuits, 1);
    assert_eq!(middle.stage.relay.queued_bytes(), 0);
    assert_eq!(middle.stalled_by(), Some(None));
}

/// A lying next hop that reports cells before it forwards them: cells are sent to it as fast as they arrive,
/// and at most the maximum window may ever be in flight.
#[test]
fn early_feedback_only_speeds_up_the_liars_own_circuit() {
    let mut middle = Middle::<HeaderOnly>::new(HopWindows::CircuitStartAgain, |_| true);
    let (bystander, circ_id) = (middle.stage.accept(None, None), CircId::of_initiator(1));
    middle.stage.create(bystander, circ_id, HandshakeKind::Ntor);
    let mut sent = 0;
    for _ in 0..400 {
        // At most what the queue can hold.
        let waits = middle.stage.unreported_by_relay(0, middle.circ_id);
        let cells = (QUEUE_LIMIT_CELLS - waits).min(30) as usize;
        middle.send_forward(cells);
        sent += cells;
        let unreported_by_peer = middle.stage.unreported_by_peer(1, middle.onward);
        assert!(unreported_by_peer <= SIZE_MAX_CELLS, "{unreported_by_peer}");
        middle.stage.report_forwarded(1, middle.onward, u16::MAX);
        middle.pass(5);
    }
    let waits = middle.stage.unreported_by_relay(0, middle.circ_id) as usize;
    assert_eq!(middle.sent_count(1, Command::RELAY), sent - waits);
    assert!(sent > 2_000, "{sent}");
    // Now it is silent: the cells in flight are those that its lies allowed, within the limit.
    middle.send_forward(1);
    middle.pass(3000);
    for _ in 0..200 {
        if middle.sent_count(0, Command::DESTROY) > 0 {
            break;
        }
        let unreported_by_peer = middle.stage.unreported_by_peer(1, middle.onward);
        assert!(unreported_by_peer <= SIZE_MAX_CELLS, "{unreported_by_peer}");
        middle.send_forward(30);
    }
    assert_eq!(middle.stalled_by(), Some(Some(ids_of(3))));
    assert!(middle.stage.is_open(bystander) && middle.stage.is_open(1));
    assert_eq!(middle.stage.relay.open_circuits(), 1, "the bystander's circuit");
}

fn run_script(windows: HopWindows, script: &[u8]) {
    let mut stage = stage::<HeaderOnly>(windows);
    stage.has_feedback = |relay| relay != Some(2);
    // The stage checks that no more is reported than was sent, and that honest peers keep their links.
    stage.run_script(script, |stage| stage.relay.check_accounts());
    stage.advance(Duration::from_secs(2));
    stage.close_all();
    assert_eq!((stage.relay.open_circuits(), stage.relay.queued_bytes()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn feedback_never_exceeds_received_cells_and_honest_peers_keep_their_links(
        which in 0usize..4, script in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let all = [
            HopWindows::Fixed { cells: 5 },
            HopWindows::CircuitStartAgain,
            HopWindows::SlowStart,
            HopWindows::JumpStart { cells: 20 },
        ];
        run_script(all[which], &script);
    }

    /// Cells in both directions through a middle relay whose neighbours report irregularly: all arrive
    /// eventually.
    #[test]
    fn no_cell_is_lost_or_left_behind(
        steps in prop::collection::vec((0usize..12, 0usize..12, 0u16..9, 0u16..9, 0u64..30), 1..60),
    ) {
        let mut middle = Middle::<HeaderOnly>::new(HopWindows::CircuitStart, |_| true);
        let (mut forward, mut backward) = (0, 0);
        for (to_next, to_client, fed, fed_back, ms) in steps {
            let waits = middle.stage.unreported_by_relay(0, middle.circ_id) as usize;
            let to_next = to_next.min((QUEUE_LIMIT_CELLS as usize).saturating_sub(waits));
            let waits = middle.stage.unreported_by_relay(1, middle.onward) as usize;
            let to_client = to_client.min((QUEUE_LIMIT_CELLS as usize).saturating_sub(waits));
            middle.send_forward(to_next);
            middle.send_backward(to_client);
            (forward, backward) = (forward + to_next, backward + to_client);
            middle.stage.report_forwarded(1, middle.onward, fed);
            middle.stage.report_forwarded(0, middle.circ_id, fed_back);
            middle.pass(ms);
        }
        let until: Instant = middle.stage.now + Duration::from_secs(60);
        while middle.stage.relay.queued_bytes() > 0 && middle.stage.now < until {
            middle.stage.report_forwarded(1, middle.onward, u16::MAX);
            middle.stage.report_forwarded(0, middle.circ_id, u16::MAX);
            middle.pass(20);
        }
        prop_assert_eq!(middle.sent_count(1, Command::RELAY), forward);
        prop_assert_eq!(middle.stage.data_cells(0, middle.circ_id), backward as u64);
        prop_assert_eq!(middle.stage.unreported_by_relay(0, middle.circ_id), 0);
        prop_assert_eq!(middle.stage.unreported_by_relay(1, middle.onward), 0);
    }
}
