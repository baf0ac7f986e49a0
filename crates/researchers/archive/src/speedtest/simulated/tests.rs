//! Properties of simulated speed tests of any network, and results of the default one.

use super::*;
use crate::times::DAY_S;
use proptest::prelude::*;

fn total(test: &SpeedTest, hour: usize) -> f64 {
    test.hours[hour].total_gbit_per_s
}

#[test]
fn the_effect_of_a_speed_test_appears_within_two_days_and_lasts_five() {
    let options = SimulationOptions::default();
    let test = simulate(&synthetic_capacities(2000, 1), &options);
    let effect = test.effect();
    let [before, during, later] = effect.median_gbit_per_s.map(Option::unwrap);
    // The paper: by half.
    assert!(during / before > 1.3, "{effect:?}");
    assert!((later / before - 1.0).abs() < 0.15, "{effect:?}");
    let (rise, fall) = effect.half_way_hours.unwrap();
    // Half of the relays are measured after half of the test. Then up to a day passes until the end of the interval, and up to 18 hours until
    // the next descriptor.
    assert!(rise > 24.0 && rise < 72.0, "{rise}");
    assert!((fall - rise - 120.0).abs() < 18.0, "{rise} {fall}");
    // Only the test changes the measured values.
    let begin = options.begins_at_hour as usize;
    let rest = |test: &SpeedTest| -> Vec<f64> {
        (begin - 24..begin).map(|hour| total(test, hour)).collect()
    };
    let longest = rest(&test).into_iter().fold(0.0, f64::max);
    assert!(longest / before < 1.1);
}

#[test]
fn without_a_test_nothing_changes() {
    let options = SimulationOptions { measured_share: 0.0, ..SimulationOptions::default() };
    let test = simulate(&synthetic_capacities(2000, 1), &options);
    let [before, during, later] = test.effect().median_gbit_per_s.map(Option::unwrap);
    assert!((during / before - 1.0).abs() < 0.05 && (later / before - 1.0).abs() < 0.05);
    assert_eq!((test.measured_relays, test.effect().relays), (0, 0));
}

#[test]
fn the_weight_error_is_larger_right_after_the_test() {
    let test = simulate(&synthetic_capacities(2000, 1), &SimulationOptions::default());
    let effect = test.effect();
    // The paper: 5 to 10 points.
    let rise = effect.weight_error_after.unwrap() - effect.weight_error_before.unwrap();
    assert!(rise > 0.02, "{effect:?}");
    // Compared with true capacities the weights improve, because they follow the results of the test.
    let true_error = |days: i64| {
        let hour = test.hours.iter().find(|hour| hour.unix_s >= days * DAY_S).unwrap();
        hour.true_weight_error.unwrap()
    };
    assert!(true_error(9) < true_error(4), "{} {}", true_error(4), true_error(9));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn no_relay_advertises_more_than_its_capacity_and_tested_ones_all_of_it(
        capacities in proptest::collection::vec(1e4_f64..1e8, 2..20), seed: u64, load in 0.05_f64..1.0,
    ) {
        let options = SimulationOptions {
            measured_share: 0.5, test_hours: 24, load, seed, ..SimulationOptions::default()
        };
        let test = simulate(&capacities, &options);
        for (change, capacity) in test.changes.iter().zip(&capacities) {
            let (before, after) = change.advertised_byte_per_s;
            prop_assert!(before.max(after) <= *capacity);
            // All have published it within five days after the beginning.
            prop_assert!(!change.is_measured || after >= capacity.floor());
        }
        let shares = |pick: fn(&Change) -> f64| test.changes.iter().map(pick).sum::<f64>();
        prop_assert!((shares(|row| row.weight_share.0.unwrap()) - 1.0).abs() < 1e-6);
        prop_assert!((shares(|row| row.weight_share.1.unwrap()) - 1.0).abs() < 1e-6);
    }
}
