use super::*;
use crate::halves::Schedule;
use crate::mode::Mode;
use crate::params::Params;
use crate::record::{RoundRecord, Subject};
use crate::second::SecondRecord;
use crate::stats::median;
use onion::identity::{RelayIds, RsaId};
use proptest::collection::vec;
use proptest::prelude::*;
use std::string::ToString;
use std::vec;

/// What the machine can carry in a second.
const MACHINE: u64 = 10_000_000;
const RATIO: f64 = 0.25;
const SECONDS: usize = 30;

/// A relay that had so much of the machine in each second, and claims so much of clients' traffic.
fn record(number: u8, started_unix_s: Option<u64>, seconds: &[(u64, Option<u64>)]) -> Record {
    let mode =
        if seconds.iter().any(|(_, said)| said.is_some()) { Mode::Echo } else { Mode::Transit };
    let second = |(second, (bytes, said)): (u32, &(u64, Option<u64>))| SecondRecord {
        second,
        returned_bytes: vec![Some(*bytes)],
        client_bytes: *said,
        relay_said: None,
        accounts: vec![],
    };
    let rate = Rate::from_byte_per_s(MACHINE);
    let round = RoundRecord {
        number: 1,
        guess: rate,
        allocation: crate::allocate(rate.scaled(3.0), &[rate.scaled(10.0)], 160),
        schedule: Schedule::PLAIN,
        started_unix_s,
        checked_cells: 1,
        hindered: vec![],
        seconds: (0..).zip(seconds).map(second).collect(),
    };
    let params = Params { seconds: 30, ratio: RATIO, ..Params::default() };
    let mut record = Record {
        relay: Subject {
            nickname: "sybil".to_string(),
            ids: RelayIds { rsa: RsaId([number; 20]), ed25519: None },
            address: ([10, 0, 0, 1], 9001).into(),
            limit: None,
        },
        ended_unix_s: 1_800_000_000,
        mode,
        params,
        rounds: vec![round],
        processor: None,
        shared: None,
        end: End::Measured { capacity: Rate::ZERO, round: 1, inconclusive: None },
    };
    // What it is alone: the median of its own seconds.
    let mut totals: Vec<u64> = record.totals(&record.rounds[0]).map(|it| it.total()).collect();
    totals.sort_unstable();
    let alone = Rate::from_byte_per_s(median(&totals).unwrap_or(0));
    record.end = End::Measured { capacity: alone, round: 1, inconclusive: None };
    record
}

/// What comes of relays that certainly share a machine, of which these began together.
fn share(records: &mut [Record], together: &[bool]) {
    let those = records.iter_mut().zip(together).filter(|(_, is_together)| **is_together);
    share_aligned(&mut those.map(|(record, _)| record).collect::<Vec<_>>());
    share_machine(&mut records.iter_mut().collect::<Vec<_>>());
}

fn sum(records: &[Record]) -> f64 {
    let bytes = records.iter().filter_map(Record::capacity).map(Rate::as_byte_per_s);
    bytes.sum::<u64>() as f64 / MACHINE as f64
}

/// Each has the whole machine in sixteen of its thirty seconds, as they can whose starts are some seconds apart.
fn alternating(starts: [Option<u64>; 2]) -> Vec<Record> {
    let has = |turn: core::ops::Range<usize>| {
        let second = |second| (if turn.contains(&second) { MACHINE } else { 0 }, None);
        (0..SECONDS).map(second).collect::<Vec<_>>()
    };
    vec![record(1, starts[0], &has(0..16)), record(2, starts[1], &has(14..SECONDS))]
}

#[test]
fn relays_that_take_turns_within_a_slot_gain_nothing() {
    let mut records = alternating([Some(7), Some(7)]);
    records.truncate(1);
    let first = records.clone();
    share(&mut records, &[true]);
    assert_eq!(records, first, "it is alone");
    let mut records = alternating([Some(7), Some(8)]);
    share(&mut records, &[true; 2]);
    assert!((sum(&records) - 1.0).abs() < 1e-6, "{}", sum(&records));
    let shared = records[0].shared.expect("shared");
    assert_eq!((shared.relays, shared.is_aligned), (2, true));
    assert_eq!(shared.machine, Rate::from_byte_per_s(MACHINE));
    assert_eq!(shared.alone, Rate::from_byte_per_s(MACHINE), "alone it would have had all");
}

#[test]
fn relays_that_did_not_begin_together_have_what_the_largest_has() {
    let cases = [([Some(7), Some(9)], true), ([Some(7), None], true), ([Some(7), Some(7)], false)];
    for (starts, is_together) in cases {
        let mut records = alternating(starts);
        share(&mut records, &[true, is_together]);
        assert!(sum(&records) <= 1.0 + 1e-6);
        assert!(records.iter().all(|it| !it.shared.expect("shared").is_aligned));
    }
}

#[test]
fn relays_that_may_share_a_machine_are_left_as_they_are_if_they_did_not_begin_together() {
    let aligned =
        |records: &mut [Record]| share_aligned(&mut records.iter_mut().collect::<Vec<_>>());
    let mut records = alternating([Some(7), Some(8)]);
    aligned(&mut records);
    assert!((sum(&records) - 1.0).abs() < 1e-6, "{}", sum(&records));
    let mut records = alternating([Some(7), Some(10)]);
    let before = records.clone();
    aligned(&mut records);
    assert_eq!(records, before);
    // Nor is there anything to be shared with one that has failed.
    records.truncate(1);
    aligned(&mut records);
    assert_eq!(records[..], before[..1]);
    aligned(&mut []);
}

/// Steady relays, of so many seconds.
fn steady(bytes: &[u64], seconds: &[usize]) -> Vec<Record> {
    let numbered = (1..).zip(bytes).zip(seconds);
    numbered.map(|((it, bytes), long)| record(it, Some(7), &vec![(*bytes, None); *long])).collect()
}

/// One of three came late: what the others had at the same instant was found together.
#[test]
fn who_comes_late_costs_the_others_no_more_than_his_own_part() {
    let bytes = |records: &[Record]| -> Vec<u64> {
        records.iter().filter_map(Record::capacity).map(Rate::as_byte_per_s).collect()
    };
    let mut records = steady(&[4_000_000, 4_000_000, 2_000_000], &[SECONDS; 3]);
    share(&mut records, &[true, true, false]);
    assert_eq!(bytes(&records), [3_200_000, 3_200_000, 1_600_000], "8 of the machine are certain");
    let shared = records[0].shared.expect("shared");
    assert_eq!((shared.relays, shared.is_aligned), (3, false));
    assert_eq!(shared.machine, Rate::from_byte_per_s(8_000_000));
    assert_eq!(shared.alone, Rate::from_byte_per_s(4_000_000));
    // The same of one that began with them, and ended early.
    let mut records = steady(&[4_000_000, 4_000_000, 2_000_000], &[SECONDS, SECONDS, 3]);
    share(&mut records, &[true; 3]);
    assert_eq!(bytes(&records), [3_200_000, 3_200_000, 1_600_000]);
    // Who only may share it takes nothing from them.
    let mut records = steady(&[4_000_000, 4_000_000, 2_000_000], &[SECONDS, SECONDS, 3]);
    share_aligned(&mut records.iter_mut().collect::<Vec<_>>());
    assert_eq!(bytes(&records), [4_000_000, 4_000_000, 2_000_000]);
    assert!(records[2].shared.is_none() && records[1].shared.is_some_and(|it| it.relays == 2));
}

#[test]
fn honest_relays_on_one_machine_have_what_each_can() {
    let steady = |bytes: u64| vec![(bytes, None); SECONDS];
    let mut records = vec![
        record(1, Some(7), &steady(2_000_000)),
        record(2, Some(7), &steady(6_000_000)),
        record(3, Some(7), &steady(1_000_000)),
    ];
    // One that could not be measured stays that.
    records[2].end = End::Failed {
        reason: crate::Failure::RelayClosed { detail: "bye".to_string() },
        measurer: None,
        round: 1,
        second: None,
    };
    share(&mut records, &[true; 3]);
    let bytes = |place: usize| records[place].capacity().map(Rate::as_byte_per_s);
    assert_eq!((bytes(0), bytes(1), bytes(2)), (Some(2_000_000), Some(6_000_000), None));
    assert_eq!(records[2].shared, None);
}

#[test]
fn estimates_of_different_times_add_up_to_no_more_than_the_machine() {
    let mbit = Rate::from_mbit_per_s;
    let slot = Duration::from_secs(60);
    let mut fitting = [(1000, mbit(30.0)), (1010, mbit(60.0))];
    fit_machine(&mut fitting, slot);
    assert_eq!(fitting, [(1000, mbit(30.0)), (1010, mbit(60.0))], "measured together");
    // One was measured while the other was away.
    let mut apart = [(90_000, mbit(100.0)), (1010, mbit(50.0)), (1000, mbit(50.0))];
    fit_machine(&mut apart, slot);
    let rates = apart.map(|(_, rate)| rate.as_mbit_per_s().round());
    assert_eq!(rates, [50.0, 25.0, 25.0]);
    fit_machine(&mut [], slot);
}

proptest! {
    /// One that shares a machine with a steady relay, or says so, takes nothing from it, whatever it does second by second.
    #[test]
    fn a_steady_relay_loses_nothing_to_whoever_is_beside_it(
        steady in 1u64..MACHINE, other in vec(0u64..100 * MACHINE, SECONDS),
    ) {
        let other: Vec<_> = other.iter().map(|bytes| (*bytes, None)).collect();
        let mut records =
            vec![record(1, Some(7), &[(steady, None); SECONDS]), record(2, Some(7), &other)];
        share(&mut records, &[true; 2]);
        let kept = records[0].capacity().expect("measured").as_byte_per_s();
        prop_assert!(kept.abs_diff(steady) <= 1 + steady / 1_000_000, "{kept} of {steady}");
    }

    /// However relays divide a machine among themselves, second by second, and whatever they say of their clients, in whatever order they
    /// begin: together they have no more than one relay alone could claim, 1/(1−*r*) of what there is.
    #[test]
    fn alternating_sybils_gain_at_most_a_third_together(
        seconds in vec(vec((0.0f64..1.0, any::<Option<u32>>()), SECONDS), 2..5),
        begins in vec(prop_oneof![4 => Just(Some(7)), 1 => (0u64..20).prop_map(Some), 1 => Just(None)], 5),
        is_all_or_nothing: bool,
    ) {
        let is_together: Vec<bool> = begins[..seconds.len()].iter().map(|begin| *begin == begins[0]).collect();
        let mut records: Vec<Record> = Vec::new();
        for (number, wishes) in seconds.iter().enumerate() {
            let part = |(second, (wish, said)): (usize, &(f64, Option<u32>))| {
                let all: f64 = seconds.iter().map(|it| it[second].0).sum();
                let first = (0..seconds.len()).max_by(|a, b| seconds[*a][second].0.total_cmp(&seconds[*b][second].0));
                let share = if is_all_or_nothing { f64::from(u8::from(first == Some(number))) } else { wish / all };
                (Rate::from_byte_per_s(MACHINE).scaled(share).as_byte_per_s(), Some(said.map_or(0, u64::from)))
            };
            let had: Vec<_> = wishes.iter().enumerate().map(part).collect();
            records.push(record(u8::try_from(number).expect("few"), begins[number], &had));
        }
        share(&mut records, &is_together);
        prop_assert!(sum(&records) <= 1.0 / (1.0 - RATIO) + 1e-5, "{}", sum(&records));
        let mut estimates: Vec<(u64, Rate)> = records
            .iter()
            .zip(&begins)
            .map(|(it, begin)| (begin.unwrap_or(0) * 1000, it.capacity().expect("measured")))
            .collect();
        fit_machine(&mut estimates, Duration::from_secs(60));
        let kept: f64 = estimates.iter().map(|(_, rate)| rate.as_byte_per_s() as f64).sum();
        prop_assert!(kept / MACHINE as f64 <= 1.0 / (1.0 - RATIO) + 1e-5);
    }
}
