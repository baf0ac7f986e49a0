use super::*;
use coordinator::{Guess, GuessSource, Mode, Params};
use measurer::{Approach, Defences, Request};
use netdoc::Fingerprint;
use onion::Rate;
use onion::measure::pump::Target;
use store::State;
use terminal::measuring::Subject;

const NOW: u64 = 1_800_000_000;

fn relay(number: u8) -> Relay {
    let fingerprint = Fingerprint::from_bytes([number; 20]);
    let (ids, address) = (Subject::ids(fingerprint, None), ([127, 0, 0, 1], 9001).into());
    let guess = Rate::from_mbit_per_s(50.0);
    let request = Request {
        target: Target { address, ids },
        guess,
        defences: Defences::default(),
        approach: Approach::Transit,
    };
    let nickname = format!("relay{number}");
    let subject = Subject { nickname: nickname.clone(), fingerprint, limit: None, request };
    let guess = Guess { capacity: guess, source: GuessSource::Default, sockets_min: 0 };
    Relay { subject, nickname: nickname.parse().expect("a nickname"), guess }
}

fn record(relay: &Relay, end: coordinator::End) -> Record {
    let target = relay.subject.target();
    Record {
        relay: coordinator::Subject {
            nickname: relay.nickname.to_string(),
            ids: target.ids,
            address: target.address,
            limit: None,
        },
        ended_unix_s: NOW + 40,
        mode: Mode::Transit,
        params: Params::default(),
        rounds: Vec::new(),
        processor: None,
        shared: None,
        end,
    }
}

fn measured() -> coordinator::End {
    let capacity = Rate::from_mbit_per_s(30.0);
    coordinator::End::Measured { capacity, round: 1, inconclusive: None }
}

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
