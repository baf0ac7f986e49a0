use super::*;
use onion::Duration;
use onion::measure::Mismatch;
use onion::measure::protocol::ErrorCode;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// Sums of this number of pumps, and their reports.
fn sums(pumps: usize) -> (Sums, Arc<Mutex<Vec<MemberReport>>>) {
    let told: Arc<Mutex<Vec<MemberReport>>> = Arc::default();
    let reports = Arc::clone(&told);
    let reports: Reports = Arc::new(move |report| reports.lock().expect("sound").push(report));
    (Sums::new(pumps, reports), told)
}

fn take(told: &Mutex<Vec<MemberReport>>) -> Vec<MemberReport> {
    std::mem::take(&mut told.lock().expect("sound"))
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
fn a_measurer_is_ready_when_all_its_pumps_are_and_then_reports_their_sums() {
    let (mut sums, told) = sums(2);
    sums.take_in(1, ready(4, 8));
    assert!(take(&told).is_empty() && !sums.is_ready());
    sums.take_in(0, ready(5, 10));
    assert_eq!(take(&told), [MemberReport::Ready { sockets: 9 }]);
    sums.start();
    // One pump is ahead of the other.
    for report in [second(0, 100), second(1, 200)] {
        sums.take_in(0, report);
    }
    assert!(take(&told).is_empty());
    sums.take_in(1, second(0, 11));
    let sum = |index, bytes| MemberReport::Second(Second { index, bytes, checked_cells: 2 }, None);
    assert_eq!(take(&told), [sum(0, 111)]);
    let (one, two) = (Duration::from_millis(300), Duration::from_millis(500));
    let load = |cpu| WorkerLoad { cpu, busiest: cpu, wall: two, ..WorkerLoad::default() };
    sums.take_in(0, Report::Load(load(one)));
    sums.take_in(1, Report::Load(load(two)));
    let both = WorkerLoad { cpu: one + two, busiest: two, wall: two, ..WorkerLoad::default() };
    assert_eq!(take(&told), [MemberReport::Load(both)]);
    assert!((both.busy() - 1.0).abs() < 1e-9, "the busiest has nothing left");
    sums.take_in(1, second(1, 22));
    assert_eq!(take(&told), [sum(1, 222)]);
}

#[test]
fn accounts_of_all_pumps_are_told_as_one_and_those_of_some_not_at_all() {
    let (mut sums, told) = sums(2);
    let account = |sockets| Account { sockets, sent_bytes: 10, ..Account::default() };
    let second = |index, account| Report::Second(Second { index, ..Second::default() }, account);
    sums.take_in(0, second(0, Some(account(3))));
    sums.take_in(1, second(1, None));
    sums.take_in(1, second(0, Some(account(4))));
    sums.take_in(0, second(1, Some(account(3))));
    let told: Vec<_> = take(&told)
        .into_iter()
        .map(|report| match report {
            MemberReport::Second(second, account) => (second.index, account.map(|it| *it)),
            other => panic!("{other:?}"),
        })
        .collect();
    let both = Account { sockets: 7, sent_bytes: 20, ..Account::default() };
    assert_eq!(told, [(0, Some(both)), (1, None)]);
}

#[test]
fn a_quarter_of_all_circuits_may_be_lost_wherever_and_no_more() {
    let (mut sums, told) = sums(2);
    sums.take_in(0, ready(4, 8));
    sums.take_in(1, ready(4, 8));
    take(&told);
    sums.take_in(0, lost(6, 8));
    sums.take_in(0, lost(4, 8)); // of that pump half, of all a quarter
    assert!(take(&told).is_empty());
    sums.take_in(1, lost(7, 8));
    let failed = take(&told);
    let [MemberReport::Failed { kind: FailureKind::Closed, detail }] = &failed[..] else {
        panic!("{failed:?}")
    };
    assert!(detail.contains("11 of a measurer's 16") && detail.contains("cut"), "{detail}");
}

#[test]
fn one_pump_that_is_left_without_an_answer_in_vain_is_enough() {
    let (mut sums, told) = sums(2);
    sums.take_in(0, ready(1, 1));
    sums.take_in(1, ready(1, 1));
    sums.start();
    take(&told);
    sums.take_in(1, Report::InVain(LoadFailure::Stalled { silent_ms: 5000 }));
    let failed = take(&told);
    let [MemberReport::Failed { kind, .. }] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!(*kind, FailureKind::Stalled);
}

#[test]
fn failures_are_told_once_and_by_their_kind() {
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
        (LoadFailure::Unsolicited { cells: 900, load_cells: 9 }, true, FailureKind::BrokeProtocol),
        (refused(ErrorCode::UNKNOWN_MEASURER), false, FailureKind::Refused),
        (refused(ErrorCode::CALLED_OFF), true, FailureKind::Closed),
        (refused(ErrorCode::NO_TRAFFIC), true, FailureKind::NothingCame),
    ];
    for (failure, has_started, expected) in cases {
        let (mut sums, told) = sums(1);
        sums.take_in(0, ready(1, 1));
        if has_started {
            sums.start();
        }
        take(&told);
        sums.take_in(0, Report::Event(Event::Failed(failure.clone())));
        sums.take_in(0, Report::Broken("another".to_owned()));
        let failed = take(&told);
        let [MemberReport::Failed { kind, detail }] = &failed[..] else { panic!("{failed:?}") };
        assert_eq!((*kind, detail), (expected, &in_words(&failure)));
        // Whoever reads it has the kind before it.
        assert!(!detail.contains("stalled"), "{detail}");
    }
}

proptest! {
    /// Whatever the order in which pumps report, each second is reported once, in order, with all bytes.
    #[test]
    fn seconds_come_in_order_and_whole(
        pumps in 1usize..5, seconds in 1u32..8, picks in prop::collection::vec(0usize..5, 40),
    ) {
        let (mut sums, told) = sums(pumps);
        let mut next = vec![0; pumps];
        let rest = (0..pumps).flat_map(|pump| std::iter::repeat_n(pump, seconds as usize));
        for pump in picks.into_iter().map(|pick| pick % pumps).chain(rest) {
            if next[pump] < seconds {
                sums.take_in(pump, second(next[pump], 1 << pump));
                next[pump] += 1;
            }
        }
        let all = (1 << pumps) - 1;
        let expected: Vec<_> = (0..seconds).map(|index| (index, all)).collect();
        let told: Vec<_> = take(&told).into_iter().map(|report| match report {
            MemberReport::Second(second, None) => (second.index, second.bytes),
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(told, expected);
    }
}
