//! All runs, as a report.

use super::plan::{Plan, Setting, capacity, team};
use crate::mode::Mode;
use crate::telling::{self, pair};
use crate::trial::BOUNDS;
use onion::Rate;
use report::experiment::{
    Case, CaseVerdict, ExperimentFigure, ExperimentReport, Miss, On, Promise, Role,
};

/// A run that has ended.
pub(super) struct Ended {
    pub(super) setting: Setting,
    pub(super) case: Case,
    /// Why it did not hold, as far as known.
    pub(super) miss: Option<Miss>,
}

/// The runs that have ended.
#[derive(Default)]
pub(super) struct Results {
    runs: Vec<Ended>,
}

impl Results {
    pub(super) fn add(&mut self, run: Ended) {
        self.runs.push(run);
    }

    pub(super) fn report(mut self, plan: &Plan) -> ExperimentReport {
        let bits = |limit: Option<Rate>| limit.map_or(u64::MAX, Rate::as_bit_per_s);
        self.runs.sort_by_key(|Ended { setting: it, .. }| {
            (it.mode, bits(it.limit), it.measurers, it.run)
        });
        let figures = self.figures(plan);
        let answer = self.answer();
        let notes = self.notes();
        let title = "How accurate are the estimates?";
        let question = "Are 99 % of the estimates within −10 % and +5 % of what the relay really \
                        carries, whatever its limit and however large the team?";
        let base = telling::report("accuracy", title, question);
        let (cases, misses): (Vec<_>, Vec<_>) =
            self.runs.into_iter().map(|run| (run.case, run.miss)).unzip();
        ExperimentReport {
            answer,
            promise: Promise::Share(0.99),
            parameters: parameters(plan),
            cases,
            misses: misses.into_iter().flatten().collect(),
            figures,
            notes,
            ..base
        }
    }

    /// The ratios of some of the runs.
    fn ratios(&self, of: impl Fn(&Setting) -> bool) -> Vec<f64> {
        let chosen = self.runs.iter().filter(|run| of(&run.setting));
        chosen.filter_map(|run| run.case.ratio).collect()
    }

    fn answer(&self) -> String {
        let tried = self.runs.len();
        let ended = |verdict| self.runs.iter().filter(|run| run.case.verdict == verdict).count();
        let (held, open) = (ended(CaseVerdict::Held), ended(CaseVerdict::Inconclusive));
        let mut ratios = self.ratios(|_| true);
        ratios.sort_by(f64::total_cmp);
        let (Some(low), Some(median), Some(high)) =
            (ratios.first(), telling::median(ratios.iter().copied()), ratios.last())
        else {
            return format!("Of {tried} runs, none came to an estimate.");
        };
        format!(
            "{held} of {} conclusive runs came within −10 % and +5 %; {open} more did, but were \
             inconclusive. Estimate over truth was {low:.3} to {high:.3}, {median:.3} in the median.",
            tried - open
        )
    }

    fn figures(&self, plan: &Plan) -> Vec<ExperimentFigure> {
        let mut figures = Vec::new();
        for mode in &plan.modes {
            let of_limit =
                |limit| (capacity(limit), self.ratios(|it| it.mode == *mode && it.limit == limit));
            let of_team = |measurers| {
                (team(measurers), self.ratios(|it| it.mode == *mode && it.measurers == measurers))
            };
            let by_limit = plan.limits.iter().copied().map(of_limit).collect();
            let by_team = plan.teams.iter().copied().map(of_team).collect();
            let (by, how) = match mode {
                Mode::Echo => ("limit, or what the relay without one sent", "As an echo"),
                Mode::Transit => ("what tor sent, by the kernel", "In transit"),
            };
            let figure = |name: &str, what: &str, groups| {
                let name = match mode {
                    Mode::Echo => name.to_owned(),
                    Mode::Transit => format!("{name}-transit"),
                };
                distributions(&name, &format!("{how}, by {what}"), by, groups)
            };
            figures.push(figure("figure-6", "the relay's limit", by_limit));
            figures.push(figure("by-team", "the team's size", by_team));
        }
        figures.retain(|figure| !figure.series.is_empty());
        figures
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "The truth of relays without limit, and of stock tor, is what the relay's process sent, by the \
             kernel's counters of its sockets, TLS included. Stock tor passes some 92 % of its limit, by the \
             way it refills its token buckets; a run in which what it sent is less than 83 % of the limit \
             did not hold either way. An estimate that is but a lower bound has not held: within the bounds \
             it counts neither for nor against, else it has missed."
                .to_owned(),
            "The first guess is right in the first run of a setting, half of the limit in the second, \
             double in the third, and so on in turn. Of relays without limit, it goes by the estimate \
             before. Each measurer has an equal share of the capacity that the last round takes."
                .to_owned(),
        ];
        let is_doubtful = |run: &&Ended| {
            let is_conclusive = run.case.columns.iter().find(|(name, _)| name == "conclusive");
            run.case.ratio.is_some() && is_conclusive.is_some_and(|(_, value)| *value == false)
        };
        let doubtful: Vec<&Ended> = self.runs.iter().filter(is_doubtful).collect();
        let limited = doubtful.iter().filter(|run| run.setting.limit.is_some()).count();
        if !doubtful.is_empty() {
            notes.push(format!(
                "{} runs were inconclusive, {limited} of them of relays with a limit: relay and \
                 measurers share this machine's processors, so what was measured is how fast the relay \
                 can be beside its measurers. These runs do not count as held.",
                doubtful.len()
            ));
        }
        notes
    }
}

/// As in figure 6 of the paper.
fn distributions(
    name: &str,
    title: &str,
    truth: &str,
    groups: Vec<(String, Vec<f64>)>,
) -> ExperimentFigure {
    let label = format!("estimate ÷ {truth}");
    let of = groups.iter().map(|(name, ratios)| (name.as_str(), ratios.as_slice()));
    let mut figure = ExperimentFigure::distributions(name, title, &label, of)
        .band(On::X, *BOUNDS.start(), *BOUNDS.end(), "−10 % to +5 %", Role::Truth)
        .caption("How large a share of the runs came to at most so much of the truth.");
    figure.x = figure.x.showing(0.85, 1.10);
    figure
}

fn parameters(plan: &Plan) -> Vec<(String, String)> {
    let params = plan.params();
    let list = |items: Vec<String>| items.join(", ");
    vec![
        pair("modes", list(plan.modes.iter().map(|mode| mode.word().to_owned()).collect())),
        pair("limits", list(plan.limits.iter().map(|limit| capacity(*limit)).collect())),
        pair("measurers, each a process", list(plan.teams.iter().map(u32::to_string).collect())),
        pair("pumps of each", plan.pumps().to_string()),
        pair("runs of each setting", plan.runs.to_string()),
        pair("seconds t", params.seconds.to_string()),
        pair("sockets s, at most", params.sockets.to_string()),
        pair("multiplier m", params.multiplier.to_string()),
        pair("excess factor f", format!("{:.3}", params.excess_factor())),
        pair("share of cells checked p", params.check_share.to_string()),
        pair("first guess over limit", "1, ½, 2, in turn".to_owned()),
    ]
}
