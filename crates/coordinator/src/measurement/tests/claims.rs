//! What measurers claim that came back, against what the relay claims that it sent.

use super::*;

/// The result of a relay of 100 Mbit/s measured by two measurers, if the first claims this rate and the relay reports
/// this percentage of what it sends back.
fn with_words(claimed_mbit: Option<f64>, tells_percent: Option<u64>) -> Outcome {
    let mut lab = relay(100.0);
    lab.claims = claimed_mbit.map(|claimed| (0, mbit(claimed).as_byte_per_s()));
    lab.tells_percent = tells_percent;
    lab.run(&mut measurement(Mode::Echo, 100.0, &[150.0, 150.0]))
}

#[test]
fn a_measurer_that_claims_what_the_relay_did_not_send_is_not_believed() {
    // Each of the two gets 50 Mbit/s.
    let honest = estimate(with_words(None, Some(100))).capacity.as_mbit_per_s();
    assert!((99.9..=100.0).contains(&honest), "{honest}");
    for claimed in [0.0, 30.0, 55.0, 140.0] {
        let outcome = with_words(Some(claimed), Some(100));
        let Outcome::Failed { reason: Failure::WordsDiffer { .. }, measurer, .. } = outcome else {
            panic!("{claimed}: {outcome:?}");
        };
        assert_eq!(measurer, Some(MeasurerId(0)), "{claimed}");
    }
    // What a relay does not say nobody can compare.
    assert!(matches!(with_words(Some(60.0), None), Outcome::Measured(_)));
}

#[test]
fn a_relay_that_does_not_say_truly_what_it_sent_gets_no_estimate() {
    for percent in [0, 90, 150] {
        let outcome = with_words(None, Some(percent));
        assert!(
            matches!(outcome, Outcome::Failed { reason: Failure::WordsDiffer { .. }, .. }),
            "{percent}: {outcome:?}"
        );
    }
    // The last second may be under way.
    assert!(matches!(with_words(None, Some(104)), Outcome::Measured(_)));
}
