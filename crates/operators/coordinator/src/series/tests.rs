use super::*;
use crate::Percentile;
use proptest::collection::vec;
use proptest::prelude::*;

const A: MeasurerId = MeasurerId(0);
const B: MeasurerId = MeasurerId(7);

/// A series of these measurers, each with a larger assignment than its reports.
fn series(mode: Mode, ratio: f64, seconds: u32, measurers: &[MeasurerId]) -> Series {
    let rate = Rate::from_mbit_per_s(1000.0);
    let assign = |measurer: &MeasurerId| Assignment { measurer: *measurer, rate, sockets: 1 };
    Series::new(mode, ratio, seconds, Schedule::PLAIN, measurers.iter().map(assign))
}

fn report(second: u32, bytes: u64) -> SecondReport {
    SecondReport { round: 1, second, bytes, checked_cells: 1, account: None }
}

fn transit(totals: &[u64]) -> Series {
    let seconds = u32::try_from(totals.len()).unwrap();
    let mut series = series(Mode::Transit, 0.25, seconds, &[A]);
    for (second, bytes) in (0..).zip(totals) {
        series.record(A, report(second, *bytes)).unwrap();
    }
    series
}

#[test]
fn a_second_is_the_sum_over_all_measurers_once_all_have_reported_it() {
    let mut series = series(Mode::Transit, 0.25, 2, &[A, B]);
    series.record(A, report(0, 10)).unwrap();
    assert_eq!(series.second(0), None);
    series.record(B, report(0, 32)).unwrap();
    let totals = series.second(0).unwrap();
    assert_eq!((totals.measured, totals.client_reported, totals.total()), (42, None, 42));
    assert_eq!(series.checked_cells(), 2);
}

#[test]
fn the_accounts_of_a_second_are_kept_in_the_order_of_the_measurers() {
    let mut series = series(Mode::Transit, 0.25, 3, &[A, B]);
    let account = Account { sockets: 5, ..Account::default() };
    series.record(B, SecondReport { account: Some(account), ..report(1, 10) }).unwrap();
    for second in [0, 1] {
        series.record(A, report(second, 10)).unwrap();
    }
    assert_eq!(series.account(B, 1), Some(&account));
    let others = [(A, 1), (B, 0), (B, 2), (B, 3), (MeasurerId(1), 1)];
    assert!(others.iter().all(|(measurer, second)| series.account(*measurer, *second).is_none()));
    let accounts: Vec<_> = series.records().into_iter().map(|record| record.accounts).collect();
    assert_eq!(accounts, [vec![], vec![None, Some(account)]]);
    // A report that does not count changes nothing.
    let again = Account { sockets: 6, ..account };
    assert!(series.record(B, SecondReport { account: Some(again), ..report(1, 1) }).is_err());
    assert_eq!(series.account(B, 1), Some(&account));
}

#[test]
fn client_traffic_counts_up_to_the_ratio() {
    let mut series = series(Mode::Echo, 0.25, 2, &[A]);
    for second in 0..2 {
        series.record(A, report(second, 300)).unwrap();
    }
    series.record_client(0, 60).unwrap();
    series.record_client(1, u64::MAX).unwrap();
    assert_eq!(series.second(0).unwrap().total(), 360);
    let liar = series.second(1).unwrap();
    assert_eq!(liar.client_reported, Some(u64::MAX));
    assert_eq!(liar.total(), 400, "a lie gains at most r/(1−r) = 1/3 of the measurement traffic");
}

#[test]
fn a_second_in_echo_mode_waits_for_the_relays_report() {
    let mut series = series(Mode::Echo, 0.25, 1, &[A]);
    series.record(A, report(0, 300)).unwrap();
    assert_eq!(series.first_missing(), Some(Missing { second: 0, source: Source::Relay }));
    assert!(series.summary().is_err());
    series.record_client(0, 0).unwrap();
    assert_eq!(series.summary().unwrap().median, 300);
}

#[test]
fn seconds_may_arrive_in_any_order() {
    let mut series = series(Mode::Transit, 0.25, 3, &[A]);
    for (second, bytes) in [(2, 3), (0, 1), (1, 2)] {
        series.record(A, report(second, bytes)).unwrap();
    }
    let measured: Vec<u64> = series.complete().map(|totals| totals.measured).collect();
    assert_eq!(measured, [1, 2, 3]);
}

#[test]
fn a_second_that_was_not_reported_is_missing_and_not_zero() {
    let mut series = series(Mode::Transit, 0.25, 3, &[A, B]);
    for (measurer, second) in [(A, 0), (A, 1), (A, 2), (B, 0), (B, 2)] {
        series.record(measurer, report(second, 9)).unwrap();
    }
    let missing = Missing { second: 1, source: Source::Measurer(B) };
    assert_eq!(series.summary(), Err(missing));
}

#[test]
fn an_invalid_report_changes_nothing() {
    let mut series = series(Mode::Transit, 0.25, 2, &[A]);
    series.record(A, report(0, 5)).unwrap();
    let twice = Violation::DuplicateSecond { second: 0 };
    assert_eq!(series.record(A, report(0, 6)), Err(twice));
    let outside = Violation::NoSuchSecond { second: 2, seconds: 2 };
    assert_eq!(series.record(A, report(2, 6)), Err(outside));
    assert_eq!(series.record(B, report(0, 6)), Err(Violation::NotAssigned));
    assert_eq!(series.record_client(0, 6), Err(Violation::NotAssigned));
    assert_eq!((series.second(0).unwrap().measured, series.checked_cells()), (5, 1));
}

#[test]
fn a_burst_in_the_first_second_does_not_move_the_median() {
    let steady = transit(&[100; 30]).summary().unwrap();
    let mut totals = [100; 30];
    totals[0] = 10_000_000;
    let burst = transit(&totals).summary().unwrap();
    assert_eq!(burst.median, steady.median);
    assert_eq!(burst.spread.max, 10_000_000, "the spread shows it");
    assert_eq!(burst.spread.upper_quartile, 100);
}

#[test]
fn absurd_reports_saturate() {
    let assign = |measurer| Assignment { measurer, rate: Rate::MAX, sockets: u32::MAX };
    let mut series = Series::new(Mode::Echo, 0.9, 1, Schedule::PLAIN, [A, B].map(assign));
    series.record(A, report(0, u64::MAX)).unwrap();
    series.record(B, report(0, u64::MAX)).unwrap();
    series.record_client(0, u64::MAX).unwrap();
    let most = assign(A).most_counted();
    assert_eq!(series.summary().unwrap().seconds[0].measured, 2 * most);
    assert_eq!(
        series.summary().unwrap().median,
        SecondTotals::new(0, 2 * most, Some(u64::MAX), 0.9).total()
    );
}

proptest! {
    #[test]
    fn spread_and_median_are_in_order(totals in vec(0u64..1000, 1..40)) {
        let Summary { median, spread, .. } = transit(&totals).summary().unwrap();
        prop_assert!(spread.min <= spread.lower_quartile && spread.lower_quartile <= median);
        prop_assert!(median <= spread.upper_quartile);
        prop_assert!(spread.upper_quartile <= spread.max);
        let mut sorted = totals;
        sorted.sort_unstable();
        prop_assert_eq!(Percentile::P75.of(&sorted), Some(spread.upper_quartile));
    }

    /// Tests the proof at [`Series::median_must_reach`].
    #[test]
    fn median_must_reach_is_right(
        known in vec(0u64..100, 1..20), unknown in vec(0u64..100, 0..20), bits in 0u64..800,
    ) {
        let limit = Rate::from_bit_per_s(bits);
        let seconds = u32::try_from(known.len() + unknown.len()).unwrap();
        let mut series = series(Mode::Transit, 0.25, seconds, &[A]);
        let mut early = false;
        for (second, bytes) in (0..).zip(known.into_iter().chain(unknown)) {
            series.record(A, report(second, bytes)).unwrap();
            early |= series.median_must_reach(limit);
        }
        let median = Rate::from_byte_per_s(series.summary().unwrap().median);
        if early {
            prop_assert!(median >= limit);
        }
        if seconds % 2 == 1 {
            prop_assert_eq!(early, median >= limit, "exact for an odd count");
        }
    }
}

#[test]
fn bytes_saved_up_by_a_measurer_do_not_count_in_the_decisive_seconds() {
    let rate = Rate::from_byte_per_s(1_000_000);
    let assignment = Assignment { measurer: A, rate, sockets: 2 };
    let mut series = Series::new(Mode::Transit, 0.25, 4, Schedule::PLAIN, [assignment]);
    for (second, bytes) in [(0, 0), (1, 0), (2, 2_000_000), (3, 2_000_000)] {
        series.record(A, report(second, bytes)).unwrap();
        assert!(series.check(A).is_ok(), "the total does not exceed its assignment");
    }
    assert_eq!(series.second(3).unwrap().measured, assignment.most_counted());
    assert!(assignment.most_counted() < 1_200_000);
}

#[test]
fn seconds_of_the_lead_do_not_count() {
    let assignment = Assignment { measurer: A, rate: Rate::from_mbit_per_s(1.0), sockets: 1 };
    let schedule = Schedule { lead_s: 2, held_back_s: None, few_circuits_s: 0 };
    let mut series = Series::new(Mode::Transit, 0.25, 5, schedule, [assignment]);
    for (second, bytes) in [(0, 1), (1, 2), (2, 30), (3, 50), (4, 40)] {
        assert!(series.summary().is_err(), "all seconds are required");
        series.record(A, report(second, bytes)).unwrap();
    }
    let summary = series.summary().unwrap();
    assert_eq!((summary.median, summary.mean, summary.seconds.len()), (40, 40, 3));
    assert_eq!(summary.seconds[0].second, 2);
    assert!(series.median_must_reach(Rate::from_byte_per_s(40)), "two of three");
    assert!(!series.median_must_reach(Rate::from_byte_per_s(41)));
}
