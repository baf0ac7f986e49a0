use super::*;
use crate::testing::{NOW, Scratch, begun, closed, failed, relay, with_end};
use crate::{Limiter, MeasurerState, Second};
use coordinator::{Attempt, Counts, End, Failure, History, Inconclusive, Mode, PathSeen};
use onion::{Duration, Rate};
use proptest::prelude::*;

const DAY: u64 = 24 * 3600;

fn all_kinds() -> Vec<Entry> {
    let period = NOW - NOW % DAY;
    let paths = vec![path(1, "ab", NOW, Some(5_000_000)), path(2, "ab", NOW, None)];
    let second = MeasurementFinished { paths, ..closed(relay(2), period, 1, 7_000_000) };
    let sighting = |number: u8, left_out: Option<&str>| ListedRelay {
        ids: relay(number),
        nickname: format!("relay{number}"),
        address: ([127, 0, 0, 1], 9001).into(),
        weight_kb_s: Some(u32::from(number) * 1000),
        left_out: left_out.map(str::to_owned),
    };
    let estimate = PastEstimate {
        capacity: Rate::from_byte_per_s(3_000_000),
        measured_unix_s: NOW - 5 * DAY,
        mode: Some(Mode::Echo),
        is_conclusive: Some(true),
        sockets: Some(64),
    };
    vec![
        Entry::Period(PeriodEntry { begin_unix_s: period, length_s: DAY, slot_s: 71, seed: None }),
        Entry::Consensus(ConsensusEntry {
            valid_after_unix_s: NOW - 60,
            at_unix_s: NOW,
            source: "a test".to_owned(),
            signers: Some(5),
            relays: vec![sighting(1, None), sighting(2, None), sighting(3, Some("no consent"))],
        }),
        Entry::Imported(relay(1), "relay1".to_owned(), estimate),
        Entry::Started(begun(relay(1), period, 1)),
        Entry::Finished(Box::new(second)),
        Entry::Measurer(MeasurerHealth {
            key: "ab".repeat(32),
            place: 0,
            address: "127.0.0.1:7100".to_owned(),
            capacity: Rate::from_mbit_per_s(1000.0),
            state: MeasurerState::Up,
            detail: String::new(),
            at_unix_s: NOW,
        }),
        Entry::Progress(PeriodProgress {
            at_unix_s: NOW,
            period_unix_s: period,
            counts: Counts { waiting: 1, running: 1, done: 1, without_slot: 0 },
        }),
        Entry::Published(PublishedFile {
            created_unix_s: NOW,
            path: "bandwidth/20270115-080000.v3bw".to_owned(),
            lines: 2,
            voted: 1,
            capacity_kb_s: 7000,
            scanner_country: Some("AT".to_owned()),
        }),
    ]
}

/// A measurer's observation of its path to a relay, and the returned rate if the path limited it.
fn path(number: u8, measurer: &str, seen_unix_s: u64, held_back_byte_s: Option<u64>) -> PathEntry {
    let path = PathSeen {
        rtt: Some(Duration::from_micros(40_123)),
        loss_ppm: Some(200),
        limit: held_back_byte_s.map(Rate::from_byte_per_s),
    };
    PathEntry { relay: relay(number).rsa, measurer: measurer.repeat(32), path, seen_unix_s }
}

/// All rows of all tables.
fn dump(store: &Store) -> Vec<String> {
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1";
    let tables: Vec<String> = store.all(names, [], |row| row.get(0)).expect("read");
    let mut all = Vec::new();
    for table in tables {
        let mut statement = store.db.prepare(&format!("SELECT * FROM {table}")).expect("ours");
        let columns = statement.column_count();
        let mut rows = statement.query([]).expect("ours");
        while let Some(row) = rows.next().expect("read") {
            let values =
                (0..columns).map(|column| format!("{:?}", row.get_ref(column).expect("there")));
            all.push(format!("{table}: {}", values.collect::<Vec<_>>().join(" ")));
        }
    }
    all
}

#[test]
fn an_entry_written_twice_is_stored_once() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let entries = all_kinds();
    store.write(&entries).expect("room");
    let once = dump(&store);
    assert!(once.len() > 10, "{once:#?}");
    for entry in &entries {
        store.write([entry]).expect("room");
        assert_eq!(dump(&store), once, "{entry:?}");
    }
    // A second end of the same measurement does not change the first.
    let other = closed(relay(2), NOW - NOW % DAY, 1, 9_000_000);
    store.write([&Entry::Finished(Box::new(other))]).expect("room");
    assert_eq!(dump(&store), once);
    store.check_all().expect("sound");
}

#[test]
fn a_failed_transaction_leaves_nothing() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let before = dump(&store);
    let none = store.change(|db| {
        write(db, &Entry::Started(begun(relay(1), NOW, 1)))?;
        db.execute("INSERT INTO relay (rsa) VALUES (x'00')", []).map(drop)
    });
    none.expect_err("violates the schema");
    assert_eq!(dump(&store), before);
}

#[test]
fn a_measurement_is_read_back_with_the_limits_of_its_seconds() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let closed = closed(relay(1), NOW, 1, 5_000_000);
    store.write([&Entry::Finished(Box::new(closed.clone()))]).expect("room");
    let found = store.measurements_of(relay(1).rsa, 9).expect("read");
    let [measurement] = &found[..] else { panic!("{found:?}") };
    assert_eq!((measurement.state, measurement.slot), (State::Conclusive, Some(7)));
    let second = Second {
        round: 1,
        second: 0,
        bytes: 5_000_000,
        client_bytes: 0,
        counts: true,
        limiter: Limiter::Path,
    };
    let seconds: Vec<Second> = (0..5).map(|number| Second { second: number, ..second }).collect();
    assert_eq!(measurement.seconds, seconds);
    let record = store.record(measurement.id).expect("read").expect("kept");
    assert_eq!(record, closed.record);
    let history = store.history().expect("read");
    assert_eq!(history.last(relay(1).rsa), PastEstimate::of(&closed.record).as_ref());
}

#[test]
fn a_failure_keeps_the_estimate_and_its_reason_is_counted() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let measured = closed(relay(1), NOW - 20 * DAY, 1, 5_000_000);
    let down = Failure::RelayUnreachable { detail: "refused".to_owned() };
    let later = failed(relay(1), NOW - DAY / 2, 1, down);
    store
        .write(&[measured, later].map(|measurement| Entry::Finished(Box::new(measurement))))
        .expect("room");
    let row = store.relay(relay(1).rsa).expect("read").expect("known");
    assert_eq!(row.capacity, Some(Rate::from_byte_per_s(5_000_000)));
    assert_eq!(
        (row.last_state, row.last_cause.as_deref()),
        (Some(State::Failed), Some("relay_unreachable"))
    );
    let causes = store.overview(NOW).expect("read").causes;
    assert_eq!(causes.len(), 1);
    assert_eq!((causes[0].blame.as_deref(), causes[0].count), (Some("relay"), 1));
    assert!(causes[0].example.contains("refused"), "{causes:?}");
}

#[test]
fn a_measurement_that_another_one_follows_is_not_the_last_state_of_its_relay() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let down = Failure::RelayUnreachable { detail: "refused".to_owned() };
    let before = failed(relay(1), NOW - DAY, 1, down);
    let continued = MeasurementFinished { is_final: false, ..closed(relay(1), NOW, 1, 5_000_000) };
    store
        .write(&[before, continued].map(|measurement| Entry::Finished(Box::new(measurement))))
        .expect("room");
    let row = store.relay(relay(1).rsa).expect("read").expect("known");
    assert_eq!(row.last_state, Some(State::Failed));
    assert!(row.last_ended_unix_s < Some(NOW), "{row:?}");
}

proptest! {
    /// Otherwise a coordinator would continue differently after a restart.
    #[test]
    fn the_estimates_of_a_store_are_those_of_the_process_that_wrote_it(
        results in proptest::collection::vec((1u8..4, 1u64..9, 0u64..20, any::<bool>()), 1..20)
    ) {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        let mut history = History::default();
        let mut at = NOW - 400 * DAY;
        for (number, (relay_number, mbyte_s, days, is_bound)) in (1..).zip(results) {
            at += days * DAY;
            let capacity = Rate::from_byte_per_s(mbyte_s * 1_000_000);
            let next = Attempt { round: 2, ..Attempt::first(capacity, 4) };
            let inconclusive = is_bound.then_some(Inconclusive::LoadTooSmall { next });
            let end = End::Measured { capacity, round: 1, inconclusive };
            let begun = begun(relay(relay_number), at, number);
            let finished = MeasurementFinished {
                follows: is_bound.then_some(next),
                is_final: !is_bound,
                ..with_end(begun, mbyte_s * 1_000_000, end)
            };
            history.add_record(&finished.record, finished.begun.started_unix_s);
            store.write(&[Entry::Finished(Box::new(finished))]).expect("room");
        }
        let read = store.history().expect("read");
        for number in 1..4 {
            prop_assert_eq!(read.last(relay(number).rsa), history.last(relay(number).rsa));
        }
    }
}

#[test]
fn a_period_that_began_without_slots_gets_them_when_the_schedule_changes() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let period = |slot_s| {
        Entry::Period(PeriodEntry { begin_unix_s: NOW, length_s: DAY, slot_s, seed: None })
    };
    store.write(&[period(0), period(71), period(0)]).expect("room");
    let periods = store.periods(9).expect("read");
    assert_eq!((periods.len(), periods[0].period.slot_s), (1, 71));
}

#[test]
fn an_interrupted_period_is_continued() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let next = Attempt { round: 2, ..Attempt::first(Rate::from_byte_per_s(10_000_000), 4) };
    let inconclusive = Some(Inconclusive::LoadTooSmall { next });
    let end = End::Measured { capacity: Rate::from_byte_per_s(4_000_000), round: 1, inconclusive };
    let first = MeasurementFinished {
        follows: Some(next),
        is_final: false,
        ..with_end(begun(relay(1), NOW, 1), 4_000_000, end)
    };
    let lost = Failure::MeasurerLost { detail: "gone".to_owned() };
    let failed = MeasurementFinished { is_final: true, ..failed(relay(3), NOW, 1, lost) };
    let entries = [
        Entry::Finished(Box::new(first.clone())),
        Entry::Started(begun(relay(1), NOW, 2)),
        Entry::Finished(Box::new(closed(relay(2), NOW, 1, 5_000_000))),
        Entry::Finished(Box::new(failed)),
        Entry::Finished(Box::new(closed(relay(4), NOW - DAY, 1, 5_000_000))),
        Entry::Started(begun(relay(5), NOW, 1)),
    ];
    store.write(&entries).expect("room");
    drop(store);
    let mut store = Store::open(&scratch.store).expect("there");
    assert_eq!(store.close_unfinished().expect("room"), 2);
    assert_eq!(store.close_unfinished().expect("room"), 0);
    let pasts = store.period(NOW).expect("read");
    let past = |number: u8| &pasts[&relay(number).rsa];
    assert_eq!(past(1).follows, Some(next), "an interrupted turn is still pending");
    assert_eq!((past(1).turns, past(1).is_done), (2, false));
    assert_eq!(past(1).record.as_ref(), Some(&first.record));
    assert!(past(2).is_done && past(3).is_done && !past(5).is_done);
    assert!(!pasts.contains_key(&relay(4).rsa), "measured yesterday");
    // The second turn is repeated under another number.
    let second = Entry::Finished(Box::new(closed(relay(1), NOW, 3, 8_000_000)));
    store.write([&second]).expect("room");
    let pasts = store.period(NOW).expect("read");
    let past = &pasts[&relay(1).rsa];
    assert!(past.is_done && past.follows.is_none());
    let record = past.record.as_ref().expect("a record");
    assert_eq!(record.rounds.len(), 2, "both rounds");
    assert_eq!(record.capacity(), Some(Rate::from_byte_per_s(8_000_000)));
}

#[test]
fn a_turn_belongs_to_the_period_in_which_it_began_and_an_import_to_the_period_of_its_time() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let late = closed(relay(1), NOW - DAY, 1, 5_000_000);
    let late =
        MeasurementFinished { record: Record { ended_unix_s: NOW + 3, ..late.record }, ..late };
    let imported = |number: u8, measured_unix_s: u64| {
        let estimate = PastEstimate {
            capacity: Rate::from_byte_per_s(3_000_000),
            measured_unix_s,
            mode: None,
            is_conclusive: None,
            sockets: None,
        };
        Entry::Imported(relay(number), "some".to_owned(), estimate)
    };
    let late = Entry::Finished(Box::new(late));
    store.write(&[late, imported(2, NOW + 3), imported(3, NOW - 3)]).expect("room");
    let pasts = store.period(NOW).expect("read");
    let done: Vec<onion::identity::RsaId> =
        pasts.into_iter().filter_map(|past| past.1.is_done.then_some(past.0)).collect();
    assert_eq!(done, [relay(2).rsa]);
}

#[test]
fn a_seed_is_recorded_once_its_period_is_over_and_never_changes() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let period = |seed| PeriodEntry { begin_unix_s: NOW, length_s: DAY, slot_s: 71, seed };
    store.write([&Entry::Period(period(None))]).expect("room");
    assert_eq!(store.periods(9).expect("read")[0].period.seed, None);
    store.write([&Entry::Period(period(Some([7; 32])))]).expect("room");
    store.write([&Entry::Period(period(Some([8; 32])))]).expect("room");
    store.write([&Entry::Period(period(None))]).expect("room");
    assert_eq!(store.periods(9).expect("read")[0].period.seed, Some([7; 32]));
}

#[test]
fn of_two_periods_with_the_same_beginning_the_longer_one_is_stored_with_its_seed() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let mut stored_after = |length_s, seed: Option<u8>| {
        let seed = seed.map(|byte| [byte; 32]);
        let period = PeriodEntry { begin_unix_s: NOW, length_s, slot_s: 71, seed };
        store.write([&Entry::Period(period)]).expect("room");
        let found = store.periods(9).expect("read");
        let [summary] = &found[..] else { panic!("{found:?}") };
        (summary.period.length_s, summary.period.seed.map(|seed| seed[0]))
    };
    assert_eq!(stored_after(DAY, Some(7)), (DAY, Some(7)));
    // The operator has lengthened the period, which is not over.
    assert_eq!(stored_after(2 * DAY, None), (2 * DAY, None));
    assert_eq!(stored_after(DAY, None), (2 * DAY, None));
    assert_eq!(stored_after(DAY, Some(7)), (2 * DAY, None), "not the seed of the longer one");
    assert_eq!(stored_after(2 * DAY, Some(8)), (2 * DAY, Some(8)));
}

#[test]
fn only_changes_of_a_measurers_state_are_counted() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    let health = |state, at_unix_s| {
        Entry::Measurer(MeasurerHealth {
            key: "k".to_owned(),
            place: 3,
            address: "127.0.0.1:7100".to_owned(),
            capacity: if state == MeasurerState::Up {
                Rate::from_mbit_per_s(5.0)
            } else {
                Rate::ZERO
            },
            state,
            detail: "a report".to_owned(),
            at_unix_s,
        })
    };
    let (up, down) = (MeasurerState::Up, MeasurerState::Down);
    for (state, at) in [(up, 0), (up, 10), (down, 20), (down, 30), (up, 40), (down, 50), (down, 60)]
    {
        store.write([&health(state, NOW + at)]).expect("room");
    }
    let rows = store.measurers(NOW + 60).expect("read");
    assert_eq!((rows.len(), rows[0].state.as_str(), rows[0].losses), (1, "down", 2));
    assert_eq!(rows[0].since_unix_s, NOW + 50);
    store.write([&Entry::Team(vec!["k".to_owned(), "l".to_owned()])]).expect("room");
    assert_eq!(store.measurers(NOW + 60).expect("read").len(), 1);
    store.write([&Entry::Team(vec!["l".to_owned()])]).expect("room");
    assert_eq!(store.measurers(NOW + 60).expect("read"), [], "it has left the team");
}

#[test]
fn a_relay_that_left_the_consensus_keeps_its_last_observation() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    store.write(&all_kinds()).expect("room");
    let row = store.relay(relay(3).rsa).expect("read").expect("known");
    assert_eq!((row.left_out.as_str(), row.last_seen_unix_s), ("no consent", NOW));
}

#[test]
fn observations_of_paths_are_kept_while_their_measurers_are_in_the_team() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    store.write(&all_kinds()).expect("room");
    let (held, free) = (path(1, "ab", NOW, Some(5_000_000)), path(2, "ab", NOW, None));
    assert_eq!(store.paths().expect("read"), [held, free.clone()]);
    let mut turn = 1;
    let mut write = |store: &mut Store, paths: Vec<PathEntry>| {
        turn += 1;
        let ended = MeasurementFinished { paths, ..closed(relay(1), NOW, turn, 1_000_000) };
        store.write(&[Entry::Finished(Box::new(ended))]).expect("room");
    };
    // The last one counts, whatever its date.
    let newer = path(1, "ab", NOW + 10, None);
    let older = path(1, "ab", NOW - 10, Some(1_000_000));
    write(&mut store, vec![older, newer.clone()]);
    assert_eq!(store.paths().expect("read"), [newer.clone(), free.clone()]);
    let ahead = path(1, "ab", NOW + 365 * DAY, Some(1_000_000));
    write(&mut store, vec![ahead, newer.clone()]);
    assert_eq!(store.paths().expect("read"), [newer, free]);
    // An unknown relay has no observations.
    write(&mut store, vec![path(77, "ab", NOW, None)]);
    assert_eq!(store.paths().expect("read").len(), 2);
    store.check_all().expect("sound");
    store.write([&Entry::Team(vec!["another".to_owned()])]).expect("room");
    assert_eq!(store.paths().expect("read"), []);
}

#[test]
fn a_store_of_the_first_schema_version_gets_paths_and_a_country() {
    let scratch = Scratch::new();
    let old = Connection::open(&scratch.store).expect("new");
    old.execute_batch(include_str!("../schema/1.sql")).expect("as it was");
    old.pragma_update(None, "application_id", crate::schema::APPLICATION).expect("room");
    old.pragma_update(None, "user_version", 1).expect("room");
    drop(old);
    let reader = crate::Reader::open(&scratch.store).expect("there");
    assert_eq!(reader.paths().expect("read"), []);
    assert_eq!(reader.scanner_country().expect("read"), None);
    drop(reader);
    let mut store = Store::open(&scratch.store).expect("an older one");
    store.write(&all_kinds()).expect("room");
    assert_eq!(store.paths().expect("read").len(), 2);
    assert_eq!(store.scanner_country().expect("read").as_deref(), Some("AT"));
}

#[test]
fn weights_come_from_the_newest_consensus() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    store.write(&all_kinds()).expect("room");
    let weights = |store: &Store| -> Vec<(String, u64)> {
        let all = store.weighed().expect("read").into_iter();
        all.map(|relay| (relay.nickname, relay.weight.as_byte_per_s())).collect()
    };
    let of = |number: u64| (format!("relay{number}"), number * 1_000_000);
    assert_eq!(weights(&store), [of(1), of(2)], "the third has no estimate");
    let seen = |valid_after_unix_s, number: u8, weight_kb_s| {
        Entry::Consensus(ConsensusEntry {
            valid_after_unix_s,
            at_unix_s: NOW,
            source: "a test".to_owned(),
            signers: None,
            relays: vec![ListedRelay {
                ids: relay(number),
                nickname: format!("relay{number}"),
                address: ([127, 0, 0, 1], 9001).into(),
                weight_kb_s: Some(weight_kb_s),
                left_out: None,
            }],
        })
    };
    store.write([&seen(NOW - 3600, 1, 5)]).expect("room");
    assert_eq!(weights(&store), [of(1), of(2)], "an older consensus changes nothing");
    store.write([&seen(NOW, 2, 2000)]).expect("room");
    assert_eq!(weights(&store), [of(2)], "the first relay has left");
    let ahead = NOW + 365 * DAY;
    store.write([&seen(ahead, 1, 9), &seen(NOW, 2, 2000)]).expect("room");
    assert_eq!(weights(&store), [of(2)], "a consensus from a clock that was ahead");
    let newest = store.newest_consensus(NOW).expect("read").expect("there");
    assert_eq!(newest.valid_after_unix_s, NOW, "and it is not the newest");
    let sum = |total: &crate::Total| (total.at_unix_s, total.sum.as_byte_per_s());
    let [capacities, weights] = store.totals(NOW - DAY).expect("read");
    assert_eq!(capacities.iter().map(sum).collect::<Vec<_>>(), [(NOW, 7_000_000)]);
    let expected = [(NOW - 3600, 5000), (NOW - 60, 6_000_000), (NOW, 2_000_000), (ahead, 9000)];
    assert_eq!(weights.iter().map(sum).collect::<Vec<_>>(), expected);
}

#[test]
fn a_relay_was_first_seen_with_the_first_consensus_that_lists_it() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    store.write(&all_kinds()).expect("room");
    let listed = |number: u8| ListedRelay {
        ids: relay(number),
        nickname: format!("relay{number}"),
        address: ([127, 0, 0, 1], 9001).into(),
        weight_kb_s: None,
        left_out: None,
    };
    let later = Entry::Consensus(ConsensusEntry {
        valid_after_unix_s: NOW + DAY,
        at_unix_s: NOW + DAY,
        source: "a test".to_owned(),
        signers: None,
        relays: vec![listed(1), listed(4)],
    });
    store.write([&later]).expect("room");
    let history = store.history().expect("read");
    let first_seen = [1, 3, 4, 5].map(|number| history.first_seen(relay(number).rsa));
    assert_eq!(first_seen, [Some(NOW), Some(NOW), Some(NOW + DAY), None]);
}
