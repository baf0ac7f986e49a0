use super::*;
use crate::bottleneck::Bottleneck;
use lab::{Lab, estimate, mbit, measurement, measurement_with, quiet, relay};
use std::string::ToString;
use std::vec::Vec;

mod bottlenecks;
mod claims;
mod competition;
mod failures;
mod fast;
mod lab;
mod path;
mod properties;
mod records;
mod regions;
mod scene;
mod turns;
mod verdicts;

#[test]
fn a_right_guess_is_conclusive_after_one_round() {
    let mut lab = relay(100.0);
    let mut measurement = measurement(Mode::Echo, 100.0, &[1000.0, 1000.0]);
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!(estimate.capacity, mbit(100.0));
    assert!(estimate.is_conclusive());
    assert_eq!((estimate.rounds, estimate.seconds.len()), (1, 30));
    assert_eq!(estimate.checked_cells, 60);
    assert_eq!(
        lab.log,
        ["prepare 1: 295.31 Mbit/s", "start 1", "stop 1 at 30.000000 s"],
        "one measurer has enough capacity"
    );
}

#[test]
fn a_guess_that_is_too_high_costs_no_round() {
    let mut measurement = measurement(Mode::Echo, 300.0, &[1000.0]);
    let estimate = estimate(relay(10.0).run(&mut measurement));
    assert_eq!((estimate.capacity, estimate.rounds), (mbit(10.0), 1));
}

#[test]
fn a_guess_that_is_too_low_grows_until_it_suffices() {
    let mut lab = relay(100.0);
    let mut measurement = measurement(Mode::Echo, 10.0, &[200.0, 300.0]);
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!(estimate.capacity, mbit(100.0));
    assert!(estimate.is_conclusive());
    // z₀ is 10, then z = f·10 = 29.5, then z = f·29.5 = 87.2, then 2·87.2 = 174.4 Mbit/s.
    assert_eq!(estimate.rounds, 4);
    assert!(lab.log.contains(&"prepare 4: 300.00 Mbit/s + 200.00 Mbit/s".to_string()));
}

#[test]
fn a_round_that_cannot_be_conclusive_ends_after_half_of_its_seconds() {
    let mut lab = relay(100.0);
    let mut measurement = measurement(Mode::Echo, 50.0, &[1000.0]);
    assert_eq!(estimate(lab.run(&mut measurement)).rounds, 2);
    assert!(lab.log.contains(&"stop 1 at 16.000000 s".to_string()), "{:?}", lab.log);
    assert!(lab.log.contains(&"stop 2 at 46.000000 s".to_string()), "{:?}", lab.log);
}

#[test]
fn a_team_that_is_too_small_gives_a_lower_bound_of_full_length() {
    let mut lab = relay(1000.0);
    let mut measurement = measurement(Mode::Echo, 1000.0, &[300.0, 200.0]);
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!((estimate.capacity, estimate.rounds), (mbit(500.0), 1));
    assert_eq!(estimate.seconds.len(), 30, "not ended early");
    let Some(Inconclusive::TeamTooSmall { needed, available }) = estimate.inconclusive else {
        panic!("{estimate}");
    };
    assert_eq!(available, mbit(500.0));
    assert!(needed > available);
    assert_eq!(estimate.bounds().upper, None);
    assert!(estimate.bounds().lower < mbit(500.0));
}

#[test]
fn an_exhausted_team_can_still_be_conclusive() {
    let mut measurement = measurement(Mode::Echo, 1000.0, &[300.0, 200.0]);
    let estimate = estimate(relay(100.0).run(&mut measurement));
    assert!(estimate.is_conclusive());
    assert_eq!(estimate.capacity, mbit(100.0));
}

#[test]
fn the_last_permitted_round_gives_a_lower_bound_of_full_length() {
    let params = Params { max_rounds: 2, ..quiet() };
    let mut measurement = measurement_with(params, Mode::Echo, 1.0, &[100_000.0]);
    let estimate = estimate(relay(1000.0).run(&mut measurement));
    assert_eq!(estimate.inconclusive, Some(Inconclusive::RoundLimit { rounds: 2 }));
    assert_eq!((estimate.rounds, estimate.seconds.len()), (2, 30));
}

#[test]
fn the_bounds_enclose_the_true_capacity_at_both_extremes_of_the_error() {
    for error in [0.801, 1.0, 1.049] {
        let mut measurement = measurement(Mode::Echo, 100.0, &[1000.0]);
        let bounds = estimate(relay(100.0 * error).run(&mut measurement)).bounds();
        assert!(bounds.lower < mbit(100.0) && Some(mbit(100.0)) < bounds.upper, "{bounds:?}");
    }
}

#[test]
fn echo_mode_counts_client_traffic_and_transit_mode_reports_that_it_does_not() {
    let mut lab = relay(100.0);
    lab.clients = mbit(20.0).as_byte_per_s();
    let echo = estimate(lab.run(&mut measurement(Mode::Echo, 100.0, &[1000.0])));
    assert_eq!((echo.capacity, echo.mode), (mbit(100.0), Mode::Echo));
    let transit = estimate(lab.run(&mut measurement(Mode::Transit, 100.0, &[1000.0])));
    assert_eq!((transit.capacity, transit.mode), (mbit(80.0), Mode::Transit));
    assert_eq!(transit.seconds[0].client_reported, None);
    assert_eq!(transit.to_string(), "80.00 Mbit/s, client traffic not counted");
}

#[test]
fn a_false_client_report_gains_at_most_a_third() {
    let mut lab = relay(90.0);
    lab.client_report = Some(u64::MAX);
    let estimate = estimate(lab.run(&mut measurement(Mode::Echo, 130.0, &[1000.0])));
    assert_eq!(estimate.capacity, mbit(120.0), "1/(1−r) = 4/3");
}

#[test]
fn a_burst_in_the_first_second_changes_nothing() {
    let bytes = mbit(100.0).as_byte_per_s();
    let mut lab = Lab::new(move |second| if second == 0 { 100 * bytes } else { bytes });
    let estimate = estimate(lab.run(&mut measurement(Mode::Echo, 100.0, &[1000.0])));
    assert_eq!((estimate.capacity, estimate.rounds), (mbit(100.0), 1));
}

#[test]
fn all_measurers_start_at_once_when_the_last_is_ready() {
    let mut measurement = measurement(Mode::Transit, 100.0, &[100.0, 100.0]);
    let Some(Action::Prepare {
        round: 1,
        assignments,
        seconds,
        check_share,
        held_back_s: None,
        few_circuits_s: 0,
    }) = measurement.poll_action()
    else {
        panic!("nothing to prepare");
    };
    assert_eq!(
        (assignments.len(), seconds, check_share.to_bits()),
        (2, 30, crate::CHECK_SHARE.to_bits())
    );
    assert_eq!(
        assignments.iter().map(|assignment| assignment.sockets).collect::<Vec<_>>(),
        [80, 80]
    );
    measurement.handle_ready(Instant::from_millis(5), MeasurerId(0), 1, 80);
    assert_eq!(measurement.poll_action(), None);
    measurement.handle_ready(Instant::from_millis(900), MeasurerId(1), 1, 80);
    assert_eq!(measurement.poll_action(), Some(Action::Start { round: 1 }));
    let deadline = Instant::from_millis(900) + Duration::from_secs(1) + Duration::from_secs(5);
    assert_eq!(measurement.poll_timeout(), Some(deadline), "the end of second 0, and the grace");
}

/// If a measurer checked none of its returned cells, there is no evidence of their content.
#[test]
fn a_round_in_which_a_measurer_checked_no_cell_has_no_estimate() {
    for (bytes, checked_cells, is_believed) in
        [(1 << 20, 0, false), (1 << 20, 1, true), (1000, 0, true)]
    {
        let mut now = Instant::ORIGIN;
        let params = Params { seconds: 3, ..quiet() };
        let mut measurement = measurement_with(params, Mode::Transit, 200.0, &[500.0; 2]);
        [0, 1].iter().for_each(|who| measurement.handle_ready(now, MeasurerId(*who), 1, 80));
        for second in 0..3 {
            now += Duration::from_secs(1);
            for (who, checked_cells) in [(0, 100), (1, checked_cells)] {
                let report = SecondReport { round: 1, second, bytes, checked_cells, account: None };
                measurement.handle_second(now, MeasurerId(who), report);
            }
        }
        let outcome = core::iter::from_fn(|| measurement.poll_action()).last();
        let Some(Action::Done(outcome)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(outcome.estimate().is_some(), is_believed, "{outcome}");
        if !is_believed {
            assert_eq!(
                outcome.to_string(),
                "failed in round 1, second 2, measurer 1: the measurer got 6120 cells back and checked none of them"
            );
            assert_eq!(outcome.blame(), Some(Blame::Measurer));
        }
    }
}

#[test]
fn late_reports_of_a_round_that_ended_early_do_not_count_in_the_next() {
    let mut measurement = measurement(Mode::Transit, 1.0, &[1000.0]);
    let who = MeasurerId(0);
    measurement.handle_ready(Instant::ORIGIN, who, 1, 160);
    let now = Instant::ORIGIN + Duration::from_secs(30);
    let report = |round, second| SecondReport {
        round,
        second,
        bytes: 1 << 18,
        checked_cells: 0,
        account: None,
    };
    (0..16).for_each(|second| measurement.handle_second(now, who, report(1, second)));
    assert_eq!(measurement.round(), 2);
    measurement.handle_second(now, who, report(1, 16));
    measurement.handle_ready(now, who, 2, 160);
    measurement.handle_second(now, who, report(1, 17));
    assert_eq!(measurement.seconds().count(), 0);
    assert!(!measurement.is_done());
}

#[test]
fn a_measurement_needs_a_guess_a_team_and_valid_parameters() {
    let new = |params, guess, team: &[f64]| {
        let team = team.iter().copied().map(mbit).collect();
        Measurement::new(Instant::ORIGIN, params, Mode::Echo, guess, team).map(|_| ()).unwrap_err()
    };
    let params = quiet();
    assert_eq!(new(params, Rate::ZERO, &[1.0]), SetupError::NoGuess);
    assert_eq!(new(params, mbit(1.0), &[0.0]), SetupError::NoCapacity);
    assert_eq!(new(params, mbit(1.0), &[]), SetupError::NoCapacity);
    let bad = Params { sockets: 0, ..params };
    assert_eq!(new(bad, mbit(1.0), &[1.0]).to_string(), "sockets is 0, but must lie in 1 to 10000");
}

#[test]
fn a_busy_measurer_makes_an_otherwise_conclusive_result_a_lower_bound() {
    let mut now = Instant::ORIGIN;
    let params = Params { seconds: 3, ..quiet() };
    let guess = Rate::from_mbit_per_s(100.0);
    let mut measurement = measurement_with(params, Mode::Transit, 100.0, &[1000.0]);
    let measurer = MeasurerId(0);
    measurement.handle_ready(now, measurer, 1, 160);
    measurement.handle_busy(measurer, 1, 0.96);
    for second in 0..3 {
        now += Duration::from_secs(1);
        let bytes = Rate::from_mbit_per_s(50.0).as_byte_per_s();
        let report = SecondReport { round: 1, second, bytes, checked_cells: 1, account: None };
        measurement.handle_second(now, measurer, report);
    }
    let outcome = core::iter::from_fn(|| measurement.poll_action()).last();
    let Some(Action::Done(Outcome::Measured(estimate))) = outcome else { panic!("{outcome:?}") };
    let bottleneck =
        MeasurerBottleneck { measurer, by: Bottleneck::Processor, got: guess.scaled(0.5) };
    let reason = Inconclusive::MeasurerLimited { bottleneck, next: None };
    assert_eq!(estimate.inconclusive, Some(reason), "there is no other measurer");
}
