//! The comparison of the results with the paper's.

use super::overall;
use super::plan::{ClientKind, ConfluxSettings, ExitOf, Method, Scene, Trial};
use crate::reporting::{median, section};
use crate::simulated::Interval;
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, On, Role, Series};
use std::collections::BTreeMap;
use std::fmt;

/// Table I of the paper: size in MB, and the reduction of time in percent of two legs against plain Tor, of three legs
/// against plain Tor, and of three legs against two.
pub(super) const TABLE_I: [(f64, f64, f64, f64); 3] =
    [(0.4, 23.26, 32.56, 12.12), (5.0, 56.74, 68.96, 28.25), (10.0, 25.36, 43.60, 24.43)];

/// Times of complete downloads in seconds, by run.
pub(super) type Times = BTreeMap<u32, f64>;

/// A relative change of the mean time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// Negative if faster.
    pub(super) percent: f64,
    /// Half of the width of its 95 % confidence interval, in percentage points; `None` for a single run.
    half_width: Option<f64>,
}

impl Change {
    /// The ratio of the means over the runs that both have. Its interval follows from the residuals of each run (ratio
    /// estimation), because slow bridges make a run slow for both.
    pub(super) fn from_times(part: &Times, whole: &Times) -> Option<Self> {
        let pairs: Vec<(f64, f64)> =
            part.iter().filter_map(|(run, part)| Some((*part, *whole.get(run)?))).collect();
        let sum = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
        let (parts, wholes) = (sum(|pair| pair.0), sum(|pair| pair.1));
        if wholes <= 0.0 {
            return None;
        }
        let quotient = parts / wholes;
        let left: Vec<f64> = pairs.iter().map(|pair| pair.0 - quotient * pair.1).collect();
        let half = Interval::of(&left)
            .half_width
            .map(|half_width| half_width * pairs.len() as f64 / wholes);
        Some(Self { percent: (quotient - 1.0) * 100.0, half_width: half.map(|half| half * 100.0) })
    }

    /// Held if significantly faster, missed if significantly slower.
    fn verdict(self) -> CaseVerdict {
        match self.half_width {
            Some(half) if self.percent < -half => CaseVerdict::Held,
            Some(half) if self.percent > half => CaseVerdict::Missed,
            _ => CaseVerdict::Inconclusive,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.1}", self.percent)?;
        self.half_width.map_or(Ok(()), |half| write!(f, " ± {half:.1}"))?;
        f.write_str(" %")
    }
}

pub(super) fn times(trials: &[Trial], method: Method, size_mb: f64) -> Times {
    let its = trials.iter().filter(|trial| trial.method == method && trial.size_mb == size_mb);
    its.filter_map(|trial| Some((trial.run, trial.seen.as_ref().ok()?.took_s))).collect()
}

/// The times of these downloads if only the rates of bridges limited them.
fn ideal_times(trials: &[Trial], method: Method, size_mb: f64) -> Times {
    let its = trials.iter().filter(|trial| trial.method == method && trial.size_mb == size_mb);
    its.filter(|trial| trial.seen.is_ok())
        .map(|trial| (trial.run, size_mb * 8.0 / trial.capacity_mbit))
        .collect()
}

pub(super) fn baseline(plan: &ConfluxSettings) -> Option<Method> {
    plan.methods.iter().copied().find(|method| method.who.is_baseline())
}

pub(super) fn rounded(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1e3).round() / 1e3)
}

/// The trials of a scene.
pub(super) fn in_scene(trials: &[Trial], scene: Scene) -> Vec<Trial> {
    trials.iter().filter(|trial| trial.scene == scene).cloned().collect()
}

/// A case for each scene, size and method, and averages over sizes.
pub(super) fn cases(plan: &ConfluxSettings, trials: &[Trial]) -> Vec<Case> {
    let mut cases = Vec::new();
    for scene in plan.scenes.iter().copied() {
        let trials = in_scene(trials, scene);
        for size_mb in plan.sizes_mb.iter().copied() {
            for method in plan.methods_in(scene) {
                let case = case(plan, &trials, method, size_mb);
                let case = overall::with_cost(case, plan, &trials, method, size_mb);
                cases.push(overall::in_scene(case, scene));
            }
        }
        cases.extend(overall::averages(plan, &trials, scene));
    }
    cases
}

fn case(plan: &ConfluxSettings, trials: &[Trial], method: Method, size_mb: f64) -> Case {
    let Method { who, exit, legs } = method;
    let all: Vec<&Trial> =
        trials.iter().filter(|trial| trial.method == method && trial.size_mb == size_mb).collect();
    let seen = times(trials, method, size_mb);
    let problems: Vec<&String> = all.iter().filter_map(|trial| trial.seen.as_ref().err()).collect();
    let mean = Interval::of(seen.values().copied());
    let against = |other: Option<Method>| {
        Change::from_times(&seen, &times(trials, other.filter(|other| *other != method)?, size_mb))
    };
    let change = against(baseline(plan));
    let ideal =
        baseline(plan).filter(|baseline| *baseline != method && legs > 1).and_then(|other| {
            let whole = ideal_times(trials, other, size_mb);
            Change::from_times(&ideal_times(trials, method, size_mb), &whole)
        });
    let fewer = against(Some(Method { legs: legs.saturating_sub(1), ..method }));
    let first =
        all.iter().filter_map(|trial| trial.seen.as_ref().ok()).map(|seen| seen.first_byte_s);
    let percent = |change: Option<Change>| change.and_then(|change| rounded(change.percent));
    let half = |change: Option<Change>| change.and_then(|change| rounded(change.half_width?));
    let shares = shares(&all);
    let mut detail = format!("{mean} s");
    if let Some(change) = change {
        detail += &format!(", {change} against plain Tor");
    }
    if let Some(fewer) = fewer {
        detail += &format!(", {fewer} against one leg fewer");
    }
    if let Some(ideal) = ideal {
        detail += &format!(", {:+.1} % by the bridges' rates alone", ideal.percent);
    }
    let paper = paper(method, size_mb);
    if let Some((tor, fewer)) = paper {
        detail += &format!(" (paper −{tor:.0} and −{fewer:.0} %)");
    }
    let case = Case::named(format!("{size_mb} MB, {method}"))
        .column("size_mb", size_mb)
        .column("legs", legs)
        .column("client", who.name())
        .column("exit", exit.name())
        .column("runs", seen.len())
        .column("failed", problems.len())
        .column("median_s", median(seen.values().copied()).and_then(rounded))
        .column("mean_s", rounded(mean.mean))
        .column("mean_s_interval", mean.half_width.and_then(rounded))
        .column("change_against_tor_percent", percent(change))
        .column("interval", half(change))
        .column("change_against_one_leg_fewer_percent", percent(fewer))
        .column("change_against_one_leg_fewer_interval", half(fewer))
        .column("change_by_capacity_percent", percent(ideal))
        .column("change_paper_percent", paper.map(|paper| -paper.0))
        .column("change_against_one_leg_fewer_paper_percent", paper.map(|paper| -paper.1))
        .column("first_byte_s", median(first).and_then(rounded))
        .column("leg_shares_percent", shares);
    let verdict = match (problems.first(), change) {
        (Some(problem), _) => {
            detail = format!("{} of {} failed: {problem}", problems.len(), all.len());
            CaseVerdict::Failed
        }
        (None, _) if seen.is_empty() => CaseVerdict::Skipped,
        (None, Some(change)) if legs > 1 && overall::is_judged(method, &all) => change.verdict(),
        // Single circuits and C tor are shown for comparison only.
        (None, _) => CaseVerdict::Reported,
    };
    case.ended(verdict, detail)
}

/// The paper's reductions of time in percent: against plain Tor, and against one leg fewer.
fn paper(method: Method, size_mb: f64) -> Option<(f64, f64)> {
    let (_, two, three, three_against_two) = TABLE_I.into_iter().find(|row| row.0 == size_mb)?;
    match (method.who, method.legs) {
        (ClientKind::Ours, 2) => Some((two, two)),
        (ClientKind::Ours, 3) => Some((three, three_against_two)),
        _ => None,
    }
}

/// The share of all traffic on each leg, in the client's order, such as `60 / 40`. `None` for single circuits.
fn shares(trials: &[&Trial]) -> Option<String> {
    let mut carried: Vec<u64> = Vec::new();
    for seen in trials.iter().filter_map(|trial| trial.seen.as_ref().ok()) {
        carried.resize(carried.len().max(seen.carried.len()), 0);
        carried.iter_mut().zip(&seen.carried).for_each(|(all, one)| *all += one);
    }
    let all: u64 = carried.iter().sum();
    if carried.len() < 2 || all == 0 {
        return None;
    }
    let share = |one: &u64| format!("{:.0}", *one as f64 / all as f64 * 100.0);
    Some(carried.iter().map(share).collect::<Vec<_>>().join(" / "))
}

/// Figures 2 and 3: times by size. Figure 4: gain by number of legs.
pub(super) fn figures(plan: &ConfluxSettings, trials: &[Trial]) -> Vec<ExperimentFigure> {
    let trials = &in_scene(trials, Scene::Bridges);
    let mut figures = Vec::new();
    for size_mb in plan.sizes_mb.iter().copied() {
        // The paper's figure 2 is of 0.4 MB, its figure 3 of the larger ones.
        let number = if size_mb < 1.0 { 2 } else { 3 };
        let name = format!("figure-{number}-{}", size_mb.to_string().replace('.', "-"));
        let groups: Vec<(String, Vec<f64>)> = plan
            .methods
            .iter()
            .map(|method| {
                (method.to_string(), times(trials, *method, size_mb).into_values().collect())
            })
            .collect();
        let title = format!("Time of a download of {size_mb} MB");
        figures.push(ExperimentFigure::distributions(&name, &title, "s", groups));
    }
    let title = "Gain by number of legs";
    let (x, y) = (Axis::new("legs"), Axis::new("change of the mean time against plain Tor in %"));
    let mut figure =
        ExperimentFigure::new("figure-4", title, x, y).mark(On::Y, 0.0, "plain Tor", Role::Truth);
    let mut nth = 0;
    for size_mb in plan.sizes_mb.iter().copied() {
        for exit in [ExitOf::Ours, ExitOf::Tor] {
            let points = gains(plan, trials, exit, size_mb);
            if points.len() > 1 {
                let name = format!("{size_mb} MB, exit: {}", exit.name());
                figure = figure.with(Series::line(&name, Role::Nth(nth), points));
                nth += 1;
            }
        }
        if let Some((_, two, three, _)) = TABLE_I.into_iter().find(|row| row.0 == size_mb) {
            let points = vec![(1.0, 0.0), (2.0, -two), (3.0, -three)];
            figure =
                figure.with(Series::dots(&format!("{size_mb} MB, paper"), Role::Muted, points));
        }
    }
    figures.push(figure);
    figures
}

/// The change against plain Tor by legs.
fn gains(plan: &ConfluxSettings, trials: &[Trial], exit: ExitOf, size_mb: f64) -> Vec<(f64, f64)> {
    let whole = baseline(plan).map(|baseline| times(trials, baseline, size_mb)).unwrap_or_default();
    let its =
        plan.methods.iter().filter(|method| method.who == ClientKind::Ours && method.exit == exit);
    its.filter_map(|method| {
        let change = Change::from_times(&times(trials, *method, size_mb), &whole)?;
        Some((method.legs as f64, change.percent))
    })
    .collect()
}

pub(super) const TEXT: &str = include_str!("../../../../../docs/experiments/conflux.md");

/// The notes for simulated or real downloads only.
pub(super) fn notes(plan: &ConfluxSettings) -> Vec<String> {
    section(TEXT, if plan.is_simulated { "Simulated" } else { "Real" })
}

/// The answer of the report.
pub(super) fn answer(plan: &ConfluxSettings, trials: &[Trial], cases: &[Case]) -> String {
    let trials = &in_scene(trials, Scene::Bridges);
    let answer = |size_mb: f64, exit| {
        let gains = gains(plan, trials, exit, size_mb).into_iter().filter(|gain| gain.0 > 1.0);
        let gains: Vec<String> =
            gains.map(|(legs, percent)| format!("{legs} legs {percent:+.0} %")).collect();
        (!gains.is_empty())
            .then(|| format!("{size_mb} MB, exit {}: {}", exit.name(), gains.join(", ")))
    };
    let all: Vec<String> = [ExitOf::Ours, ExitOf::Tor]
        .into_iter()
        .flat_map(|exit| plan.sizes_mb.iter().filter_map(move |size| answer(*size, exit)))
        .collect();
    let held = cases.iter().filter(|case| case.verdict == CaseVerdict::Held).count();
    let judged = cases.iter().filter(|case| case.verdict.is_judged()).count();
    if judged == 0 {
        return "None of these scenes is judged.".to_owned();
    }
    format!("{held} of {judged} are significantly faster than plain Tor. {}.", all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflux::plan::DownloadFigures;
    use crate::reporting::claim_holds;

    fn plan() -> ConfluxSettings {
        let method = |who, exit, legs| Method { who, exit, legs };
        ConfluxSettings {
            runs: 3,
            sizes_mb: vec![5.0],
            scenes: vec![Scene::Bridges],
            methods: vec![
                method(ClientKind::Tor, ExitOf::Tor, 1),
                method(ClientKind::Ours, ExitOf::Ours, 1),
                method(ClientKind::Ours, ExitOf::Ours, 2),
            ],
            is_simulated: false,
            scheduler: None,
            seed: 1,
        }
    }

    fn trials(plan: &ConfluxSettings, times: [[f64; 3]; 3]) -> Vec<Trial> {
        let of = |(method, times): (&Method, [f64; 3])| {
            let method = *method;
            (1..).zip(times).map(move |(run, took_s)| {
                let carried = vec![3; method.legs];
                let seen = DownloadFigures {
                    took_s,
                    first_byte_s: 0.1,
                    carried,
                    ..DownloadFigures::default()
                };
                let seen = if took_s < 0.0 { Err("cut".to_owned()) } else { Ok(seen) };
                let capacity_mbit = 10.0 * method.legs as f64;
                let scene = Scene::Bridges;
                Trial { scene, method, size_mb: 5.0, run, capacity_mbit, seen }
            })
        };
        plan.methods.iter().zip(times).flat_map(of).collect()
    }

    #[test]
    fn a_change_is_the_ratio_of_means_with_paired_runs() {
        let plan = plan();
        // Two legs take about half the time, whatever the bridges.
        let trials = trials(&plan, [[4.0, 8.0, 16.0], [4.0, 8.0, 16.0], [2.1, 3.9, 8.0]]);
        let cases = cases(&plan, &trials);
        let [tor, one, two] = &cases[..] else { panic!("{cases:?}") };
        assert_eq!((tor.verdict, one.verdict), (CaseVerdict::Reported, CaseVerdict::Reported));
        assert_eq!(two.verdict, CaseVerdict::Held, "{two:?}");
        let value = |name: &str| {
            let found = two.columns.iter().find(|(column, _)| column == name);
            found.map(|(_, value)| value.clone()).expect("a column")
        };
        assert_eq!(value("change_against_tor_percent"), -50.0);
        assert_eq!(value("change_against_one_leg_fewer_percent"), -50.0);
        assert_eq!(
            (value("median_s"), value("change_paper_percent")),
            (3.9.into(), (-56.74).into())
        );
        assert_eq!(value("change_by_capacity_percent"), -50.0);
        assert_eq!(value("leg_shares_percent"), "50 / 50");
        // The residuals are 0.1, −0.1 and 0; Student's t is 4.303 for two degrees of freedom.
        let half = value("interval").as_f64().expect("a number");
        assert!((half - 4.303 * 0.1 / 3f64.sqrt() / (28.0 / 3.0) * 100.0).abs() < 1e-2, "{half}");
        assert!(claim_holds(&cases));
        assert!(answer(&plan, &trials, &cases).contains("2 legs -50 %"));
        assert_eq!(figures(&plan, &trials).len(), 2);
    }

    #[test]
    fn failed_or_slower_downloads_do_not_hold() {
        let plan = plan();
        let slow = trials(&plan, [[4.0, 8.0, 16.0], [4.0, 8.0, 16.0], [6.0, 12.1, 24.0]]);
        assert_eq!(cases(&plan, &slow)[2].verdict, CaseVerdict::Missed);
        let by_chance = trials(&plan, [[4.0, 8.0, 16.0], [4.0, 8.0, 16.0], [9.0, 2.0, 15.0]]);
        assert_eq!(cases(&plan, &by_chance)[2].verdict, CaseVerdict::Inconclusive);
        let cut = trials(&plan, [[4.0, 8.0, 16.0], [4.0, 8.0, 16.0], [2.0, -1.0, 8.0]]);
        let found = cases(&plan, &cut);
        assert_eq!(found[2].verdict, CaseVerdict::Failed);
        assert!(found[2].detail.contains("1 of 3 failed: cut"), "{}", found[2].detail);
        assert!(!claim_holds(&found) && !claim_holds(&cases(&plan, &slow)));
    }
}
