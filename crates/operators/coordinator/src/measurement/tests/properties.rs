//! Properties of every relay, every guess, and every order of events.

use super::lab::quiet;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;

/// An event for the state machine, in any order.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few of them")]
enum Op {
    /// All participants become ready, if a round is being prepared.
    AllReady,
    /// All report the next seconds in time, if the round runs: their number, and the bytes of each.
    Seconds(u32, u64),
    Ready(usize, u32, u32),
    Sockets(usize, u32, u32),
    Second(usize, SecondReport),
    Client(u32, u32, u64),
    Failure(Option<usize>, bool),
    Pass(u64),
    Timeout,
    Cancel,
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![1 => Just(0), 9 => 0u64..100_000_000, 1 => Just(u64::MAX)];
    let report = (0u32..4, 0u32..12, bytes.clone()).prop_map(|(round, second, bytes)| {
        SecondReport { round, second, bytes, checked_cells: bytes / 1000, account: None }
    });
    prop_oneof![
        40 => Just(Op::AllReady),
        60 => (1u32..11, bytes.clone()).prop_map(|(count, bytes)| Op::Seconds(count, bytes)),
        2 => (0usize..4, 0u32..4, 0u32..90).prop_map(|(m, round, n)| Op::Ready(m, round, n)),
        1 => (0usize..4, 0u32..4, 0u32..90).prop_map(|(m, round, n)| Op::Sockets(m, round, n)),
        2 => (0usize..4, report).prop_map(|(m, report)| Op::Second(m, report)),
        1 => (0u32..4, 0u32..12, bytes).prop_map(|(r, second, n)| Op::Client(r, second, n)),
        1 => (proptest::option::of(0usize..4), any::<bool>()).prop_map(|(m, b)| Op::Failure(m, b)),
        2 => (0u64..9_000).prop_map(Op::Pass),
        2 => Just(Op::Timeout),
        1 => Just(Op::Cancel),
    ]
}

/// A measurement, and its actions so far.
struct Run {
    measurement: Measurement,
    now: Instant,
    /// Next second to be reported, and its round.
    next: (u32, u32),
    actions: Vec<Action>,
}

impl Run {
    fn participants(&self) -> Vec<Assignment> {
        self.measurement.allocation().assignments.clone()
    }

    fn apply(&mut self, op: Op) {
        let (round, now) = (self.measurement.round(), self.now);
        match op {
            Op::AllReady if matches!(self.measurement.phase, Phase::Preparing { .. }) => {
                for assignment in self.participants() {
                    self.measurement.handle_ready(
                        now,
                        assignment.measurer,
                        round,
                        assignment.sockets,
                    );
                }
            }
            Op::AllReady => {}
            Op::Seconds(count, bytes) => (0..count).for_each(|_| self.second(bytes)),
            Op::Ready(m, round, n) => self.measurement.handle_ready(now, MeasurerId(m), round, n),
            Op::Sockets(m, round, n) => {
                self.measurement.handle_sockets(now, MeasurerId(m), round, n);
            }
            Op::Second(m, report) => self.measurement.handle_second(now, MeasurerId(m), report),
            Op::Client(round, second, n) => {
                self.measurement.handle_client_second(now, round, second, n);
            }
            Op::Failure(at, lost) => {
                let detail = "x".to_string();
                let failure = if lost {
                    Failure::MeasurerLost { detail }
                } else {
                    Failure::ContentCheck { detail }
                };
                self.measurement.handle_failure(now, at.map(MeasurerId), failure);
            }
            Op::Pass(millis) => self.now += Duration::from_millis(millis),
            Op::Timeout => self.measurement.handle_timeout(now),
            Op::Cancel => self.measurement.cancel(now),
        }
        self.actions.extend(core::iter::from_fn(|| self.measurement.poll_action()));
    }

    fn second(&mut self, bytes: u64) {
        let round = self.measurement.round();
        if self.next.0 != round {
            self.next = (round, 0);
        }
        let second = self.next.1;
        let running = matches!(self.measurement.phase, Phase::Running { .. });
        if !running || second >= self.measurement.params().seconds {
            return;
        }
        self.next.1 += 1;
        self.now += Duration::from_secs(1);
        let report = SecondReport { round, second, bytes, checked_cells: 1, account: None };
        for assignment in self.participants() {
            self.measurement.handle_second(self.now, assignment.measurer, report);
        }
        if self.measurement.mode() == Mode::Echo {
            self.measurement.handle_client_second(self.now, round, second, bytes / 2);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_measurement_ends_exactly_once_and_never_with_zero(
        ops in vec(op(), 0..40), echo: bool, guess in 1u64..400,
        team in vec(1u64..400, 1..4),
    ) {
        let params = Params { seconds: 10, max_rounds: 4, ..quiet() };
        let mode = if echo { Mode::Echo } else { Mode::Transit };
        let team = team.into_iter().map(|mbit| Rate::from_bit_per_s(mbit * 1_000_000)).collect();
        let guess = Rate::from_bit_per_s(guess * 1_000_000);
        let measurement = Measurement::new(Instant::ORIGIN, params, mode, guess, team).unwrap();
        let mut run = Run { measurement, now: Instant::ORIGIN, next: (1, 0), actions: vec![] };
        for op in ops {
            run.apply(op);
            let waits = run.measurement.poll_timeout().is_some();
            prop_assert_eq!(waits, !run.measurement.is_done(), "finished, or has a timeout");
        }
        if let Some(deadline) = run.measurement.poll_timeout() {
            run.now = run.now.max(deadline);
            run.apply(Op::Timeout);
        }
        prop_assert!(run.measurement.is_done(), "the timeout ends it");
        let done = run.actions.iter().filter(|action| matches!(action, Action::Done(_))).count();
        prop_assert_eq!(done, 1);
        let Some([Action::Stop { round }, Action::Done(outcome)]) = run.actions.last_chunk() else {
            panic!("{:?}", run.actions);
        };
        prop_assert_eq!(*round, run.measurement.round());
        prop_assert!(*round <= params.max_rounds);
        prop_assert!(!outcome.to_string().is_empty());
        // Each round is ordered once, started at most once, and stopped once, in that order.
        for round in 1..=*round {
            let place = |what: &dyn Fn(&Action) -> bool| {
                let places: Vec<_> = run.actions.iter().enumerate()
                    .filter(|(_, action)| what(action)).map(|(place, _)| place).collect();
                places
            };
            let prepared = place(&|action| matches!(action, Action::Prepare { round: r, .. } if *r == round));
            let started = place(&|action| *action == Action::Start { round });
            let stopped = place(&|action| *action == Action::Stop { round });
            prop_assert!(prepared.len() == 1 && started.len() <= 1 && stopped.len() == 1);
            prop_assert!(started.iter().all(|place| prepared[0] < *place && *place < stopped[0]));
            prop_assert!(prepared[0] < stopped[0]);
        }
        if let Some(estimate) = outcome.estimate() {
            prop_assert!(estimate.capacity > Rate::ZERO);
            prop_assert_eq!(estimate.seconds.len(), 10, "of full length");
            prop_assert!(estimate.seconds.iter().all(|second| second.client_reported.is_some() == echo));
            let limit = params.conclusive_limit(estimate.allocated);
            let is_unsteady = matches!(
                estimate.inconclusive,
                Some(Inconclusive::Unsteady { .. } | Inconclusive::Scattered { .. })
            );
            prop_assert_eq!(estimate.is_conclusive() || is_unsteady, estimate.capacity < limit);
        }
    }
}

proptest! {
    #[test]
    fn a_sufficient_team_finds_any_capacity_in_a_logarithmic_number_of_rounds(
        capacity in 1_000_000u64..10_000_000_000,
        doublings in -4f64..11.0,
        percents in vec(-20i64..=20, 30),
        split in vec(1u32..10, 1..5),
        echo: bool,
        clients in 0.0f64..0.5,
    ) {
        // The guess is this many doublings too low.
        let truth = Rate::from_bit_per_s(capacity);
        let guess = truth.scaled(doublings.exp2().recip());
        let params = quiet();
        let enough = truth.scaled(2.1).max(guess).scaled(params.excess_factor() * 1.01);
        let parts = f64::from(split.iter().sum::<u32>());
        let team = split.iter().map(|part| enough.scaled(f64::from(*part) / parts * 1.01));
        let mode = if echo { Mode::Echo } else { Mode::Transit };
        let mut measurement =
            Measurement::new(Instant::ORIGIN, params, mode, guess, team.collect()).unwrap();
        let mut lab = Lab::new(move |second| {
            let permille = 1000 + percents[second as usize];
            truth.scaled(permille as f64 / 1000.0).as_byte_per_s()
        });
        if echo {
            lab.clients = truth.scaled(clients).as_byte_per_s();
        }
        let estimate = estimate(lab.run(&mut measurement));
        prop_assert!(estimate.is_conclusive());
        let error = estimate.capacity.as_mbit_per_s() / truth.as_mbit_per_s();
        prop_assert!((0.979..=1.021).contains(&error), "{error}");
        let bounds = estimate.bounds();
        prop_assert!(bounds.lower < truth && bounds.upper.is_some_and(|upper| truth < upper));
        let most = 1.0 + doublings.max(0.0).ceil();
        prop_assert!(f64::from(estimate.rounds) <= most, "{} of {most}", estimate.rounds);
    }
}
