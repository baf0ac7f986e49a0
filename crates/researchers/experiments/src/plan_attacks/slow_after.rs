//! Relays that are slow once a majority of the authorities has measured them.

use super::Settings;
use super::authorities::{Behavior, Gain, PlanKind, Run, SLOTS, World};
use super::part_time::NEARLY_NOTHING;
use crate::columns::rounded;
use crate::error::Result;
use crate::grid::Row;
use crate::mode::Mode;
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;

/// For how long the relay is slow, in our plan: hours since the majority has measured it.
const HOURS: [u64; 3] = [6, 12, 24];

/// The largest permitted difference of a share to its expectation.
const TOLERANCE: f64 = 0.03;

/// The end of the relay's slowness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// The next period.
    NextPeriod,
    /// When fewer than a majority have measured it in this number of hours.
    Hours(u64),
}

/// A relay that is slow while a majority of authorities have a recent result of it.
struct SlowAfter {
    until: Until,
    /// The slot in which each authority has measured it while it was fast.
    measured: Vec<Option<u64>>,
    is_fast: bool,
}

impl SlowAfter {
    fn new(until: Until, authorities: usize) -> Self {
        Self { until, measured: vec![None; authorities], is_fast: true }
    }
}

impl Behavior for SlowAfter {
    fn share(&mut self, slot: u64, _: usize) -> f64 {
        let slots = u64::from(SLOTS);
        let is_recent = |at: u64| match self.until {
            Until::NextPeriod => at / slots == slot / slots,
            Until::Hours(hours) => slot - at <= hours * slots / 24,
        };
        let recent = self.measured.iter().flatten().filter(|at| is_recent(**at)).count();
        self.is_fast = recent <= self.measured.len() / 2;
        if self.is_fast { 1.0 } else { NEARLY_NOTHING }
    }

    fn handle_measured(&mut self, authority: usize, slot: u64) {
        if self.is_fast
            && let Some(at) = self.measured.get_mut(authority)
        {
            *at = Some(slot);
        }
    }
}

/// A case.
#[derive(Clone, Copy, Debug, Serialize)]
struct Columns {
    plan: PlanKind,
    authorities: usize,
    has_shared_seed: bool,
    /// `None`: until the next period.
    slow_h: Option<u64>,
    weight_share: Option<f64>,
    service_share: Option<f64>,
    /// Weight that it does not serve.
    unserved_share: Option<f64>,
    /// Section 5: the expected time until a majority of the authorities has measured a relay.
    expected_service_share: Option<f64>,
}

/// Both plans, for one number of authorities.
pub(super) fn row(authorities: usize, has_shared_seed: bool, settings: &Settings) -> Result<Row> {
    let ours = HOURS.map(|hours| (PlanKind::Memoryless, Until::Hours(hours)));
    let all = [(PlanKind::Paper, Until::NextPeriod)].into_iter().chain(ours);
    let cases = all.map(|(plan, until)| {
        let world = World { plan, mode: Mode::Echo, authorities, has_shared_seed };
        case(world, until, &play(world, until, settings))
    });
    Ok(Row { cases: cases.collect(), ..Row::default() })
}

fn play(world: World, until: Until, settings: &Settings) -> Gain {
    let run = Run { days: settings.days * settings.relays.min(5), seed: settings.seed };
    world.play(run, &mut SlowAfter::new(until, world.authorities), |_, estimate| estimate)
}

fn case(world: World, until: Until, gain: &Gain) -> Case {
    let World { plan, authorities, has_shared_seed, .. } = world;
    let (name, slow_h) = match until {
        Until::NextPeriod => ("until the next period".to_owned(), None),
        Until::Hours(hours) => (format!("for {hours} h"), Some(hours)),
    };
    let name = format!("{}, {name}", plan.name());
    let expected = (plan == PlanKind::Paper).then(|| expected_service(authorities));
    let columns = Columns {
        plan,
        authorities,
        has_shared_seed,
        slow_h,
        weight_share: rounded(gain.weight, 3),
        service_share: rounded(gain.service, 3),
        unserved_share: rounded(gain.weight - gain.service, 3),
        expected_service_share: expected.and_then(|share| rounded(share, 3)),
    };
    let seed = if has_shared_seed { "a shared seed" } else { "separate seeds" };
    let name = format!("slow after a majority, {name}, authorities {authorities}, {seed}");
    let detail = format!("weight {:.3}, service {:.3}", gain.weight, gain.service);
    let verdict = match expected {
        Some(expected) => CaseVerdict::of((gain.service - expected).abs() < TOLERANCE),
        None => CaseVerdict::Reported,
    };
    Case::named(name).ended(verdict, detail).with(&columns)
}

/// The expected time until a majority has measured the relay, as a share of the period, with the little that it serves afterwards.
/// Of *n* uniform times, the *k*-th has the mean k/(n+1).
fn expected_service(authorities: usize) -> f64 {
    let fast = (authorities / 2 + 1) as f64 / (authorities + 1) as f64;
    fast + (1.0 - fast) * NEARLY_NOTHING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_plan_is_served_until_the_majority_has_measured() {
        let settings = Settings { days: 200, relays: 2, ..Settings::small() };
        for (authorities, has_shared_seed) in [(1, true), (3, false), (6, true)] {
            let world =
                World { plan: PlanKind::Paper, mode: Mode::Echo, authorities, has_shared_seed };
            let gain = play(world, Until::NextPeriod, &settings);
            let expected = expected_service(authorities);
            assert!((gain.service - expected).abs() < 0.04, "{authorities}: {gain:?} {expected}");
            assert!(gain.weight > 0.95, "{authorities}: {gain:?}");
        }
    }

    #[test]
    fn our_plan_measures_a_slow_relay() {
        let settings = Settings { days: 200, relays: 1, ..Settings::small() };
        let world = World {
            plan: PlanKind::Memoryless,
            mode: Mode::Echo,
            authorities: 1,
            has_shared_seed: true,
        };
        let gains = HOURS.map(|hours| play(world, Until::Hours(hours), &settings));
        assert!(gains.is_sorted_by(|one, next| one.service > next.service), "{gains:?}");
        assert!(gains[2].weight < 0.9, "{gains:?}");
    }
}
