use onion::cell_model::{CellModel, HeaderOnly};
use onion::flow::hop::HopWindows;
use onion::router::schedule::SchedulerConfig;
use onion::router::{ExitConfig, ExitPolicy, RateLimit, RouterConfig};
use onion::{Duration, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;
use testkit::stage::Stage;

/// The limit on the cells of a circuit's queue in one direction, unless a consensus sets another.
const QUEUE_LIMIT_CELLS: u32 = 200;

/// The limit on cells in all queues together.
const HELD_CELLS_MAX: usize = 500;

/// A relay core with cells that carry only headers: links, circuits, streams, names, time, limits and schedulers in
/// any order. Its counters agree with its queues after each event, it becomes idle, and it holds no state once every
/// peer is gone.
pub fn seam(data: &[u8]) {
    let (choices, script) = data.split_at(data.len().min(2));
    let choice = |at: usize| choices.get(at).copied().unwrap_or(0);
    let mut stage: Stage<HeaderOnly, ChaCha8Rng> =
        Stage::new(ChaCha8Rng::seed_from_u64(choice(0).into()), |config| {
            configure(config, choice(1));
        });
    // One of the next hops behaves like C tor, without hop-by-hop windows.
    stage.has_feedback = |relay| relay != Some(2);
    let held_bytes_max = HELD_CELLS_MAX * size_of::<<HeaderOnly as CellModel>::Cell>();
    stage.run_script(script, |stage| {
        stage.relay.check_accounts();
        // A read from a destination may exceed the limit.
        let most = held_bytes_max + 64 * size_of::<<HeaderOnly as CellModel>::Cell>();
        assert!(stage.relay.queued_bytes() <= most, "{} bytes held", stage.relay.queued_bytes());
    });
    stage.advance(Duration::from_secs(1));
    stage.relay.check_accounts();
    stage.close_all();
    stage.relay.check_accounts();
    assert_eq!((stage.relay.open_circuits(), stage.relay.open_streams()), (0, 0));
    assert_eq!(stage.relay.queued_bytes(), 0, "data is left");
}

fn configure<I>(config: &mut RouterConfig<I>, choice: u8) {
    let policy = ExitPolicy::accept_all();
    let allows_single_hop = choice & 1 == 0;
    config.exit = Some(ExitConfig { policy, ipv6: true, allows_single_hop });
    config.directory = Some(([127, 0, 0, 1], 9030).into());
    config.queue_limit_cells = QUEUE_LIMIT_CELLS;
    config.held_bytes_max = HELD_CELLS_MAX * size_of::<<HeaderOnly as CellModel>::Cell>();
    config.padding = choice & 2 == 0;
    if choice & 4 != 0 {
        let rate = Rate::from_byte_per_s(300_000);
        config.limit = Some(RateLimit { rate, burst_bytes: 20_000 });
    }
    if choice & 8 != 0 {
        let kinds = [
            HopWindows::Fixed { cells: 10 },
            HopWindows::CircuitStartAgain,
            HopWindows::SlowStart,
            HopWindows::JumpStart { cells: 30 },
        ];
        let windows = kinds[usize::from(choice >> 4) % kinds.len()];
        config.flows = Arc::new(windows.flows(SchedulerConfig::INTERVAL));
    }
}
