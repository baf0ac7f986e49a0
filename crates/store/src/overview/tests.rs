use super::*;
use crate::testing::{NOW, Scratch, begun, closed, failed, relay};
use crate::{Entry, Store};
use coordinator::Failure;

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
    let counts =
        periods.iter().map(|it| (it.measurements, it.relays, it.failed)).collect::<Vec<_>>();
    assert_eq!(counts, [(6, 5, 1), (5, 4, 1)]);
    let overview = store.overview(NOW).expect("read");
    assert_eq!((overview.relays, overview.capacity.as_byte_per_s()), (4, 4_000_000));
    assert_eq!(overview.broken_off, 1);
    let weeks = store.weeks(NOW, 2).expect("read");
    let sum = |place: usize| weeks.iter().map(|it| it.endings[place]).sum::<u64>();
    assert_eq!([0, 1, 2].map(sum), [8, 0, 2]);
    let begins: Vec<u64> = weeks.iter().map(|it| it.begin_unix_s).collect();
    assert!(begins.iter().all(|it| it % (7 * DAY_S) == 0), "{begins:?}");
    assert_eq!(store.weeks(NOW + 21 * DAY_S, 2).expect("read"), [], "they are older");
    assert_eq!(store.measurements_in(today, 0, 100).expect("read").len(), 6);
    assert_eq!(store.measurements_in(today, 4, 100).expect("read").len(), 2);
}
