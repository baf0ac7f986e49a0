use super::*;
use onion::Duration;
use onion::measure::Mismatch;
use onion::measure::protocol::ErrorCode;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// Sums of this number of pumps, and their reports.
fn sums(pumps: usize) -> (Sums, Arc<Mutex<Vec<MemberReport>>>) {
    let reports: Arc<Mutex<Vec<MemberReport>>> = Arc::default();
    let sent = Arc::clone(&reports);
    let send: Reports = Arc::new(move |report| sent.lock().expect("sound").push(report));
    (Sums::new(pumps, send), reports)
}

fn take(reports: &Mutex<Vec<MemberReport>>) -> Vec<MemberReport> {
    std::mem::take(&mut reports.lock().expect("sound"))
}

fn ready(sockets: u32, circuits: u32) -> Report {
    Report::Event(Event::Ready { sockets, circuits })
}

fn second(index: u32, bytes: u64) -> Report {
    Report::Event(Event::Second(Second { index, bytes, checked_cells: 1 }))
}

fn lost(circuits: u32, of: u32) -> Report {
    Report::Event(Event::Lost { circuits, of, problem: "cut".to_owned(), lacks_room: false })
}

#[test]
fn a_measurer_is_ready_once_all_its_pumps_are_and_reports_their_sums() {
    let (mut sums, reports) = sums(2);
    sums.handle_report(1, ready(4, 8));
    assert!(take(&reports).is_empty() && !sums.is_ready());
    sums.handle_report(0, ready(5, 10));
    assert_eq!(take(&reports), [MemberReport::Ready { sockets: 9 }]);
    sums.start();
    // One pump is ahead of the other.
    for report in [second(0, 100), second(1, 200)] {
        sums.handle_report(0, report);
    }
    assert!(take(&reports).is_empty());
    sums.handle_report(1, second(0, 11));
    let sum = |index, bytes| MemberReport::Second(Second { index, bytes, checked_cells: 2 }, None);
    assert_eq!(take(&reports), [sum(0, 111)]);
    let (one, two) = (Duration::from_millis(300), Duration::from_millis(500));
    let load = |cpu| WorkerLoad { cpu, busiest: cpu, wall: two, ..WorkerLoad::default() };
    sums.handle_report(0, Report::Load(load(one)));
    sums.handle_report(1, Report::Load(load(two)));
    let both = WorkerLoad { cpu: one + two, busiest: two, wall: two, ..WorkerLoad::default() };
    assert_eq!(take(&reports), [MemberReport::Load(both)]);
    assert!((both.busy() - 1.0).abs() < 1e-9, "the busiest pump has no idle time");
    sums.handle_report(1, second(1, 22));
    assert_eq!(take(&reports), [sum(1, 222)]);
}

#[test]
fn accounts_are_combined_if_all_pumps_have_one_and_omitted_otherwise() {
    let (mut sums, reports) = sums(2);
    let account = |sockets| Account { sockets, sent_bytes: 10, ..Account::default() };
    let second = |index, account| Report::Second(Second { index, ..Second::default() }, account);
    sums.handle_report(0, second(0, Some(account(3))));
    sums.handle_report(1, second(1, None));
    sums.handle_report(1, second(0, Some(account(4))));
    sums.handle_report(0, second(1, Some(account(3))));
    let reports: Vec<_> = take(&reports)
        .into_iter()
        .map(|report| match report {
            MemberReport::Second(second, account) => {
                (second.index, account.map(|account| *account))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let both = Account { sockets: 7, sent_bytes: 20, ..Account::default() };
    assert_eq!(reports, [(0, Some(both)), (1, None)]);
}

#[test]
fn at_most_a_quarter_of_all_circuits_may_be_lost() {
    let (mut sums, reports) = sums(2);
    sums.handle_report(0, ready(4, 8));
    sums.handle_report(1, ready(4, 8));
    take(&reports);
    sums.handle_report(0, lost(6, 8));
    sums.handle_report(0, lost(4, 8)); // half of that pump's, a quarter of all
    assert!(take(&reports).is_empty());
    sums.handle_report(1, lost(7, 8));
    let failed = take(&reports);
    let [MemberReport::Failed { kind: FailureKind::Closed, detail }] = &failed[..] else {
        panic!("{failed:?}")
    };
    assert!(detail.contains("11 of a measurer's 16") && detail.contains("cut"), "{detail}");
}

#[test]
fn one_stalled_pump_is_enough() {
    let (mut sums, reports) = sums(2);
    sums.handle_report(0, ready(1, 1));
    sums.handle_report(1, ready(1, 1));
    sums.start();
    take(&reports);
    sums.handle_report(1, Report::StalledRelay(LoadFailure::Stalled { silent_ms: 5000 }));
    let failed = take(&reports);
    let [MemberReport::Failed { kind, .. }] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!(*kind, FailureKind::Stalled);
}

#[test]
fn a_failure_is_reported_once_with_its_kind() {
    let few = || LoadFailure::TooFewOpen { open: 0, wanted: 2, last_problem: "gone".to_owned() };
    let refused = |code| LoadFailure::Refused { code, text: String::new() };
    let cases = [
        (few(), false, FailureKind::Unreachable),
        (few(), true, FailureKind::Closed),
        (LoadFailure::Stalled { silent_ms: 1 }, true, FailureKind::Silent),
        (LoadFailure::AnsweredEarly { circuit: 0, sent: 1 }, true, FailureKind::WrongContent),
        (
            LoadFailure::CheckFailed { circuit: 0, cell: 1, mismatch: Mismatch::Forged },
            true,
            FailureKind::WrongContent,
        ),
        (LoadFailure::NoRoom { open: 0, wanted: 2 }, false, FailureKind::NoRoom),
        (LoadFailure::NoRoom { open: 0, wanted: 2 }, true, FailureKind::NoRoom),
        (
            LoadFailure::NotValidNow { open: 0, wanted: 2, problem: "has expired".to_owned() },
            false,
            FailureKind::NotValidNow,
        ),
        (LoadFailure::Unsolicited { cells: 900, load_cells: 9 }, true, FailureKind::BrokeProtocol),
        (refused(ErrorCode::UNKNOWN_MEASURER), false, FailureKind::Refused),
        (refused(ErrorCode::CALLED_OFF), true, FailureKind::Closed),
        (refused(ErrorCode::NO_TRAFFIC), true, FailureKind::NothingReceived),
    ];
    for (failure, has_started, expected) in cases {
        let (mut sums, reports) = sums(1);
        sums.handle_report(0, ready(1, 1));
        if has_started {
            sums.start();
        }
        take(&reports);
        sums.handle_report(0, Report::Event(Event::Failed(failure.clone())));
        sums.handle_report(0, Report::Broken("another".to_owned()));
        let failed = take(&reports);
        let [MemberReport::Failed { kind, detail }] = &failed[..] else { panic!("{failed:?}") };
        assert_eq!((*kind, detail), (expected, &describe(&failure)));
        // The kind precedes the detail.
        assert!(!detail.contains("stalled"), "{detail}");
    }
}

proptest! {
    /// In any order of the pumps' reports, each second is reported once, in order, with all bytes.
    #[test]
    fn seconds_are_reported_in_order_and_complete(
        pumps in 1usize..5, seconds in 1u32..8, picks in prop::collection::vec(0usize..5, 40),
    ) {
        let (mut sums, reports) = sums(pumps);
        let mut next = vec![0; pumps];
        let rest = (0..pumps).flat_map(|pump| std::iter::repeat_n(pump, seconds as usize));
        for pump in picks.into_iter().map(|pick| pick % pumps).chain(rest) {
            if next[pump] < seconds {
                sums.handle_report(pump, second(next[pump], 1 << pump));
                next[pump] += 1;
            }
        }
        let all = (1 << pumps) - 1;
        let expected: Vec<_> = (0..seconds).map(|index| (index, all)).collect();
        let reports: Vec<_> = take(&reports).into_iter().map(|report| match report {
            MemberReport::Second(second, None) => (second.index, second.bytes),
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(reports, expected);
    }
}
