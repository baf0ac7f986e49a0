//! KIST against Vanilla in each setting, and the paper's claims.

use super::attacks::Areas;
use super::network::Figures;
use super::scenes::{Change, Era, LinkScheduler, Scene};
use super::{Cell, Place, Study};
use crate::columns::rounded;
use crate::grid::Rows;
use crate::reporting::list;
use crate::simulated::Interval;
use report::experiment::{Case, CaseVerdict};
use std::collections::BTreeMap;

/// Throughput may be lower by this much, in percent.
const THROUGHPUT_LOSS_MAX: f64 = 3.0;

/// An area under the curve may be larger by this much.
const AREA_GAIN_MAX: f64 = 0.1;

/// Reads a figure of a run.
type Getter = fn(&Figures) -> Option<f64>;

fn first_byte(figures: &Figures) -> Option<f64> {
    figures.first_byte_s
}

fn congestion_ms(figures: &Figures) -> Option<f64> {
    Some(figures.queue_ms + figures.kernel_ms)
}

/// All runs, by setting and seed.
#[derive(Default)]
pub(super) struct Runs {
    networks: BTreeMap<(Scene, LinkScheduler), BTreeMap<u64, Figures>>,
    attacks: BTreeMap<LinkScheduler, BTreeMap<u64, Areas>>,
}

impl Runs {
    pub(super) fn from_rows(rows: &Rows<'_, Cell>) -> Self {
        let mut runs = Self::default();
        for (cell, figures) in rows.data::<Figures>() {
            if let Place::Network(scene) = cell.place {
                let setting = (scene, cell.scheduler);
                runs.networks.entry(setting).or_default().insert(cell.seed, figures);
            }
        }
        for (cell, areas) in rows.data::<Areas>() {
            runs.attacks.entry(cell.scheduler).or_default().insert(cell.seed, areas);
        }
        runs
    }

    pub(super) fn cases(&self, studies: &[Study]) -> Vec<Case> {
        let has = |study| studies.contains(&study);
        let mut cases: Vec<Case> =
            self.networks.keys().filter_map(|setting| self.setting(*setting)).collect();
        let old = |change| Scene { era: Era::Old, change };
        let trends = [
            (Study::Shares, "more relays with KIST", old(Change::SharePercent(25)), Scene::OLD),
            (Study::Loads, "more load", old(Change::Load), old(Change::LoadPercent(125))),
            (Study::Losses, "more loss", old(Change::Loss), old(Change::LossPermille(15))),
        ];
        let trends = trends.into_iter().filter(|trend| has(trend.0));
        cases.extend(trends.map(|(_, name, less, more)| self.trend(name, less, more)));
        if has(Study::Factors) {
            cases.extend([Era::Old, Era::Today].map(|era| self.factors(era)));
        }
        cases.extend(self.attack_cases());
        cases
    }

    /// The relative change from Vanilla to a scheduler, in percent, over the seeds of both: the geometric mean.
    fn change(&self, (scene, scheduler): (Scene, LinkScheduler), of: Getter) -> Interval {
        let none = BTreeMap::new();
        let runs = |setting| self.networks.get(&setting).unwrap_or(&none);
        let vanilla = runs((scene.baseline(), LinkScheduler::Vanilla));
        let ratios = runs((scene, scheduler))
            .iter()
            .filter_map(|(seed, figures)| Some((of(figures)? / of(vanilla.get(seed)?)?).ln()));
        let log = Interval::of(ratios.collect::<Vec<f64>>());
        let factor = log.mean.exp();
        Interval {
            mean: (factor - 1.0) * 100.0,
            half_width: log.half_width.map(|half_width| factor * half_width * 100.0),
            count: log.count,
        }
    }

    fn mean(&self, setting: (Scene, LinkScheduler), of: Getter) -> f64 {
        let runs = self.networks.get(&setting).into_iter().flatten();
        Interval::of(runs.filter_map(|(_, figures)| of(figures)).collect::<Vec<f64>>()).mean
    }

    /// A setting with another scheduler than Vanilla.
    fn setting(&self, setting: (Scene, LinkScheduler)) -> Option<Case> {
        let (scene, scheduler) = setting;
        if scheduler == LinkScheduler::Vanilla {
            return None;
        }
        let vanilla = (scene.baseline(), LinkScheduler::Vanilla);
        let [latency, throughput, congestion] =
            [first_byte, (|run| run.sent_mbit_per_s) as Getter, congestion_ms]
                .map(|of| self.change(setting, of));
        let detail = format!(
            "first byte {latency:+.1} %, throughput {throughput:+.1} %, congestion {congestion:+.1} %"
        );
        let is_lower =
            |change: &Interval| change.half_width.is_some_and(|half| change.mean < -half);
        let verdict = match (scene, scheduler) {
            (Scene::OLD, LinkScheduler::Kist) => CaseVerdict::of(
                is_lower(&latency)
                    && is_lower(&congestion)
                    && throughput.mean >= -THROUGHPUT_LOSS_MAX,
            ),
            _ => CaseVerdict::Reported,
        };
        let kernel: Getter = |run| Some(run.kernel_ms);
        let busy: Getter = |run| Some(run.utilisation * 100.0);
        let mut case = Case::named(format!("{scene}: {} against vanilla", scheduler.name()))
            .column("scene", scene.to_string())
            .column("scheduler", scheduler.name())
            .column("seeds", latency.count);
        for (name, change) in
            [("first_byte", latency), ("throughput", throughput), ("congestion", congestion)]
        {
            let half = change.half_width.and_then(|half| rounded(half, 1));
            case = case
                .column(&format!("{name}_change_percent"), rounded(change.mean, 1))
                .column(&format!("{name}_interval"), half);
        }
        let columns = [
            ("first_byte_vanilla_s", self.mean(vanilla, first_byte)),
            ("first_byte_s", self.mean(setting, first_byte)),
            ("last_byte_change_percent", self.change(setting, |run| run.last_byte_s).mean),
            ("congestion_vanilla_ms", self.mean(vanilla, congestion_ms)),
            ("congestion_ms", self.mean(setting, congestion_ms)),
            ("kernel_vanilla_ms", self.mean(vanilla, kernel)),
            ("kernel_ms", self.mean(setting, kernel)),
            ("utilisation_vanilla_percent", self.mean(vanilla, busy)),
        ];
        for (name, value) in columns {
            case = case.column(name, rounded(value, 3));
        }
        Some(case.ended(verdict, detail))
    }

    /// The paper's claim that gains become larger.
    fn trend(&self, name: &str, less: Scene, more: Scene) -> Case {
        let latency = |scene| self.change((scene, LinkScheduler::Kist), first_byte).mean;
        let [from, to] = [less, more].map(latency);
        let is_known = from.is_finite() && to.is_finite();
        let verdict = if is_known { CaseVerdict::of(to < from) } else { CaseVerdict::Failed };
        Case::named(format!("{name}: KIST shortens the first byte by more"))
            .column("trend", name)
            .column("least", less.to_string())
            .column("most", more.to_string())
            .column("first_byte_change_least_percent", rounded(from, 1))
            .column("first_byte_change_most_percent", rounded(to, 1))
            .column("difference_percent", rounded(to - from, 1))
            .ended(verdict, format!("{from:+.1} % with {less}, {to:+.1} % with {more}"))
    }

    /// The settings of an era by what KIST gains with them.
    fn factors(&self, era: Era) -> Case {
        let of_era = self.networks.keys().filter(|(scene, scheduler)| {
            let is_series = matches!(
                scene.change,
                Change::SharePercent(_) | Change::LoadPercent(_) | Change::LossPermille(_)
            );
            scene.era == era && *scheduler == LinkScheduler::Kist && !is_series
        });
        let mut gains: Vec<(f64, String)> = of_era
            .map(|setting| (self.change(*setting, first_byte).mean, setting.0.to_string()))
            .collect();
        gains.sort_by(|one, other| one.0.total_cmp(&other.0));
        let texts: Vec<String> =
            gains.iter().map(|(percent, scene)| format!("{scene} {percent:+.1} %")).collect();
        let name = Scene { era, change: Change::None };
        Case::reported(format!("{name}: first byte with KIST by setting"), list(&texts))
    }

    fn attack_cases(&self) -> Vec<Case> {
        type Area = fn(&Areas) -> f64;
        let attacks: [(&str, Area); 3] = [
            ("latency", |areas| areas.latency),
            ("throughput", |areas| areas.throughput),
            ("correlation", |areas| areas.correlation),
        ];
        let others = self.attacks.keys().filter(|name| **name != LinkScheduler::Vanilla);
        let of = |scheduler: &LinkScheduler| {
            attacks.map(|(attack, area)| self.attack(attack, area, *scheduler))
        };
        others.flat_map(of).collect()
    }

    /// Whether a scheduler helps an attack.
    fn attack(&self, attack: &str, of: fn(&Areas) -> f64, scheduler: LinkScheduler) -> Case {
        let none = BTreeMap::new();
        let vanilla = self.attacks.get(&LinkScheduler::Vanilla).unwrap_or(&none);
        let runs = self.attacks.get(&scheduler).unwrap_or(&none);
        let mean =
            |runs: &BTreeMap<u64, Areas>| Interval::of(runs.values().map(of).collect::<Vec<f64>>());
        let differences = runs
            .iter()
            .filter_map(|(seed, areas)| Some(of(areas) - of(vanilla.get(seed)?)))
            .collect::<Vec<f64>>();
        let difference = Interval::of(differences);
        let [before, after] = [vanilla, runs].map(mean);
        let verdict = match scheduler {
            LinkScheduler::Kist => CaseVerdict::of(difference.mean <= AREA_GAIN_MAX),
            _ => CaseVerdict::Reported,
        };
        let half = difference.half_width.and_then(|half| rounded(half, 3));
        Case::named(format!("{attack} attack: {} against vanilla", scheduler.name()))
            .column("attack", attack)
            .column("scheduler", scheduler.name())
            .column("seeds", difference.count)
            .column("area_vanilla", rounded(before.mean, 3))
            .column("area", rounded(after.mean, 3))
            .column("area_difference", rounded(difference.mean, 3))
            .column("area_difference_interval", half)
            .ended(verdict, format!("area {after:.3}, {before:.3} with Vanilla"))
    }
}

/// The judged cases in words.
pub(super) fn answer(cases: &[Case]) -> String {
    let judged = cases.iter().filter(|case| case.verdict.is_judged());
    let texts: Vec<String> = judged
        .map(|case| format!("{}: {} ({})", case.name, case.detail, case.verdict.word()))
        .collect();
    if texts.is_empty() {
        "See the comparisons.".to_owned()
    } else {
        format!("{}.", texts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(first_byte_s: f64, sent_mbit_per_s: f64, kernel_ms: f64) -> Figures {
        Figures {
            first_byte_s: Some(first_byte_s),
            last_byte_s: None,
            sent_mbit_per_s: Some(sent_mbit_per_s),
            queue_ms: 10.0,
            kernel_ms,
            utilisation: 0.5,
        }
    }

    fn runs(kist: [Figures; 2]) -> Runs {
        let vanilla = [figures(1.0, 100.0, 90.0), figures(2.0, 100.0, 190.0)];
        let by_seed = |figures: [Figures; 2]| (1..).zip(figures).collect();
        let networks = [
            ((Scene::OLD, LinkScheduler::Vanilla), by_seed(vanilla)),
            ((Scene::OLD, LinkScheduler::Kist), by_seed(kist)),
        ];
        Runs { networks: networks.into(), attacks: BTreeMap::new() }
    }

    #[test]
    fn gains_are_judged_seed_by_seed() {
        let verdict = |kist| {
            let cases = runs(kist).cases(&[Study::Schedulers]);
            let [case] = &cases[..] else { panic!("{cases:?}") };
            (case.verdict, case.value("first_byte_change_percent").cloned())
        };
        let good = [figures(0.8, 99.0, 60.0), figures(1.61, 98.0, 130.0)];
        let (held, change) = verdict(good.clone());
        assert_eq!((held, change), (CaseVerdict::Held, Some((-19.8).into())));
        let slow = good.map(|run| Figures { sent_mbit_per_s: Some(96.0), ..run });
        assert_eq!(verdict(slow).0, CaseVerdict::Missed);
        let late = [figures(0.8, 100.0, 60.0), figures(2.2, 100.0, 130.0)];
        assert_eq!(verdict(late).0, CaseVerdict::Missed, "not significant");
    }

    #[test]
    fn an_attack_may_gain_a_tenth_at_most() {
        let area = |throughput| Areas { latency: 0.7, throughput, correlation: 0.9 };
        let verdict = |throughput| {
            let attacks = [(LinkScheduler::Vanilla, 0.6), (LinkScheduler::Kist, throughput)];
            let attacks = attacks.map(|(name, value)| (name, [(1, area(value))].into()));
            let runs = Runs { networks: BTreeMap::new(), attacks: attacks.into() };
            runs.cases(&[Study::Attacks]).iter().map(|case| case.verdict).collect::<Vec<_>>()
        };
        let held = CaseVerdict::Held;
        assert_eq!(verdict(0.65), [held, held, held]);
        assert_eq!(verdict(0.75), [held, CaseVerdict::Missed, held]);
    }

    #[test]
    fn a_trend_without_runs_fails() {
        let case = runs([figures(0.8, 99.0, 60.0), figures(1.6, 98.0, 130.0)]).trend(
            "more loss",
            Scene::OLD,
            Scene { era: Era::Old, change: Change::LossPermille(15) },
        );
        assert_eq!(case.verdict, CaseVerdict::Failed);
    }
}
