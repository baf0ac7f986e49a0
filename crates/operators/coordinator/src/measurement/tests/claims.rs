//! Comparison of the measurers' counts of returned bytes with the relay's counts of sent bytes.

use super::*;

/// The result of a relay of 100 Mbit/s measured by two measurers, if the first claims this rate and the relay reports
/// this percentage of what it sends back.
fn outcome(claimed_mbit: Option<f64>, reported_percent: Option<u64>) -> Outcome {
    let mut lab = relay(100.0);
    lab.claims = claimed_mbit.map(|claimed| (0, mbit(claimed).as_byte_per_s()));
    lab.reported_percent = reported_percent;
    lab.run(&mut measurement(Mode::Echo, 100.0, &[150.0, 150.0]))
}

#[test]
fn a_measurer_whose_count_differs_from_the_relays_is_named() {
    // Each of the two gets 50 Mbit/s.
    let honest = estimate(outcome(None, Some(100))).capacity.as_mbit_per_s();
    assert!((99.9..=100.0).contains(&honest), "{honest}");
    for claimed in [0.0, 30.0, 55.0, 140.0] {
        let outcome = outcome(Some(claimed), Some(100));
        let Outcome::Failed { reason: Failure::CountsDiffer { .. }, measurer, .. } = outcome else {
            panic!("{claimed}: {outcome:?}");
        };
        assert_eq!(measurer, Some(MeasurerId(0)), "{claimed}");
    }
    // Without the relay's report there is nothing to compare.
    assert!(matches!(outcome(Some(60.0), None), Outcome::Measured(_)));
}

#[test]
fn a_relay_with_a_false_count_of_sent_bytes_gets_no_estimate() {
    for percent in [0, 90, 150] {
        let outcome = outcome(None, Some(percent));
        assert!(
            matches!(outcome, Outcome::Failed { reason: Failure::CountsDiffer { .. }, .. }),
            "{percent}: {outcome:?}"
        );
    }
    // The bytes of the last second may be in flight.
    assert!(matches!(outcome(None, Some(104)), Outcome::Measured(_)));
}
