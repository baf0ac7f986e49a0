use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::string::String;

const NOW: u64 = 1_800_000_000;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

const fn relay(number: u8) -> RsaId {
    RsaId([number; 20])
}

fn estimate(mbit: f64, age: u64) -> PastEstimate {
    PastEstimate {
        capacity: Rate::from_mbit_per_s(mbit),
        measured_unix_s: NOW - age,
        mode: Some(Mode::Echo),
        is_conclusive: Some(true),
        sockets: None,
    }
}

/// Relays 0, 1, 2 … with these estimates, and their ages.
fn history(relays: &[(f64, u64)]) -> History {
    let mut history = History::default();
    for (number, (mbit, age)) in (0..).zip(relays) {
        history.add(relay(number), estimate(*mbit, *age));
    }
    history
}

fn guess(history: &History, number: u8) -> Guess {
    history.expectations(HistoryPolicy::default(), NOW).first_guess(relay(number))
}

#[test]
fn an_old_relays_guess_is_its_last_estimate() {
    let guess = guess(&history(&[(70.0, 29 * DAY), (1.0, DAY), (2.0, DAY), (3.0, DAY)]), 0);
    assert_eq!(guess.capacity, Rate::from_mbit_per_s(70.0));
    assert_eq!((guess.source, guess.priority()), (GuessSource::LastEstimate, Priority::Known));
}

#[test]
fn a_relay_not_measured_for_a_month_is_treated_as_new() {
    let month = [(70.0, 30 * DAY), (40.0, DAY), (10.0, DAY), (30.0, DAY), (20.0, DAY)];
    let history = history(&month);
    let stale = guess(&history, 0);
    assert_eq!(stale, guess(&history, 9), "like an unknown relay");
    assert_eq!(stale.capacity, Rate::from_mbit_per_s(30.0), "its own estimate does not count");
    assert_eq!((stale.source, stale.priority()), (GuessSource::Distribution, Priority::New));
}

#[test]
fn without_any_history_the_default_is_guessed() {
    let guess = guess(&History::default(), 0);
    let default = HistoryPolicy::default().default;
    assert_eq!(
        guess,
        Guess {
            capacity: default,
            source: GuessSource::Default,
            sockets_min: 0,
            recent: Rate::ZERO
        }
    );
    assert_eq!(guess.priority(), Priority::New);
}

#[test]
fn no_guess_is_below_the_minimum() {
    let least = HistoryPolicy::default().least;
    let history = history(&[(0.0, DAY)]);
    assert_eq!(guess(&history, 0).capacity, least);
    assert_eq!(guess(&history, 1).capacity, least);
}

#[test]
fn a_relay_without_room_for_circuits_keeps_its_estimate_for_a_limited_time() {
    let policy = HistoryPolicy::default();
    let no_room = Failure::NoRoom { detail: String::new() };
    let kept = |age| history(&[(5.0, age)]).kept_for(&policy, relay(0), Some((&no_room, NOW)), NOW);
    assert_eq!(kept(HOUR), Some(estimate(5.0, HOUR)));
    assert_eq!(kept(54 * HOUR), None);
}

#[test]
fn a_relay_that_answers_not_now_keeps_its_estimate_for_a_limited_time() {
    let policy = HistoryPolicy::default();
    let not_now = Failure::RelayNotNow { detail: String::new() };
    let kept = |age| history(&[(5.0, age)]).kept_for(&policy, relay(0), Some((&not_now, NOW)), NOW);
    assert_eq!(kept(HOUR), Some(estimate(5.0, HOUR)), "with its own time");
    // Its slot was at the beginning of one day and at the end of the next, where it failed.
    assert!(kept(53 * HOUR).is_some());
    assert_eq!(kept(54 * HOUR), None);
    let hours = |hours| Duration::from_secs(hours * HOUR);
    assert_eq!(HistoryPolicy::kept_over(hours(1)), hours(8));
    assert_eq!(HistoryPolicy::kept_over(hours(48)), hours(72), "tor drops it after three days");
    assert_eq!(history(&[]).kept_for(&policy, relay(0), Some((&not_now, NOW)), NOW), None);
}

#[test]
fn only_failures_that_show_nothing_about_the_relay_keep_its_estimate() {
    let history = history(&[(5.0, HOUR)]);
    let keeps = |failure: Option<Failure>| {
        let failure = failure.as_ref().map(|failure| (failure, NOW));
        history.kept_for(&HistoryPolicy::default(), relay(0), failure, NOW).is_some()
    };
    let detail = String::new;
    assert!(keeps(None), "it was not due");
    assert!(keeps(Some(Failure::MeasurerLost { detail: detail() })));
    assert!(keeps(Some(Failure::CoordinatorBroken { detail: detail() })));
    assert!(!keeps(Some(Failure::ConsentRefused { detail: detail() })));
    assert!(!keeps(Some(Failure::RelayClosed { detail: detail() })));
    assert!(!keeps(Some(Failure::ContentCheck { detail: detail() })));
    assert!(!keeps(Some(Failure::TooFewSockets { open: 1, assigned: 9 })));
}

#[test]
fn the_newest_observation_of_a_path_counts_for_a_month() {
    let mut history = History::default();
    let path = |ms| PathSeen { rtt: Some(Duration::from_millis(ms)), ..PathSeen::default() };
    for (measurer, ms, age) in [(0, 40, DAY), (0, 50, 2 * DAY), (1, 90, 30 * DAY), (2, 70, HOUR)] {
        history.add_path(relay(1), MeasurerId(measurer), path(ms), NOW - age);
    }
    let expectations = history.expectations(HistoryPolicy::default(), NOW);
    assert_eq!(
        expectations.paths(relay(1), &[]),
        [(MeasurerId(0), path(40)), (MeasurerId(2), path(70))]
    );
    assert_eq!(expectations.paths(relay(2), &[]), []);
    assert_eq!(
        expectations.first_guess(relay(1)).priority(),
        Priority::New,
        "a path is not an estimate"
    );
}

/// If a relay could limit measurers at its own host one after the other, it would exclude all but the one it prefers.
#[test]
fn a_relay_cannot_choose_its_measurers() {
    let team = [500.0, 400.0, 150.0].map(Rate::from_mbit_per_s);
    let held_back = |ages: &[(usize, u64)]| -> Vec<usize> {
        let mut history = History::default();
        for (measurer, age) in ages {
            let limit = Some(Rate::from_mbit_per_s(1.0));
            let path = PathSeen { limit, ..PathSeen::default() };
            history.add_path(relay(1), MeasurerId(*measurer), path, NOW - age);
        }
        let expectations = history.expectations(HistoryPolicy::default(), NOW);
        let paths = expectations.paths(relay(1), &team);
        assert_eq!(paths.len(), ages.len(), "other observations still count");
        paths.iter().filter(|(_, path)| path.limit.is_some()).map(|(id, _)| id.0).collect()
    };
    assert_eq!(held_back(&[(0, DAY)]), [0]);
    assert_eq!(held_back(&[(1, DAY), (2, 6 * DAY)]), [] as [usize; 0], "550 of 1050");
    assert_eq!(held_back(&[(0, DAY), (1, 2 * DAY)]), [] as [usize; 0]);
    assert_eq!(
        held_back(&[(0, DAY), (1, 7 * DAY)]),
        [0],
        "after a week a measurer gets its full share again"
    );
}

proptest! {
    #[test]
    fn the_newest_estimate_counts_in_any_order_of_arrival(
        ages in vec(0u64..60 * DAY, 1..20), seed in any::<u64>(),
    ) {
        let estimates = ages.iter().map(|age| estimate(*age as f64, *age));
        let mut shuffled: Vec<PastEstimate> = estimates.collect();
        shuffled.sort_by_key(|estimate| estimate.measured_unix_s.wrapping_mul(seed | 1));
        let mut history = History::default();
        shuffled.iter().for_each(|estimate| history.add(relay(0), *estimate));
        let newest = ages.iter().min().copied().expect("one");
        prop_assert_eq!(history.last(relay(0)), Some(&estimate(newest as f64, newest)));
    }

    /// Failures are not in a history, so failed periods never make an old relay new: only time does.
    #[test]
    fn a_relay_is_old_for_as_long_as_its_estimate_is_valid(age in 0u64..60 * DAY) {
        let policy = HistoryPolicy::default();
        let guess = guess(&history(&[(70.0, age)]), 0);
        let is_valid = age < policy.valid_for.as_secs();
        prop_assert_eq!(guess.priority() == Priority::Known, is_valid);
        prop_assert_eq!(guess.capacity == Rate::from_mbit_per_s(70.0), is_valid);
    }
}

fn measured(mbit: f64, ended_unix_s: u64) -> Record {
    let ids = onion::identity::RelayIds { rsa: relay(0), ed25519: None };
    let address = ([127, 0, 0, 1], 9001).into();
    Record {
        relay: crate::record::Subject { nickname: String::new(), ids, address, limit: None },
        ended_unix_s,
        mode: Mode::Transit,
        params: crate::Params::default(),
        rounds: Vec::new(),
        processor: None,
        shared: None,
        end: End::Measured { capacity: Rate::from_mbit_per_s(mbit), round: 1, inconclusive: None },
    }
}

#[test]
fn the_measurement_made_last_counts_whatever_the_clock_showed() {
    let mut history = history(&[(70.0, DAY)]);
    for (mbit, at) in [(60.0, NOW + 40 * DAY), (50.0, NOW), (40.0, NOW - 130), (30.0, NOW + 7200)] {
        history.add_record(&measured(mbit, at), at);
        let last = history.last(relay(0)).map(|estimate| estimate.capacity);
        assert_eq!(last, Some(Rate::from_mbit_per_s(mbit)));
    }
}
