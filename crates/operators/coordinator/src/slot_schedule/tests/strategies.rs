//! The gain of a relay that chooses when it is fast, and which measurements it accepts. It is computed over years of
//! periods by the coordinator's own plan and rules, and by the earlier rules without a cost of declines and without
//! memorylessness. docs/security.md has the table.

use super::*;
use crate::history::{Decline, DeclineKind, History, HistoryPolicy, PastEstimate};
use std::println;

const DAY_S: u64 = 86_400;
/// Slots of a day: each is a quarter of an hour.
const DAY: u32 = 96;
const SLOT_S: u64 = DAY_S / DAY as u64;
const DAYS: u64 = 500;

/// A relay's strategy.
#[derive(Clone, Copy, Debug)]
enum Strategy {
    /// It is always fast.
    Honest,
    /// It is always fast, and this percentage of its measurements finds it busy.
    SometimesBusy(u64),
    /// It is fast until it has been measured, and then slow for this number of slots, or until the day ends.
    FastUntilMeasured(u32),
    /// It accepts one measurement in this many, and is fast only then. It declines the others as busy.
    AcceptsOneOf(u32),
    /// It accepts the first measurement once its estimate has this age, in hours, and is fast only then.
    AcceptsAfter(u64),
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// Once a day, and declining has no cost.
    Before,
    Now,
}

/// The results over the whole time.
#[derive(Clone, Copy, Debug)]
struct Gain {
    /// The mean weight, over that of a fast relay.
    weight: f64,
    /// The share of the time in which it was fast, or had to assume a measurement.
    fast: f64,
    /// Measurements a day.
    measured: f64,
    /// The accepted ones among them.
    accepted: f64,
}

fn simulate_years(strategy: Strategy, rules: Rules) -> Gain {
    let (policy, relay) = (HistoryPolicy::default(), id(1));
    let rate = Rate::from_mbit_per_s(10.0);
    let (fast, slow) = (rate, rate.scaled(0.01));
    let mut history = History::default();
    let (mut declined, mut count, mut slow_until) = (0u32, 0u64, 0u64);
    let (mut weight, mut fast_slots, mut measured, mut accepted) = (0.0, 0u64, 0u64, 0u64);
    for day in 0..DAYS {
        let begin = day * DAY_S;
        let last = history.last(relay).map(|estimate| estimate.measured_unix_s);
        let holds = history.kept(&policy, relay, None, begin).is_some();
        let due_by = match last {
            Some(at) if holds && at + DAY_S >= begin => None,
            Some(at) if holds => due_slot(at, begin),
            _ => Some(DAY - 1),
        };
        let priority = if last.is_some() { Priority::Known } else { Priority::New };
        let own = Arrival { due_by, ..arrival(1, priority) };
        // Other relays, to give the team other work.
        let others =
            (2..8).map(|number| Arrival { due_by: None, ..arrival(number, Priority::Known) });
        let arrivals: Vec<Arrival> = core::iter::once(own).chain(others).collect();
        let seed = Seed::from_bytes([7; 32]).of_period(begin, DAY_S);
        let teams = [team()];
        let mut schedule = match rules {
            Rules::Before => SlotSchedule::among(&seed, DAY, &teams, 0, F, &arrivals, 0),
            Rules::Now => SlotSchedule::memoryless(&seed, DAY, &teams, 0, F, &arrivals, 0),
        };
        if rules == Rules::Before {
            slow_until = slow_until.min(begin);
        }
        for slot in 0..DAY {
            let now = begin + u64::from(slot) * SLOT_S;
            let is_fast = now >= slow_until;
            for due in schedule.poll_due(slot) {
                if due.relay != relay {
                    schedule.handle_end(due.relay, None, slot);
                    continue;
                }
                (count, measured) = (count + 1, measured + 1);
                let age =
                    history.last(relay).map_or(u64::MAX, |estimate| now - estimate.measured_unix_s);
                let accepts = match strategy {
                    Strategy::Honest | Strategy::FastUntilMeasured(_) => true,
                    Strategy::SometimesBusy(percent) => (count * 7919) % 100 >= percent,
                    Strategy::AcceptsOneOf(number) => declined + 1 >= number,
                    Strategy::AcceptsAfter(hours) => age >= hours * 3600,
                };
                if accepts || history.last(relay).is_none() {
                    (declined, accepted) = (0, accepted + 1);
                    let capacity = if is_fast { fast } else { slow };
                    history.add(
                        relay,
                        PastEstimate {
                            capacity,
                            measured_unix_s: now,
                            mode: None,
                            is_conclusive: None,
                            sockets: None,
                        },
                    );
                    if let Strategy::FastUntilMeasured(slots) = strategy {
                        slow_until = now + u64::from(slots) * SLOT_S;
                    }
                    schedule.handle_end(relay, None, slot);
                } else {
                    declined += 1;
                    let follows = if rules == Rules::Now {
                        history
                            .decline(relay, Decline { at_unix_s: now, kind: DeclineKind::NotNow });
                        due.turn.after_decline()
                    } else {
                        None
                    };
                    schedule.handle_end(relay, follows, slot);
                }
            }
            let kept = history
                .kept(&policy, relay, None, now + 1)
                .map_or(0.0, |estimate| estimate.capacity.as_mbit_per_s());
            weight += kept / fast.as_mbit_per_s();
            fast_slots += u64::from(is_fast);
        }
    }
    let slots = (DAYS * u64::from(DAY)) as f64;
    let a_day = |count: u64| count as f64 / DAYS as f64;
    Gain {
        weight: weight / slots,
        fast: fast_slots as f64 / slots,
        measured: a_day(measured),
        accepted: a_day(accepted),
    }
}

/// The coordinator's deadline: within two days, or a quarter of a day from now.
fn due_slot(last: u64, begin: u64) -> Option<u32> {
    let by = (last + 2 * DAY_S).max(begin + DAY_S / 4);
    u32::try_from((by - begin) / SLOT_S).ok().map(|slot| slot.min(DAY - 1))
}

/// The strategies that are run by both rules.
fn both(name: &str, strategy: Strategy) -> (Gain, Gain) {
    let gains = [Rules::Before, Rules::Now].map(|rules| simulate_years(strategy, rules));
    for (rules, gain) in ["before", "now"].iter().zip(gains) {
        let Gain { weight, fast, measured, accepted } = gain;
        println!(
            "{name:42} {rules:6} weight {weight:5.3}, fast {fast:5.3}, not served {:5.3}, {measured:4.2} a day, {accepted:4.2} accepted",
            weight - fast
        );
    }
    (gains[0], gains[1])
}

#[test]
fn being_fast_only_until_measured_gains_almost_nothing() {
    for (hours, before_min, now_max) in
        [(6, 0.15, 0.1), (12, 0.3, 0.15), (24, 0.4, 0.2), (48, 0.4, 0.15)]
    {
        let name = std::format!("slow for {hours} h after each measurement");
        let (before, now) = both(&name, Strategy::FastUntilMeasured(hours * DAY / 24));
        assert!(
            before.weight - before.fast > before_min,
            "half a day of service gives the full weight: {before:?}"
        );
        assert!(now.weight - now.fast < now_max, "{name}: {now:?}");
    }
}

#[test]
fn memoryless_times_cost_a_tenth_more_measurements() {
    let (before, now) = both("honest", Strategy::Honest);
    assert!((before.measured - 1.0).abs() < 1e-9, "{before:?}");
    assert!(
        now.measured < 1.14 && now.measured > 1.06,
        "1.10, and three standard deviations: {now:?}"
    );
    assert!(now.weight > 0.999, "its estimate always holds: {now:?}");
}

/// Declined measurements cost only messages.
#[test]
fn a_relay_that_declines_more_than_half_of_its_measurements_loses_weight() {
    for (name, strategy, before_min, now_max) in [
        ("accepts every other one", Strategy::AcceptsOneOf(2), 0.9, 1.0),
        ("accepts one of three", Strategy::AcceptsOneOf(3), 0.7, 0.95),
        ("accepts the first after 30 h", Strategy::AcceptsAfter(30), 0.97, 0.95),
        ("accepts the first after 42 h", Strategy::AcceptsAfter(42), 0.6, 0.85),
    ] {
        let (before, now) = both(name, strategy);
        assert!(before.weight >= before_min && now.weight <= now_max, "{name}: {before:?} {now:?}");
        let each = |gain: Gain| gain.weight / gain.accepted.max(1e-9);
        assert!(
            each(now) <= each(before),
            "weight for each measurement that it accepts: {name}: {before:?} {now:?}"
        );
    }
}

#[test]
fn an_honest_relay_that_is_sometimes_busy_loses_hardly_any_weight() {
    for (percent, least) in [(1, 0.998), (5, 0.99), (10, 0.97)] {
        let name = std::format!("honest, busy in {percent} %");
        let (_, now) = both(&name, Strategy::SometimesBusy(percent));
        assert!(now.weight >= least, "{percent} %: {now:?}");
    }
}

/// Each coordinator knows a relay's deadline from its own history. The others that plan by the same seed do not.
#[test]
fn deadlines_of_one_coordinator_do_not_change_other_slots() {
    let seed = Seed::from_bytes([3; 32]);
    let teams = [team(), team()];
    let turn = Attempt::first(Rate::from_mbit_per_s(10.0), 12);
    let slots = |due_by: Option<u32>, own: usize| {
        let one = |number: u8| Arrival {
            due_by: due_by.filter(|_| number.is_multiple_of(3)),
            turn,
            ..arrival(number, Priority::Known)
        };
        let arrivals: Vec<Arrival> = (1..60).map(one).collect();
        let mut schedule = SlotSchedule::memoryless(&seed, DAY, &teams, own, F, &arrivals, 0);
        run_slots(&mut schedule, 0..DAY, |_, _| None)
    };
    for own in 0..2 {
        let (others, ours) = (slots(None, own), slots(Some(20), own));
        let missing = others.iter().filter(|place| !ours.contains(place)).count();
        assert!(
            ours.len() > others.len() && missing <= 1,
            "{missing} of {} slots differ",
            others.len()
        );
        let is_in_time =
            |number: u8| ours.iter().any(|(slot, relay)| *slot <= 20 && *relay == id(number));
        assert!((1..20).all(|number| is_in_time(3 * number)));
    }
}

/// For a day after its measurement, a relay is as likely to be measured in each three hours as in any other; after
/// that, hardly less.
#[test]
fn after_a_measurement_the_next_one_is_equally_likely_in_each_hour() {
    let (mut gaps, mut last): (Vec<u64>, Option<u64>) = (Vec::new(), None);
    for day in 0..4 * DAYS {
        let begin = day * DAY_S;
        let due_by = last.filter(|at| at + DAY_S < begin).and_then(|at| due_slot(at, begin));
        let arrivals = [Arrival { due_by, ..arrival(1, Priority::Known) }];
        let seed = Seed::from_bytes([8; 32]).of_period(begin, DAY_S);
        let mut schedule = SlotSchedule::memoryless(&seed, DAY, &[team()], 0, F, &arrivals, 0);
        for slot in 0..DAY {
            for due in schedule.poll_due(slot) {
                let now = begin + u64::from(slot) * SLOT_S;
                gaps.extend(last.map(|last| now - last));
                last = Some(now);
                schedule.handle_end(due.relay, None, slot);
            }
        }
    }
    let hazards: Vec<f64> = (0..24u64)
        .step_by(3)
        .map(|from_h| {
            let longer = |hours: u64| gaps.iter().filter(|gap| **gap > hours * 3600).count() as f64;
            1.0 - longer(from_h + 3) / longer(from_h)
        })
        .collect();
    println!(
        "chance to be measured in the next three hours, 0, 3, 6 … h after a measurement: {hazards:.3?}"
    );
    assert!(hazards.iter().all(|hazard| (0.08..0.17).contains(hazard)), "{hazards:?}");
    let longest = gaps.iter().max().expect("some");
    assert!(*longest <= 54 * 3600, "an estimate that is kept for 54 h always holds: {longest}");
}
