//! What relays have that share a machine (§5, limitations).
//!
//! Measured one after the other, each of them could have all of the machine; measured at once, each could have all of it in more than half of
//! the seconds, and show nothing in the others, since a relay's estimate is a median. So what counts is the machine: its estimate is the median
//! of what all its relays brought back *together* in each second, and each gets a part of it as large as its own median is beside the others'. So a relay
//! that is steady loses nothing to another that is not, whatever that does.

use crate::record::{End, Record};
use crate::stats::median;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// A relay's part of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Relays of the machine that were measured in the same slot, this one among them.
    pub relays: u32,
    /// What was found of all of them together.
    pub machine: Rate,
    /// What was found of this relay, were it alone.
    pub alone: Rate,
    /// Whether they began at the same instant. If not, each could have had all of the machine, and the largest of them is taken for it.
    pub is_aligned: bool,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { relays, machine, alone, is_aligned } = self;
        let how = if *is_aligned { "" } else { ", which did not begin together" };
        write!(f, "{alone} alone; its part of {machine} of a machine with {relays} relays{how}")
    }
}

/// By their records, which have whole seconds, rounds that began at the same instant are so far apart at most.
const ALIGNED_S: u64 = 1;

/// Gives relays of one machine, which were measured in the same slot, each its part of what was found of all of them. Those without an
/// estimate are left as they are, and so is one that is alone.
///
/// `is_together` says that whoever measured them has let them begin at the same instant: to within some hundredths of a second, since a
/// second that overlaps with two of another relay's could have a part of both.
pub fn share_machine(records: &mut [Record], is_together: bool) {
    if is_together && share_aligned(records) {
        return;
    }
    let alone: Vec<u64> = estimates(records).collect();
    let largest = alone.iter().copied().max().unwrap_or(0);
    divide(records, largest, &alone, false);
}

/// The same for relays of which it is not certain that they share a machine: only if they began at the same instant. If not, nothing was
/// found out about that, and each is left as it is. Says whether it was so.
pub fn share_aligned(records: &mut [Record]) -> bool {
    let measured: Vec<&Record> = records.iter().filter(|it| it.capacity().is_some()).collect();
    let found = if measured.len() < 2 { None } else { aligned(&measured) };
    if let Some((machine, weights)) = &found {
        divide(records, *machine, weights, true);
    }
    found.is_some()
}

fn estimates(records: &[Record]) -> impl Iterator<Item = u64> {
    records.iter().filter_map(Record::capacity).map(Rate::as_byte_per_s)
}

/// Gives each that has an estimate its part of the machine, by these weights.
fn divide(records: &mut [Record], machine: u64, weights: &[u64], is_aligned: bool) {
    if weights.len() < 2 {
        return;
    }
    let whole: f64 = weights.iter().map(|weight| *weight as f64).sum();
    let relays = u32::try_from(weights.len()).unwrap_or(u32::MAX);
    let machine = Rate::from_byte_per_s(machine);
    let mut weights = weights.iter();
    for record in records.iter_mut() {
        let End::Measured { capacity, .. } = &mut record.end else { continue };
        let Some(weight) = weights.next() else { break };
        let part = if whole > 0.0 { *weight as f64 / whole } else { 0.0 };
        let alone = *capacity;
        *capacity = machine.scaled(part);
        record.shared = Some(Shared { relays, machine, alone, is_aligned });
    }
}

/// The median of what all brought back in each second, and of what each did; `None` if they did not begin at the same time, or have few seconds in
/// common.
fn aligned(records: &[&Record]) -> Option<(u64, Vec<u64>)> {
    let mut starts = BTreeSet::new();
    let mut each: Vec<BTreeMap<u32, u64>> = Vec::new();
    for record in records {
        let round = record.decisive_round()?;
        starts.insert(round.started_unix_s?);
        each.push(record.totals(round).map(|it| (it.second, it.total())).collect());
    }
    if starts.last()? - starts.first()? > ALIGNED_S {
        return None;
    }
    let longest = each.iter().map(BTreeMap::len).max()?;
    let first = each.first()?;
    let common: Vec<u32> = first
        .keys()
        .copied()
        .filter(|second| each.iter().all(|it| it.contains_key(second)))
        .collect();
    if common.is_empty() || common.len() * 2 < longest {
        return None;
    }
    let of = |it: &BTreeMap<u32, u64>, second: &u32| it.get(second).copied().unwrap_or(0);
    let mut sums: Vec<u64> = common
        .iter()
        .map(|second| each.iter().map(|it| of(it, second)).fold(0, u64::saturating_add))
        .collect();
    sums.sort_unstable();
    let own = |it: &BTreeMap<u32, u64>| {
        let mut own: Vec<u64> = common.iter().map(|second| of(it, second)).collect();
        own.sort_unstable();
        own
    };
    let own: Vec<Vec<u64>> = each.iter().map(own).collect();
    let mut parts: Vec<u64> = own.iter().filter_map(|it| median(it)).collect();
    if parts.iter().all(|part| *part == 0) {
        // All of them take turns: then what each had in all its turns.
        parts = own.iter().map(|it| it.iter().copied().fold(0, u64::saturating_add)).collect();
    }
    Some((median(&sums)?, parts))
}

/// Holds estimates of relays of one machine, with their times in Unix seconds, to what was found of it at one time: of relays that were measured
/// at different times each may have had what the others had not then. `slot` is how far apart two of the same slot may be.
pub fn fit_machine(estimates: &mut [(u64, Rate)], slot: Duration) {
    let mut by_time: Vec<(u64, u64)> =
        estimates.iter().map(|(at, rate)| (*at, rate.as_byte_per_s())).collect();
    by_time.sort_unstable();
    let (mut most, mut of_slot, mut begun) = (0u64, 0u64, None);
    for (at, bytes) in &by_time {
        let is_same = begun.is_some_and(|begun| at - begun <= slot.as_secs());
        of_slot = if is_same { of_slot.saturating_add(*bytes) } else { *bytes };
        begun = if is_same { begun } else { Some(*at) };
        most = most.max(of_slot);
    }
    let all: f64 = by_time.iter().map(|(_, bytes)| *bytes as f64).sum();
    if all > most as f64 {
        let factor = most as f64 / all;
        estimates.iter_mut().for_each(|(_, rate)| *rate = rate.scaled(factor));
    }
}

#[cfg(test)]
mod tests;
