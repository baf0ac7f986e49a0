use super::*;
use alloc::collections::VecDeque;
use proptest::prelude::*;

/// A path with a one-way delay and a bottleneck, and a greedy sender, in virtual time.
struct Path {
    window: InFlightWindow,
    cells_per_s: u64,
    delay: Duration,
    now: Instant,
    bottleneck_free_at: Instant,
    under_way: VecDeque<Instant>,
    longest_queue: usize,
}

impl Path {
    fn new(cap_cells: u32, cells_per_s: u64, delay: Duration) -> Self {
        Self {
            window: InFlightWindow::new(cap_cells),
            cells_per_s,
            delay,
            now: Instant::ORIGIN,
            bottleneck_free_at: Instant::ORIGIN,
            under_way: VecDeque::new(),
            longest_queue: 0,
        }
    }

    fn fill(&mut self) {
        let room = self.window.room_cells();
        if room == 0 {
            return;
        }
        self.window.handle_sent(self.now, room);
        for _ in 0..room {
            let start = self.bottleneck_free_at.max(self.now);
            self.bottleneck_free_at =
                start + Duration::from_nanos(1_000_000_000 / self.cells_per_s);
            self.under_way.push_back(self.bottleneck_free_at + self.delay);
        }
        self.longest_queue = self.longest_queue.max(self.under_way.len());
    }

    /// Runs until `end`; returns the cells delivered in the last second.
    fn run(&mut self, end: Instant) -> u64 {
        let mut late = 0;
        self.fill();
        while let Some(arrival) = self.under_way.pop_front() {
            if arrival > end {
                break;
            }
            self.now = arrival;
            self.window.handle_delivered(arrival);
            late += u64::from(end - arrival < Duration::from_secs(1));
            self.fill();
        }
        late
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_path_below_the_cap_is_saturated_and_the_cap_is_respected(
        cells_per_s in 200u64..20_000, delay_ms in 1u64..200, cap in 60u32..2500,
    ) {
        let mut path = Path::new(cap, cells_per_s, Duration::from_millis(delay_ms));
        let last_second = path.run(Instant::from_millis(20_000));
        prop_assert!(path.longest_queue <= cap as usize);
        let bandwidth_delay_product = cells_per_s * delay_ms / 1000;
        if bandwidth_delay_product * 5 / 4 + 4 < u64::from(cap) {
            prop_assert!(last_second * 100 >= cells_per_s * 97, "{last_second} of {cells_per_s}");
        }
    }
}

#[test]
fn the_window_of_a_slow_path_stays_below_the_cap() {
    let mut path = Path::new(2250, 300, Duration::from_millis(5));
    path.run(Instant::from_millis(10_000));
    assert!(path.window.limit_cells() < 200, "{}", path.window.limit_cells());
}

#[test]
fn an_application_limited_sender_does_not_grow_the_window() {
    let mut window = InFlightWindow::new(2000);
    let mut now = Instant::ORIGIN;
    for _ in 0..100 {
        window.handle_sent(now, 1);
        now += Duration::from_micros(10);
        window.handle_delivered(now);
    }
    assert_eq!(window.limit_cells(), START_CELLS);
}
