use super::*;
use crate::mode::Mode;
use crate::params::Params;
use crate::record::{RoundRecord, Subject};
use crate::second::SecondRecord;
use crate::socket_ramp::Schedule;
use crate::stats::median;
use onion::identity::{RelayIds, RsaId};
use proptest::collection::vec;
use proptest::prelude::*;
use std::string::ToString;
use std::vec;

/// The capacity of the machine, in bytes per second.
const MACHINE: u64 = 10_000_000;
const RATIO: f64 = 0.25;
const SECONDS: usize = 30;

/// A relay with these bytes in each second, and these reports of client traffic.
fn record(number: u8, started_unix_s: Option<u64>, seconds: &[(u64, Option<u64>)]) -> Record {
    let mode = if seconds.iter().any(|(_, reported)| reported.is_some()) {
        Mode::Echo
    } else {
        Mode::Transit
    };
    let second = |(second, (bytes, reported)): (u32, &(u64, Option<u64>))| SecondRecord {
        second,
        returned_bytes: vec![Some(*bytes)],
        client_bytes: *reported,
        relay_reported: None,
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
        bottlenecks: vec![],
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
    // The estimate alone: the median of its seconds, or their mean if that is less. Missing seconds count as zero.
    let mut totals: Vec<u64> =
        record.totals(&record.rounds[0]).map(|total| total.total()).collect();
    let mean = totals.iter().sum::<u64>() / SECONDS as u64;
    totals.sort_unstable();
    let alone = Rate::from_byte_per_s(median(&totals).unwrap_or(0).min(mean));
    record.end = End::Measured { capacity: alone, round: 1, inconclusive: None };
    record
}

/// Divides the capacity of relays that certainly share a machine, of which these were on time.
fn share(records: &mut [Record], on_time: &[bool]) {
    let those = records.iter_mut().zip(on_time).filter(|(_, is_on_time)| **is_on_time);
    share_aligned(&mut those.map(|(record, _)| record).collect::<Vec<_>>());
    share_machine(&mut records.iter_mut().zip(on_time.iter().copied()).collect::<Vec<_>>());
}

fn bytes(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.capacity().map_or(0, Rate::as_byte_per_s)).collect()
}

fn sum(records: &[Record]) -> f64 {
    let bytes = records.iter().filter_map(Record::capacity).map(Rate::as_byte_per_s);
    bytes.sum::<u64>() as f64 / MACHINE as f64
}

/// Two relays that each have the whole machine in sixteen of thirty seconds, which different start times permit.
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
    let mean = Rate::from_byte_per_s(MACHINE * 16 / 30);
    assert_eq!(
        shared.alone, mean,
        "alone each would have its mean, and two of those exceed the machine"
    );
}

#[test]
fn relays_that_did_not_start_together_get_the_largest_result() {
    let cases = [([Some(7), Some(9)], true), ([Some(7), None], true), ([Some(7), Some(7)], false)];
    for (starts, is_together) in cases {
        let mut records = alternating(starts);
        share(&mut records, &[true, is_together]);
        assert!(sum(&records) <= 1.0 + 1e-6);
        assert!(records.iter().all(|record| !record.shared.expect("shared").is_aligned));
    }
}

#[test]
fn relays_that_may_share_a_machine_are_unchanged_if_they_did_not_start_together() {
    let aligned =
        |records: &mut [Record]| share_aligned(&mut records.iter_mut().collect::<Vec<_>>());
    let mut records = alternating([Some(7), Some(8)]);
    aligned(&mut records);
    assert!((sum(&records) - 1.0).abs() < 1e-6, "{}", sum(&records));
    let mut records = alternating([Some(7), Some(10)]);
    let before = records.clone();
    aligned(&mut records);
    assert_eq!(records, before);
    // A failed relay has nothing to share.
    records.truncate(1);
    aligned(&mut records);
    assert_eq!(records[..], before[..1]);
    aligned(&mut []);
}

/// Steady relays with these rates and numbers of seconds.
fn steady(bytes: &[u64], seconds: &[usize]) -> Vec<Record> {
    let numbered = (1..).zip(bytes).zip(seconds);
    numbered
        .map(|((number, bytes), long)| record(number, Some(7), &vec![(*bytes, None); *long]))
        .collect()
}

#[test]
fn relays_on_time_keep_their_results_and_a_late_one_gets_the_rest() {
    // Bytes of the late relay in seconds that overlap with those of the others belong to the joint result.
    let mut records = steady(&[4_000_000, 4_000_000, 2_000_000], &[SECONDS; 3]);
    share(&mut records, &[true, true, false]);
    assert_eq!(bytes(&records), [4_000_000, 4_000_000, 1_866_667], "28 of its 30 seconds");
    let shared = records[0].shared.expect("shared");
    assert_eq!((shared.relays, shared.is_aligned), (3, false));
    assert_eq!(shared.machine, Rate::from_byte_per_s(9_866_667));
    assert_eq!(shared.alone, Rate::from_byte_per_s(4_000_000));
    // One was ready on time, the other seven seconds later.
    let mut records = steady(&[4_000_000; 2], &[SECONDS; 2]);
    records[1].rounds[0].started_unix_s = Some(14);
    share(&mut records, &[true, false]);
    assert_eq!(
        bytes(&records),
        [4_000_000, 2_933_334],
        "22 of its seconds overlap with the other's"
    );
    // It was measured after the others had ended: only their results are certain.
    let mut records = steady(&[4_000_000; 2], &[SECONDS; 2]);
    records[1].rounds[0].started_unix_s = Some(100);
    share(&mut records, &[true, false]);
    assert_eq!(bytes(&records), [4_000_000, 0]);
    assert!(records[1].failure().is_some_and(Failure::is_not_now), "{}", records[1]);
    // A relay that started with them and ended early does not show the joint capacity.
    let mut records = steady(&[4_000_000, 4_000_000, 2_000_000], &[SECONDS, SECONDS, 3]);
    share(&mut records, &[true; 3]);
    assert_eq!(bytes(&records)[..2], [4_000_000; 2]);
    // A relay that only may share the machine takes nothing from them and loses nothing.
    let mut records = steady(&[4_000_000, 4_000_000, 2_000_000], &[SECONDS, SECONDS, 3]);
    let alone = bytes(&records)[2];
    share_aligned(&mut records.iter_mut().collect::<Vec<_>>());
    assert_eq!(bytes(&records), [4_000_000, 4_000_000, alone]);
    assert!(
        records[2].shared.is_none() && records[1].shared.is_some_and(|shared| shared.relays == 2)
    );
}

/// A machine that is limited on average, such as by a token bucket, and carries everything in 16 of 30 seconds. Both
/// halves of the round look alike.
#[test]
fn two_relays_that_are_fast_in_the_same_half_of_the_seconds_gain_nothing() {
    let burst = |second: usize| (second * 16) % SECONDS < 16;
    let average = 16.0 / SECONDS as f64; // of MACHINE, which `sum` divides by
    for (reported, most) in [(u64::MAX, 1.0 / (1.0 - RATIO)), (0, 1.0)] {
        let second = |number| (if burst(number) { MACHINE / 2 } else { 0 }, Some(reported));
        let seconds: Vec<_> = (0..SECONDS).map(second).collect();
        let mut records = vec![record(1, Some(0), &seconds), record(2, Some(0), &seconds)];
        share(&mut records, &[true, true]);
        assert!(sum(&records) / average <= most + 1e-5, "{}", sum(&records) / average);
        // The same with rounds that end after the 16 seconds of the burst.
        let early = vec![(MACHINE / 2, Some(reported)); 16];
        let mut records = vec![record(1, Some(0), &early), record(2, Some(0), &early)];
        share(&mut records, &[true, true]);
        assert!(sum(&records) / average <= most + 1e-5, "{}", sum(&records) / average);
    }
}

#[test]
fn honest_relays_on_one_machine_get_their_own_capacities() {
    let steady = |bytes: u64| vec![(bytes, None); SECONDS];
    let mut records = vec![
        record(1, Some(7), &steady(2_000_000)),
        record(2, Some(7), &steady(6_000_000)),
        record(3, Some(7), &steady(1_000_000)),
    ];
    // A failed relay remains failed.
    records[2].end = End::Failed {
        reason: Failure::RelayClosed { detail: "bye".to_string() },
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
fn estimates_of_different_times_do_not_exceed_the_machine() {
    let mbit = Rate::from_mbit_per_s;
    let fitted = |estimates: &[(u64, f64)], begun| {
        let mut fitting: Vec<_> = estimates.iter().map(|(at, rate)| (*at, mbit(*rate))).collect();
        fit_machine(&mut fitting, Duration::from_secs(60), begun);
        fitting.iter().map(|(_, rate)| rate.as_mbit_per_s().round()).collect::<Vec<_>>()
    };
    for begun in [0, 5000] {
        assert_eq!(fitted(&[(1000, 30.0), (1010, 60.0)], begun), [30.0, 60.0], "measured together");
    }
    assert!(fitted(&[], 0).is_empty());
    // One was measured while the others were absent, and may have used their capacity.
    let apart = [(90_000, 100.0), (1010, 50.0), (1000, 50.0)];
    assert_eq!(fitted(&apart, 0), [0.0, 50.0, 50.0], "the earliest keep their results");
    assert_eq!(fitted(&apart, 80_000), [100.0, 0.0, 0.0], "this period's estimate is kept");
    assert_eq!(fitted(&[(90_000, 60.0), apart[1], apart[2]], 80_000), [60.0, 20.0, 20.0]);
    assert_eq!(fitted(&apart, 100_000), [50.0, 25.0, 25.0], "old estimates have no order");
}

proptest! {
    /// Relays that share a machine with a steady relay, or claim to, take nothing from it, whatever they do in each
    /// second.
    #[test]
    fn a_steady_relay_loses_nothing_to_its_neighbours(
        steady in 1u64..MACHINE, others in vec(vec(prop_oneof![0u64..100 * MACHINE, Just(0), Just(MACHINE)], SECONDS), 1..4),
    ) {
        let mut records = vec![record(1, Some(7), &[(steady, None); SECONDS])];
        for (number, other) in (2..).zip(&others) {
            let other: Vec<_> = other.iter().map(|bytes| (*bytes, None)).collect();
            records.push(record(number, Some(7), &other));
        }
        let on_time = vec![true; records.len()];
        share(&mut records, &on_time);
        prop_assert_eq!(bytes(&records)[0], steady);
    }

    /// A neighbour that is late, or is measured at another time, takes nothing from any relay.
    #[test]
    fn a_late_relay_takes_nothing_from_one_on_time(
        own in vec(1u64..MACHINE, SECONDS), other in vec(0u64..100 * MACHINE, SECONDS), late_s in 0u64..200,
    ) {
        let of = |number, at, seconds: &[u64]| {
            record(number, Some(at), &seconds.iter().map(|bytes| (*bytes, None)).collect::<Vec<_>>())
        };
        let mut records = vec![of(1, 1000, &own), of(2, 1000 + late_s, &other)];
        let alone = bytes(&records);
        share(&mut records, &[true, false]);
        let shared = bytes(&records);
        prop_assert_eq!(shared[0], alone[0]);
        prop_assert!(shared[1] <= alone[1]);
        // The same for two estimates of one period.
        let mut estimates = [(1000, alone[0]), (2000 + late_s, alone[1])].map(|(at, bytes)| (at, Rate::from_byte_per_s(bytes)));
        fit_machine(&mut estimates, Duration::from_secs(15), 500);
        prop_assert_eq!(estimates[0].1.as_byte_per_s(), alone[0]);
    }

    /// However the rate of a machine varies, and however its relays divide it in each second and whatever they claim, they
    /// get at most 1/(1−*r*) of its mean, and none gets more than it showed alone.
    #[test]
    fn a_machine_that_bursts_gains_at_most_a_third(
        machine in vec(prop_oneof![Just(0u64), 0..MACHINE, Just(3 * MACHINE)], SECONDS),
        shares in vec(vec(0.0f64..1.0, SECONDS), 2..5), claims: bool, late in vec(0u64..12, 5), length in 16..=SECONDS,
    ) {
        let average: f64 = machine.iter().map(|bytes| *bytes as f64).sum::<f64>() / SECONDS as f64;
        let is_on_time: Vec<bool> = (0..shares.len()).map(|number| late[number] < 8).collect();
        let mut records: Vec<Record> = Vec::new();
        for (number, own) in shares.iter().enumerate() {
            let late_s = if is_on_time[number] { 0 } else { late[number] };
            let had = |second: usize| {
                // In the time of the machine, which carries nothing after its last second.
                let at = second + usize::try_from(late_s).expect("few");
                let all: f64 = shares.iter().map(|share| share[at.min(SECONDS - 1)]).sum();
                let bytes = machine.get(at).map_or(0, |bytes| Rate::from_byte_per_s(*bytes).scaled(own[at] / all).as_byte_per_s());
                (bytes, Some(if claims { u64::MAX } else { 0 }))
            };
            let seconds: Vec<_> = (0..length).map(had).collect();
            records.push(record(u8::try_from(number).expect("few"), Some(7 + late_s), &seconds));
        }
        let alone = bytes(&records);
        share(&mut records, &is_on_time);
        let most = if claims { 1.0 / (1.0 - RATIO) } else { 1.0 };
        let all = sum(&records) * MACHINE as f64;
        prop_assert!(all <= average * most + 40.0, "{} times what it has", all / average);
        prop_assert!(bytes(&records).iter().zip(&alone).all(|(shared, alone)| shared <= alone));
    }

    /// However relays divide a machine in each second, whatever they report about clients and in whatever order they
    /// start, together they get at most what one relay alone could claim: 1/(1−*r*) of the machine.
    #[test]
    fn alternating_sybils_gain_at_most_a_third_together(
        seconds in vec(vec((0.0f64..1.0, any::<Option<u32>>()), SECONDS), 2..5),
        begins in vec(prop_oneof![4 => Just(Some(7)), 1 => (0u64..20).prop_map(Some), 1 => Just(None)], 5),
        is_all_or_nothing: bool, begun in prop_oneof![Just(0u64), Just(10_000)],
    ) {
        let is_together: Vec<bool> = begins[..seconds.len()].iter().map(|begin| *begin == begins[0]).collect();
        let mut records: Vec<Record> = Vec::new();
        for (number, wishes) in seconds.iter().enumerate() {
            let part = |(second, (wish, reported)): (usize, &(f64, Option<u32>))| {
                let all: f64 = seconds.iter().map(|wishes| wishes[second].0).sum();
                let first = (0..seconds.len()).max_by(|a, b| seconds[*a][second].0.total_cmp(&seconds[*b][second].0));
                let share = if is_all_or_nothing { f64::from(u8::from(first == Some(number))) } else { wish / all };
                (Rate::from_byte_per_s(MACHINE).scaled(share).as_byte_per_s(), Some(reported.map_or(0, u64::from)))
            };
            let had: Vec<_> = wishes.iter().enumerate().map(part).collect();
            records.push(record(u8::try_from(number).expect("few"), begins[number], &had));
        }
        share(&mut records, &is_together);
        prop_assert!(sum(&records) <= 1.0 / (1.0 - RATIO) + 1e-5, "{}", sum(&records));
        let mut estimates: Vec<(u64, Rate)> = records
            .iter()
            .zip(&begins)
            .map(|(record, begin)| (begin.unwrap_or(0) * 1000, record.capacity().unwrap_or_default()))
            .collect();
        fit_machine(&mut estimates, Duration::from_secs(60), begun);
        let kept: f64 = estimates.iter().map(|(_, rate)| rate.as_byte_per_s() as f64).sum();
        prop_assert!(kept / MACHINE as f64 <= 1.0 / (1.0 - RATIO) + 1e-5);
    }
}
