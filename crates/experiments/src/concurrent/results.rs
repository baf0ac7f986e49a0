//! All measurements, as a report.

use super::Plan;
use super::at_once::{OneOf, Set};
use crate::telling::{self, median, pair};
use crate::trial::{BOUNDS, Tried, TriedSecond};
use onion::{Duration, Instant, Rate};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Miss, On, Promise, Role, Series,
};
use std::collections::BTreeMap;

/// What was found.
#[derive(Default)]
pub(super) struct Results {
    /// Each relay's estimate alone, by the set's size and its place in it.
    alone: BTreeMap<(usize, usize), f64>,
    /// Estimates at once over limits, by the set's size.
    ratios: BTreeMap<usize, Vec<f64>>,
    /// The same over what each came to alone.
    over_alone: BTreeMap<usize, Vec<f64>>,
    /// The least time for which all of a set were measured, by the set's size.
    together: BTreeMap<usize, Duration>,
    /// The seconds of the last run of each set.
    figures: BTreeMap<usize, ExperimentFigure>,
    cases: Vec<Case>,
    misses: Vec<Miss>,
}

impl Results {
    /// Takes in what came of relays that were measured at the same time; `run` is `None` if it was one
    /// alone. Returns their cases.
    pub(super) fn add(&mut self, set: &Set, run: Option<u32>, all: Vec<OneOf>) -> Vec<Case> {
        let together = together(&all);
        if run.is_some() {
            let least = self.together.entry(set.count()).or_insert(together);
            *least = together.min(*least);
            self.figures.insert(set.count(), seconds(set, &all));
        }
        let begins = self.cases.len();
        for one in all {
            let (case, why) = self.judge(set, run, &one, together);
            let is_good = matches!(case.verdict, CaseVerdict::Held | CaseVerdict::Inconclusive);
            let explanation = why.filter(|_| !is_good);
            let miss = explanation.map(|explanation| Miss { case: case.name.clone(), explanation });
            self.misses.extend(miss);
            self.cases.push(case);
        }
        self.cases[begins..].to_vec()
    }

    /// The case of one relay, and what this machine had to do with it if it did not hold.
    fn judge(
        &mut self,
        set: &Set,
        run: Option<u32>,
        one: &OneOf,
        together: Duration,
    ) -> (Case, Option<String>) {
        let (count, relay, limit) = (set.count(), one.place + 1, set.limit.as_mbit_per_s());
        let name = match run {
            Some(run) => format!("{count} at once, relay {relay}, run {run}"),
            None => format!("relay {relay} of {count}, alone"),
        };
        let tried = match &one.tried {
            Ok(tried) => tried,
            Err(error) => {
                let case = Case::new(name, Some(limit), None);
                return (case.ended(CaseVerdict::Failed, error.to_string()), None);
            }
        };
        let estimate = tried.estimate_mbit();
        let case = Case::judged(name, limit, estimate, BOUNDS);
        let case = match (estimate, tried.doubt(true)) {
            (None, _) => case.ended(CaseVerdict::Failed, tried.outcome.to_string()),
            (Some(_), doubt) => Tried::doubted(case, doubt.as_deref()),
        };
        // A busy machine makes for too little, never for too much.
        let is_low = case.ratio.is_some_and(|ratio| ratio < *BOUNDS.start());
        let case = match tried.starvation() {
            Some(why) if is_low && case.verdict == CaseVerdict::Missed => {
                let detail = format!("this machine, not the relay, was the limit: {why}");
                case.ended(CaseVerdict::Inconclusive, detail)
            }
            _ => case,
        };
        let key = (count, one.place);
        let over_alone = run.and_then(|_| Some(estimate? / self.alone.get(&key)?));
        match run {
            Some(_) => {
                self.ratios.entry(count).or_default().extend(case.ratio);
                self.over_alone.entry(count).or_default().extend(over_alone);
            }
            // What this machine was too slow for is nothing to compare with.
            None if case.verdict == CaseVerdict::Held => {
                self.alone.extend(estimate.map(|estimate| (key, estimate)));
            }
            None => {}
        }
        let is_apart = over_alone.is_some_and(|ratio| !BOUNDS.contains(&ratio));
        let case = match over_alone.filter(|_| is_apart && case.verdict == CaseVerdict::Held) {
            Some(ratio) => {
                case.ended(CaseVerdict::Missed, format!("{ratio:.3} of what it came to alone"))
            }
            None => case,
        };
        let case = case
            .column("relays_at_once", if run.is_some() { count } else { 1 })
            .column("run", run)
            .column("over_alone", over_alone)
            .column("together_s", run.map(|_| together.as_secs_f64()))
            .column("measurers", one.measurers)
            .column("relay_said_mbit_per_s", tried.said_mbit())
            .column("kernel_sent_mbit_per_s", tried.sent_mbit());
        let is_high = case.ratio.is_some_and(|ratio| ratio > *BOUNDS.end());
        (tried.with_loads(case), tried.starvation().filter(|_| !is_high))
    }

    pub(super) fn report(self, plan: &Plan) -> ExperimentReport {
        let question = "Are relays that are measured at the same time, by a team whose capacity just \
                        suffices, estimated within −10 % and +5 % of their limits and of what each came \
                        to alone?";
        let title = "Are several relays measured at once as accurately as one?";
        ExperimentReport {
            answer: self.answer(),
            promise: Promise::Share(0.99),
            parameters: parameters(plan),
            figures: self.figures(),
            notes: vec![
                "Alone or at once, a relay is given the same: f times its limit, allotted greedily from \
                 what each measurer has left; a measurer refuses more than its capacity. Guesses are \
                 right, so that one round suffices."
                    .to_owned(),
            ],
            cases: self.cases,
            misses: self.misses,
            ..telling::report("concurrent", title, question)
        }
    }

    fn answer(&self) -> String {
        let of = |count: &usize, ratios: &[f64]| {
            let low = ratios.iter().copied().reduce(f64::min)?;
            let high = ratios.iter().copied().reduce(f64::max)?;
            let alone = self.over_alone.get(count).into_iter().flatten().copied();
            let alone = median(alone).map_or_else(String::new, |median| {
                format!(", {median:.3} of what they came to alone in the median")
            });
            let together = self.together.get(count).copied().unwrap_or_default().as_secs_f64();
            Some(format!(
                "{count} at once came to {low:.3} to {high:.3} of their limits{alone} (all of them under \
                 way together for {together:.1} s or more)"
            ))
        };
        let parts: Vec<String> =
            self.ratios.iter().rev().filter_map(|(count, ratios)| of(count, ratios)).collect();
        if parts.is_empty() {
            return "No relays were measured at once.".to_owned();
        }
        format!("{}.", parts.join("; "))
    }

    fn figures(&self) -> Vec<ExperimentFigure> {
        let alone = |count: usize| {
            let cases = self
                .cases
                .iter()
                .filter(move |case| case.name.ends_with(&format!(" of {count}, alone")));
            cases.filter_map(|case| case.ratio)
        };
        let all_alone: Vec<f64> = self.figures.keys().flat_map(|count| alone(*count)).collect();
        let mut groups = vec![("alone".to_owned(), all_alone)];
        let at_once = self.ratios.iter().rev();
        groups.extend(at_once.map(|(count, ratios)| (format!("{count} at once"), ratios.clone())));
        let groups = groups.iter().map(|(name, ratios)| (name.as_str(), ratios.as_slice()));
        let mut ratios = ExperimentFigure::distributions(
            "ratios",
            "Estimate over limit",
            "estimate ÷ limit",
            groups,
        )
        .band(On::X, *BOUNDS.start(), *BOUNDS.end(), "−10 % to +5 %", Role::Truth)
        .caption("How large a share of the measurements came to at most so much of the limit.");
        ratios.x = ratios.x.showing(0.85, 1.10);
        let mut figures = vec![ratios];
        figures.extend(self.figures.values().rev().cloned());
        figures.retain(|figure| !figure.series.is_empty());
        figures
    }
}

/// The seconds that were measured.
fn seconds_of(one: &OneOf) -> &[TriedSecond] {
    one.tried.as_ref().map_or(&[], |tried: &Tried| &tried.seconds)
}

/// When the first second of a measurement began, and the last one ended.
fn span(one: &OneOf) -> Option<(Instant, Instant)> {
    let seconds = seconds_of(one);
    let last = seconds.last()?.end;
    let length = Duration::from_secs(u64::try_from(seconds.len()).unwrap_or_default());
    Some((Instant::ORIGIN + (last - Instant::ORIGIN).saturating_sub(length), last))
}

/// How long all of them were under way together.
fn together(all: &[OneOf]) -> Duration {
    let spans: Option<Vec<_>> = all.iter().map(span).collect();
    let spans = spans.unwrap_or_default();
    let began = spans.iter().map(|(began, _)| *began).max();
    let ended = spans.iter().map(|(_, ended)| *ended).min();
    began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended.saturating_since(began))
}

/// The seconds of all relays, from where the first began.
fn seconds(set: &Set, all: &[OneOf]) -> ExperimentFigure {
    let count = set.count();
    let limit = set.limit.as_mbit_per_s();
    let began = all.iter().filter_map(span).map(|(began, _)| began).min().unwrap_or_default();
    let mut figure = ExperimentFigure::new(
        &format!("seconds-{count}"),
        &format!("{count} relays at once"),
        Axis::new("second"),
        Axis::new("Mbit/s"),
    )
    .band(On::Y, limit * BOUNDS.start(), limit * BOUNDS.end(), "−10 % to +5 %", Role::Truth)
    .caption("What was measured in each second of the last run; the first holds the burst.");
    for one in all {
        let point = |second: &TriedSecond| {
            ((second.end - began).as_secs_f64(), second.measured.as_mbit_per_s())
        };
        let points: Vec<(f64, f64)> = seconds_of(one).iter().map(point).collect();
        let name = format!("relay {}", one.place + 1);
        figure = figure.with(Series::line(&name, Role::Nth(one.place), points));
    }
    figure
}

fn parameters(plan: &Plan) -> Vec<(String, String)> {
    let params = plan.params();
    let capacities: Vec<String> = plan.capacities().iter().map(Rate::to_string).collect();
    let set = |count: &u32| format!("{count} × {}", plan.limit(*count));
    vec![
        pair("relays at once", plan.relays.iter().map(set).collect::<Vec<_>>().join(", ")),
        pair("measurers, each a process", capacities.join(" and ")),
        pair("runs at once", plan.runs.to_string()),
        pair("seconds t", params.seconds.to_string()),
        pair("sockets s of each, at most", params.sockets.to_string()),
        pair("multiplier m", params.multiplier.to_string()),
        pair("excess factor f", format!("{:.3}", params.excess_factor())),
    ]
}
