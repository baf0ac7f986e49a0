//! The engine's decisions do not depend on the cell model: the same run with tor's cells and with header-only
//! ones gives the same cells in the same order at the same times.

use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::cell_model::{CellModel, HeaderOnly, StreamId, Tor};
use onion::flow::hop::HopWindows;
use onion::router::schedule::SchedulerConfig;
use onion::router::{ExitConfig, ExitPolicy, RateLimit, RouterConfig, RouterTotals};
use onion::{Duration, Rate};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;
use testkit::stage::{HandshakeKind, Pace, SentCell, Stage, StageModel};

/// The limit of all queues, in cells.
const HELD_CELLS_MAX: usize = 600;

fn stage<S: StageModel>(limit: Option<RateLimit>) -> Stage<S, ChaCha8Rng> {
    stage_with(|config| config.limit = limit)
}

fn stage_with<S: StageModel>(
    change: impl FnOnce(&mut RouterConfig<S::Identity>),
) -> Stage<S, ChaCha8Rng> {
    Stage::new(ChaCha8Rng::seed_from_u64(7), |config: &mut RouterConfig<S::Identity>| {
        let policy = ExitPolicy::accept_all();
        config.exit = Some(ExitConfig { policy, ipv6: false, allows_single_hop: true });
        config.directory = Some(([127, 0, 0, 1], 9030).into());
        // In cells of this model, of whatever size.
        config.held_bytes_max = HELD_CELLS_MAX * size_of::<<S as CellModel>::Cell>();
        config.scheduler = SchedulerConfig::default();
        change(config);
    })
}

fn circuit(number: u32) -> CircId {
    CircId::of_initiator(number)
}

/// The result of a run.
#[derive(Debug, PartialEq)]
struct RunResult {
    seen: Vec<SentCell>,
    totals: RouterTotals,
    waited_cell_s: f64,
}

impl RunResult {
    fn from_stage<S: StageModel>(stage: &Stage<S, ChaCha8Rng>) -> Self {
        let (relay, seen) = (&stage.relay, stage.sent_cells().to_vec());
        // The reclaimed bytes depend on the cell model.
        let totals = RouterTotals { reclaimed_bytes: 0, ..*relay.totals() };
        Self { seen, totals, waited_cell_s: relay.waited_cell_s() }
    }

    fn count(&self, command: Command) -> usize {
        self.seen.iter().filter(|seen| seen.command == command).count()
    }

    fn messages(&self, command: RelayCommand) -> usize {
        let all = self.seen.iter().filter_map(|seen| seen.message.as_ref());
        all.filter(|message| message.command == command).count()
    }
}

/// An exit with a rate limit and KIST: a download with Vegas and one with fixed windows on a slow link, a
/// circuit to the next hop, uploads, and then a client that reads nothing until memory runs out.
fn scenario<S: StageModel>() -> RunResult {
    let rate = Rate::from_byte_per_s(2_000_000);
    let mut stage = stage::<S>(Some(RateLimit { rate, burst_bytes: 100_000 }));
    let pace = |cells_per_ms| Some(Pace { cells_per_ms, buffer_cells: 200 });
    let (slow, fast) = (stage.accept(Some(7), pace(2)), stage.accept(None, pace(30)));

    stage.create(slow, circuit(1), HandshakeKind::Cgo);
    stage.create(slow, circuit(2), HandshakeKind::Ntor);
    stage.create(fast, circuit(3), HandshakeKind::Fast);
    stage.advance(Duration::from_millis(5));
    stage.extend(fast, circuit(3), HandshakeKind::Congestion, 3);
    stage.advance(Duration::from_millis(5));
    assert_eq!((stage.hops(slow, circuit(2)), stage.hops(fast, circuit(3))), (1, 2));
    for number in [1, 2] {
        for stream in 1..=2 {
            let begin = (0, RelayCommand::BEGIN);
            stage.send_message(slow, circuit(number), begin, StreamId(stream), b"192.0.2.80:80\0");
        }
    }
    (0..4).for_each(|number| stage.connect(number));

    let next = stage.next_hops().find(|link| *link > fast).expect("it was dialled");
    let onward = stage.created_circuits(next)[0];
    for ms in 0..600_u32 {
        (0..4).for_each(|number| _ = stage.feed(number, 3000));
        stage.send_data(slow, circuit(1 + ms % 2), 0, StreamId(1), 300);
        stage.send_data(fast, circuit(3), 1, StreamId(9), 498);
        stage.reply_data(next, onward, StreamId(9), 498);
        stage.advance(Duration::from_millis(1));
        for number in 1..=2 {
            while stage.acknowledge(slow, circuit(number)) {}
        }
    }

    let unread = stage.accept(Some(7), Some(Pace { cells_per_ms: 0, buffer_cells: 10 }));
    for number in 10..15 {
        stage.create(unread, circuit(number), HandshakeKind::Ntor);
        let begin = (0, RelayCommand::BEGIN);
        stage.send_message(unread, circuit(number), begin, StreamId(1), b"192.0.2.81:80\0");
    }
    let first = stage.destinations() - 5;
    (first..first + 5).for_each(|number| stage.connect(number));
    for _ in 0..40 {
        let open = stage.destinations();
        (first.min(open)..open).for_each(|number| _ = stage.feed(number, 10_000));
        stage.advance(Duration::from_millis(1));
        stage.relay.check_accounts();
    }
    stage.advance(Duration::from_secs(30));
    stage.relay.check_accounts();
    RunResult::from_stage(&stage)
}

#[test]
fn header_only_cells_and_tors_cells_give_the_same_run() {
    let real = scenario::<Tor>();
    let header_only = scenario::<HeaderOnly>();
    // All of these have occurred.
    assert!(
        real.messages(RelayCommand::DATA) > 2000,
        "{} cells",
        real.messages(RelayCommand::DATA)
    );
    assert!(real.messages(RelayCommand::SENDME) > 3 && real.count(Command::CREATE2) == 1);
    assert!(real.count(Command::PADDING) > 0, "idle links are padded");
    assert!(real.count(Command::DESTROY) > 0 && real.totals.oom_runs > 0, "memory ran short");
    assert!(real.waited_cell_s > 1.0, "cells were queued");
    for (at, (real, header_only)) in real.seen.iter().zip(&header_only.seen).enumerate() {
        assert_eq!(real, header_only, "cell {at}");
    }
    assert_eq!(real, header_only);
}

fn random_run<S: StageModel>(script: &[u8], windows: Option<HopWindows>) -> RunResult {
    let mut stage = stage_with::<S>(|config| {
        if let Some(windows) = windows {
            config.flows = Arc::new(windows.flows(SchedulerConfig::INTERVAL));
        }
    });
    stage.run_script(script, |stage| stage.relay.check_accounts());
    stage.advance(Duration::from_secs(2));
    stage.close_all();
    assert_eq!((stage.relay.open_circuits(), stage.relay.queued_bytes()), (0, 0));
    assert_eq!(stage.relay.open_streams(), 0);
    RunResult::from_stage(&stage)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_scenario_distinguishes_the_cell_models(script in prop::collection::vec(any::<u8>(), 0..600)) {
        for windows in [None, Some(HopWindows::CircuitStartAgain)] {
            prop_assert_eq!(random_run::<Tor>(&script, windows), random_run::<HeaderOnly>(&script, windows));
        }
    }
}
