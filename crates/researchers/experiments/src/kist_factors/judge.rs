//! KIST against Vanilla in each setting, and the paper's claims.

use super::attacks::Areas;
use super::network::Figures;
use super::scenes::{Change, Era, LinkScheduler, Scene};
use super::{Cell, Place, Study};
use crate::columns::rounded;
use crate::factor::{Factor, interval_verdict};
use crate::grid::Rows;
use crate::reporting::list;
use crate::simulated::{self, Interval};
use report::experiment::{Case, CaseVerdict};
use std::collections::BTreeMap;

/// Throughput may be lower by this much, in percent.
const THROUGHPUT_LOSS_MAX: f64 = 3.0;

/// An area under the curve may be larger by this much.
const AREA_GAIN_MAX: f64 = 0.1;

/// An attack whose area is smaller without KIST is no better than chance, and shows nothing.
const AREA_WORKS: f64 = 0.55;

/// Areas of runs, by seed.
type AreasBySeed = BTreeMap<u64, Areas>;

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
    attacks: BTreeMap<LinkScheduler, AreasBySeed>,
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

    /// A figure with a scheduler over that with Vanilla, for each seed of both; `None` for a seed without one of them.
    fn ratios(
        &self,
        (scene, scheduler): (Scene, LinkScheduler),
        figure: Getter,
    ) -> BTreeMap<u64, Option<f64>> {
        let runs = |setting| self.networks.get(&setting).into_iter().flatten();
        let vanilla: BTreeMap<&u64, &Figures> =
            runs((scene.baseline(), LinkScheduler::Vanilla)).collect();
        let ratio = |run: &Figures, vanilla: &Figures| Some(figure(run)? / figure(vanilla)?);
        runs((scene, scheduler))
            .filter_map(|(seed, run)| Some((*seed, ratio(run, vanilla.get(seed)?))))
            .collect()
    }

    /// The relative change from Vanilla to a scheduler.
    fn change(&self, setting: (Scene, LinkScheduler), figure: Getter) -> simulated::Change {
        simulated::Change::from_ratios(self.ratios(setting, figure).into_values())
    }

    fn mean(&self, setting: (Scene, LinkScheduler), figure: Getter) -> f64 {
        let runs = self.networks.get(&setting).into_iter().flatten();
        Interval::of(runs.filter_map(|(_, figures)| figure(figures))).mean
    }

    /// A setting with another scheduler than Vanilla.
    fn setting(&self, setting: (Scene, LinkScheduler)) -> Option<Case> {
        let (scene, scheduler) = setting;
        if scheduler == LinkScheduler::Vanilla {
            return None;
        }
        let vanilla = (scene.baseline(), LinkScheduler::Vanilla);
        let changes = [first_byte, (|run| run.sent_mbit_per_s) as Getter, congestion_ms]
            .map(|figure| self.change(setting, figure));
        let verdict = match setting {
            (Scene::OLD, LinkScheduler::Kist) => gain_verdict(changes),
            _ => CaseVerdict::Reported,
        };
        let [latency, throughput, congestion] = changes.map(|change| change.percent);
        let detail = format!(
            "first byte {latency:+.1} %, throughput {throughput:+.1} %, congestion {congestion:+.1} %"
        );
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
            ("last_byte_change_percent", self.change(setting, |run| run.last_byte_s).percent.mean),
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

    /// The paper's claim that gains become larger: the ratio of times with KIST and with Vanilla is smaller in the setting with `more`,
    /// beyond chance. Failed if a setting has no run, and inconclusive if a seed has no ratio.
    fn trend(&self, name: &str, less: Scene, more: Scene) -> Case {
        let [at_least, at_most] =
            [less, more].map(|scene| self.ratios((scene, LinkScheduler::Kist), first_byte));
        let pairs: Option<Vec<(f64, f64)>> = at_most
            .iter()
            .filter_map(|(seed, most)| Some((*most).zip(*at_least.get(seed)?)))
            .collect();
        let growth = pairs.filter(|pairs| !pairs.is_empty()).map(Factor::of_pairs);
        let verdict = match at_least.is_empty() || at_most.is_empty() {
            true => CaseVerdict::Failed,
            false => interval_verdict(growth.and_then(|growth| growth.interval), 1.0, 0.0),
        };
        let [from, to] = [at_least, at_most]
            .map(|ratios| simulated::Change::from_ratios(ratios.into_values()).percent.mean);
        let growth = growth.map_or_else(String::new, |growth| format!(": {growth}"));
        Case::named(format!("{name}: KIST shortens the first byte by more"))
            .column("trend", name)
            .column("least", less.to_string())
            .column("most", more.to_string())
            .column("first_byte_change_least_percent", rounded(from, 1))
            .column("first_byte_change_most_percent", rounded(to, 1))
            .column("difference_percent", rounded(to - from, 1))
            .ended(verdict, format!("{from:+.1} % with {less}, {to:+.1} % with {more}{growth}"))
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
            .map(|setting| (self.change(*setting, first_byte).percent.mean, setting.0.to_string()))
            .collect();
        gains.sort_by(|one, other| one.0.total_cmp(&other.0));
        let texts: Vec<String> =
            gains.iter().map(|(percent, scene)| format!("{scene} {percent:+.1} %")).collect();
        let name = Scene { era, change: Change::None };
        Case::reported(format!("{name}: first byte with KIST by setting"), list(&texts))
    }

    fn attack_cases(&self) -> Vec<Case> {
        type Area = fn(&Areas) -> Option<f64>;
        let attacks: [(&str, Area); 3] = [
            ("latency", |areas| areas.latency),
            ("throughput", |areas| areas.throughput),
            ("correlation", |areas| areas.correlation),
        ];
        let others = self.attacks.keys().filter(|name| **name != LinkScheduler::Vanilla);
        let attack_case = |scheduler: &LinkScheduler| {
            attacks.map(|(attack, area)| self.attack(attack, area, *scheduler))
        };
        others.flat_map(attack_case).collect()
    }

    /// Whether a scheduler helps an attack.
    fn attack(
        &self,
        attack: &str,
        area: fn(&Areas) -> Option<f64>,
        scheduler: LinkScheduler,
    ) -> Case {
        let none = BTreeMap::new();
        let vanilla = self.attacks.get(&LinkScheduler::Vanilla).unwrap_or(&none);
        let runs = self.attacks.get(&scheduler).unwrap_or(&none);
        let mean = |runs: &AreasBySeed| Interval::of(runs.values().filter_map(area));
        let differences =
            runs.iter().filter_map(|(seed, areas)| Some(area(areas)? - area(vanilla.get(seed)?)?));
        let difference = Interval::of(differences);
        let [before, after] = [vanilla, runs].map(mean);
        let is_complete = difference.count > 0
            && difference.count == runs.len()
            && difference.count == vanilla.len();
        let verdict = match scheduler {
            LinkScheduler::Kist if !is_complete => CaseVerdict::Failed,
            LinkScheduler::Kist if !can_grow(before.mean) => CaseVerdict::Inconclusive,
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

/// Whether an area without KIST permits a judgement: the attack works, and the area, at most 1, could grow by more than the limit.
fn can_grow(area: f64) -> bool {
    (AREA_WORKS..1.0 - AREA_GAIN_MAX).contains(&area)
}

/// Held if the first byte and congestion are significantly lower, and throughput hardly. Inconclusive with one seed, or if a seed has no value.
fn gain_verdict(changes: [simulated::Change; 3]) -> CaseVerdict {
    let is_known =
        |change: &simulated::Change| change.mean().is_some() && change.percent.half_width.is_some();
    if !changes.iter().all(is_known) {
        return CaseVerdict::Inconclusive;
    }
    let [latency, throughput, congestion] = changes.map(|change| change.percent);
    let is_lower = |change: Interval| change.half_width.is_some_and(|half| change.mean < -half);
    CaseVerdict::of(
        is_lower(latency) && is_lower(congestion) && throughput.mean >= -THROUGHPUT_LOSS_MAX,
    )
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
        let judged = |runs: &Runs| {
            let cases = runs.cases(&[Study::Schedulers]);
            let [case] = &cases[..] else { panic!("{cases:?}") };
            (case.verdict, case.value("first_byte_change_percent").cloned())
        };
        let verdict = |kist| judged(&runs(kist));
        let good = [figures(0.8, 99.0, 60.0), figures(1.61, 98.0, 130.0)];
        let (held, change) = verdict(good.clone());
        assert_eq!((held, change), (CaseVerdict::Held, Some((-19.8).into())));
        let slow = good.clone().map(|run| Figures { sent_mbit_per_s: Some(96.0), ..run });
        assert_eq!(verdict(slow).0, CaseVerdict::Missed);
        let late = [figures(0.8, 100.0, 60.0), figures(2.2, 100.0, 130.0)];
        assert_eq!(verdict(late).0, CaseVerdict::Missed, "not significant");
        let mut incomplete = good.clone();
        incomplete[1].first_byte_s = None;
        assert_eq!(verdict(incomplete).0, CaseVerdict::Inconclusive, "a seed has no median");
        let mut single = runs(good);
        single.networks.values_mut().for_each(|seeds| seeds.retain(|seed, _| *seed == 1));
        assert_eq!(judged(&single).0, CaseVerdict::Inconclusive, "one seed has no interval");
    }

    #[test]
    fn an_attack_may_gain_a_tenth_at_most() {
        use CaseVerdict::{Failed, Held, Inconclusive, Missed};
        let verdicts = |throughput: [Option<f64>; 2]| {
            let areas =
                |throughput| Areas { latency: Some(0.7), throughput, correlation: Some(0.8) };
            let attacks = [LinkScheduler::Vanilla, LinkScheduler::Kist].into_iter().zip(throughput);
            let attacks = attacks.map(|(name, area)| (name, [(1, areas(area))].into()));
            let runs = Runs { networks: BTreeMap::new(), attacks: attacks.collect() };
            runs.cases(&[Study::Attacks]).iter().map(|case| case.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts([Some(0.6), Some(0.65)]), [Held, Held, Held]);
        assert_eq!(verdicts([Some(0.6), Some(0.75)]), [Held, Missed, Held]);
        assert_eq!(verdicts([Some(0.5), Some(0.5)]), [Held, Inconclusive, Held], "chance");
        assert_eq!(verdicts([Some(0.95), Some(1.0)]), [Held, Inconclusive, Held], "near 1");
        assert_eq!(verdicts([Some(0.6), None]), [Held, Failed, Held], "no data");
        assert_eq!(verdicts([None, None]), [Held, Failed, Held], "no data");
    }

    #[test]
    fn a_trend_must_be_beyond_chance() {
        let lossy = Scene { era: Era::Old, change: Change::LossPermille(15) };
        let verdict = |lossy_kist: [f64; 2]| {
            let kist = [figures(0.8, 100.0, 60.0), figures(1.61, 100.0, 130.0)];
            let mut all = runs(kist);
            for (scheduler, seconds) in
                [(LinkScheduler::Vanilla, [1.0, 2.0]), (LinkScheduler::Kist, lossy_kist)]
            {
                let by_seed = (1..).zip(seconds.map(|seconds| figures(seconds, 100.0, 60.0)));
                all.networks.insert((lossy, scheduler), by_seed.collect());
            }
            all.trend("more loss", Scene::OLD, lossy).verdict
        };
        // The ratios are 0.8 and 0.805 without losses.
        assert_eq!(verdict([0.6, 1.21]), CaseVerdict::Held);
        assert_eq!(verdict([0.9, 1.81]), CaseVerdict::Missed);
        assert_eq!(verdict([0.6, 1.6]), CaseVerdict::Inconclusive, "the seeds differ");
        assert_eq!(verdict([0.6, f64::NAN]), CaseVerdict::Inconclusive, "one seed");
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
