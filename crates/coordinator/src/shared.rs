//! What relays have that share a machine (§5, limitations).
//!
//! Measured one after the other, each of them could have all of the machine; measured at once, each could have all of it in more than half of
//! the seconds, and show nothing in the others, since a relay's estimate is a median. So what counts is the machine: its estimate is the median
//! of what all its relays brought back *together* in each second, and each gets a part of it as large as its own median is beside the others'. So a relay
//! that is steady loses nothing to another that is not, whatever that does.

use crate::record::{End, Record};
use crate::stats::median;
use alloc::collections::BTreeMap;
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
    /// Whether all of them began at the same instant. If not, each that did not could have had all of the machine, and the most that was found at one time
    /// is taken for it.
    pub is_aligned: bool,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { relays, machine, alone, is_aligned } = self;
        let how = if *is_aligned { "" } else { ", which did not all begin together" };
        write!(f, "{alone} alone; its part of {machine} of a machine with {relays} relays{how}")
    }
}

/// By their records, which have whole seconds, rounds that began at the same instant are so far apart at most.
const ALIGNED_S: u64 = 1;

/// Gives relays that may share a machine, and that were measured in the same slot, each its part of what all of them had together. Whoever measured them has let them
/// begin at the same instant: to within some hundredths of a second, since a second that overlaps with two of another relay's could have a part of both.
///
/// Those without an estimate are left as they are, and so is one with few seconds in common with the others: it ended early, and says nothing of what they had.
pub fn share_aligned(records: &mut [&mut Record]) {
    let mut those: Vec<Aligned<'_>> = records.iter_mut().filter_map(|it| Aligned::of(it)).collect();
    let longest = those.iter().map(|it| it.seconds.len()).max().unwrap_or(0);
    those.retain(|it| !it.seconds.is_empty() && it.seconds.len() * 2 >= longest);
    let Some((machine, weights)) = together(&those, longest) else { return };
    let whole: f64 = weights.iter().map(|weight| *weight as f64).sum();
    let relays = u32::try_from(those.len()).unwrap_or(u32::MAX);
    for (it, weight) in those.iter_mut().zip(weights) {
        let part = if whole > 0.0 { weight as f64 / whole } else { 0.0 };
        let capacity = machine.scaled(part);
        it.record.set_share(capacity, relays, machine, true);
    }
}

/// Holds relays that certainly share a machine, and were measured in the same slot, to the most that was found of it at one time: of those that
/// have their parts by [`share_aligned`] together, and of each other alone, since each could have had all of the machine then.
pub fn share_machine(records: &mut [&mut Record]) {
    let is_aligned = |it: &Record| it.shared.is_some_and(|shared| shared.is_aligned);
    let found = |it: &&mut Record| it.capacity().map(|rate| (is_aligned(it), rate));
    let found: Vec<(bool, Rate)> = records.iter().filter_map(found).collect();
    if found.len() < 2 || found.iter().all(|(is_aligned, _)| *is_aligned) {
        return;
    }
    let aligned: Rate = found.iter().filter(|it| it.0).map(|it| it.1).sum();
    let single = found.iter().filter(|it| !it.0).map(|it| it.1).max().unwrap_or(Rate::ZERO);
    let all: Rate = found.iter().map(|it| it.1).sum();
    let (machine, relays) = (aligned.max(single), u32::try_from(found.len()).unwrap_or(u32::MAX));
    let factor = machine.as_byte_per_s() as f64 / all.as_byte_per_s().max(1) as f64;
    for record in records {
        if let Some(capacity) = record.capacity() {
            record.set_share(capacity.scaled(factor), relays, machine, false);
        }
    }
}

impl Record {
    /// Its estimate is its part of a machine from now on.
    fn set_share(&mut self, part: Rate, relays: u32, machine: Rate, is_aligned: bool) {
        let End::Measured { capacity, .. } = &mut self.end else { return };
        let alone = self.shared.map_or(*capacity, |it| it.alone);
        *capacity = part;
        self.shared = Some(Shared { relays, machine, alone, is_aligned });
    }
}

/// A relay that began at the same instant as others.
struct Aligned<'a> {
    record: &'a mut Record,
    started_unix_s: u64,
    /// What it brought back in each.
    seconds: BTreeMap<u32, u64>,
}

impl<'a> Aligned<'a> {
    fn of(record: &'a mut Record) -> Option<Self> {
        record.capacity()?;
        let round = record.decisive_round()?;
        let started_unix_s = round.started_unix_s?;
        let seconds = record.totals(round).map(|it| (it.second, it.total())).collect();
        Some(Self { record, started_unix_s, seconds })
    }
}

/// The median of what all brought back in each second, and of what each did; `None` if they did not begin at the same time, or have few seconds in
/// common.
fn together(those: &[Aligned<'_>], longest: usize) -> Option<(Rate, Vec<u64>)> {
    let starts = || those.iter().map(|it| it.started_unix_s);
    if those.len() < 2 || starts().max()? - starts().min()? > ALIGNED_S {
        return None;
    }
    let is_common = |second: &u32| those.iter().all(|it| it.seconds.contains_key(second));
    let common: Vec<u32> = those.first()?.seconds.keys().copied().filter(is_common).collect();
    if common.is_empty() || common.len() * 2 < longest {
        return None;
    }
    let of = |it: &Aligned<'_>, second: &u32| it.seconds.get(second).copied().unwrap_or(0);
    let mut sums: Vec<u64> = common
        .iter()
        .map(|second| those.iter().map(|it| of(it, second)).fold(0, u64::saturating_add))
        .collect();
    sums.sort_unstable();
    let own = |it: &Aligned<'_>| {
        let mut own: Vec<u64> = common.iter().map(|second| of(it, second)).collect();
        own.sort_unstable();
        own
    };
    let own: Vec<Vec<u64>> = those.iter().map(own).collect();
    let mut parts: Vec<u64> = own.iter().filter_map(|it| median(it)).collect();
    if parts.iter().all(|part| *part == 0) {
        // All of them take turns: then what each had in all its turns.
        parts = own.iter().map(|it| it.iter().copied().fold(0, u64::saturating_add)).collect();
    }
    Some((Rate::from_byte_per_s(median(&sums)?), parts))
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
