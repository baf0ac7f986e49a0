use super::*;
use crate::testing::{NOW, Scratch, begun, closed, failed, relay, with_end};
use crate::{Entry, MeasurementFinished, MeasurementStarted, PublishedFile, Store};
use coordinator::{Attempt, End, Failure, Inconclusive};

#[test]
fn an_empty_store_has_an_overview() {
    let scratch = Scratch::new();
    let store = Store::open(&scratch.store).expect("new");
    let overview = store.overview(NOW).expect("read");
    assert_eq!((overview.relays, overview.capacity, overview.endings), (0, Rate::ZERO, [0; 3]));
    assert_eq!(store.periods(5).expect("read"), []);
    assert_eq!(store.measurers(NOW).expect("read"), []);
}

#[test]
fn the_newest_file_says_where_the_coordinator_is() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    assert_eq!(store.scanner_country().expect("read"), None);
    for (created_unix_s, country) in [(NOW, Some("FR")), (NOW - 1, Some("AT")), (NOW + 1, None)] {
        let file = PublishedFile {
            created_unix_s,
            path: "out".to_owned(),
            lines: 1,
            voted: 1,
            capacity_kb_s: 1,
            scanner_country: country.map(str::to_owned),
        };
        store.write([&Entry::Published(file)]).expect("room");
        let expected = (created_unix_s <= NOW).then(|| "FR".to_owned());
        assert_eq!(store.scanner_country().expect("read"), expected, "{created_unix_s}");
    }
}

#[test]
fn days_and_periods_add_up() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let today = NOW - NOW % DAY_S;
    for begin_unix_s in [today, today - DAY_S] {
        let period = PeriodEntry { begin_unix_s, length_s: DAY_S, slot_s: 71, seed: None };
        store.write([&Entry::Period(period)]).expect("room");
        for number in 1..=4 {
            let turn = Entry::Finished(Box::new(closed(relay(number), begin_unix_s, 1, 1_000_000)));
            store.write([&turn]).expect("room");
        }
        let lost = Failure::MeasurerLost { detail: "gone".to_owned() };
        let turn = Entry::Finished(Box::new(failed(relay(1), begin_unix_s, 2, lost)));
        store.write([&turn]).expect("room");
    }
    store.write([&Entry::Started(begun(relay(9), today, 1))]).expect("room");
    assert_eq!(store.running().expect("read").len(), 1);
    store.close_unfinished().expect("room");
    let periods = store.periods(9).expect("read");
    let counts = periods
        .iter()
        .map(|period| (period.measurements, period.relays, period.failed))
        .collect::<Vec<_>>();
    assert_eq!(counts, [(6, 5, 1), (5, 4, 1)]);
    let overview = store.overview(NOW).expect("read");
    assert_eq!((overview.relays, overview.capacity.as_byte_per_s()), (4, 4_000_000));
    assert_eq!(overview.broken_off, 1);
    let weeks = store.weeks(NOW, 2).expect("read");
    let sum = |place: usize| weeks.iter().map(|week| week.endings[place]).sum::<u64>();
    assert_eq!([0, 1, 2].map(sum), [8, 0, 2]);
    let begins: Vec<u64> = weeks.iter().map(|week| week.begin_unix_s).collect();
    assert!(begins.iter().all(|begin| begin % (7 * DAY_S) == 0), "{begins:?}");
    assert_eq!(store.weeks(NOW + 21 * DAY_S, 2).expect("read"), [], "they are older");
    assert_eq!(store.measurements_in(today, 0, 100).expect("read").len(), 6);
    assert_eq!(store.measurements_in(today, 4, 100).expect("read").len(), 2);
}

/// A relay was measured three times in a period: twice with too small a load, and then conclusively.
#[test]
fn only_final_results_are_counted() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let today = NOW - NOW % DAY_S;
    let period = PeriodEntry { begin_unix_s: today, length_s: DAY_S, slot_s: 71, seed: None };
    store.write([&Entry::Period(period)]).expect("room");
    let continued = |number: u32| {
        let next =
            Attempt { round: number + 1, ..Attempt::first(Rate::from_byte_per_s(9_000_000), 4) };
        let inconclusive = Some(Inconclusive::LoadTooSmall { next });
        let capacity = Rate::from_byte_per_s(1_000_000);
        let end = End::Measured { capacity, round: 1, inconclusive };
        let finished = with_end(begun(relay(1), today, number), 1_000_000, end);
        MeasurementFinished { follows: Some(next), is_final: false, ..finished }
    };
    let lost = Failure::MeasurerLost { detail: "gone".to_owned() };
    let lost = failed(relay(2), today, 1, lost);
    let turns = [
        continued(1),
        continued(2),
        closed(relay(1), today, 3, 1_000_000),
        MeasurementFinished { is_final: false, ..lost.clone() },
        MeasurementFinished {
            begun: MeasurementStarted { number: 2, ..lost.begun.clone() },
            ..lost
        },
    ];
    let turns = turns.map(|turn| Entry::Finished(Box::new(turn)));
    store.write(&turns).expect("room");
    let overview = store.overview(NOW).expect("read");
    assert_eq!(overview.endings, [1, 0, 1], "conclusive, lower bounds, failed");
    let causes: Vec<_> =
        overview.causes.iter().map(|cause| (cause.name.as_str(), cause.count)).collect();
    assert_eq!(causes, [("measurer_lost", 1)]);
    assert_eq!(store.weeks(NOW, 2).expect("read")[0].endings, [1, 0, 1]);
    let [period] = &store.periods(9).expect("read")[..] else { panic!("one period") };
    assert_eq!((period.measurements, period.relays, period.failed), (5, 2, 1));
    // What is stored of a continued turn does not say that nothing followed.
    let all = store.measurements_of(relay(1).rsa, 9).expect("read");
    let first = all.iter().find(|turn| turn.number == 1).expect("the first");
    let reason = first.reason.as_deref().unwrap_or_default();
    assert!(
        reason.contains("another measurement was to follow") && !reason.contains("no round"),
        "{reason}"
    );
}
