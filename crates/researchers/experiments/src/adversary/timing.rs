//! Relays that exploit the time of their measurement: two on one machine that take turns or burst together, and one that is fast only at the
//! minute of yesterday's measurement. Machine and calendar are computed; the coordinator's own code decides.

use super::{AdversarySettings, Cell, Context, GAIN, Kind, RATIO, TOLERANCE};
use crate::error::Result;
use crate::grid::Row;
use coordinator::plan::{Seed, TeamRoom};
use coordinator::policy::network_of;
use coordinator::{
    Arrival, Attempt, End, Mode, Params, Priority, Record, RoundRecord, Schedule, SecondRecord,
    SlotSchedule, Subject, allocate, median_rate, share_aligned, share_machine,
};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use report::experiment::Case;
use std::net::Ipv4Addr;

pub(super) const TURNS: &str = "two relays on one machine: take turns";
pub(super) const BURSTS: &str = "two relays on one machine: burst together";
pub(super) const YESTERDAY: &str = "fast only at yesterday's minute";

/// The tolerance of a computed bound, for rounding.
const ROUNDING: f64 = 1e-3;

/// The number of random divisions of a machine.
const DIVISIONS: u32 = 2000;

/// The number of periods of one day, and of slots in a period.
const PERIODS: u32 = 365;
const SLOTS: u32 = 1216;

/// The number of relays in the network.
const OTHERS: u8 = 20;

/// All of them, with random numbers from one seed.
pub(super) fn cell() -> Cell {
    let compute = |context: &Context<'_>| -> Result<_> {
        let AdversarySettings { limit, seconds, first_seed, .. } = *context.settings;
        let rng = &mut StdRng::seed_from_u64(first_seed);
        let cases =
            vec![turns(limit, seconds, rng), bursts(limit, seconds, rng), yesterday(limit, rng)];
        Ok(Some(Row { cases, ..Row::default() }))
    };
    Cell::with_row(Kind::Timing, "computed timing", compute)
}

/// The bytes that a relay echoes in a second, and its report of client bytes.
type Second = (u64, u64);

/// The best of many random ways in which two cooperating relays can divide one machine.
fn turns(machine: Rate, seconds: u32, rng: &mut StdRng) -> Case {
    let (mut best, mut alone_best) = (Rate::ZERO, Rate::ZERO);
    for _ in 0..DIVISIONS {
        let (together, alone) = divide(machine, seconds, rng);
        (best, alone_best) = (best.max(together), alone_best.max(alone));
    }
    let bounds = 0.0..=GAIN + ROUNDING;
    Case::judged(TURNS, machine.as_mbit_per_s(), Some(best.as_mbit_per_s()), bounds)
        .column("divisions", DIVISIONS)
        .column("each_alone_mbit_per_s", alone_best.as_mbit_per_s())
}

/// A random division: the capacity of both relays together, and the sum of their estimates if each were measured alone.
fn divide(machine: Rate, seconds: u32, rng: &mut StdRng) -> (Rate, Rate) {
    let whole = machine.as_byte_per_s();
    let turn_s = rng.random_range(1..=seconds);
    let lies = rng.random_bool(0.5);
    // The second relay may start some seconds late; the measurement does not always wait for it.
    let late_s = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..=seconds / 2) };
    let has = |at: u32, is_first: bool| -> Second {
        let is_turn = (at / turn_s).is_multiple_of(2) == is_first;
        (if is_turn { whole } else { 0 }, if lies { whole } else { 0 })
    };
    let first: Vec<Second> = (0..seconds).map(|second| has(second, true)).collect();
    let second: Vec<Second> = (0..seconds).map(|second| has(second + late_s, false)).collect();
    let mut records = vec![
        record(1, 0, machine, seconds, &first),
        record(2, late_s.into(), machine, seconds, &second),
    ];
    let sum = |records: &[Record]| records.iter().filter_map(Record::capacity).sum::<Rate>();
    let alone = sum(&records);
    if late_s == 0 {
        share_aligned(&mut records.iter_mut().collect::<Vec<_>>());
    }
    // The first is always on time.
    let on_time = [true, late_s == 0];
    share_machine(&mut records.iter_mut().zip(on_time).collect::<Vec<_>>());
    (sum(&records), alone)
}

/// The best of many random ways in which two relays can burst together on a machine whose average rate is limited, as by a token bucket.
fn bursts(average: Rate, seconds: u32, rng: &mut StdRng) -> Case {
    let (mut best, mut longest) = (Rate::ZERO, 0);
    for _ in 0..DIVISIONS {
        let (together, burst_s) = burst(average, seconds, rng);
        if together > best {
            (best, longest) = (together, burst_s);
        }
    }
    let bounds = 0.0..=GAIN + ROUNDING;
    Case::judged(BURSTS, average.as_mbit_per_s(), Some(best.as_mbit_per_s()), bounds)
        .column("bursts", DIVISIONS)
        .column("burst_seconds", longest)
}

/// A random burst: the capacity of both relays together, and the number of fast seconds.
fn burst(average: Rate, seconds: u32, rng: &mut StdRng) -> (Rate, u32) {
    let burst_s = rng.random_range(1..=seconds);
    let each = average.scaled(0.5 * f64::from(seconds) / f64::from(burst_s)).as_byte_per_s();
    // The fast seconds are either spread evenly, so that both halves of the round are alike, or at the start; then the round may end early.
    let is_spread = rng.random_bool(0.5);
    let claims = rng.random_bool(0.5);
    let is_fast =
        |at: u32| if is_spread { (at * burst_s) % seconds < burst_s } else { at < burst_s };
    let has = |at: u32| -> Second {
        (if is_fast(at) { each } else { 0 }, if claims { u64::MAX } else { 0 })
    };
    let ends = if is_spread || rng.random_bool(0.5) { seconds } else { burst_s };
    let had: Vec<Second> = (0..ends).map(has).collect();
    let mut records = [1, 2].map(|number| record(number, 0, average, seconds, &had));
    let [one, other] = &mut records;
    share_aligned(&mut [&mut *one, &mut *other]);
    share_machine(&mut [(one, true), (other, true)]);
    (records.iter().filter_map(Record::capacity).sum(), burst_s)
}

/// A record of a round of `length` seconds, of which these are complete.
fn record(number: u8, started_unix_s: u64, guess: Rate, length: u32, seconds: &[Second]) -> Record {
    let params = Params { seconds: length, ratio: RATIO, ..Params::default() };
    let wanted = guess.scaled(params.excess_factor());
    let second = |(second, (bytes, said)): (u32, &Second)| SecondRecord {
        second,
        returned_bytes: vec![Some(*bytes)],
        client_bytes: Some(*said),
        relay_reported: None,
        accounts: Vec::new(),
    };
    let round = RoundRecord {
        number: 1,
        guess,
        allocation: allocate(wanted, &[wanted], params.sockets),
        schedule: Schedule::PLAIN,
        started_unix_s: Some(started_unix_s),
        checked_cells: 0,
        bottlenecks: Vec::new(),
        seconds: (0..).zip(seconds).map(second).collect(),
    };
    let relay = Subject {
        nickname: format!("sybil{number}"),
        ids: RelayIds { rsa: RsaId([number; 20]), ed25519: None },
        address: ([192, 0, 2, 1], 9001).into(),
        limit: None,
    };
    let end = End::Measured { capacity: Rate::ZERO, round: 1, inconclusive: None };
    let mut record = Record {
        relay,
        ended_unix_s: started_unix_s + u64::from(length),
        mode: Mode::Echo,
        params,
        rounds: vec![round],
        processor: None,
        shared: None,
        end,
    };
    // As in a measurement: the median, or the mean over all seconds if that is less.
    let mut totals: Vec<u64> = record
        .rounds
        .iter()
        .flat_map(|round| record.totals(round))
        .map(|second| second.total())
        .collect();
    totals.resize(length as usize, 0);
    totals.sort_unstable();
    let mean = totals.iter().copied().fold(0, u64::saturating_add) / u64::from(length.max(1));
    let median = median_rate(totals.iter().copied().map(Rate::from_byte_per_s));
    let capacity = median.unwrap_or_default().min(Rate::from_byte_per_s(mean));
    record.end = End::Measured { capacity, round: 1, inconclusive: None };
    record
}

/// The mean estimate over a year of a relay that is twice as fast in the slot in which it was measured the day before.
fn yesterday(usual: Rate, rng: &mut StdRng) -> Case {
    let mut master = [0; 32];
    rng.fill_bytes(&mut master);
    let master = Seed::from_bytes(master);
    let fast = usual.scaled(2.0);
    let (mut known, mut sum, mut hits) = (None, Rate::ZERO, 0u32);
    for period in 0..PERIODS {
        let slot = slot_of_the_first(&master.of_period(u64::from(period), 86_400), usual);
        let is_hit = known.is_some() && slot == known;
        hits += u32::from(is_hit);
        sum = sum + if is_hit { fast } else { usual };
        known = slot;
    }
    let mean = sum.scaled(1.0 / f64::from(PERIODS));
    Case::judged(
        YESTERDAY,
        usual.as_mbit_per_s(),
        Some(mean.as_mbit_per_s()),
        0.0..=1.0 + TOLERANCE,
    )
    .column("periods", PERIODS)
    .column("slots", SLOTS)
    .column("hits", hits)
}

/// The slot in which the first of many relays is measured.
fn slot_of_the_first(seed: &Seed, guess: Rate) -> Option<u32> {
    let arrival = |number: u8| Arrival {
        relay: RsaId([number; 20]),
        together: RsaId([number; 20]),
        priority: Priority::Known,
        first_seen_unix_s: 0,
        network: network_of(Ipv4Addr::LOCALHOST.into()),
        turn: Attempt::first(guess, 3),
        is_done: false,
        is_pending: false,
        due_by: None,
    };
    let arrivals: Vec<Arrival> = (1..=OTHERS).map(arrival).collect();
    let team = TeamRoom::of(guess.scaled(10.0));
    let factor = Params::default().excess_factor();
    let mut schedule = SlotSchedule::memoryless(seed, SLOTS, &[team], 0, factor, &arrivals, 0);
    (0..SLOTS).find(|slot| schedule.poll_due(*slot).iter().any(|due| due.relay == RsaId([1; 20])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::experiment::CaseVerdict;

    const LIMIT: Rate = Rate::from_bit_per_s(100_000_000);

    #[test]
    fn taking_turns_gains_no_more_than_lying_about_clients() {
        let rng = &mut StdRng::seed_from_u64(1);
        let case = turns(LIMIT, 30, rng);
        assert_eq!(case.verdict, CaseVerdict::Held, "{case:?}");
        assert!(case.ratio > Some(1.0), "lying about clients gains something: {case:?}");
        // Measured one by one, they would gain more: each has the machine in seconds in which the other is not measured.
        let mut alone = Rate::ZERO;
        for _ in 0..200 {
            alone = alone.max(divide(LIMIT, 30, rng).1);
        }
        assert!(alone > LIMIT.scaled(1.4), "{alone}");
    }

    #[test]
    fn two_relays_that_burst_together_gain_no_more_than_one_that_lies_about_clients() {
        let case = bursts(LIMIT, 30, &mut StdRng::seed_from_u64(1));
        assert_eq!(case.verdict, CaseVerdict::Held, "{case:?}");
        assert!(case.ratio > Some(1.3), "lying about clients gains a third: {case:?}");
    }

    #[test]
    fn being_fast_in_yesterdays_slot_gains_nothing() {
        let case = yesterday(LIMIT, &mut StdRng::seed_from_u64(1));
        assert_eq!(case.verdict, CaseVerdict::Held, "{case:?}");
    }
}
