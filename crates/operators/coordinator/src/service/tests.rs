use super::*;
use crate::testing::{id, uniform};
use proptest::prelude::*;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::vec;

const HOUR_S: u64 = 3600;

/// Three different relays of this number of relays.
fn path(rng: &mut impl Rng, relays: u16) -> [u16; 3] {
    loop {
        let path = [(); 3]
            .map(|()| u16::try_from(rng.next_u32() % u32::from(relays)).expect("a small number"));
        if path[0] != path[1] && path[1] != path[2] && path[0] != path[2] {
            return path;
        }
    }
}

const WORKS: CircuitOutcome = CircuitOutcome::Worked { download: None };

fn failed_if(has_failed: bool) -> CircuitOutcome {
    if has_failed { CircuitOutcome::Failed } else { WORKS }
}

/// How circuits through a network of relays end, from day 1 on: six circuits for each relay and day.
struct Probing {
    test: ServiceTest,
    rng: ChaCha12Rng,
    relays: u16,
    now_unix_s: u64,
    /// The estimate of relay 7; all others were measured as 100 Mbit/s.
    estimate_of_7: Option<Rate>,
}

impl Probing {
    fn new(seed: u8, relays: u16) -> Self {
        let rng = ChaCha12Rng::from_seed([seed; 32]);
        let estimate_of_7 = Some(Rate::from_mbit_per_s(100.0));
        Self { test: ServiceTest::default(), rng, relays, now_unix_s: DAY_S, estimate_of_7 }
    }

    fn run(
        &mut self,
        days: u64,
        mut outcome: impl FnMut(&mut ChaCha12Rng, u64, [u16; 3]) -> CircuitOutcome,
    ) {
        let circuits = 2 * u64::from(self.relays);
        let until = self.now_unix_s + days * DAY_S;
        while self.now_unix_s < until {
            let path = path(&mut self.rng, self.relays);
            let outcome = outcome(&mut self.rng, self.now_unix_s, path);
            let others = Some(Rate::from_mbit_per_s(100.0));
            let slowest_estimate = if path.contains(&7) { self.estimate_of_7 } else { others };
            let path = path.map(id);
            let ended_unix_s = self.now_unix_s;
            let circuit = ProbedCircuit { ended_unix_s, path: &path, outcome, slowest_estimate };
            self.test.add(&circuit, |_| false);
            self.now_unix_s += DAY_S / circuits;
        }
    }

    fn suspected(&self) -> Vec<RsaId> {
        self.test.suspicions().map(|suspicion| suspicion.relay).collect()
    }
}

#[test]
fn relays_that_drop_everything_are_suspected_within_a_week_and_no_others() {
    let mut probing = Probing::new(1, 100);
    probing.run(7, |rng, _, path| {
        failed_if(path.iter().any(|relay| *relay < 10) || uniform(rng) < 0.03)
    });
    let droppers: Vec<RsaId> = (0..10).map(id).collect();
    assert_eq!(probing.suspected(), droppers);
    for suspicion in probing.test.suspicions() {
        assert!(suspicion.by_chance <= FALSE_ALARM && suspicion.position.is_none());
        assert!(suspicion.bad >= 9 && suspicion.bad == suspicion.circuits, "{suspicion:?}");
        assert!(suspicion.neighbours > suspicion.bad, "two in each circuit: {suspicion:?}");
        assert!((0.01..0.1).contains(&suspicion.network_bad_share), "{suspicion:?}");
        assert_eq!(probing.test.suspicion(suspicion.relay), Some(suspicion));
    }
    assert_eq!(probing.test.suspicion(id(10)), None);
    let honest = probing.test.probed(id(10));
    assert!(honest.circuits > 20 && honest.bad * 5 < honest.circuits, "{honest:?}");
    assert_eq!(probing.test.probed(id(999)), ProbedRelay::default());
}

#[test]
fn a_relay_that_drops_in_one_position_is_suspected_for_that_position() {
    for (place, position) in
        [HopPosition::First, HopPosition::Middle, HopPosition::Last].into_iter().enumerate()
    {
        let mut probing = Probing::new(2, 100);
        probing.run(21, |rng, _, path| failed_if(path[place] == 7 || uniform(rng) < 0.02));
        let found: Vec<_> = probing
            .test
            .suspicions()
            .map(|suspicion| (suspicion.relay, suspicion.position))
            .collect();
        assert_eq!(found, [(id(7), Some(position))]);
    }
}

#[test]
fn a_relay_that_drops_half_is_suspected_in_time_and_no_longer_once_it_serves() {
    let mut probing = Probing::new(3, 100);
    let half = |rng: &mut ChaCha12Rng, _, path: [u16; 3]| {
        failed_if(path.contains(&7) && uniform(rng) < 0.5 || uniform(rng) < 0.02)
    };
    probing.run(35, half);
    assert_eq!(probing.suspected(), [id(7)]);
    // The probability is that of the largest evidence, also when the relay serves again.
    probing.run(3, |_, _, _| WORKS);
    let suspicion = probing.test.suspicion(id(7)).expect("not forgotten at once");
    assert!(suspicion.by_chance <= FALSE_ALARM, "{suspicion:?}");
    assert!(suspicion.until_unix_s > suspicion.since_unix_s + 3 * DAY_S, "{suspicion:?}");
    probing.run(60, |rng, _, _| failed_if(uniform(rng) < 0.02));
    assert_eq!(probing.suspected(), []);
}

#[test]
fn downloads_below_a_tenth_of_the_median_and_of_the_estimates_are_bad() {
    // A relay that was measured as slow may be slow.
    for (mbit, estimate_mbit, is_suspected) in [
        (0.9, Some(100.0), true),
        (1.2, Some(100.0), false),
        (0.9, Some(5.0), false),
        (0.4, Some(5.0), true),
        (0.4, None, false),
    ] {
        let mut probing = Probing::new(4, 100);
        probing.estimate_of_7 = estimate_mbit.map(Rate::from_mbit_per_s);
        probing.run(14, |rng, _, path| {
            let own = if path.contains(&7) { mbit } else { 10.0 };
            // The median is near 10.
            let rate = Rate::from_mbit_per_s(own * (0.99 + 0.02 * uniform(rng)));
            CircuitOutcome::Worked { download: Some(rate) }
        });
        assert_eq!(probing.suspected() == [id(7)], is_suspected, "{mbit} {estimate_mbit:?}");
    }
}

#[test]
fn an_outage_of_the_prober_and_bad_days_of_the_network_raise_no_suspicion() {
    let mut probing = Probing::new(5, 100);
    // The prober is offline for days; and one day in ten, a fifth of all circuits fail.
    probing.run(60, |rng, now_unix_s, _| {
        let day = now_unix_s / DAY_S;
        let share = if day % 10 == 5 { 0.2 } else { 0.02 };
        failed_if((20..24).contains(&day) || uniform(rng) < share)
    });
    assert_eq!(probing.suspected(), []);
}

#[test]
fn an_outage_of_a_relay_counts_once_in_two_hours() {
    let mut test = ServiceTest::default();
    for minute in 0..120 {
        for (relay, outcome) in [(1, CircuitOutcome::Failed), (9, WORKS)] {
            let path = [id(relay), id(100 + minute), id(300 + minute)];
            let ended_unix_s = DAY_S + 60 * u64::from(minute);
            test.add(
                &ProbedCircuit { ended_unix_s, path: &path, outcome, slowest_estimate: None },
                |_| false,
            );
        }
    }
    assert_eq!(test.probed(id(1)), ProbedRelay { circuits: 1, bad: 1 });
}

#[test]
fn circuits_while_a_relay_is_measured_do_not_count_for_it() {
    let mut test = ServiceTest::default();
    let path = [id(1), id(2), id(3)];
    for hour in 0..100 {
        let circuit = ProbedCircuit {
            ended_unix_s: DAY_S + 2 * HOUR_S * hour,
            path: &path,
            outcome: failed_if(hour % 3 == 0),
            slowest_estimate: None,
        };
        test.add(&circuit, |relay| relay == id(1) && hour % 3 == 0);
    }
    assert_eq!(test.probed(id(1)), ProbedRelay { circuits: 66, bad: 0 });
    assert!(test.probed(id(2)).bad > 10);
}

#[test]
fn relays_with_ten_percent_of_the_choices_cannot_frame_another() {
    for seed in 0..20 {
        let mut probing = Probing::new(seed, 100);
        // Relays 0 to 9 fail all circuits with relay 50.
        probing.run(56, |rng, _, path| {
            let is_framed = path.contains(&50) && path.iter().any(|relay| *relay < 10);
            failed_if(is_framed || uniform(rng) < 0.02)
        });
        assert_eq!(probing.suspected(), [], "{seed}");
    }
}

/// The largest probability that an honest relay's circuit is bad, by the module's rule, if nearly all circuits work.
const BAD_MAX: f64 = 0.2;

#[test]
fn honest_relays_at_the_limit_are_suspected_as_rarely_as_the_bound_says() {
    // The relay has 12 circuits a day for half a year, each bad with the largest probability.
    let rng = &mut ChaCha12Rng::from_seed([9; 32]);
    let mut suspected = 0;
    for _ in 0..200 {
        let mut test = ServiceTest::default();
        for step in 0..12 * 180 {
            // Circuits of other relays, so that few circuits of the network are bad.
            for other in 0..8 {
                let path = [id(2000 + other), id(3000 + other)];
                let ended_unix_s = DAY_S + 2 * HOUR_S * step;
                test.add(
                    &ProbedCircuit {
                        ended_unix_s,
                        path: &path,
                        outcome: WORKS,
                        slowest_estimate: None,
                    },
                    |_| false,
                );
            }
            let path = [id(1), id(1001)];
            let outcome = failed_if(uniform(rng) < BAD_MAX);
            let ended_unix_s = DAY_S + 2 * HOUR_S * step;
            test.add(
                &ProbedCircuit { ended_unix_s, path: &path, outcome, slowest_estimate: None },
                |_| false,
            );
        }
        suspected += usize::from(test.suspicions().next().is_some());
    }
    assert_eq!(suspected, 0, "the bound is one in 2,000 relays");
}

proptest! {
    #[test]
    fn any_circuits_are_accepted_in_any_order_and_counts_are_consistent(
        circuits in proptest::collection::vec((0..20 * DAY_S, vec![0..9_u16; 3], any::<Option<u32>>()), 0..300),
    ) {
        let mut test = ServiceTest::default();
        for (ended_unix_s, path, download) in circuits {
            let path: Vec<RsaId> = path.into_iter().map(id).collect();
            let outcome = download.map_or(CircuitOutcome::Failed, |rate| CircuitOutcome::Worked {
                download: (rate > 9).then(|| Rate::from_byte_per_s(rate.into())),
            });
            test.add(&ProbedCircuit { ended_unix_s, path: &path, outcome, slowest_estimate: None }, |relay| relay == id(8));
        }
        for suspicion in test.suspicions() {
            prop_assert!(suspicion.bad <= suspicion.circuits && suspicion.since_unix_s < 20 * DAY_S);
            prop_assert!((0.0..=1.0).contains(&suspicion.by_chance));
        }
        for relay in 0..9 {
            let probed = test.probed(id(relay));
            prop_assert!(probed.bad <= probed.circuits);
            // At most one circuit in two hours.
            prop_assert!(probed.circuits <= 20 * 12 + 1);
        }
        prop_assert_eq!(test.probed(id(8)), ProbedRelay::default());
    }
}
