use super::testing::{NOW, measured, record, relay};
use super::*;
use onion::Rate;
use store::State;

fn journal(folder: &std::path::Path) -> Journal {
    let store = Store::open(&folder.join("store.db")).expect("a store");
    let (pending, turns) = (VecDeque::new(), BTreeMap::new());
    Journal(Mutex::new(Inner { store, pending, turns, is_told: false }))
}

#[test]
fn what_was_cancelled_is_done_again_and_what_was_measured_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    assert!(journal.take_up(NOW).expect("read").is_empty());
    let begun = journal.begin(&relay(1), NOW, Some(3), NOW);
    journal.end(begun, &record(&relay(1), measured()), None, true);
    let begun = journal.begin(&relay(2), NOW, Some(3), NOW);
    let cancelled = coordinator::End::Failed {
        reason: Failure::Cancelled,
        measurer: None,
        round: 1,
        second: None,
    };
    journal.end(begun, &record(&relay(2), cancelled), None, true);
    let _broken_off = journal.begin(&relay(3), NOW, Some(3), NOW);
    let pasts = journal.take_up(NOW).expect("read");
    let is_done = |number| pasts[&relay(number).id()].is_done;
    assert_eq!([1, 2, 3].map(is_done), [true, false, false]);
    let again = journal.begin(&relay(3), NOW, Some(4), NOW + 100);
    assert_eq!(again.number, 2, "a turn of its own");
}

#[test]
fn what_waits_to_be_written_counts_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    journal.take_up(NOW).expect("read");
    let begun = journal.begin(&relay(1), NOW, None, NOW);
    let (record, is_final) = (record(&relay(1), measured()), true);
    let ended = Closed { begun, record, follows: None, is_final };
    // As a full disk leaves it.
    journal.inner().pending.push_back(Entry::Ended(Box::new(ended)));
    let last = journal.history().expect("read").last(relay(1).id()).copied();
    assert_eq!(last.map(|it| it.capacity), Some(Rate::from_mbit_per_s(30.0)));
    let states = |journal: &Journal| -> Vec<State> {
        let found = journal.inner().store.measurements_of(relay(1).id(), 9).expect("read");
        found.iter().map(|it| it.state).collect()
    };
    assert_eq!(states(&journal), [State::Running]);
    journal.inner().flush();
    assert_eq!(states(&journal), [State::Conclusive]);
    assert_eq!(journal.inner().pending.len(), 0);
}

#[test]
fn seeds_are_told_of_periods_that_are_over_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    for begin_unix_s in [NOW, NOW + 100] {
        let period = store::Period { begin_unix_s, length_s: 100, slot_s: 10, seed: None };
        journal.note(Entry::Period(period));
    }
    journal.tell_seeds(NOW + 150, |begin| Some([u8::from(begin == NOW); 32])).expect("read");
    let seeds: Vec<Option<[u8; 32]>> =
        journal.inner().store.passes(9).expect("read").iter().map(|it| it.period.seed).collect();
    assert_eq!(seeds, [None, Some([1; 32])]);
}
