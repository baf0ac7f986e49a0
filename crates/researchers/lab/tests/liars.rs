//! A measurer gets a correct result, or detects that it does not.
//!
//! Each scenario runs in virtual time and on real sockets, with the same code.

use crate::common::stage::{Stage, in_both_worlds};
use crate::common::transit_run::{Relay, Report, Scenario};
use lab::liars::TransitLie;
use onion::measure::Mismatch;
use onion::measure::load::LoadFailure;
use onion::{Duration, Rate};
use std::num::NonZeroU64;

in_both_worlds! {
    an_honest_relay_is_measured
    an_honest_relay_is_not_blamed_for_circuits_of_a_stranger
    a_relay_that_skips_decryption_is_detected
    a_relay_that_fabricates_answers_ahead_of_time_is_detected
    a_relay_that_forges_some_cells_is_detected
    a_relay_that_sends_cells_twice_is_detected
    a_relay_that_replays_cells_is_detected
    a_relay_that_swaps_cells_is_detected
    a_relay_that_drops_cells_is_detected
    a_relay_that_alters_cells_is_detected
    a_relay_that_stalls_has_no_result
    a_measurer_whose_sockets_are_all_held_back_starts_later
    a_relay_that_closes_its_connections_has_no_result
    a_relay_that_destroys_circuits_for_lack_of_memory_has_no_result
    a_relay_that_floods_its_measurer_is_detected
    an_impostor_has_no_result
    a_relay_that_refuses_to_extend_has_no_result
    circuits_that_are_destroyed_as_idle_right_after_creation_are_rebuilt
    no_more_circuits_are_rebuilt_than_the_relay_allows
    a_relay_that_destroys_all_circuits_as_idle_has_no_result
    a_relay_that_never_answers_has_no_result
}

fn every(n: u64) -> NonZeroU64 {
    NonZeroU64::new(n).expect("not zero")
}

/// The mismatch that a failed check reports.
#[track_caller]
fn reported_mismatch(report: &Report) -> Mismatch {
    match report.failure() {
        LoadFailure::CheckFailed { mismatch, .. } => *mismatch,
        other => panic!("another failure: {other}"),
    }
}

/// The index of the cell that failed its check, and that of the cell found instead.
#[track_caller]
fn displaced(report: &Report) -> (u64, u64) {
    match report.failure() {
        LoadFailure::CheckFailed { cell, mismatch: Mismatch::Displaced { found }, .. } => {
            (*cell, *found)
        }
        other => panic!("another failure: {other}"),
    }
}

/// The last problem of a measurement for which too few sockets remained open.
#[track_caller]
fn problem_of_too_few(report: &Report) -> &str {
    match report.failure() {
        LoadFailure::TooFewOpen { open, wanted, last_problem } => {
            assert!(open < wanted);
            last_problem
        }
        other => panic!("another failure: {other}"),
    }
}

fn an_honest_relay_is_measured<S: Stage>(stage: S) {
    let report = Scenario::new(Relay::Honest).run_on(stage);
    assert_eq!(report.result, Ok(()));
    assert_eq!(report.ready, Some((2, 4)));
    assert_eq!(report.seconds.len(), 2);
    for second in &report.seconds {
        assert!(second.bytes > 0 && second.checked_cells > 0, "{second:?}");
        assert_eq!(second.bytes % 514, 0);
    }
    // On real sockets a busy machine may cause a silence.
    if S::IS_EXACT {
        assert_eq!(report.answered_after, None, "there was no silence: {report:?}");
    }
}

/// A return relay refuses the circuit and otherwise only receives.
fn an_honest_relay_is_not_blamed_for_circuits_of_a_stranger(stage: impl Stage) {
    let scenario = Scenario { strangers_circuits: 20, ..Scenario::new(Relay::Honest) };
    let report = scenario.run_on(stage);
    assert_eq!(report.result, Ok(()));
    assert!(report.refused_circuits > 0, "no circuit was refused");
    assert_eq!(report.seconds.len(), 2);
    assert!(report.seconds.iter().all(|second| second.bytes > 0));
}

fn a_relay_that_skips_decryption_is_detected(stage: impl Stage) {
    let report = Scenario::new(TransitLie::SkipsDecryption).run_on(stage);
    assert_eq!(reported_mismatch(&report), Mismatch::NotDecrypted);
}

fn a_relay_that_fabricates_answers_ahead_of_time_is_detected(stage: impl Stage) {
    let early = TransitLie::AnswersAhead(1000);
    // Almost no checks: the number of cells is sufficient.
    let scenario = Scenario { check_one_in: u32::MAX, ..Scenario::new(early) };
    let report = scenario.run_on(stage);
    let LoadFailure::AnsweredEarly { sent, .. } = report.failure() else {
        panic!("another failure: {:?}", report.result)
    };
    assert!(*sent <= 1000);
}

fn a_relay_that_forges_some_cells_is_detected(stage: impl Stage) {
    let report = Scenario::new(TransitLie::Forges { share: 0.2 }).run_on(stage);
    assert_eq!(reported_mismatch(&report), Mismatch::Forged);
}

fn a_relay_that_sends_cells_twice_is_detected(stage: impl Stage) {
    let report = Scenario::new(TransitLie::Duplicates(every(50))).run_on(stage);
    match report.failure() {
        LoadFailure::CheckFailed { cell, mismatch: Mismatch::Displaced { found }, .. } => {
            assert!(found < cell, "cells arrive behind their index");
        }
        // With few cells in flight, the surplus overtakes earlier cells before a check arrives.
        LoadFailure::AnsweredEarly { .. } => {}
        other => panic!("another failure: {other}"),
    }
}

fn a_relay_that_replays_cells_is_detected(stage: impl Stage) {
    let report = Scenario::new(TransitLie::Replays(every(3))).run_on(stage);
    let (cell, found) = displaced(&report);
    assert_eq!(found, cell - 1);
}

fn a_relay_that_swaps_cells_is_detected(stage: impl Stage) {
    let report = Scenario::new(TransitLie::Reorders(every(4))).run_on(stage);
    let (cell, found) = displaced(&report);
    assert_eq!(cell.abs_diff(found), 1);
}

fn a_relay_that_drops_cells_is_detected(stage: impl Stage) {
    let report = Scenario::new(TransitLie::Drops(every(50))).run_on(stage);
    let (cell, found) = displaced(&report);
    assert!(found > cell, "cells arrive ahead of their index");
}

fn a_relay_that_alters_cells_is_detected(stage: impl Stage) {
    let report = Scenario::new(TransitLie::Alters(every(3))).run_on(stage);
    assert_eq!(reported_mismatch(&report), Mismatch::Forged);
}

fn a_relay_that_stalls_has_no_result(stage: impl Stage) {
    let silent = Scenario { seconds: 5, ..Scenario::new(TransitLie::Stalls(1000)) };
    let report = silent.run_on(stage);
    let LoadFailure::Stalled { silent_ms } = report.failure() else {
        panic!("another failure: {:?}", report.result)
    };
    assert!(*silent_ms >= 1500);
    let answered = report.answered_after.expect("its host answers");
    assert!(answered >= Duration::from_millis(500), "{answered:?}");
}

/// It sends the relay no cells until then, for longer than the maximum silence.
fn a_measurer_whose_sockets_are_all_held_back_starts_later(stage: impl Stage) {
    let held_back = Some(Duration::from_secs(3));
    let scenario = Scenario { seconds: 5, held_back, ..Scenario::on_one_circuit(Relay::Honest) };
    let report = scenario.run_on(stage);
    assert_eq!(report.result, Ok(()));
    let (before, after) = report.seconds.split_at(3);
    assert!(
        before.iter().all(|second| second.bytes == 0)
            && after.iter().all(|second| second.bytes > 0)
    );
}

fn a_relay_that_closes_its_connections_has_no_result(stage: impl Stage) {
    let report = Scenario::new(TransitLie::ClosesLinks(1000)).run_on(stage);
    let problem = problem_of_too_few(&report);
    assert!(problem.contains("connection"), "{problem}");
}

fn a_relay_that_destroys_circuits_for_lack_of_memory_has_no_result(stage: impl Stage) {
    let report = Scenario::new(TransitLie::DestroysCircuits(1000)).run_on(stage);
    let failure = report.failure();
    assert!(matches!(failure, LoadFailure::NoRoom { open: 0..=1, wanted: 2 }), "{failure}");
}

fn a_relay_that_floods_its_measurer_is_detected(stage: impl Stage) {
    let report = Scenario::new(TransitLie::Floods(1)).run_on(stage);
    let LoadFailure::Unsolicited { cells, load_cells } = report.failure() else {
        panic!("{}", report.failure());
    };
    assert!(*cells > load_cells / 20 && *cells < 2_000, "{cells} next to {load_cells}");
}

fn an_impostor_has_no_result(stage: impl Stage) {
    let report = Scenario::new(Relay::Impostor).run_on(stage);
    assert_eq!(report.ready, None);
    let problem = problem_of_too_few(&report);
    assert!(problem.contains("wrong relay: expected"), "{problem}");
}

fn a_relay_that_refuses_to_extend_has_no_result(stage: impl Stage) {
    let report = Scenario::new(TransitLie::RefusesToExtend).run_on(stage);
    assert_eq!(report.ready, None);
    let problem = problem_of_too_few(&report);
    assert!(problem.contains("(reason 6)"), "{problem}");
}

/// C tor does this if it looks for idle circuits between a CREATE_FAST and its answer.
fn circuits_that_are_destroyed_as_idle_right_after_creation_are_rebuilt(stage: impl Stage) {
    let swept = Scenario::new(TransitLie::SweepsNewLinks(2));
    assert_eq!(swept.circuits_per_socket, 2, "all circuits of a link, and no more");
    let report = swept.run_on(stage);
    assert_eq!(report.result, Ok(()));
    assert_eq!(report.ready, Some((2, 4)), "all are open");
}

/// A relay counts the circuits of its clients, and refuses more for an hour above a limit.
fn no_more_circuits_are_rebuilt_than_the_relay_allows(stage: impl Stage) {
    let mut swept = Scenario::new(TransitLie::SweepsNewLinks(2));
    swept.second_tries = 3;
    let report = swept.run_on(stage);
    assert_eq!(report.result, Ok(()));
    assert_eq!(report.ready, Some((2, 3)), "all but one are open");
}

fn a_relay_that_destroys_all_circuits_as_idle_has_no_result(stage: impl Stage) {
    let report = Scenario::new(TransitLie::SweepsNewLinks(usize::MAX)).run_on(stage);
    assert_eq!(report.ready, None);
    let problem = problem_of_too_few(&report);
    assert!(problem.contains("(reason 9)"), "{problem}");
}

fn a_relay_that_never_answers_has_no_result(stage: impl Stage) {
    let mut scenario = Scenario::new(Relay::Mute);
    scenario.setup_timeout = Duration::from_secs(2);
    let report = scenario.run_on(stage);
    let LoadFailure::SetUpTimedOut { open: 0, wanted: 2, .. } = report.failure() else {
        panic!("another failure: {:?}", report.result)
    };
}

/// Tests with exact results or many runs: in virtual time only.
mod statistics {
    use super::*;
    use crate::common::escapes::assert_escapes_as_predicted;

    /// The first cell that failed its check, on the only circuit.
    fn first_failed_cell(report: &Report) -> u64 {
        match report.failure() {
            LoadFailure::CheckFailed { circuit: 0, cell, .. } => *cell,
            other => panic!("another failure: {other}"),
        }
    }

    #[test]
    fn equal_seeds_give_equal_runs_and_segmentation_does_not_matter() {
        let scenario = Scenario {
            piece_max_bytes: Some(700),
            rate: Rate::from_mbit_per_s(5.0),
            ..Scenario::new(Relay::Honest)
        };
        let report = scenario.run();
        assert_eq!(report, scenario.run());
        let whole = Scenario { piece_max_bytes: None, ..scenario }.run();
        assert_eq!(report.seconds, whole.seconds);
        let other = Scenario { seed: 2, ..scenario }.run();
        assert_ne!(report.fingerprint, other.fingerprint);
    }

    #[test]
    fn the_estimate_of_an_honest_relay_is_its_capacity() {
        for mbit in [2.0, 10.0] {
            let scenario = Scenario {
                seconds: 8,
                capacity: Some(Rate::from_mbit_per_s(mbit)),
                rate: Rate::from_mbit_per_s(mbit * 2.953),
                ..Scenario::new(Relay::Honest)
            };
            let report = scenario.run();
            assert_eq!(report.result, Ok(()));
            let mut bytes: Vec<u64> = report.seconds.iter().map(|second| second.bytes).collect();
            bytes.sort_unstable();
            let median = Rate::from_byte_per_s(bytes[4]).as_mbit_per_s();
            assert!((mbit * 0.95..=mbit * 1.01).contains(&median), "{median} of {mbit} Mbit/s");
        }
    }

    #[test]
    fn an_honest_relay_is_never_accused() {
        for seed in 0..30 {
            let scenario = Scenario {
                seed,
                check_one_in: 1,
                piece_max_bytes: Some(1500),
                ..Scenario::new(Relay::Honest)
            };
            let scenario = Scenario { rate: Rate::from_mbit_per_s(2.0), ..scenario };
            assert_eq!(scenario.run().result, Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn a_liar_in_each_cell_is_detected_within_the_first_bucket() {
        for seed in 0..50 {
            for lie in [TransitLie::SkipsDecryption, TransitLie::Forges { share: 1.0 }] {
                let scenario = Scenario { seed, ..Scenario::on_one_circuit(lie) };
                let cell = first_failed_cell(&scenario.run());
                assert!(cell < 125, "seed {seed}: cell {cell}");
            }
        }
    }

    #[test]
    fn a_lost_or_duplicated_cell_is_detected_within_two_buckets() {
        for seed in 0..50 {
            for lie in [TransitLie::Drops(every(300)), TransitLie::Duplicates(every(300))] {
                let scenario = Scenario { seed, ..Scenario::on_one_circuit(lie) };
                let report = scenario.run();
                let cell = first_failed_cell(&report);
                assert_eq!(report.lies[0].cell, 299);
                assert!((299..299 + 250).contains(&cell), "seed {seed}: cell {cell}");
            }
        }
    }

    #[test]
    fn a_forger_escapes_with_the_probability_predicted_by_the_share_of_checks() {
        const RUNS: u64 = 300;
        let escaped: Vec<usize> = (0..RUNS)
            .map(|seed| {
                let forger = TransitLie::Forges { share: 0.1 };
                let scenario = Scenario { seed, seconds: 10, ..Scenario::on_one_circuit(forger) };
                let report = scenario.run();
                let cell = first_failed_cell(&report);
                assert!(report.lies.iter().any(|lie| lie.cell == cell), "rightly accused");
                report.lies.iter().filter(|lie| lie.cell < cell).count()
            })
            .collect();
        assert_escapes_as_predicted(&escaped);
    }
}
