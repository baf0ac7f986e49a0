//! Lying relays: each is detected, or gains no more than the bound.

use crate::common::echo_report::Report;
use crate::common::echo_run::Run;
use crate::common::echo_scenario::Scenario;
use crate::common::escapes::assert_escapes_as_predicted;
use crate::common::stage::{Stage, VirtualTime};
use lab::liars::EchoLie;
use onion::Rate;
use onion::measure::Mismatch;
use onion::measure::load::LoadFailure;
use onion::measure::order::{OrderFailure, OrderViolation};
use std::num::NonZeroU64;

crate::common::stage::in_both_worlds! {
    a_relay_that_skips_decryption_is_detected
    a_relay_that_forges_answers_is_detected
    a_relay_that_replays_answers_is_detected
    a_relay_that_leaves_cells_unanswered_is_detected
    a_relay_that_answers_ahead_is_detected
    a_relay_that_stalls_has_no_result
    a_relay_that_miscounts_seconds_has_no_result
    a_relay_that_floods_its_measurers_is_detected
    a_relay_that_sheds_clients_gains_no_more_than_a_third
    a_relay_that_over_reports_gains_no_more_than_a_third
    a_relay_that_does_not_limit_its_clients_gains_nothing
    a_relay_that_is_only_fast_while_measured_is_credited_with_that_rate
}

/// 1/(1-r), with a tolerance for bursts and the edges of seconds.
const GAIN_MAX: f64 = 4.0 / 3.0 * 1.05;

fn every(n: u64) -> NonZeroU64 {
    NonZeroU64::new(n).expect("not zero")
}

/// Measures a relay without clients.
#[track_caller]
fn measure<S: Stage>(stage: S, scenario: &Scenario) -> Report {
    Run::begin(stage, scenario).measure()
}

#[track_caller]
fn reported_mismatch(report: &Report) -> Mismatch {
    match report.failure() {
        LoadFailure::CheckFailed { mismatch, .. } => *mismatch,
        other => panic!("another failure: {other}"),
    }
}

fn a_relay_that_skips_decryption_is_detected<S: Stage>(stage: S) {
    let report = measure(stage, &Scenario::with_lie(EchoLie::SkipsDecryption));
    assert_eq!(reported_mismatch(&report), Mismatch::NotDecrypted);
}

fn a_relay_that_forges_answers_is_detected<S: Stage>(stage: S) {
    let report = measure(stage, &Scenario::with_lie(EchoLie::Forges { share: 0.2 }));
    assert_eq!(reported_mismatch(&report), Mismatch::Forged);
}

fn a_relay_that_replays_answers_is_detected<S: Stage>(stage: S) {
    let report = measure(stage, &Scenario::on_one_circuit(EchoLie::Replays(every(3))));
    let LoadFailure::CheckFailed { cell, mismatch, .. } = report.failure() else {
        panic!("another failure: {report:?}")
    };
    assert_eq!(*mismatch, Mismatch::Displaced { found: cell - 1 });
}

fn a_relay_that_leaves_cells_unanswered_is_detected<S: Stage>(stage: S) {
    let report = measure(stage, &Scenario::on_one_circuit(EchoLie::Drops(every(50))));
    let LoadFailure::CheckFailed { cell, mismatch: Mismatch::Displaced { found }, .. } =
        report.failure()
    else {
        panic!("another failure: {report:?}")
    };
    assert!(found > cell, "cells arrive ahead of their index");
}

fn a_relay_that_answers_ahead_is_detected<S: Stage>(stage: S) {
    // Almost no checks: the number of cells is sufficient.
    let lie = EchoLie::AnswersAhead(100);
    let scenario = Scenario { check_one_in: u32::MAX, ..Scenario::with_lie(lie) };
    let report = measure(stage, &scenario);
    let LoadFailure::AnsweredEarly { sent: 0, .. } = report.failure() else {
        panic!("another failure: {report:?}")
    };
}

fn a_relay_that_stalls_has_no_result<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 10, ..Scenario::with_lie(EchoLie::Stalls(1000)) };
    let report = measure(stage, &scenario);
    let LoadFailure::Stalled { silent_ms } = report.failure() else {
        panic!("another failure: {report:?}")
    };
    assert!(*silent_ms >= 1500);
}

fn a_relay_that_miscounts_seconds_has_no_result<S: Stage>(stage: S) {
    let report = measure(stage, &Scenario::with_lie(EchoLie::MiscountsSeconds));
    let wrong = OrderViolation::WrongSecond { expected: 0, found: 1 };
    assert_eq!(report.order, Some(Err(OrderFailure::Violation(wrong))));
}

fn a_relay_that_floods_its_measurers_is_detected<S: Stage>(stage: S) {
    let report = measure(stage, &Scenario::with_lie(EchoLie::Floods(1)));
    let LoadFailure::Unsolicited { cells, load_cells } = report.failure() else {
        panic!("another failure: {report:?}")
    };
    assert!(*cells > load_cells / 20, "{cells} next to {load_cells}");
}

/// The estimate of a relay with clients, relative to its capacity.
#[track_caller]
fn gain<S: Stage>(stage: S, lie: EchoLie) -> f64 {
    let scenario = Scenario { lie: Some(lie), ..Scenario::with_clients(20.0) };
    let mut run = Run::begin(stage, &scenario);
    let report = run.measure();
    run.pass(onion::Duration::from_secs(1));
    assert_eq!(run.client_failure(), None);
    report.estimate_over(scenario.limit.expect("there is one"))
}

fn a_relay_that_sheds_clients_gains_no_more_than_a_third<S: Stage>(stage: S) {
    let gain = gain(stage, EchoLie::ShedsClients);
    assert!(gain <= GAIN_MAX, "{gain}");
    assert!(!S::IS_EXACT || gain > 1.3, "the maximum gain: {gain}");
}

fn a_relay_that_over_reports_gains_no_more_than_a_third<S: Stage>(stage: S) {
    let gain = gain(stage, EchoLie::OverReports);
    assert!(gain <= GAIN_MAX, "{gain}");
}

fn a_relay_that_does_not_limit_its_clients_gains_nothing<S: Stage>(stage: S) {
    let gain = gain(stage, EchoLie::IgnoresShare);
    assert!(gain <= 1.05, "{gain}");
    assert!(
        !S::IS_EXACT || gain < 0.8,
        "20 of 40 Mbit/s are clients', a third of 20 counts: {gain}"
    );
}

/// This cannot be prevented: no measurement distinguishes it from a relay that always has that capacity (paper,
/// §5). It must have the capacity at times that it cannot choose, since measurements are unannounced.
fn a_relay_that_is_only_fast_while_measured_is_credited_with_that_rate<S: Stage>(stage: S) {
    let rate = Rate::from_mbit_per_s(60.0);
    let gain = gain(stage, EchoLie::OnlyFastWhileMeasured { rate });
    assert!(gain <= 1.5 * 1.05, "{gain}");
    assert!(!S::IS_EXACT || gain > 1.35, "{gain}");
}

/// Tests with many runs: in virtual time only.
mod statistics {
    use super::*;

    #[test]
    fn an_honest_relay_is_never_accused() {
        for seed in 0..20 {
            let scenario =
                Scenario { seed, check_one_in: 1, seconds: 2, ..Scenario::with_clients(5.0) };
            let scenario = Scenario { limit: Some(Rate::from_mbit_per_s(10.0)), ..scenario };
            let report = measure(VirtualTime::new(seed, Some(1500)), &scenario);
            assert!(report.summary().median > 0, "seed {seed}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_runs() {
        let scenario = Scenario { seconds: 2, ..Scenario::with_clients(30.0) };
        let run = |seed| {
            let scenario = Scenario { seed, ..scenario.clone() };
            let mut run = Run::begin(VirtualTime::new(seed, Some(900)), &scenario);
            let summary = run.measure().summary();
            (summary, run.stage.wire.fingerprint())
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1).1, run(2).1);
    }

    #[test]
    fn the_estimate_of_an_honest_relay_is_its_capacity_at_any_rate_and_client_load() {
        for (mbit, clients) in [(2.0, 0.0), (15.0, 0.0), (20.0, 2.0), (20.0, 50.0), (80.0, 100.0)] {
            let limit = Rate::from_mbit_per_s(mbit);
            let scenario = Scenario {
                limit: Some(limit),
                rate: limit.scaled(2.953),
                clients: (clients > 0.0).then_some(Rate::from_mbit_per_s(clients)),
                ..Scenario::default()
            };
            let share = measure(VirtualTime::new(1, None), &scenario).estimate_over(limit);
            assert!((0.9..1.05).contains(&share), "{share} of {mbit} Mbit/s with {clients}");
        }
    }

    /// Clients are never limited to less than a third of 10 Mbit/s (proposal 316 §3.1.4): so a relay below 13
    /// Mbit/s with busy clients is credited with less than its capacity. This is the price of not starving
    /// them.
    #[test]
    fn the_estimate_of_a_slow_relay_with_busy_clients_is_below_its_capacity() {
        let limit = Rate::from_mbit_per_s(5.0);
        let scenario = Scenario {
            limit: Some(limit),
            rate: limit.scaled(2.953),
            ..Scenario::with_clients(10.0)
        };
        let share = measure(VirtualTime::new(1, None), &scenario).estimate_over(limit);
        assert!((0.35..0.55).contains(&share), "a third more than 5 - 3.33 Mbit/s: {share}");
    }

    #[test]
    fn a_liar_in_each_cell_is_detected_within_the_first_bucket() {
        for seed in 0..50 {
            for lie in [EchoLie::SkipsDecryption, EchoLie::Forges { share: 1.0 }] {
                let scenario = Scenario { seed, ..Scenario::on_one_circuit(lie) };
                let cell = first_failed_cell(&measure(VirtualTime::new(seed, None), &scenario));
                assert!(cell < 125, "seed {seed}: cell {cell}");
            }
        }
    }

    /// The first cell that failed its check, on the only circuit.
    #[track_caller]
    fn first_failed_cell(report: &Report) -> u64 {
        match report.failure() {
            LoadFailure::CheckFailed { circuit: 0, cell, .. } => *cell,
            other => panic!("another failure: {other}"),
        }
    }

    #[test]
    fn a_forger_escapes_with_the_probability_predicted_by_the_share_of_checks() {
        const RUNS: u64 = 300;
        let escaped: Vec<usize> = (0..RUNS)
            .map(|seed| {
                let forger = EchoLie::Forges { share: 0.1 };
                let scenario = Scenario { seed, seconds: 10, ..Scenario::on_one_circuit(forger) };
                let mut run = Run::begin(VirtualTime::new(seed, None), &scenario);
                let cell = first_failed_cell(&run.measure());
                let lies = run.behavior().lies();
                assert!(lies.contains(&cell), "rightly accused");
                lies.iter().filter(|lie| **lie < cell).count()
            })
            .collect();
        assert_escapes_as_predicted(&escaped);
    }
}
