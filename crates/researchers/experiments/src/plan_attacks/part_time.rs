//! Part-time relays over many days: mean weight compared with mean service. Estimates live longer than a period.

use super::Settings;
use super::authorities::{Gain, PlanKind, Run, SLOTS, World};
use crate::columns::rounded;
use crate::error::Result;
use crate::grid::Row;
use crate::mode::Mode;
use crate::simulated::Interval;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use report::experiment::{Case, CaseVerdict};
use serde::{Deserialize, Serialize};

/// The largest permitted weight by echo, over what the relay provides.
pub(super) const GAIN_MAX: f64 = 1.34;

/// The largest permitted weight in transit: less than a relay gets that serves only measurements (`docs/decisions/47`).
const GAIN_MAX_TRANSIT: f64 = 1.6;

/// The shares of the slots in which the relay is fast.
const FAST: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// What a slow relay provides: nearly nothing, or enough for a single turn to find its full capacity again.
pub(super) const NEARLY_NOTHING: f64 = 0.01;
pub(super) const A_THIRD: f64 = 0.35;

/// When the relay is fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Pattern {
    /// In random slots.
    RandomSlots,
    /// At the beginning of each day.
    FirstOfDay,
}

/// The relays of one series of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PartTime {
    pub(super) plan: PlanKind,
    pub(super) mode: Mode,
    /// What the relay provides when it is slow.
    pub(super) slow_share: f64,
}

impl PartTime {
    pub(super) const ALL: [Self; 4] = [
        Self { plan: PlanKind::Memoryless, mode: Mode::Echo, slow_share: NEARLY_NOTHING },
        Self { plan: PlanKind::Memoryless, mode: Mode::Transit, slow_share: NEARLY_NOTHING },
        Self { plan: PlanKind::Memoryless, mode: Mode::Echo, slow_share: A_THIRD },
        Self { plan: PlanKind::Unconfirmed, mode: Mode::Echo, slow_share: A_THIRD },
    ];

    const fn gain_max(self) -> f64 {
        match self.mode {
            Mode::Echo => GAIN_MAX,
            Mode::Transit => GAIN_MAX_TRANSIT,
        }
    }

    pub(super) fn name(self) -> String {
        format!("{}, {}, slow {}", self.plan.name(), self.mode.name(), self.slow_share)
    }
}

/// The results for one share of fast slots.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) fast_share: f64,
    pub(super) weight_share: f64,
    pub(super) service_share: f64,
    /// Weight over service.
    pub(super) gain: f64,
    pub(super) gain_low: f64,
    pub(super) gain_high: f64,
}

/// A case: the share of fast slots with the largest gain.
#[derive(Clone, Copy, Debug, Serialize)]
struct Columns {
    plan: PlanKind,
    mode: Mode,
    slow_share: f64,
    pattern: Pattern,
    authorities: usize,
    days: u32,
    relays: u32,
    largest_gain: Option<f64>,
    largest_gain_low: Option<f64>,
    largest_gain_high: Option<f64>,
    at_fast_share: f64,
    weight_share: Option<f64>,
    service_share: Option<f64>,
    measurements_a_day: Option<f64>,
}

/// Plays all shares of fast slots against this number of authorities. The data are the points with random fast slots.
pub(super) fn row(relays: PartTime, authorities: usize, settings: &Settings) -> Result<Row> {
    let mut row = Row::default();
    let mut points = Vec::new();
    for pattern in [Pattern::RandomSlots, Pattern::FirstOfDay] {
        let found: Vec<(Point, Gain)> =
            FAST.iter().map(|fast| play(relays, pattern, *fast, authorities, settings)).collect();
        let largest = found.iter().max_by(|one, other| one.0.gain.total_cmp(&other.0.gain));
        let Some((point, mean)) = largest else { continue };
        let columns = Columns {
            plan: relays.plan,
            mode: relays.mode,
            slow_share: relays.slow_share,
            pattern,
            authorities,
            days: settings.days,
            relays: settings.relays,
            largest_gain: rounded(point.gain, 3),
            largest_gain_low: rounded(point.gain_low, 3),
            largest_gain_high: rounded(point.gain_high, 3),
            at_fast_share: point.fast_share,
            weight_share: rounded(point.weight_share, 3),
            service_share: rounded(point.service_share, 3),
            measurements_a_day: rounded(mean.measured, 3),
        };
        row.cases.push(case(&columns, relays, point));
        if pattern == Pattern::RandomSlots {
            points.extend(found.iter().map(|(point, _)| *point));
        }
    }
    row.with_data(&points)
}

fn case(columns: &Columns, relays: PartTime, point: &Point) -> Case {
    let pattern = match columns.pattern {
        Pattern::RandomSlots => "random slots",
        Pattern::FirstOfDay => "the first slots",
    };
    let name =
        format!("part-time, {}, authorities {}, {pattern}", relays.name(), columns.authorities);
    let detail = format!(
        "at most {:.2} times its service, if it is fast in {} of the slots",
        point.gain, point.fast_share
    );
    // The others show why.
    let verdict = match relays.plan {
        PlanKind::Memoryless => CaseVerdict::of(point.gain <= relays.gain_max()),
        PlanKind::Paper | PlanKind::Unconfirmed => CaseVerdict::Reported,
    };
    Case::named(name).ended(verdict, detail).with(columns)
}

fn play(
    relays: PartTime,
    pattern: Pattern,
    fast: f64,
    authorities: usize,
    settings: &Settings,
) -> (Point, Gain) {
    let PartTime { plan, mode, slow_share } = relays;
    let world = World { plan, mode, authorities, has_shared_seed: true };
    let gains: Vec<Gain> = (0..u64::from(settings.relays))
        .map(|relay| {
            let seed = settings.seed.wrapping_add(relay);
            let rng = &mut StdRng::seed_from_u64(seed ^ 1);
            let mut share = |slot: u64| {
                let is_fast = match pattern {
                    Pattern::RandomSlots => rng.random_bool(fast),
                    Pattern::FirstOfDay => {
                        ((slot % u64::from(SLOTS)) as f64) < fast * f64::from(SLOTS)
                    }
                };
                if is_fast { 1.0 } else { slow_share }
            };
            let run = Run { days: settings.days, seed };
            world.play(run, &mut share, |_, estimate| estimate)
        })
        .collect();
    let of = |value: fn(&Gain) -> f64| Interval::of(gains.iter().map(value).collect::<Vec<_>>());
    let (weight, service) = (of(|gain| gain.weight).mean, of(|gain| gain.service).mean);
    let gain = of(|gain| gain.weight / gain.service);
    let half = gain.half_width.unwrap_or(0.0);
    let point = Point {
        fast_share: fast,
        weight_share: weight,
        service_share: service,
        gain: gain.mean,
        gain_low: gain.mean - half,
        gain_high: gain.mean + half,
    };
    (point, Gain { weight, service, measured: of(|gain| gain.measured).mean })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gain(relays: PartTime, fast: f64, authorities: usize) -> f64 {
        let settings = Settings { days: 60, relays: 6, ..Settings::small() };
        play(relays, Pattern::RandomSlots, fast, authorities, &settings).0.gain
    }

    /// One authority without confirmations believes what it sees, so that the mean weight is at most the mean service.
    #[test]
    fn a_single_authority_without_confirmations_gives_no_gain() {
        let [.., unconfirmed] = PartTime::ALL;
        assert_eq!(unconfirmed.plan, PlanKind::Unconfirmed);
        for fast in [0.3, 0.6, 0.9] {
            let gain = gain(unconfirmed, fast, 1);
            assert!(gain < 1.1, "{fast}: {gain}");
        }
    }

    #[test]
    fn confirmations_raise_the_gain() {
        let [.., confirmed, unconfirmed] = PartTime::ALL;
        assert_eq!(confirmed.slow_share, unconfirmed.slow_share);
        let gains = [unconfirmed, confirmed].map(|relays| gain(relays, 0.4, 5));
        assert!(gains[0] + 0.1 < gains[1], "{gains:?}");
        let service = 0.4 + 0.6 * confirmed.slow_share;
        assert!(gains[1] <= 1.0 / service + 0.02, "no weight above the capacity: {gains:?}");
    }
}
