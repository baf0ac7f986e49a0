//! Hosts with token buckets: what their bursts add to an estimate.

use super::Settings;
use super::authorities::CAPACITY;
use super::authority::{self, measure, record};
use crate::columns::rounded;
use crate::error::Result;
use crate::grid::Row;
use crate::mode::Mode;
use coordinator::{Attempt, Next, Params, Record, Verdict, share_aligned};
use onion::flow::TokenBucket;
use onion::identity::RsaId;
use onion::{Duration, Instant, Rate};
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;

/// For how long a full bucket lasts, in seconds.
pub(super) const BURSTS_S: [u32; 3] = [5, 15, 60];

/// The lengths of a measurement, in seconds. The paper's is 30.
const LENGTHS_S: [u32; 3] = [30, 60, 120];

/// The rate of a burst, over the rate that the host sustains.
const PEAK: f64 = 2.0;

/// The numbers of known relays on the host, which are measured together.
const RELAYS: [u8; 2] = [1, 2];

/// An estimate may lie ε₂ above the capacity.
const TOLERANCE: f64 = 1.05;

/// A case.
#[derive(Clone, Copy, Debug, Serialize)]
struct Columns {
    burst_s: u32,
    measurement_s: u32,
    relays: u8,
    /// The sum of the estimates, over the rate that the host sustains.
    estimate_share: Option<f64>,
    conclusive: bool,
}

/// Buckets of one depth.
pub(super) fn row(burst_s: u32, _: &Settings) -> Result<Row> {
    let mut cases = Vec::new();
    for length_s in LENGTHS_S {
        for relays in RELAYS {
            cases.push(case(burst_s, length_s, relays));
        }
    }
    Ok(Row { cases, ..Row::default() })
}

fn case(burst_s: u32, length_s: u32, relays: u8) -> Case {
    let records = measured(burst_s, length_s, relays);
    let sum: f64 = records.iter().filter_map(Record::capacity).map(Rate::as_mbit_per_s).sum();
    let estimate = sum / CAPACITY.as_mbit_per_s();
    let conclusive = records.iter().all(|record| record.verdict() == Verdict::Conclusive);
    let columns = Columns {
        burst_s,
        measurement_s: length_s,
        relays,
        estimate_share: rounded(estimate, 3),
        conclusive,
    };
    let relays = report::plural(relays.into(), "relay");
    let name = format!("burst of {burst_s} s, {length_s} s measured, {relays}");
    let detail = format!("{estimate:.2} times the sustained rate");
    // The paper claims a sustainable estimate if a limit is applied faster than half of the measurement.
    let verdict = match 2 * burst_s < length_s {
        true => CaseVerdict::of(estimate <= TOLERANCE),
        false => CaseVerdict::Reported,
    };
    Case::named(name).ended(verdict, detail).with(&columns)
}

/// The records of the relays of a host that are measured together, each time with a full bucket, until no further turn follows.
fn measured(burst_s: u32, length_s: u32, relays: u8) -> Vec<Record> {
    let params = Params { seconds: length_s, ..Params::default() };
    let part = CAPACITY.scaled(1.0 / f64::from(relays));
    let mut turns = vec![Attempt::first(part, params.max_rounds); usize::from(relays)];
    loop {
        let rates = rates(burst_s, params.round_s());
        let mut records = Vec::new();
        let mut follow = Vec::new();
        for (number, turn) in (1..).zip(&turns) {
            let rate = |second: u32| {
                let host = rates.get(second as usize).copied().unwrap_or(Rate::ZERO);
                host.scaled(1.0 / f64::from(relays))
            };
            let measurement = authority::turn(params, Mode::Echo, *turn);
            let Some((outcome, rounds)) =
                measurement.and_then(|measurement| measure(measurement, rate))
            else {
                break;
            };
            if let Next::Enlarged(next) = Next::after(&outcome) {
                follow.push(next);
            }
            records.push(record(RsaId([number; 20]), 0, turn.round, &outcome, rounds));
        }
        if follow.len() < turns.len() {
            share_aligned(&mut records.iter_mut().collect::<Vec<_>>());
            return records;
        }
        turns = follow;
    }
}

/// What the host passes in each second of a measurement, with a bucket that is full at the beginning.
fn rates(burst_s: u32, seconds: u32) -> Vec<Rate> {
    let mut now = Instant::ORIGIN;
    // At twice the rate, a full bucket lasts as long as it takes to fill.
    let depth = Duration::from_secs(burst_s.into());
    let mut bucket = TokenBucket::new(CAPACITY, depth, 0, now);
    let mut second = |_| {
        now += Duration::from_secs(1);
        let peak = CAPACITY.scaled(PEAK).as_byte_per_s();
        let passed = bucket.available_bytes(now).min(peak);
        bucket.take(passed);
        Rate::from_byte_per_s(passed)
    };
    (0..seconds).map(&mut second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lasts_as_long_as_its_burst() {
        let fast = |burst_s| {
            let rates = rates(burst_s, 120);
            assert_eq!(rates.last(), Some(&CAPACITY), "the sustained rate");
            rates.iter().filter(|rate| **rate > CAPACITY.scaled(1.5)).count()
        };
        for burst_s in [5, 15, 60] {
            assert!(fast(burst_s).abs_diff(burst_s as usize) <= 1, "{burst_s}: {}", fast(burst_s));
        }
    }

    #[test]
    fn bursts_of_less_than_half_of_the_measurement_do_not_count() {
        let estimate = |burst_s, length_s, relays| {
            let records = measured(burst_s, length_s, relays);
            assert_eq!(records.len(), usize::from(relays));
            let sum: f64 =
                records.iter().filter_map(Record::capacity).map(Rate::as_mbit_per_s).sum();
            sum / CAPACITY.as_mbit_per_s()
        };
        for relays in RELAYS {
            assert!(estimate(5, 30, relays) < TOLERANCE);
            assert!(estimate(15, 60, relays) < TOLERANCE);
            assert!(estimate(60, 30, relays) > 1.9, "a longer burst is believed");
        }
    }
}
