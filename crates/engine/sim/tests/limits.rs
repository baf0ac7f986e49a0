//! A relay's rate limit, and changing it while cells are queued.

use onion::cell::CircId;
use onion::cell::relay::RelayCommand;
use onion::cell_model::{CellModel, HeaderOnly, StreamId};
use onion::router::{ExitConfig, ExitPolicy, RateLimit, RouterConfig};
use onion::{Duration, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use testkit::stage::{HandshakeKind, Pace, Stage};

/// The length of a cell on a link.
const CELL: f64 = 514.0;

fn limit(byte_per_s: u64) -> Option<RateLimit> {
    Some(RateLimit { rate: Rate::from_byte_per_s(byte_per_s), burst_bytes: 20_000 })
}

#[test]
fn a_changed_rate_applies_to_waiting_links_at_once() {
    let mut stage = Stage::<HeaderOnly, _>::new(
        ChaCha8Rng::seed_from_u64(7),
        |config: &mut RouterConfig<<HeaderOnly as CellModel>::Identity>| {
            let policy = ExitPolicy::accept_all();
            config.exit = Some(ExitConfig { policy, ipv6: false, allows_single_hop: true });
            config.limit = limit(500_000);
        },
    );
    let link = stage.accept(None, Some(Pace { cells_per_ms: 30, buffer_cells: 200 }));
    let circuit = CircId::of_initiator(1);
    stage.create(link, circuit, HandshakeKind::Cgo);
    stage.advance(Duration::from_millis(5));
    stage.send_message(link, circuit, (0, RelayCommand::BEGIN), StreamId(1), b"192.0.2.80:80\0");
    stage.connect(0);

    let data = |stage: &Stage<HeaderOnly, ChaCha8Rng>| {
        let all = stage.sent_cells().iter().filter_map(|seen| seen.message.as_ref());
        all.filter(|message| message.command == RelayCommand::DATA).count()
    };
    // The rate in the second of two seconds, in bytes.
    let carry = |stage: &mut Stage<HeaderOnly, ChaCha8Rng>| {
        let seconds = [(); 2].map(|()| {
            let before = data(stage);
            for _ in 0..1000 {
                _ = stage.feed(0, 20_000);
                stage.advance(Duration::from_millis(1));
                while stage.acknowledge(link, circuit) {}
            }
            (data(stage) - before) as f64 * CELL
        });
        seconds[1]
    };
    for byte_per_s in [500_000_u64, 2_000_000, 100_000, 1_000_000] {
        stage.relay.set_limit(stage.now, limit(byte_per_s));
        stage.settle();
        let carried = carry(&mut stage);
        let share = carried / byte_per_s as f64;
        assert!((0.85..=1.01).contains(&share), "{byte_per_s} byte/s: {share}");
    }
    stage.relay.set_limit(stage.now, None);
    stage.settle();
    assert!(carry(&mut stage) > 3_000_000.0, "the rate without a limit is higher");
}
