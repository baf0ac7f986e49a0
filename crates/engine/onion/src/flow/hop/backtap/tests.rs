use super::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A next hop at this distance that forwards cells one after another.
struct Hop {
    window: BackTap,
    now: Instant,
    one_way: Duration,
    spacing: Duration,
    /// When it forwards its last cell.
    busy_until: Instant,
    /// Feedback in flight.
    coming: VecDeque<Instant>,
    /// Jitter of the return path, at most.
    noise: Duration,
    /// The interval of its scheduler runs; zero forwards cells one by one.
    runs: Duration,
    rng: ChaCha8Rng,
}

impl Hop {
    /// The bandwidth-delay product, in cells.
    fn new(window: BackTap, fits: u32) -> Self {
        let one_way = Duration::from_millis(20);
        Self {
            window,
            now: Instant::ORIGIN,
            one_way,
            spacing: 2 * one_way / fits,
            busy_until: Instant::ORIGIN,
            coming: VecDeque::new(),
            noise: Duration::ZERO,
            runs: Duration::ZERO,
            rng: ChaCha8Rng::seed_from_u64(1),
        }
    }

    fn round_trip(&self) -> Duration {
        2 * self.one_way
    }

    fn next_run(&self, ready: Instant) -> Instant {
        let runs_ns = u64::try_from(self.runs.as_nanos()).expect("short");
        Instant::from_nanos(ready.as_nanos().next_multiple_of(runs_ns.max(1)))
    }

    /// Sends at most this number of cells now.
    fn send(&mut self, at_most: u32) {
        let room = self.window.room_cells(self.now).min(at_most);
        if room == 0 {
            return;
        }
        self.window.handle_sent(self.now, room);
        for _ in 0..room {
            let arrives = self.now + self.one_way;
            self.busy_until = arrives.max(self.busy_until + self.spacing);
            let noise_ns = u64::try_from(self.noise.as_nanos()).expect("short");
            let noise = Duration::from_nanos(self.rng.next_u64() % (noise_ns + 1));
            let back = self.next_run(self.busy_until) + self.one_way + noise;
            // Links are FIFO.
            let back = self.coming.back().map_or(back, |last| back.max(*last));
            self.coming.push_back(back);
        }
    }

    /// Sends as the window permits for this long; returns the window after each feedback.
    fn run(&mut self, time: Duration, mut each: impl FnMut(Instant, u32)) {
        let until = self.now + time;
        self.send(u32::MAX);
        while let Some(at) = self.coming.front().copied().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.coming.pop_front();
            self.window.handle_feedback(self.now, 1);
            each(self.now, self.window.size_cells());
            self.send(u32::MAX);
        }
        self.now = until;
    }

    /// This number of cells arrives at this interval, and is sent as the window permits. Returns the largest
    /// number of waiting cells in the second half.
    fn trickle(&mut self, cells: u32, gap: Duration) -> u64 {
        let mut most = 0;
        for arrived in 1..=u64::from(cells) {
            let until = self.now + gap;
            while let Some(at) = self.coming.front().copied().filter(|at| *at <= until) {
                self.now = self.now.max(at);
                self.coming.pop_front();
                self.window.handle_feedback(self.now, 1);
                self.send(u32::try_from(arrived - 1 - self.window.sent).expect("few"));
            }
            self.now = until;
            self.send(u32::try_from(arrived - self.window.sent).expect("few"));
            if arrived > u64::from(cells / 2) {
                most = most.max(arrived - self.window.sent);
            }
        }
        most
    }

    fn sizes(&mut self, time: Duration) -> Vec<u32> {
        let mut sizes = Vec::new();
        self.run(time, |_, size| sizes.push(size));
        sizes
    }
}

#[test]
fn a_ramp_up_ends_at_the_capacity_and_overshoots_only_briefly() {
    for fits in [8, 20, 50, 77, 150, 400] {
        let mut hop = Hop::new(BackTap::with_circuit_start(), fits);
        // A train takes one round trip, and those near the capacity two.
        let rounds = fits.ilog2() + 4;
        hop.run(hop.round_trip() * rounds, |_, _| {});
        let size = hop.window.size_cells();
        assert!(matches!(hop.window.phase, Phase::Avoidance(_)), "{fits}: still ramping");
        assert!((fits..=fits + 5).contains(&size), "{size} of {fits}");
        let later = hop.sizes(hop.round_trip() * 50);
        let range = later.iter().min().zip(later.iter().max()).expect("some");
        assert!(*range.0 >= fits && *range.1 <= fits + 6, "{range:?} of {fits}");
    }
}

/// Not at what fits into a round trip and an interval of the next hop's scheduler, with which `fits` would be 25 % more.
#[test]
fn a_ramp_up_with_scheduler_runs_ends_at_the_capacity_of_the_path() {
    let grain = Duration::from_millis(10);
    for fits in [40, 80, 160] {
        let mut hop = Hop::new(BackTap::with_circuit_start().with_grain(grain), fits);
        let mut ended = None;
        for _ in 0..200 {
            hop.run(Duration::from_millis(5), |_, _| {});
            if matches!(hop.window.phase, Phase::Avoidance(_)) {
                ended = Some(hop.window.size_cells());
                break;
            }
        }
        let size = ended.expect("the ramp-up ends");
        assert!((fits * 9 / 10..=fits * 11 / 10 + 3).contains(&size), "{size} of {fits}");
    }
}

#[test]
fn without_a_ramp_up_each_additional_cell_takes_a_round_trip() {
    let mut hop = Hop::new(BackTap::new(), 60);
    hop.run(hop.round_trip() * 20, |_, _| {});
    assert!((18..=23).contains(&hop.window.size_cells()), "{}", hop.window.size_cells());
    hop.run(hop.round_trip() * 100, |_, _| {});
    assert!((60..=66).contains(&hop.window.size_cells()), "{}", hop.window.size_cells());
}

#[test]
fn slow_start_ends_too_early_and_a_jump_start_shrinks_to_the_capacity() {
    let mut slow = Hop::new(BackTap::with_slow_start(), 200);
    let mut jump = Hop::new(BackTap::with_jump_start(1_000), 200);
    slow.run(slow.round_trip() * 12, |_, _| {});
    jump.run(jump.round_trip() * 12, |_, _| {});
    assert!(slow.window.size_cells() < 120, "{}", slow.window.size_cells());
    assert!((200..=205).contains(&jump.window.size_cells()), "{}", jump.window.size_cells());
}

#[test]
fn additional_capacity_is_found_within_five_round_trips() {
    for fits in [20, 60, 200] {
        let mut hop = Hop::new(BackTap::with_reramp(), fits);
        hop.run(hop.round_trip() * 40, |_, _| {});
        hop.spacing /= 2;
        hop.run(hop.round_trip() * 5, |_, _| {});
        let size = hop.window.size_cells();
        assert!(size >= fits * 2, "{size} of {}", 2 * fits);
        hop.run(hop.round_trip(), |_, _| {});
        let size = hop.window.size_cells();
        assert!((fits * 2..=fits * 2 + 6).contains(&size), "{size} of {}", 2 * fits);
        // The paper's window takes one round trip for each cell.
        let mut once = Hop::new(BackTap::with_circuit_start(), fits);
        once.run(once.round_trip() * 40, |_, _| {});
        once.spacing /= 2;
        once.run(once.round_trip() * 5, |_, _| {});
        assert!(once.window.size_cells() <= fits + 10, "{}", once.window.size_cells());
    }
}

/// They come from a slower link. If the next train were not sent until all of the last one has been forwarded,
/// cells would wait for a round trip after each train.
#[test]
fn cells_from_a_slow_source_are_not_delayed() {
    for gap_us in [300, 1_000, 3_000] {
        for window in [BackTap::with_circuit_start(), BackTap::with_reramp()] {
            let mut hop = Hop::new(window, 1_000);
            let most = hop.trickle(5_000, Duration::from_micros(gap_us));
            assert_eq!(most, 0, "every {gap_us} µs");
        }
    }
}

/// During its pause nothing is queued at the next hop, which then takes some time for new cells.
#[test]
fn pauses_of_the_source_do_not_end_the_ramp_up() {
    let mut hop = Hop::new(BackTap::with_circuit_start(), 600);
    for _ in 0..20 {
        hop.send(80);
        hop.now += hop.round_trip();
        while let Some(at) = hop.coming.front().copied().filter(|at| *at <= hop.now) {
            hop.coming.pop_front();
            hop.window.handle_feedback(at, 1);
        }
    }
    assert!(matches!(hop.window.phase, Phase::Trains { .. }), "{}", hop.window.size);
    hop.run(hop.round_trip() * 7, |_, _| {});
    let size = hop.window.size_cells();
    assert!((600..=606).contains(&size), "{size}");
}

/// There, cells wait for a whole interval or not at all, so a balanced window oscillates and has calm rounds
/// while it grows.
#[test]
fn additional_capacity_is_found_as_fast_with_scheduler_runs() {
    let run = Duration::from_millis(10);
    for fits in [30, 60] {
        for settles_ms in [2_400, 2_452, 2_548, 2_644, 2_820] {
            let mut hop = Hop::new(BackTap::with_reramp().with_grain(run), fits);
            hop.runs = run;
            hop.run(Duration::from_millis(settles_ms), |_, _| {});
            let before = hop.window.size_cells();
            assert!(before < fits * 2, "{before} of {fits}: it has ramped for nothing");
            hop.spacing /= 2;
            hop.run((hop.round_trip() + run) * 5, |_, _| {});
            let size = hop.window.size_cells();
            assert!(size >= fits * 18 / 10, "{size} of {}, {settles_ms} ms", fits * 2);
        }
    }
}

/// Or hardly ever: in at most two of twenty trials of 500 round trips.
#[test]
fn noise_starts_no_ramp_up() {
    for noise_ms in [1, 2, 5] {
        let ramps = |seed: &u64| {
            let mut hop = Hop::new(BackTap::with_reramp(), 60);
            hop.rng = ChaCha8Rng::seed_from_u64(*seed);
            hop.run(hop.round_trip() * 20, |_, _| {});
            hop.noise = Duration::from_millis(noise_ms);
            let before = hop.window.size_cells();
            hop.sizes(hop.round_trip() * 500).into_iter().any(|size| size > before + 10)
        };
        let count = (1..=20).filter(ramps).count();
        assert!(count <= 2, "{count} of 20 with {noise_ms} ms");
    }
}

/// A relay with KIST delays cells until its next run. The first cells may have had none to wait for, and set
/// the minimum round-trip time.
#[test]
fn cells_waiting_for_a_scheduler_run_do_not_count_as_queued() {
    let settled = |window: BackTap| {
        let mut hop = Hop::new(window, 60);
        hop.run(hop.round_trip() * 5, |_, _| {});
        // Cells of one run are reported, replaced and waiting again one millisecond after the third run.
        hop.runs = Duration::from_millis(13);
        hop.run(hop.round_trip() * 200, |_, _| {});
        hop.window.size_cells()
    };
    // Twelve milliseconds more than forty: more cells are in flight, and some may be queued.
    let with = settled(BackTap::with_reramp().with_grain(Duration::from_millis(13)));
    assert!((70..=100).contains(&with), "{with} with");
    let without = settled(BackTap::with_reramp());
    assert!(without < 40, "{without} without");
}

#[test]
fn an_application_limited_source_keeps_a_small_window() {
    let mut hop = Hop::new(BackTap::with_reramp(), 100);
    for _ in 0..2_000 {
        hop.send(3);
        hop.now += hop.round_trip();
        while hop.coming.front().is_some_and(|at| *at <= hop.now) {
            hop.coming.pop_front();
            hop.window.handle_feedback(hop.now, 1);
        }
    }
    // At most five are in flight, and trains of at most twice that are doubled.
    assert!(hop.window.size_cells() <= 20, "{}", hop.window.size_cells());
}

proptest! {
    #[test]
    fn arbitrary_feedback_never_exceeds_the_window(
        steps in prop::collection::vec((0u64..50, 0u32..3_000, 0u32..40), 0..400),
        kind in 0..5,
    ) {
        let mut window = match kind {
            0 => BackTap::new(),
            1 => BackTap::with_circuit_start(),
            2 => BackTap::with_reramp(),
            3 => BackTap::with_slow_start(),
            _ => BackTap::with_jump_start(100),
        };
        let (mut now, mut under_way) = (Instant::ORIGIN, 0);
        for (ms, fed_back, wanted) in steps {
            now += Duration::from_millis(ms);
            let before = window.size_cells();
            let cells = window.room_cells(now).min(wanted);
            prop_assert!(under_way + cells <= before.max(under_way));
            window.handle_sent(now, cells);
            under_way += cells;
            window.handle_feedback(now, fed_back);
            under_way -= under_way.min(fed_back);
            prop_assert!((2..=SIZE_MAX).contains(&window.size_cells()));
            // However much is reported at once: at most two rounds end, and a ramp-up begins.
            prop_assert!(window.size_cells() <= ((before + 2) * 2).max(before + fed_back));
        }
        // It never stalls forever.
        window.handle_feedback(now, u32::MAX);
        prop_assert!(window.room_cells(now) > 0);
    }
}
