//! Several relays on one host, known and unknown to the coordinator.

use super::Settings;
use super::authorities::CAPACITY;
use super::authority::{measure, record, turn};
use crate::columns::rounded;
use crate::error::{Error, Result};
use crate::grid::Row;
use crate::mode::Mode;
use coordinator::plan::{Candidate, Machine, Seed, TeamRoom, machines};
use coordinator::policy::network_of;
use coordinator::{Arrival, Attempt, Due, Params, Priority, Record, SlotSchedule, share_aligned};
use onion::Rate;
use onion::identity::RsaId;
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Numbers of relays on the host.
pub(super) const RELAYS: [u8; 7] = [2, 3, 4, 5, 6, 7, 8];

/// Slots of a day, of 33 s.
const SLOTS: u32 = 2618;

/// More than the host's capacity, up to this share, is rounding.
const TOLERANCE: f64 = 1e-3;

/// What the coordinator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Knowledge {
    /// The relays have one address, or the operator names them: they are measured at the same instant.
    Known,
    /// The relays have several addresses.
    Unknown,
}

/// A case.
#[derive(Clone, Copy, Debug, Serialize)]
struct Columns {
    knowledge: Knowledge,
    relays: u8,
    days: u32,
    /// The mean of the sum of their estimates, over the host's capacity.
    mean_estimates_share: Option<f64>,
    /// The largest sum.
    max_estimates_share: Option<f64>,
    /// Days on which at least two of them were measured at the same time.
    days_with_joint_measurements: u32,
}

/// Measures the relays of a host for some days. They divide the host among those that are measured at the time, so that their estimates are
/// as large as possible: in each second, one random relay has all of it, or all have the same.
pub(super) fn row(relays: u8, knowledge: Knowledge, settings: &Settings) -> Result<Row> {
    let rng = &mut StdRng::seed_from_u64(settings.seed ^ 4);
    let mut bytes = [0; 32];
    rng.fill_bytes(&mut bytes);
    let (seed, factor) = (Seed::from_bytes(bytes), Params::default().excess_factor());
    let teams = [TeamRoom::of(Rate::from_mbit_per_s(1e6))];
    let (mut last, mut sums, mut joint): (BTreeMap<RsaId, f64>, Vec<f64>, u32) = Default::default();
    for day in 0..settings.days {
        let arrivals = arrivals(relays, knowledge);
        let seed = seed.of_period(u64::from(day), 86_400);
        let mut schedule = SlotSchedule::memoryless(&seed, SLOTS, &teams, 0, factor, &arrivals, 0);
        let mut is_joint = false;
        for slot in 0..SLOTS {
            let due = schedule.poll_due(slot);
            is_joint |= due.len() > 1;
            for (relay, estimate) in measure_at_once(&due, rng)? {
                last.insert(relay, estimate);
                schedule.handle_end(relay, None, slot);
            }
        }
        joint += u32::from(is_joint);
        if last.len() == usize::from(relays) {
            sums.push(last.values().sum());
        }
    }
    if sums.is_empty() {
        return Err(Error::Failed("no day on which all relays have estimates".to_owned()));
    }
    let mean = sums.iter().sum::<f64>() / sums.len() as f64;
    let largest = sums.iter().copied().fold(0.0, f64::max);
    let columns = Columns {
        knowledge,
        relays,
        days: settings.days,
        mean_estimates_share: rounded(mean, 3),
        max_estimates_share: rounded(largest, 3),
        days_with_joint_measurements: joint,
    };
    let (word, verdict) = match knowledge {
        Knowledge::Known => ("known", CaseVerdict::of(largest <= 1.0 + TOLERANCE)),
        // The paper concedes this one.
        Knowledge::Unknown => ("unknown", CaseVerdict::Reported),
    };
    let name = format!("one host, {relays} relays, {word}");
    let detail = format!("their estimates are {mean:.2} times the host's capacity");
    Ok(Case::named(name).ended(verdict, detail).with(&columns).into())
}

/// The relays, grouped by what the coordinator knows. Each is expected to have all of the host, and none has a deadline.
fn arrivals(relays: u8, knowledge: Knowledge) -> Vec<Arrival> {
    let candidate = |number: u8| Candidate {
        relay: RsaId([number; 20]),
        guess: CAPACITY,
        address: match knowledge {
            Knowledge::Known => [192, 0, 2, 1],
            Knowledge::Unknown => [192, 0, 2, number],
        }
        .into(),
    };
    let candidates: Vec<Candidate> = (1..=relays).map(candidate).collect();
    let groups = machines(&candidates, &[]);
    let of_group = |machine: &Machine| {
        let key = machine.key();
        machine.relays().map(move |relay| (relay, key)).collect::<Vec<_>>()
    };
    let arrival = |(relay, together): (RsaId, RsaId)| Arrival {
        relay,
        together,
        priority: Priority::Known,
        first_seen_unix_s: 0,
        network: network_of(Ipv4Addr::LOCALHOST.into()),
        turn: Attempt::first(CAPACITY, 12),
        is_done: false,
        is_pending: false,
        due_by: None,
    };
    groups.iter().flat_map(of_group).map(arrival).collect()
}

/// The estimates of the relays that are measured in a slot, over the host's capacity.
fn measure_at_once(due: &[Due], rng: &mut StdRng) -> Result<Vec<(RsaId, f64)>> {
    let params = Params::default();
    let takes_turns = rng.random_bool(0.5);
    let turn_of: Vec<usize> =
        (0..params.round_s()).map(|_| rng.random_range(0..due.len().max(1))).collect();
    let equal = CAPACITY.scaled(1.0 / due.len().max(1) as f64);
    let rate = |place: usize, second: u32| match turn_of.get(second as usize) {
        Some(turn) if takes_turns && *turn == place => CAPACITY,
        Some(_) if takes_turns => Rate::ZERO,
        _ => equal,
    };
    let mut records: Vec<Record> = Vec::new();
    for (place, due) in due.iter().enumerate() {
        let measurement = turn(params, Mode::Echo, due.turn);
        let measured =
            measurement.and_then(|measurement| measure(measurement, |second| rate(place, second)));
        if let Some((outcome, rounds)) = measured {
            records.push(record(due.relay, 0, due.turn.round, &outcome, rounds));
        }
    }
    // The coordinator compares only relays that it has grouped.
    if due.iter().all(|due_now| Some(due_now.machine) == due.first().map(|first| first.machine)) {
        share_aligned(&mut records.iter_mut().collect::<Vec<_>>());
    }
    let share = |record: &Record| {
        let capacity = record.capacity().unwrap_or(Rate::ZERO);
        (record.relay.ids.rsa, capacity.as_mbit_per_s() / CAPACITY.as_mbit_per_s())
    };
    Ok(records.iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn known_relays_share_the_host_and_unknown_ones_count_it_several_times() {
        let settings = Settings { days: 8, ..Settings::small() };
        let largest = |relays, knowledge| {
            let row = row(relays, knowledge, &settings).expect("a row");
            let [case] = &row.cases[..] else { panic!("{row:?}") };
            case.value("max_estimates_share").and_then(Value::as_f64).expect("a number")
        };
        for relays in [2, 5] {
            let known = largest(relays, Knowledge::Known);
            assert!((0.3..=1.0 + TOLERANCE).contains(&known), "{relays}: {known}");
            let unknown = largest(relays, Knowledge::Unknown);
            assert!((unknown - f64::from(relays)).abs() < 0.01, "{relays}: {unknown}");
        }
    }
}
