//! Relays that make something of *when* they are measured: two on one machine that take turns, and one that is fast only at the minute
//! at which it was measured yesterday. The coordinator's own code decides, on a machine and a calendar that are reckoned.

use super::{GAIN, RATIO, Scene, TOLERANCE};
use crate::error::Error;
use coordinator::plan::{Seed, TeamRoom};
use coordinator::{
    Arrival, End, Mode, Params, Record, Rota, RoundRecord, Schedule, SecondRecord, Standing,
    Subject, Turn, allocate, median_rate, share_aligned, share_machine,
};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use report::experiment::Case;

pub(super) const TURNS: &str = "two relays on one machine: take turns";
pub(super) const YESTERDAY: &str = "fast only at yesterday's minute";

/// Ways to divide a machine that are tried.
const DIVISIONS: u32 = 2000;

/// Periods of a day, and its slots.
const PERIODS: u32 = 365;
const SLOTS: u32 = 1216;

/// Other relays of the network.
const OTHERS: u8 = 20;

#[derive(Clone, Copy)]
enum Part {
    Turns,
    Yesterday,
}

/// Each of them once.
pub(super) fn cases(scene: &Scene<'_>) -> Vec<Case> {
    let rng = &mut StdRng::seed_from_u64(scene.plan.first_seed);
    scene.each(
        [(TURNS, Part::Turns), (YESTERDAY, Part::Yesterday)],
        |part| -> Result<Case, Error> {
            Ok(match part {
                Part::Turns => turns(scene.plan.limit, scene.plan.seconds, rng),
                Part::Yesterday => yesterday(scene.plan.limit, rng),
            })
        },
    )
}

/// What each of a pair has of the machine in a second, and what it says of its clients.
type Second = (u64, u64);

/// The best that two relays can do that have a machine between them and know of each other: of many ways to divide it.
fn turns(machine: Rate, seconds: u32, rng: &mut StdRng) -> Case {
    let (mut best, mut alone_best) = (Rate::ZERO, Rate::ZERO);
    for _ in 0..DIVISIONS {
        let (together, alone) = divide(machine, seconds, rng);
        (best, alone_best) = (best.max(together), alone_best.max(alone));
    }
    let bounds = 0.0..=GAIN * (1.0 + TOLERANCE);
    Case::judged(TURNS, machine.as_mbit_per_s(), Some(best.as_mbit_per_s()), bounds)
        .column("kind", "timing")
        .column("divisions", DIVISIONS)
        .column("each_alone_mbit_per_s", alone_best.as_mbit_per_s())
}

/// One way: what both have together, and what they would have if each were believed.
fn divide(machine: Rate, seconds: u32, rng: &mut StdRng) -> (Rate, Rate) {
    let whole = machine.as_byte_per_s();
    let turn_s = rng.random_range(1..=seconds);
    let lies = rng.random_bool(0.5);
    // The second one begins some seconds later, and may not be waited for.
    let late_s = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..=seconds / 2) };
    let has = |at: u32, is_first: bool| -> Second {
        let is_turn = (at / turn_s).is_multiple_of(2) == is_first;
        (if is_turn { whole } else { 0 }, if lies { whole } else { 0 })
    };
    let first: Vec<Second> = (0..seconds).map(|second| has(second, true)).collect();
    let second: Vec<Second> = (0..seconds).map(|second| has(second + late_s, false)).collect();
    let mut records =
        vec![record(1, 0, machine, &first), record(2, late_s.into(), machine, &second)];
    let sum = |records: &[Record]| records.iter().filter_map(Record::capacity).sum::<Rate>();
    let alone = sum(&records);
    let mut both: Vec<&mut Record> = records.iter_mut().collect();
    if late_s == 0 {
        share_aligned(&mut both);
    }
    share_machine(&mut both);
    (sum(&records), alone)
}

fn record(number: u8, started_unix_s: u64, guess: Rate, seconds: &[Second]) -> Record {
    let length = u32::try_from(seconds.len()).unwrap_or(u32::MAX);
    let params = Params { seconds: length, ratio: RATIO, ..Params::default() };
    let wanted = guess.scaled(params.excess_factor());
    let second = |(second, (bytes, said)): (u32, &Second)| SecondRecord {
        second,
        returned_bytes: vec![Some(*bytes)],
        client_bytes: Some(*said),
        relay_said: None,
        accounts: Vec::new(),
    };
    let round = RoundRecord {
        number: 1,
        guess,
        allocation: allocate(wanted, &[wanted], params.sockets),
        schedule: Schedule::PLAIN,
        started_unix_s: Some(started_unix_s),
        checked_cells: 0,
        hindered: Vec::new(),
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
    let totals: Vec<Rate> = record
        .rounds
        .iter()
        .flat_map(|round| record.totals(round))
        .map(|it| Rate::from_byte_per_s(it.total()))
        .collect();
    let capacity = median_rate(totals).unwrap_or_default();
    record.end = End::Measured { capacity, round: 1, inconclusive: None };
    record
}

/// What a relay is believed to have, in the mean over a year, that is twice as fast in the slot in which it was measured the day before.
fn yesterday(usual: Rate, rng: &mut StdRng) -> Case {
    let mut master = [0; 32];
    rng.fill_bytes(&mut master);
    let master = Seed::from_bytes(master);
    let fast = usual.scaled(2.0);
    let (mut known, mut sum, mut hits) = (None, Rate::ZERO, 0u32);
    for period in 0..PERIODS {
        let slot = slot_of_the_first(&master.of_period(u64::from(period)), usual);
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
    .column("kind", "timing")
    .column("periods", PERIODS)
    .column("slots", SLOTS)
    .column("hits", hits)
}

/// In which slot the first of many relays is measured.
fn slot_of_the_first(seed: &Seed, guess: Rate) -> Option<u32> {
    let arrival = |number: u8| Arrival {
        relay: RsaId([number; 20]),
        together: RsaId([number; 20]),
        standing: Standing::Old,
        turn: Turn::first(guess, 3),
        is_done: false,
    };
    let arrivals: Vec<Arrival> = (1..=OTHERS).map(arrival).collect();
    let team = TeamRoom::of(guess.scaled(10.0));
    let factor = Params::default().excess_factor();
    let mut rota = Rota::new(seed, SLOTS, team, factor, &arrivals, 0);
    (0..SLOTS).find(|slot| rota.poll_due(*slot).iter().any(|due| due.relay == RsaId([1; 20])))
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
        assert!(case.ratio > Some(1.0), "some have lied about their clients: {case:?}");
        // Believed one by one they would have twice the machine.
        let mut alone = Rate::ZERO;
        for _ in 0..200 {
            alone = alone.max(divide(LIMIT, 30, rng).1);
        }
        assert!(alone > LIMIT.scaled(1.9), "{alone}");
    }

    #[test]
    fn yesterdays_minute_is_worth_nothing_today() {
        let case = yesterday(LIMIT, &mut StdRng::seed_from_u64(1));
        assert_eq!(case.verdict, CaseVerdict::Held, "{case:?}");
    }
}
