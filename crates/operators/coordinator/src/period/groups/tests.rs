use super::*;
use crate::allocation::{Allocation, Assignment};
use crate::journal::MeasurementStarted;
use crate::record::{End, RoundRecord, Subject};
use crate::second::SecondRecord;
use crate::turn::Attempt;
use crate::{MeasurerId, Mode, Params, Schedule, fit_machine};
use onion::identity::RelayIds;
use onion::{Duration, Rate};
use std::format;
use std::string::String;

const BEGUN: u64 = 1_800_000_000;
const ENDED: u64 = BEGUN + 40;

const fn id(number: u8) -> RsaId {
    RsaId([number; 20])
}

fn capacity() -> Rate {
    Rate::from_mbit_per_s(30.0)
}

/// A measurement with the result [`capacity`], without seconds.
fn finished(number: u8) -> Finished {
    let address = ([192, 0, 2, 1], 9001).into();
    let ids = RelayIds { rsa: id(number), ed25519: None };
    let record = Record {
        relay: Subject { nickname: format!("relay{number}"), ids, address, limit: None },
        ended_unix_s: ENDED,
        mode: Mode::Transit,
        params: Params::default(),
        rounds: Vec::new(),
        processor: None,
        shared: None,
        end: End::Measured { capacity: capacity(), round: 1, inconclusive: None },
    };
    let started = MeasurementStarted {
        ids,
        nickname: String::new(),
        address,
        period_unix_s: BEGUN,
        number: 1,
        slot: None,
        started_unix_s: BEGUN,
    };
    let turn = Attempt::first(Rate::from_mbit_per_s(50.0), 2);
    Finished { relay: RelayIndex(number.into()), turn, record, started, follows: None }
}

/// A measurement with a round in which every second had this rate.
fn with_seconds(number: u8, started_unix_s: u64) -> Finished {
    let mut finished = finished(number);
    let assignment =
        Assignment { measurer: MeasurerId(0), rate: Rate::from_mbit_per_s(100.0), sockets: 4 };
    let second = |second| SecondRecord {
        second,
        returned_bytes: vec![Some(capacity().as_byte_per_s())],
        client_bytes: None,
        relay_reported: None,
        accounts: Vec::new(),
    };
    let needed = Rate::from_mbit_per_s(100.0);
    finished.record.rounds = vec![RoundRecord {
        number: 1,
        guess: needed,
        allocation: Allocation { assignments: vec![assignment], needed, available: needed },
        schedule: Schedule::PLAIN,
        started_unix_s: Some(started_unix_s),
        checked_cells: 0,
        bottlenecks: Vec::new(),
        seconds: (0..finished.record.params.seconds).map(second).collect(),
    }];
    finished
}

fn begin(relays: &[(u8, u8)]) -> Groups {
    let mut groups = Groups::default();
    let relays: Vec<_> = relays.iter().map(|(number, host)| (relay(*number), id(*host))).collect();
    groups.begin(&relays);
    groups
}

const fn relay(number: u8) -> RelayIndex {
    RelayIndex(number as usize)
}

const fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

/// These relays become ready at this second, and can wait until a minute. Returns the relays that start.
fn ready(groups: &mut Groups, relays: &[u8], seconds: u64) -> Vec<RelayIndex> {
    relays.iter().for_each(|number| groups.handle_ready(relay(*number), at(60)));
    groups.poll_start(at(seconds))
}

#[test]
fn a_group_starts_at_once_when_its_last_relay_is_ready() {
    let mut groups = begin(&[(1, 1), (2, 1)]);
    assert!(ready(&mut groups, &[1], 1).is_empty());
    assert_eq!(groups.poll_timeout(), Some(at(60)));
    assert_eq!(ready(&mut groups, &[2], 3), [relay(1), relay(2)]);
    assert_eq!(groups.poll_timeout(), None);
    assert!(groups.poll_start(at(100)).is_empty(), "once");
}

#[test]
fn a_group_does_not_wait_for_failed_relays_or_beyond_its_deadline() {
    let mut groups = begin(&[(1, 1), (2, 1)]);
    assert!(ready(&mut groups, &[1], 1).is_empty());
    assert!(groups.end(finished(2)).is_empty());
    assert_eq!(groups.poll_start(at(2)), [relay(1)]);
    let mut groups = begin(&[(1, 1), (2, 1)]);
    groups.handle_ready(relay(1), at(5));
    assert!(groups.poll_start(at(4)).is_empty());
    assert_eq!(groups.poll_start(at(5)), [relay(1)]);
    assert_eq!(ready(&mut groups, &[2], 7), [relay(2)], "a late relay starts at once");
}

#[test]
fn the_results_of_a_host_are_settled_when_its_last_relay_has_ended() {
    let mut groups = begin(&[(1, 1), (2, 1), (3, 1)]);
    groups.begin(&[(relay(4), id(4))]);
    assert!(!groups.contains(relay(4)) && groups.contains(relay(3)));
    assert_eq!(groups.end(finished(4)).len(), 1, "alone");
    assert!(groups.end(finished(1)).is_empty() && groups.end(finished(3)).is_empty());
    let settled = groups.end(finished(2));
    assert_eq!(settled.len(), 3);
    for measurement in &settled {
        // They did not start together: the largest result is that of the host.
        let shared = measurement.record.shared.map(|shared| (shared.relays, shared.machine));
        assert_eq!(shared, Some((3, capacity())));
        assert_eq!(measurement.record.capacity(), Some(capacity().scaled(1.0 / 3.0)));
    }
    assert!(groups.group_of.is_empty() && groups.groups.is_empty());
}

/// Regression: eight relays that did not fit together each got an eighth of an eighth, since a divided result was
/// limited once more to the largest joint result.
#[test]
fn a_divided_result_is_not_limited_again_because_of_different_end_times() {
    let mut groups = begin(&[(1, 1), (2, 1)]);
    let mut late = finished(2);
    late.record.ended_unix_s += 60;
    assert!(groups.end(finished(1)).is_empty());
    let settled = groups.end(late);
    let rate = |measurement: &Finished| {
        (measurement.record.ended_unix_s, measurement.record.capacity().expect("measured"))
    };
    let mut rates: Vec<_> = settled.iter().map(rate).collect();
    assert_eq!(rates, [(ENDED + 60, capacity().scaled(0.5)); 2]);
    fit_machine(&mut rates, Duration::from_secs(15), BEGUN);
    assert_eq!(rates, [(ENDED + 60, capacity().scaled(0.5)); 2]);
}

#[test]
fn if_one_relay_is_repeated_so_is_its_group() {
    for is_first in [true, false] {
        let mut groups = begin(&[(1, 1), (2, 1), (3, 1)]);
        assert_eq!(ready(&mut groups, &[1, 2, 3], 1).len(), 3);
        let mut last = with_seconds(3, BEGUN);
        last.follows = last.turn.repeated().filter(|_| is_first);
        assert!(groups.end(with_seconds(1, BEGUN)).is_empty());
        assert!(groups.end(with_seconds(2, BEGUN)).is_empty());
        let mut settled = groups.end(last);
        let all_have_what_they_showed =
            settled.iter().all(|measurement| measurement.record.capacity() == Some(capacity()));
        assert!(all_have_what_they_showed, "each had it at the same time as the others");
        repeat_together(&mut settled);
        let rounds = settled.iter().map(|measurement| measurement.follows.map(|turn| turn.round));
        assert_eq!(rounds.collect::<Vec<_>>(), vec![is_first.then_some(2); 3]);
    }
}

#[test]
fn an_interrupted_period_keeps_ended_measurements() {
    let mut groups = begin(&[(1, 1), (2, 1)]);
    assert!(groups.end(finished(1)).is_empty());
    let left = groups.end_all();
    assert_eq!((left.len(), left[0].record.shared), (1, None));
    assert_eq!(groups.end(finished(2)).len(), 1, "it ended later");
}

#[test]
fn a_relay_of_another_host_that_started_separately_keeps_its_result() {
    // 1 and 2 share an address; 3 is of their family, at another address.
    let mut groups = begin(&[(1, 1), (2, 1), (3, 3)]);
    assert!(groups.end(finished(1)).is_empty() && groups.end(finished(2)).is_empty());
    for measurement in groups.end(finished(3)) {
        let is_alone = measurement.relay == relay(3);
        assert_eq!(
            measurement.record.shared.is_none(),
            is_alone,
            "{:?}",
            measurement.record.shared
        );
        let part = if is_alone { capacity() } else { capacity().scaled(0.5) };
        assert_eq!(measurement.record.capacity(), Some(part));
    }
}

#[test]
fn a_late_relay_takes_nothing_from_relays_that_started_together() {
    // 1 and 2 share an address; 3 is of their family, at another address.
    let mut groups = begin(&[(1, 1), (2, 1), (3, 3)]);
    groups.handle_ready(relay(1), at(60));
    groups.handle_ready(relay(2), at(1));
    assert_eq!(groups.poll_start(at(1)), [relay(1), relay(2)]);
    assert_eq!(ready(&mut groups, &[3], 2), [relay(3)]);
    assert!(groups.end(with_seconds(1, BEGUN)).is_empty());
    assert!(groups.end(with_seconds(2, BEGUN)).is_empty());
    for measurement in groups.end(with_seconds(3, BEGUN)) {
        assert_eq!(measurement.record.capacity(), Some(capacity()));
        let relays = measurement.record.shared.map(|shared| (shared.relays, shared.is_aligned));
        assert_eq!(relays, (measurement.relay != relay(3)).then_some((2, true)));
    }
}

/// A malicious relay at the address of an honest one starts when that one is half done.
#[test]
fn a_late_relay_at_the_same_address_takes_nothing_from_one_on_time() {
    let mut groups = begin(&[(1, 1), (2, 1)]);
    groups.handle_ready(relay(1), at(0));
    assert_eq!(groups.poll_start(at(0)), [relay(1)], "it can wait no longer");
    assert_eq!(ready(&mut groups, &[2], 20), [relay(2)]);
    assert!(groups.end(with_seconds(2, BEGUN + 20)).is_empty());
    for measurement in groups.end(with_seconds(1, BEGUN)) {
        let is_late = measurement.relay == relay(2);
        let expected = (!is_late).then_some(capacity());
        assert_eq!(measurement.record.capacity(), expected, "{}", measurement.record);
    }
}
