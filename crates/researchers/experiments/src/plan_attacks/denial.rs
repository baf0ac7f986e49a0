//! Denial of service against an honest relay in a share of the slots.

use super::Settings;
use super::authorities::{PlanKind, Run, World};
use super::single_periods::{Honest, binomial};
use crate::columns::rounded;
use crate::error::Result;
use crate::grid::Row;
use crate::mode::Mode;
use coordinator::Params;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;

/// The shares of the slots in which the relay is attacked.
const ATTACKED: [f64; 7] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8];

/// What an attack leaves of the relay.
const LEFT: f64 = 0.1;

/// The attacked share up to which the median may move by no more than an estimate's interval.
pub(super) const CLAIMED: f64 = 0.3;

/// What the low median of six may cost more than the median of five, over the capacity. By the sum in section 5 it is 0.08.
const LOW_MEDIAN_COSTS: f64 = 0.1;

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Attacked {
    plan: PlanKind,
    authorities: usize,
    attacked_share: f64,
    /// The relay's mean weight over its capacity.
    weight_share: Option<f64>,
    /// The mean weight if each estimate were one measurement at a random time.
    single_measurements_weight_share: Option<f64>,
    measurements_a_day: Option<f64>,
}

/// All shares of attacked slots. The data are the weights.
pub(super) fn row(plan: PlanKind, authorities: usize, settings: &Settings) -> Result<Row> {
    let found = ATTACKED.map(|attacked| play(plan, authorities, attacked, settings));
    let cases = found.iter().map(case).collect();
    let points: Vec<(f64, f64)> =
        found.iter().filter_map(|case| Some((case.attacked_share, case.weight_share?))).collect();
    Row { cases, ..Row::default() }.with_data(&points)
}

fn play(plan: PlanKind, authorities: usize, attacked: f64, settings: &Settings) -> Attacked {
    let world = World { plan, mode: Mode::Echo, authorities, has_shared_seed: true };
    let rng = &mut StdRng::seed_from_u64(settings.seed ^ 2);
    let run = Run { days: settings.days * settings.relays, seed: settings.seed };
    let mut left = |_| if rng.random_bool(attacked) { LEFT } else { 1.0 };
    let gain = world.play(run, &mut left, |_, estimate| estimate);
    let slow = binomial(Honest { measuring: authorities, of: authorities }, 1.0 - attacked);
    Attacked {
        plan,
        authorities,
        attacked_share: attacked,
        weight_share: rounded(gain.weight, 3),
        single_measurements_weight_share: slow
            .and_then(|slow| rounded(1.0 - slow * (1.0 - LEFT), 3)),
        measurements_a_day: rounded(gain.measured, 3),
    }
}

fn case(found: &Attacked) -> Case {
    let Attacked { plan, authorities, attacked_share, weight_share, .. } = *found;
    let plan = plan.name();
    let name =
        format!("denial of service, {plan}, authorities {authorities}, slots {attacked_share}");
    let weight = weight_share.unwrap_or(0.0);
    let detail = format!("the relay keeps {weight:.3} of its weight");
    let least = least_weight(authorities);
    let is_claimed = authorities >= 5 && attacked_share <= CLAIMED;
    let verdict = match is_claimed && found.plan == PlanKind::Memoryless {
        true => CaseVerdict::of(weight >= least),
        false => CaseVerdict::Reported,
    };
    Case::named(name).ended(verdict, detail).with(found)
}

/// The least weight, over the capacity, under denial of service against the claimed share of the slots. An estimate may lie ε₁ below the
/// capacity. Of an even number, tor takes the low median, for which half of the results are enough: of six, three.
fn least_weight(authorities: usize) -> f64 {
    let odd = 1.0 - Params::default().epsilon_below;
    if authorities.is_multiple_of(2) { odd - LOW_MEDIAN_COSTS } else { odd }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_on_few_slots_hardly_lowers_the_median_of_five() {
        let settings = Settings { days: 60, relays: 3, ..Settings::small() };
        let weight = |plan, authorities, attacked| {
            play(plan, authorities, attacked, &settings).weight_share.expect("a number")
        };
        assert!(weight(PlanKind::Memoryless, 5, 0.1) > 0.95);
        assert!(weight(PlanKind::Memoryless, 5, 0.8) < 0.5);
        // Of six, three low ones are enough.
        let [five, six] = [5, 6].map(|number| weight(PlanKind::Memoryless, number, CLAIMED));
        assert!(six < five - 0.03 && six > least_weight(6), "{six} of six, {five} of five");
        // The estimates of a single authority follow the attack.
        assert!(weight(PlanKind::Paper, 1, 0.3) < 0.85);
    }
}
