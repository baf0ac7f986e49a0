//! Schedulers at a bottleneck relay: bulk circuits and a quiet one on each of several links.

use super::arithmetic::{cells_mbit_per_s, jain, percentile_ms};
use super::world::World;
use flashflow_sim::wire::{NodeId, PathModel};
use onion::cell::CELL_LEN;
use onion::client::{CircuitNumber, ClientEvent, Outcome, StreamNumber, Transfer};
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt;

const LINKS: u64 = 4;
const BULK_PER_LINK: usize = 3;
const WARM_UP: Duration = Duration::from_secs(5);
const COUNTED: Duration = Duration::from_secs(20);

/// The interval of clients' actions and of queue samples.
const GRAIN: Duration = Duration::from_millis(10);

/// A quiet circuit and its results.
struct Quiet {
    client: NodeId,
    circuit: CircuitNumber,
    /// The next request; `None` while a download is running.
    asks_at: Option<Instant>,
    /// Sizes and pauses.
    rng: ChaCha8Rng,
}

/// The result of one run.
struct Seen {
    name: &'static str,
    /// From BEGIN to the first byte and to the last, of each request of quiet circuits.
    first: Vec<Duration>,
    last: Vec<Duration>,
    bulk_bytes: Vec<u64>,
    quiet_bytes: u64,
    /// The mean delay of cells in the relay's queues.
    relay_wait: Duration,
    /// The mean delay after that in the relay's kernel, in transit or queued.
    kernel_wait: Duration,
    fingerprint: u64,
}

struct Run {
    world: World,
    quiet: Vec<Quiet>,
    bulk: Vec<(NodeId, StreamNumber)>,
    seen: Seen,
}

impl Run {
    fn begin(name: &'static str, scheduler: SchedulerConfig) -> Self {
        let model = PathModel { latency: Duration::from_millis(20), ..PathModel::default() };
        let mut world = World::new(2, model, |place, config| {
            // Cells are to be queued only in the relay before the exit.
            config.scheduler = if place == 0 { scheduler } else { SchedulerConfig::vanilla() };
        });
        world.wire.set_egress(world.relays[0], Rate::from_mbit_per_s(10.0));
        let path = world.path();
        let (mut quiet, mut bulk) = (Vec::new(), Vec::new());
        for number in 0..LINKS {
            let client = world.add_client();
            let circuit = world.open(client, &path);
            let rng = ChaCha8Rng::seed_from_u64(number);
            quiet.push(Quiet { client, circuit, asks_at: None, rng });
            bulk.extend((0..BULK_PER_LINK).map(|_| (client, world.open(client, &path))));
        }
        let circuits =
            quiet.iter().map(|quiet| (quiet.client, quiet.circuit)).chain(bulk.iter().copied());
        world.build(&circuits.collect::<Vec<_>>());
        let bulk =
            bulk.into_iter().map(|(client, circuit)| (client, world.download(client, circuit)));
        let bulk = bulk.collect();
        let seen = Seen {
            name,
            first: Vec::new(),
            last: Vec::new(),
            bulk_bytes: Vec::new(),
            quiet_bytes: 0,
            relay_wait: Duration::ZERO,
            kernel_wait: Duration::ZERO,
            fingerprint: 0,
        };
        Self { world, quiet, bulk, seen }
    }

    /// Advances the clock by `time`. Returns the mean number of bytes in the relay's kernel.
    fn pass(&mut self, time: Duration) -> f64 {
        let deadline = self.world.wire.now() + time;
        let (mut held_bytes, mut samples) = (0, 0_u32);
        while self.world.wire.now() < deadline {
            self.world.pass(GRAIN);
            self.quiet.iter_mut().for_each(|quiet| quiet.update(&mut self.world, &mut self.seen));
            held_bytes += self.world.wire.tally(self.world.relays[0]).buffered_bytes;
            samples += 1;
        }
        held_bytes as f64 / f64::from(samples)
    }

    fn bulk_bytes(&mut self) -> Vec<u64> {
        let world = &mut self.world;
        self.bulk.iter().map(|(client, stream)| world.received_bytes(*client, *stream)).collect()
    }
}

impl Quiet {
    /// Records a completed download, and requests the next when it is due.
    fn update(&mut self, world: &mut World, seen: &mut Seen) {
        let now = world.wire.now();
        while let Some(event) = world.client(self.client).poll_event() {
            match event {
                ClientEvent::Built { .. } => self.asks_at = Some(now),
                ClientEvent::Over { outcome: Outcome::Complete, figures, .. } => {
                    seen.first.extend(figures.to_first_byte());
                    seen.last.push(figures.to_last());
                    seen.quiet_bytes += figures.received_bytes;
                    let pause_ms = 100 + u64::from(self.rng.next_u32() % 400);
                    self.asks_at = Some(now + Duration::from_millis(pause_ms));
                }
                other => panic!("{other:?}"),
            }
        }
        if self.asks_at.is_some_and(|at| at <= now) {
            self.asks_at = None;
            let bytes = 500 + u64::from(self.rng.next_u32() % 15_000);
            world.begin(self.client, self.circuit, Transfer::download(2, bytes));
        }
    }
}

fn simulate(name: &'static str, scheduler: SchedulerConfig) -> Seen {
    let mut run = Run::begin(name, scheduler);
    run.pass(WARM_UP);
    (run.seen.first, run.seen.last, run.seen.quiet_bytes) = (Vec::new(), Vec::new(), 0);
    let figures = |run: &Run| {
        let relay = run.world.relay(0);
        (relay.totals().client_bytes, relay.waited_cell_s())
    };
    let ((sent_before, waited_before), before) = (figures(&run), run.bulk_bytes());
    let held_bytes = run.pass(COUNTED);
    let ((sent, waited), after) = (figures(&run), run.bulk_bytes());
    // Total waiting divided by throughput (Little's law).
    let sent_bytes = (sent - sent_before) as f64;
    let relay_wait_s = (waited - waited_before) / (sent_bytes / CELL_LEN as f64);
    Seen {
        bulk_bytes: after.iter().zip(before).map(|(after, before)| after - before).collect(),
        relay_wait: Duration::from_secs_f64(relay_wait_s),
        kernel_wait: COUNTED.mul_f64(held_bytes / sent_bytes),
        fingerprint: run.world.wire.fingerprint(),
        ..run.seen
    }
}

impl Seen {
    fn bulk_mbit_per_s(&self) -> f64 {
        cells_mbit_per_s(self.bulk_bytes.iter().sum(), COUNTED)
    }

    fn all_mbit_per_s(&self) -> f64 {
        cells_mbit_per_s(self.bulk_bytes.iter().sum::<u64>() + self.quiet_bytes, COUNTED)
    }

    /// Jain's index of the bulk circuits of the least fair link.
    fn fairness_on_links(&self) -> f64 {
        self.bulk_bytes.chunks(BULK_PER_LINK).map(jain).fold(1.0, f64::min)
    }
}

/// A row of the table.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, first, last, .. } = self;
        write!(f, "{name:9} {:9}", first.len())?;
        for (times, percent) in [(first, 50), (first, 90), (last, 50), (last, 90)] {
            write!(f, " {:7.1}", percentile_ms(times, percent))?;
        }
        write!(f, " {:7.3} {:7.3}", self.bulk_mbit_per_s(), self.all_mbit_per_s())?;
        write!(f, " {:9.5} {:7.5}", self.fairness_on_links(), jain(&self.bulk_bytes))?;
        let waits = [self.relay_wait, self.kernel_wait].map(|wait| wait.as_secs_f64() * 1e3);
        writeln!(f, " {:7.1} {:7.1}  {:016x}", waits[0], waits[1], self.fingerprint)
    }
}

const HEAD: &str = "\
20 s at 10 Mbit/s   first byte, ms  last byte, ms    cells, Mbit/s   fairness of bulk   waits, ms, in
scheduler requests  median    90 %  median    90 %    bulk     all   on links     all   relay  kernel  fingerprint
";

#[test]
fn kist_favours_quiet_circuits_without_losing_throughput() {
    let interval = SchedulerConfig::INTERVAL;
    let vanilla = simulate("Vanilla", SchedulerConfig::vanilla());
    let lite = simulate("KISTLite", SchedulerConfig::kist_lite(interval));
    let kist = simulate("KIST", SchedulerConfig::default());
    let table = format!("{HEAD}{vanilla}{lite}{kist}");
    println!("{table}");
    for (under, otherwise) in [(&kist.first, &vanilla.first), (&kist.last, &vanilla.last)] {
        for percent in [50, 90] {
            let [under, otherwise] = [under, otherwise].map(|times| percentile_ms(times, percent));
            assert!(under < 0.6 * otherwise, "{percent} %: {under} and {otherwise} ms");
        }
    }
    assert!(kist.all_mbit_per_s() > 0.99 * vanilla.all_mbit_per_s());
    // Quiet circuits get more downloads, and bulk correspondingly less.
    assert!(kist.bulk_mbit_per_s() > 0.97 * vanilla.bulk_mbit_per_s());
    // Cells are queued where others can overtake them.
    assert!(kist.kernel_wait < vanilla.kernel_wait.mul_f64(0.4));
    assert!(kist.relay_wait > vanilla.relay_wait);
    // Without the kernel's report, KISTLite fills sockets as Vanilla does.
    assert!(lite.kernel_wait > vanilla.kernel_wait.mul_f64(0.9));
    for seen in [&vanilla, &lite, &kist] {
        assert!(seen.fairness_on_links() > 0.999, "{}: {:?}", seen.name, seen.bulk_bytes);
    }
    insta::assert_snapshot!("table", table);
}
