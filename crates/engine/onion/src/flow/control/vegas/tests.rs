use super::*;
use crate::time::Duration;
use proptest::prelude::*;

fn vegas(sendme_cells: u8) -> Vegas {
    Vegas::new(Arc::default(), PathKind::Exit, sendme_cells)
}

fn at_us(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

#[test]
fn windows_match_c_tor() {
    let mut circuit = vegas(31);
    let mut rows = 0;
    for line in include_str!("vegas.txt").lines() {
        if line.starts_with("circuit ") {
            circuit = vegas(31);
        }
        let Some((given, expected)) = line.split_once(" -> ") else { continue };
        if line.starts_with('#') {
            continue;
        }
        let given: alloc::vec::Vec<u64> =
            given.split(' ').map(|number| number.parse().expect("number")).collect();
        circuit.sent_at.push_back(at_us(given[0]));
        circuit.in_flight_cells = u32::try_from(given[3]).expect("cells");
        let path = PathState { is_link_blocked: given[2] == 1, queued_cells: 0 };
        circuit.handle_sendme(at_us(given[1]), path).expect("a cell waits");
        let found = std::format!(
            "{} {} {} {} {} {}",
            circuit.average_rtt_us(),
            circuit.min_rtt_us(),
            circuit.window_cells,
            u8::from(circuit.is_in_slow_start),
            u8::from(circuit.is_full),
            u8::from(circuit.is_link_blocked),
        );
        assert_eq!(found, expected, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 60);
}

/// Expected values: C tor 0.4.9.11, `test_congestion_control_rtt`.
#[test]
fn rtt_averages_match_c_tor() {
    let mut circuit = vegas(31);
    for (sent, received, window, in_slow_start, average, min) in [
        (100_000, 200_000, 124, true, 100_000, 100_000),
        (200_000, 300_000, 124, true, 100_000, 100_000),
        (350_000, 500_000, 124, true, 133_333, 100_000),
        (500_000, 550_000, 124, true, 77_777, 77_777),
        (600_000, 700_000, 124, true, 92_592, 77_777),
        (700_000, 750_000, 124, true, 64_197, 64_197),
        (750_000, 875_000, 124, false, 104_732, 104_732),
        (875_000, 900_000, 124, false, 51_577, 104_732),
        (900_000, 950_000, 200, false, 50_525, 50_525),
    ] {
        circuit.window_cells = window;
        circuit.is_in_slow_start = in_slow_start;
        circuit.estimate(at_us(received), at_us(sent), PathState::default());
        assert_eq!((circuit.average_rtt_us(), circuit.min_rtt_us()), (average, min));
    }
}

/// Expected values: C tor 0.4.9.11, `test_congestion_control_clock`.
#[test]
fn clock_stalls_and_jumps_are_detected_as_in_c_tor() {
    let mut trips = RoundTrips::default();
    for (before, sample, in_slow_start, is_known, result) in [
        (0, 1, true, false, false),
        (0, 0, true, true, true),
        (1, 1, true, true, false),
        (1, 4999, false, false, false),
        (4999, 1, false, false, false),
        (5001, 1, false, false, false),
        (5001, 0, false, true, true),
        (5001, 1, false, true, true),
        (5001, 1, true, true, false),
        (0, 5001, false, true, false),
        (1, 5001, true, true, false),
        (1, 1, false, false, false),
        (5001, 1, false, false, false),
        (1, 5001, false, false, true),
        (0, 5001, false, false, false),
        (5001, 1, true, false, false),
        (1, 1, false, false, false),
    ] {
        trips.average_us = before;
        assert_eq!(trips.is_stalled(sample, in_slow_start), result, "{before} {sample}");
        assert_eq!(trips.is_clock_stalled, is_known, "{before} {sample}");
    }
}

#[test]
fn without_a_clock_only_a_blocked_link_ends_slow_start() {
    let mut circuit = vegas(31);
    (0..62).for_each(|_| _ = circuit.handle_sent(Instant::ORIGIN));
    circuit.handle_sendme(Instant::ORIGIN, PathState::default()).expect("due");
    assert_eq!((circuit.window_cells(), circuit.in_flight_cells()), (124, 31));
    let path = PathState { is_link_blocked: true, queued_cells: 300 };
    circuit.handle_sendme(Instant::ORIGIN, path).expect("due");
    assert!(!circuit.is_in_slow_start());
    assert_eq!(circuit.window_cells(), 124 + 186);
}

#[test]
fn out_of_range_parameters_are_clamped() {
    let params = CongestionParams::from_consensus(|name| match name {
        "cc_sendme_inc" => Some(1000),
        "cc_cwnd_min" => Some(-5),
        "cc_vegas_alpha_exit" => Some(77),
        "cc_xon_change_pct" => Some(100),
        "cc_alg" => Some(0),
        _ => None,
    });
    assert_eq!((params.sendme_cells, params.window_min_cells), (254, 31));
    assert_eq!((params.exit.alpha_cells, params.exit.beta_cells), (77, 248));
    assert_eq!(params.exit_streams.change_percent, 99);
    assert!(!params.is_enabled);
    assert_eq!(CongestionParams::from_consensus(|_| None), CongestionParams::default());
    assert!(params.accepts_sendme_cells(253) && !params.accepts_sendme_cells(252));
}

/// The next event at the sender's end of a circuit.
#[derive(Clone, Copy, Debug)]
enum Event {
    Fill(u32),
    Sendme { is_link_blocked: bool, queued_cells: u32 },
    Wait(u64),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u32..400).prop_map(Event::Fill),
        (any::<bool>(), 0u32..500).prop_map(|(is_link_blocked, queued_cells)| Event::Sendme {
            is_link_blocked,
            queued_cells
        }),
        prop_oneof![0u64..100, 0u64..1_000_000, Just(1 << 50)].prop_map(Event::Wait),
    ]
}

proptest! {
    #[test]
    fn the_window_and_cells_in_flight_stay_within_bounds(
        events in prop::collection::vec(events(), 1..400),
        sendme_cells in 1u8..=254,
        values in prop::collection::vec(any::<i32>(), 40),
    ) {
        // Parameters of an absurd consensus.
        let params = CongestionParams::from_consensus(|name| {
            let number = name.bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
            values.get(usize::from(number % 80)).copied()
        });
        let floor = params.window_min_cells.max(u32::from(sendme_cells));
        let (max, initial) = (params.window_max_cells, params.window_initial_cells);
        let mut circuit = Vegas::new(Arc::new(params), PathKind::Exit, sendme_cells);
        let (mut now, mut in_flight, mut due) = (Instant::ORIGIN, 0, 0);
        for event in events {
            match event {
                Event::Fill(cells) => {
                    for _ in 0..cells.min(circuit.room_cells()) {
                        due += u32::from(circuit.handle_sent(now));
                        in_flight += 1;
                    }
                }
                Event::Sendme { is_link_blocked, queued_cells } => {
                    let path = PathState { is_link_blocked, queued_cells };
                    let outcome = circuit.handle_sendme(now, path);
                    prop_assert_eq!(outcome.is_ok(), due > 0);
                    if due > 0 {
                        due -= 1;
                        in_flight -= u32::from(sendme_cells);
                        prop_assert!(circuit.window_cells() <= max);
                    }
                }
                Event::Wait(micros) => now += Duration::from_micros(micros),
            }
            prop_assert_eq!(circuit.in_flight_cells(), in_flight);
            prop_assert_eq!(in_flight / u32::from(sendme_cells), due);
            prop_assert!(circuit.window_cells() >= floor.min(initial).min(max));
            prop_assert!(circuit.room_cells() <= circuit.window_cells());
            // It never deadlocks: there is space, or a SENDME is expected.
            prop_assert!(circuit.room_cells() > 0 || due > 0);
        }
    }

    #[test]
    fn a_bottleneck_is_saturated_with_a_short_queue(
        cells_per_s in 1000u64..20_000, delay_ms in 5u64..150,
    ) {
        let mut path = Bottleneck::new(cells_per_s, Duration::from_millis(delay_ms));
        path.run(Instant::from_millis(15_000));
        let delivered = path.delivered;
        let longest = path.run(Instant::from_millis(30_000));
        let rate = (path.delivered - delivered) / 15;
        prop_assert!(rate * 100 >= cells_per_s * 80, "{rate} of {cells_per_s} cells/s");
        // Beta, and the delay of the last step.
        prop_assert!(longest <= 310 + 31, "{longest} cells in the queue");
    }
}

/// A greedy sender, a bottleneck with an unlimited queue, and a receiver in virtual time.
struct Bottleneck {
    circuit: Vegas,
    cell_time: Duration,
    delay: Duration,
    now: Instant,
    free_at: Instant,
    /// When the SENDMEs arrive.
    sendmes: VecDeque<Instant>,
    delivered: u64,
}

impl Bottleneck {
    fn new(cells_per_s: u64, delay: Duration) -> Self {
        Self {
            circuit: vegas(31),
            cell_time: Duration::from_nanos(1_000_000_000 / cells_per_s),
            delay,
            now: Instant::ORIGIN,
            free_at: Instant::ORIGIN,
            sendmes: VecDeque::new(),
            delivered: 0,
        }
    }

    /// Runs until `end`; returns the longest queue at the bottleneck.
    fn run(&mut self, end: Instant) -> u128 {
        let mut longest = 0;
        loop {
            while self.circuit.room_cells() > 0 {
                self.free_at = self.free_at.max(self.now) + self.cell_time;
                if self.circuit.handle_sent(self.now) {
                    self.sendmes.push_back(self.free_at + self.delay);
                }
            }
            longest = longest.max((self.free_at - self.now).as_nanos() / self.cell_time.as_nanos());
            let Some(next) = self.sendmes.pop_front().filter(|next| *next <= end) else { break };
            self.now = next;
            self.delivered += 31;
            self.circuit.handle_sendme(next, PathState::default()).expect("due");
        }
        longest
    }
}
