use super::testing::{NOW, finished, id, measured, record, seen_by, started};
use super::*;
use coordinator::journal::MeasurementStarted;
use coordinator::{Counts, Failure, HistoryPolicy, PathSeen, Record, Suspicion};
use onion::Rate;
use store::State;

fn journal(folder: &std::path::Path) -> Journal {
    Journal::new(Store::open(&folder.join("store.db")).expect("a store"))
}

#[test]
fn cancelled_measurements_are_repeated_and_finished_ones_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    assert!(journal.resume(NOW).expect("read").is_empty());
    let cancelled = coordinator::End::Failed {
        reason: Failure::Cancelled,
        measurer: None,
        round: 1,
        second: None,
    };
    for relay in [1, 2, 3] {
        journal.note(Entry::Started(started(relay, 1, Some(3))));
    }
    journal.note(finished(started(1, 1, Some(3)), record(1, measured()), &[]));
    journal.note(finished(started(2, 1, Some(3)), record(2, cancelled), &[]));
    // The third was interrupted.
    let pasts = journal.resume(NOW).expect("read");
    let is_done = |number| pasts[&id(number)].is_done;
    assert_eq!([1, 2, 3].map(is_done), [true, false, false]);
    assert_eq!(pasts[&id(3)].turns, 1, "the next one has another number");
}

#[test]
fn a_full_disk_does_not_end_a_period_and_a_damaged_store_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let path = folder.path().join("store.db");
    let full = || Err(StoreError::Full { path: path.clone() });
    assert!(journal.inner().log_interrupted(full()).is_ok());
    assert!(journal.inner().is_error_logged, "once");
    let damaged = StoreError::Damaged { path: path.clone(), problem: String::new() };
    assert!(journal.inner().log_interrupted(Err(damaged)).is_err());
}

#[test]
fn unwritten_entries_count_when_a_period_continues() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    for relay in [1, 2, 3] {
        journal.note(Entry::Started(started(relay, 1, Some(3))));
    }
    // As with a full disk: the store refuses the first of the entries, so it takes none.
    let (relays, by_chance) = ((id(1), id(2)), f64::NAN);
    journal.note(Entry::Suspicions(vec![Suspicion { relays, moves: 0, alike: 0, by_chance }]));
    // The second relay's measurement was interrupted twice, the third one's belongs to another period.
    let earlier = MeasurementStarted { period_unix_s: NOW - 100, ..started(3, 2, Some(7)) };
    journal.note(finished(started(1, 1, Some(3)), record(1, measured()), &[]));
    journal.note(Entry::Started(started(2, 2, Some(5))));
    journal.note(finished(earlier, record(3, measured()), &[]));
    journal.note(finished(started(4, 1, Some(5)), record(4, measured()), &[]));
    let pasts = journal.resume(NOW).expect("read");
    let progress = |number| (pasts[&id(number)].turns, pasts[&id(number)].is_done);
    assert_eq!([1, 2, 3, 4].map(progress), [(1, true), (2, false), (1, false), (1, true)]);
    assert!(pasts[&id(1)].record.is_some() && pasts[&id(2)].record.is_none());
    assert_eq!(journal.unwritten(), 5);
    // They are the same once they can be written.
    let mut inner = journal.inner();
    inner.pending.pop_front();
    inner.flush();
    assert_eq!(inner.pending.len(), 0);
    assert_eq!(inner.store.period(NOW).expect("read"), pasts);
    drop(inner);
    assert_eq!(journal.unwritten(), 0);
}

/// As while a greedy coordinator waits for the next period.
#[test]
fn progress_is_recorded_again_while_nothing_happens() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let recorded = || journal.inner().store.progress().expect("read");
    journal.repeat_progress(NOW);
    assert_eq!(recorded(), None, "nothing is known");
    let counts = Counts { done: 7, ..Counts::default() };
    let progress = PeriodProgress { at_unix_s: NOW, period_unix_s: NOW - 60, counts };
    journal.note(Entry::Progress(progress));
    journal.repeat_progress(NOW + PROGRESS_S - 1);
    assert_eq!(recorded(), Some(progress));
    journal.repeat_progress(NOW + PROGRESS_S);
    assert_eq!(recorded(), Some(PeriodProgress { at_unix_s: NOW + PROGRESS_S, ..progress }));
}

/// As with two runs of `coordinator --once` in one second.
#[test]
fn a_period_of_its_own_begins_in_a_second_without_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let mut clock = [NOW, NOW, NOW, NOW + 1].into_iter();
    let mut now = || clock.next().expect("time passes");
    assert_eq!(journal.unused_second(&mut now).expect("read"), NOW);
    journal.note(Entry::Started(started(1, 1, None)));
    journal.note(finished(started(1, 1, None), record(1, measured()), &[]));
    assert_eq!(journal.unused_second(now).expect("read"), NOW + 1);
}

#[test]
fn failures_for_no_reason_of_the_relay_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let failed =
        |reason, measurer| coordinator::End::Failed { reason, measurer, round: 1, second: None };
    let ends = [
        measured(),
        failed(Failure::MeasurerLost { detail: String::new() }, Some(MeasurerId(0))),
        failed(Failure::ContentCheck { detail: String::new() }, Some(MeasurerId(0))),
    ];
    for (relay, end) in (1..).zip(ends) {
        journal.note(Entry::Started(started(relay, 1, None)));
        journal.note(finished(started(relay, 1, None), record(relay, end), &[]));
    }
    assert_eq!(journal.attempts(NOW).expect("read"), (3, 1));
    assert_eq!(journal.attempts(NOW + 41).expect("read"), (0, 0));
}

#[test]
fn unwritten_entries_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    journal.resume(NOW).expect("read");
    journal.note(Entry::Started(started(1, 1, None)));
    // As with a full disk.
    let ended = finished(started(1, 1, None), record(1, measured()), &[]);
    journal.inner().pending.push_back(ended);
    let last = journal.history(&[]).expect("read").last(id(1)).copied();
    assert_eq!(last.map(|estimate| estimate.capacity), Some(Rate::from_mbit_per_s(30.0)));
    let states = |journal: &Journal| -> Vec<State> {
        let found = journal.inner().store.measurements_of(id(1), 9).expect("read");
        found.iter().map(|measurement| measurement.state).collect()
    };
    assert_eq!(states(&journal), [State::Running]);
    journal.inner().flush();
    assert_eq!(states(&journal), [State::Conclusive]);
    assert_eq!(journal.inner().pending.len(), 0);
}

/// As with a full disk: a day of measurements of the whole network stays in memory.
#[test]
fn an_unwritten_finished_turn_is_one_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let mut inner = journal.inner();
    let begun = |number| started(1, number, None);
    let ended = |number| finished(begun(number), record(1, measured()), &[]);
    let turns = u32::try_from(PENDING_MAX).expect("few");
    inner.keep(Entry::Started(begun(0)));
    for number in 1..turns {
        inner.keep(Entry::Started(begun(number)));
        inner.keep(ended(number));
    }
    assert_eq!((inner.pending.len(), inner.lost), (PENDING_MAX, 0));
    inner.keep(ended(turns));
    assert_eq!((inner.pending.len(), inner.lost), (PENDING_MAX, 1), "the oldest is lost");
    assert!(inner.pending.iter().all(|entry| matches!(entry, Entry::Finished(_))));
    // Once there is room again, the lost entry still counts at the end of the program.
    inner.is_error_logged = true;
    inner.flush();
    assert_eq!((inner.pending.len(), inner.lost), (0, 0));
    drop(inner);
    assert_eq!(journal.unwritten(), 1);
}

#[test]
fn observations_of_paths_follow_their_measurers_to_other_places_in_the_team() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    journal.resume(NOW).expect("read");
    let rsa = id(1);
    let record = seen_by(record(1, measured()), &[40, 200]);
    let keys = |keys: [&str; 2]| keys.map(str::to_owned).to_vec();
    journal.note(finished(started(1, 1, None), record.clone(), &keys(["a", "b"])));
    let rtts_ms = |team: &[String]| -> Vec<(usize, Option<u128>)> {
        let history = journal.history(team).expect("read");
        let expectations = history.expectations(HistoryPolicy::default(), NOW + 100);
        let paths = expectations.paths(rsa, &[]).into_iter();
        paths.map(|(id, path)| (id.0, path.rtt.map(|rtt| rtt.as_millis()))).collect()
    };
    assert_eq!(rtts_ms(&keys(["a", "b"])), [(0, Some(40)), (1, Some(200))]);
    assert_eq!(rtts_ms(&keys(["b", "c"])), [(0, Some(200))], "another place, and a new one");
    // On a full disk, the queued entries count, too.
    let path = PathSeen { rtt: Some(Duration::from_millis(50)), ..PathSeen::default() };
    let (relay, measurer, seen_unix_s) = (rsa, "c".to_owned(), NOW + 90);
    let paths = vec![PathEntry { relay, measurer, path, seen_unix_s }];
    let Entry::Finished(mut waiting) = finished(started(1, 2, None), record, &[]) else {
        panic!("an end");
    };
    waiting.paths = paths;
    journal.inner().pending.push_back(Entry::Finished(waiting));
    assert_eq!(rtts_ms(&keys(["b", "c"])), [(0, Some(200)), (1, Some(50))]);
}

#[test]
fn only_seeds_of_finished_periods_are_published() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    for begin_unix_s in [NOW, NOW + 100] {
        let period = store::PeriodEntry { begin_unix_s, length_s: 100, slot_s: 10, seed: None };
        journal.note(Entry::Period(period));
    }
    journal.publish_seeds(NOW + 150, |begin, _| Some([u8::from(begin == NOW); 32])).expect("read");
    assert_eq!(published(&journal), [None, Some([1; 32])]);
}

/// The published seeds, those of the latest periods first.
fn published(journal: &Journal) -> Vec<Option<[u8; 32]>> {
    let periods = journal.inner().store.periods(9).expect("read");
    periods.iter().map(|period| period.period.seed).collect()
}

#[test]
fn the_seed_of_a_period_that_was_lengthened_is_published_at_its_new_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let period =
        |length_s| store::PeriodEntry { begin_unix_s: NOW, length_s, slot_s: 10, seed: None };
    let seed_of = |begin, length_s| {
        let byte = if length_s == 100 { 1 } else { 2 };
        (begin == NOW).then_some([byte; 32])
    };
    journal.note(Entry::Period(period(100)));
    // The operator has changed the length, and restarted the coordinator.
    journal.note(Entry::Period(period(200)));
    journal.publish_seeds(NOW + 150, seed_of).expect("read");
    assert_eq!(published(&journal), [None]);
    journal.publish_seeds(NOW + 200, seed_of).expect("read");
    assert_eq!(published(&journal), [Some([2; 32])]);
    // The seed of the shorter period is already public.
    let folder = tempfile::tempdir().expect("a folder");
    let journal = self::journal(folder.path());
    journal.note(Entry::Period(period(100)));
    journal.publish_seeds(NOW + 150, seed_of).expect("read");
    assert_eq!(published(&journal), [Some([1; 32])]);
    journal.note(Entry::Period(period(200)));
    journal.publish_seeds(NOW + 150, seed_of).expect("read");
    assert_eq!(published(&journal), [None]);
    journal.publish_seeds(NOW + 200, seed_of).expect("read");
    assert_eq!(published(&journal), [Some([2; 32])]);
}

#[test]
fn the_gate_gets_causes_of_lower_bounds_and_mean_round_trips() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    journal.resume(NOW).expect("read");
    let team = ["one", "two"].map(str::to_owned);
    let bound = coordinator::End::Measured {
        capacity: Rate::from_mbit_per_s(30.0),
        round: 1,
        inconclusive: Some(coordinator::Inconclusive::ClientsUnknown),
    };
    let gone = coordinator::End::Failed {
        reason: Failure::RelayUnreachable { detail: "refused".to_owned() },
        measurer: None,
        round: 1,
        second: None,
    };
    journal.note(finished(
        started(1, 1, None),
        seen_by(record(1, bound.clone()), &[20, 40]),
        &team,
    ));
    journal.note(finished(started(2, 1, None), seen_by(record(2, measured()), &[10]), &team));
    // The last measurement of the third has another result than its estimate.
    journal.note(finished(started(3, 1, None), record(3, bound), &team));
    let later = Record { ended_unix_s: NOW + 900, ..record(3, gone) };
    journal.note(finished(started(3, 2, None), later, &team));
    let causes = journal.lower_bound_causes().expect("read");
    assert_eq!(causes, BTreeMap::from([(id(1), "clients_unknown".to_owned())]));
    let means = journal.mean_round_trips_ms().expect("read");
    assert_eq!(means, BTreeMap::from([(id(1), 30.0), (id(2), 10.0)]));
}
