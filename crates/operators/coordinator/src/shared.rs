//! The capacity of relays that share a machine (§5, limitations).
//!
//! Measured one after the other, each relay of a machine could use all of it. Measured at the same time, each could use
//! all of it in more than half of the seconds and nothing in the others, since an estimate is a median. Therefore the
//! capacity is that of the machine: the median of what all its relays returned together in each second, or the mean if
//! that is less. The mean matters for a machine with a limit on the average only, such as a token bucket or a tariff:
//! all its relays could be fast in the same 16 of 30 seconds.
//!
//! Two rules protect the honest relays of a machine from the others. No relay gets more than it showed alone. No relay
//! gets less than it showed in every single second: only what a relay returned in some seconds and not in others is
//! cut.

use crate::failure::Failure;
use crate::record::{End, Record};
use crate::stats::median;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// A relay's share of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The number of relays of the machine that were measured in the same slot, including this one.
    pub relays: u32,
    /// The joint capacity of all of them.
    pub machine: Rate,
    /// The capacity of this relay alone.
    pub alone: Rate,
    /// Whether all of them started at the same instant. If not, those on time keep their results, and a late one gets
    /// the rest.
    pub is_aligned: bool,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { relays, machine, alone, is_aligned } = self;
        let how = if *is_aligned { "" } else { ", which did not all begin together" };
        write!(f, "{alone} alone; its part of {machine} of a machine with {relays} relays{how}")
    }
}

/// The maximum difference between the start times of rounds that began at the same instant; records have whole seconds.
const ALIGNED_S: u64 = 1;

/// Divides the joint capacity among relays that may share a machine and that started at the same instant, to within
/// some hundredths of a second.
///
/// Relays without an estimate are unchanged. So is a relay with less than half of the seconds of the others: it ended
/// early and does not show the joint capacity.
pub fn share_aligned(records: &mut [&mut Record]) {
    let mut those: Vec<Part<'_>> =
        records.iter_mut().filter_map(|record| Part::of(record)).collect();
    let longest = those.iter().map(|relay| relay.seconds.len()).max().unwrap_or(0);
    those.retain(|relay| !relay.seconds.is_empty() && relay.seconds.len() * 2 >= longest);
    let starts = || those.iter().map(|relay| relay.started_unix_s);
    let Some((first, last)) = starts().min().zip(starts().max()) else { return };
    if those.len() < 2 || last - first > ALIGNED_S {
        return;
    }
    those.iter_mut().for_each(|relay| relay.is_exact = true);
    let machine = at_one_time(&those);
    let claims: Vec<Claim> = those.iter().map(Part::claim).collect();
    let relays = u32::try_from(those.len()).unwrap_or(u32::MAX);
    for (relay, part) in those.iter_mut().zip(divide(machine, &claims)) {
        relay.record.set_share(part, relays, Rate::from_byte_per_s(machine), true);
    }
}

/// Limits relays that certainly share a machine, and were measured in the same slot, to the largest joint result at one
/// time. Each relay has a flag whether it was on time, which means ready when the others started. Relays on time keep
/// their results by [`share_aligned`], or the result of the only one. Late relays get the rest, since each of them
/// could have used the whole machine at another time. A relay for which nothing is left has no estimate:
/// [`Failure::RelayNotNow`].
pub fn share_machine(records: &mut [(&mut Record, bool)]) {
    let is_aligned = |record: &Record| record.shared.is_some_and(|shared| shared.is_aligned);
    records.sort_by_key(|(record, is_on_time)| (!is_aligned(record), !is_on_time));
    let measured = |(record, _): &&(&mut Record, bool)| record.capacity().is_some();
    let aligned = records.iter().filter(measured).filter(|(record, _)| is_aligned(record)).count();
    let on_time = records.iter().filter(measured).filter(|(_, is_on_time)| *is_on_time).count();
    let mut all: Vec<Part<'_>> = records
        .iter_mut()
        .filter(|(record, _)| record.capacity().is_some())
        .map(|(record, _)| Part::of_any(record))
        .collect();
    if all.len() < 2 || all.len() == aligned {
        return;
    }
    let joint = at_one_time(&all);
    let single = all.iter().map(|relay| relay.claim().alone).max().unwrap_or(0);
    let first = if aligned > 0 { aligned } else { on_time.max(1) };
    let is_known = aligned > 0 || on_time == 1;
    let (early, late) = if is_known { all.split_at_mut(first) } else { all.split_at_mut(0) };
    let sum = |those: &[Part<'_>]| {
        those.iter().map(|relay| relay.claim().alone).fold(0, u64::saturating_add)
    };
    let (theirs, relays) = (sum(early), u32::try_from(early.len() + late.len()));
    let machine = theirs.max(single).max(joint);
    let (relays, whole) = (relays.unwrap_or(u32::MAX), Rate::from_byte_per_s(machine));
    for relay in early {
        let part = relay.claim().alone;
        relay.record.set_share(part, relays, whole, false);
    }
    // A late relay showed each of its seconds at another time than the others, so it has no guaranteed minimum.
    let claims: Vec<Claim> = late.iter().map(|relay| Claim { floor: 0, ..relay.claim() }).collect();
    for (relay, part) in late.iter_mut().zip(divide(machine - theirs, &claims)) {
        relay.record.set_share(part, relays, whole, false);
    }
}

impl Record {
    /// Replaces the estimate by the relay's share of a machine, in bytes per second, unless the estimate is lower.
    fn set_share(&mut self, part: u64, relays: u32, machine: Rate, is_aligned: bool) {
        let End::Measured { capacity, round, .. } = &mut self.end else { return };
        if part == 0 {
            let detail = "the other relays at its address were ready before it and account for the whole measured capacity";
            let reason = Failure::RelayNotNow { detail: detail.to_owned() };
            self.end = End::Failed { reason, measurer: None, round: *round, second: None };
            self.shared = None;
            return;
        }
        let alone = self.shared.map_or(*capacity, |shared| shared.alone);
        *capacity = Rate::from_byte_per_s(part).min(*capacity);
        self.shared = Some(Shared { relays, machine, alone, is_aligned });
    }
}

/// A relay's claim to the capacity of a machine, in bytes per second.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// Its estimate so far, which is its maximum.
    alone: u64,
    /// The minimum of its seconds, which is its guaranteed share.
    floor: u64,
}

/// Divides a machine among its relays. If the claims do not exceed the capacity, each relay gets its claim. Otherwise
/// what exceeds the floors is cut in the same proportion for all. The floors of relays that started together do not
/// exceed the capacity.
fn divide(machine: u64, claims: &[Claim]) -> Vec<u64> {
    let sum = |of: fn(&Claim) -> u64| claims.iter().map(of).map(u128::from).sum::<u128>();
    let (alone, floors) = (sum(|claim| claim.alone), sum(|claim| claim.floor));
    if alone <= u128::from(machine) {
        return claims.iter().map(|claim| claim.alone).collect();
    }
    let left = u128::from(machine).saturating_sub(floors);
    let above = (alone - floors).max(1);
    let part = |claim: &Claim| {
        let more = u128::from(claim.alone - claim.floor) * left / above;
        claim.floor.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    };
    claims.iter().map(part).collect()
}

/// A measured relay of a machine.
struct Part<'a> {
    record: &'a mut Record,
    started_unix_s: u64,
    /// The bytes that it returned in each second.
    seconds: BTreeMap<u32, u64>,
    /// It started at the same instant as the other exact ones.
    is_exact: bool,
}

impl<'a> Part<'a> {
    /// With its seconds; `None` if their time is unknown.
    fn of(record: &'a mut Record) -> Option<Self> {
        record.capacity()?;
        record.decisive_round()?.started_unix_s?;
        Some(Self::of_any(record))
    }

    /// Without seconds, if their time is unknown.
    fn of_any(record: &'a mut Record) -> Self {
        let round = record.decisive_round();
        let started_unix_s = round.and_then(|round| round.started_unix_s);
        let seconds = round.filter(|_| started_unix_s.is_some());
        let seconds = seconds.into_iter().flat_map(|second| record.totals(second));
        let seconds = seconds.map(|seconds| (seconds.second, seconds.total())).collect();
        let is_exact = record.shared.is_some_and(|shared| shared.is_aligned);
        Self { started_unix_s: started_unix_s.unwrap_or(0), seconds, is_exact, record }
    }

    fn claim(&self) -> Claim {
        let alone = self.record.capacity().unwrap_or_default().as_byte_per_s();
        let is_whole = self.seconds.len() >= self.record.params.seconds as usize;
        let floor = self.seconds.values().copied().min().filter(|_| is_whole).unwrap_or(0);
        Claim { alone, floor: floor.min(alone) }
    }

    /// The bytes that it certainly returned in a second of another record, which began `later_s` seconds after it. A
    /// second of the other record overlaps two of this one, or three by clocks of whole seconds. The bytes of a second
    /// may have arrived in any part of it.
    fn overlapping(&self, second: u32, later_s: i64) -> u64 {
        let at = i64::from(second) + later_s;
        let of = |at: i64| u32::try_from(at).ok().and_then(|at| self.seconds.get(&at)).copied();
        (at - 1..=at + 1).map(|at| of(at).unwrap_or(0)).min().unwrap_or(0)
    }
}

/// The joint rate of all relays, in bytes per second: the median of their sums, or the mean if that is less. It is
/// taken over all seconds that the first relay's round should have had. A missing second of a round that ended early
/// counts as zero.
fn at_one_time(those: &[Part<'_>]) -> u64 {
    let Some(first) = those
        .iter()
        .filter(|relay| !relay.seconds.is_empty())
        .min_by_key(|relay| relay.started_unix_s)
    else {
        return 0;
    };
    let later_s =
        |relay: &Part<'_>| first.started_unix_s.cast_signed() - relay.started_unix_s.cast_signed();
    let seconds: Vec<u32> = {
        let mut all: Vec<u32> = first.seconds.keys().copied().collect();
        let exact = those.iter().filter(|relay| relay.is_exact && first.is_exact);
        all.extend(exact.flat_map(|relay| relay.seconds.keys().copied()));
        all.sort_unstable();
        all.dedup();
        all
    };
    let of = |relay: &Part<'_>, second: u32| {
        if core::ptr::eq(relay, first) || (relay.is_exact && first.is_exact) {
            relay.seconds.get(&second).copied().unwrap_or(0)
        } else {
            relay.overlapping(second, later_s(relay))
        }
    };
    let sum =
        |second: &u32| those.iter().map(|relay| of(relay, *second)).fold(0, u64::saturating_add);
    let mut sums: Vec<u64> = seconds.iter().map(sum).collect();
    let whole = first.record.params.seconds as usize;
    if sums.len() < whole {
        sums.resize(whole, 0);
    }
    sums.sort_unstable();
    let all: u128 = sums.iter().copied().map(u128::from).sum();
    let mean = u64::try_from(all.div_ceil(sums.len().max(1) as u128)).unwrap_or(u64::MAX);
    median(&sums).unwrap_or(0).min(mean)
}

/// Limits estimates of relays of one machine, with their times in Unix seconds, to the joint result at one time. Relays
/// that were measured at different times could each have used capacity that the others did not use then. `slot` is the
/// maximum distance between two measurements of one slot.
///
/// Of the relays that were measured since `begun_unix_s`, the earliest keep their results, and each later one gets what
/// is left. So a relay that is measured at another time than its neighbours takes nothing from them. Older estimates
/// share what is left after that.
pub fn fit_machine(estimates: &mut [(u64, Rate)], slot: Duration, begun_unix_s: u64) {
    // Old estimates form one group, whatever their times.
    let mut order: Vec<usize> = (0..estimates.len()).collect();
    order.sort_by_key(|place| estimates.get(*place).map(|(at, _)| (*at < begun_unix_s, *at)));
    let mut slots: Vec<Vec<usize>> = Vec::new();
    let mut begun = None;
    for place in order {
        let Some((at, _)) = estimates.get(place) else { continue };
        let is_same = begun.is_some_and(|begun: u64| at.abs_diff(begun) <= slot.as_secs());
        match slots.last_mut().filter(|_| is_same) {
            Some(of_slot) => of_slot.push(place),
            None => {
                begun = Some(*at);
                slots.push(alloc::vec![place]);
            }
        }
    }
    let of = |estimates: &[(u64, Rate)], places: &[usize]| -> u64 {
        let bytes = places
            .iter()
            .filter_map(|place| estimates.get(*place))
            .map(|(_, rate)| rate.as_byte_per_s());
        bytes.fold(0, u64::saturating_add)
    };
    let most = slots.iter().map(|places| of(estimates, places)).max().unwrap_or(0);
    let is_old = |places: &Vec<usize>| {
        places
            .first()
            .and_then(|place| estimates.get(*place))
            .is_some_and(|(at, _)| *at < begun_unix_s)
    };
    let (old, new): (Vec<_>, Vec<_>) = slots.iter().cloned().partition(is_old);
    let mut left = most;
    for places in new.into_iter().chain([old.concat()]) {
        let theirs = of(estimates, &places);
        if theirs > left {
            let factor = left as f64 / theirs as f64;
            for place in &places {
                if let Some((_, rate)) = estimates.get_mut(*place) {
                    *rate = rate.scaled(factor);
                }
            }
        }
        left = left.saturating_sub(theirs);
    }
}

#[cfg(test)]
mod tests;
