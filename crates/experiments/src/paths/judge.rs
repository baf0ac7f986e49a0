//! Whether a run was true.

use super::plan::{Path, Plan};
use super::scene::Scene;
use crate::error::Error;
use crate::trial::{BOUNDS, Tried};
use coordinator::{Inconclusive, Outcome};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};

pub(super) const TITLE: &str = "Are estimates true over real distances?";
pub(super) const QUESTION: &str = "Is no estimate called conclusive that is not within −10 % and +5 % of what \
                                   the relay carries without distance, and up to 200 ms and 0.1 % loss at \
                                   least 95 % conclusive?";

/// The share that has to be conclusive on ways that are not extreme.
const CONCLUSIVE_SHARE: f64 = 0.95;

/// A run that has ended.
pub(super) struct Judged {
    pub(super) case: Case,
    path: Path,
    verdict: &'static str,
}

impl Judged {
    pub(super) fn new(
        scene: &Scene,
        limit: f64,
        path: Path,
        truth: Option<f64>,
        tried: Result<&Tried, &Error>,
    ) -> Self {
        let Path { rtt_ms, loss_percent } = path;
        let mode = scene.mode.word();
        let congestion = scene.congestion.to_string();
        let name = format!("{mode} {limit}, {rtt_ms} ms, {loss_percent} %, {congestion}");
        let estimate = tried.ok().and_then(Tried::estimate_mbit);
        let reason = tried.ok().and_then(Tried::estimate).map(|it| it.inconclusive);
        let (verdict, limited_by) = match reason {
            Some(None) => ("conclusive", "relay"),
            Some(Some(reason)) => ("lower_bound", limited_by(&reason)),
            None => ("failed", "unknown"),
        };
        let case = match truth {
            None => Case::new(name, None, estimate)
                .ended(CaseVerdict::Failed, "what the relay carries is not known"),
            Some(truth) => Case::judged(name, truth, estimate, BOUNDS),
        };
        let case = match (tried, reason) {
            (Err(error), _) => case.ended(CaseVerdict::Failed, error.to_string()),
            (Ok(tried), None) => match &tried.outcome {
                // A failure with its reason is no wrong number.
                Outcome::Failed { .. } => {
                    case.ended(CaseVerdict::Inconclusive, tried.outcome.to_string())
                }
                Outcome::Measured(_) => case,
            },
            (Ok(_), Some(Some(reason))) => {
                case.ended(CaseVerdict::Inconclusive, reason.to_string())
            }
            (Ok(_), Some(None)) => case,
        };
        let rounds = tried.ok().and_then(Tried::estimate).map(|it| it.rounds);
        let case = case
            .column("mode", mode)
            .column("rtt_ms", rtt_ms)
            .column("loss_percent", loss_percent)
            .column("congestion", congestion)
            .column("limit_mbit_per_s", limit)
            .column("conclusion", verdict)
            .column("limited_by", limited_by)
            .column("rounds", rounds)
            .column("sent_mbit_per_s", tried.ok().and_then(Tried::sent_mbit));
        Self { case, path, verdict }
    }

    /// Not so far and not so lossy that a lower bound would be as good as anything.
    fn is_moderate(&self) -> bool {
        self.path.rtt_ms <= 200 && self.path.loss_percent <= 0.1
    }

    fn is_true(&self) -> bool {
        self.verdict == "conclusive" && self.case.verdict == CaseVerdict::Held
    }
}

const fn limited_by(reason: &Inconclusive) -> &'static str {
    match reason {
        Inconclusive::PathLimited { .. } | Inconclusive::PathUnknown { .. } => "path",
        Inconclusive::MeasurerSaturated { .. } => "measurer's processor",
        Inconclusive::TeamTooSmall { .. } | Inconclusive::LoadTooSmall { .. } => "assigned rate",
        Inconclusive::RoundLimit { .. } | Inconclusive::Unsteady { .. } => "unknown",
        Inconclusive::RelayStarved { .. } => "relay's processor",
    }
}

pub(super) fn report(plan: &Plan, runs: Vec<Judged>, base: ExperimentReport) -> ExperimentReport {
    let is_false =
        |it: &&Judged| it.verdict == "conclusive" && it.case.verdict != CaseVerdict::Held;
    let wrong = runs.iter().filter(is_false).count();
    let moderate = runs.iter().filter(|it| it.is_moderate()).count();
    let found = runs.iter().filter(|it| it.is_moderate() && it.is_true()).count();
    let conclusive = runs.iter().filter(|it| it.is_true()).count();
    let share = found as f64 / moderate.max(1) as f64;
    let answer = format!(
        "{wrong} of {} estimates were called conclusive and were wrong; {conclusive} were conclusive and \
         right. Up to 200 ms and 0.1 % loss {found} of {moderate} were ({:.0} %, of {:.0} % wanted).",
        runs.len(),
        share * 100.0,
        CONCLUSIVE_SHARE * 100.0,
    );
    let list = |items: Vec<String>| items.join(", ");
    let pair = |name: &str, value: String| (name.to_owned(), value);
    let parameters = vec![
        pair("seconds t", plan.seconds.to_string()),
        pair("round trips, ms", list(plan.rtts_ms.iter().map(ToString::to_string).collect())),
        pair(
            "losses on each way, %",
            list(plan.losses_percent.iter().map(ToString::to_string).collect()),
        ),
        pair(
            "congestion control",
            list(plan.congestions.iter().map(ToString::to_string).collect()),
        ),
        pair("limits, Mbit/s", list(plan.limits.iter().map(ToString::to_string).collect())),
        pair("seed", plan.seed.to_string()),
    ];
    let notes = vec![
        "The truth of a relay is what the kernel counted that its process sent, TLS included, while it was \
         measured over a path without distance and loss, in the median second of the last round."
            .to_owned(),
    ];
    let promise = Promise::Decided {
        held: wrong == 0 && share >= CONCLUSIVE_SHARE,
        rule:
            "no conclusive estimate is wrong, and those of paths that are not extreme are conclusive"
                .to_owned(),
    };
    let cases = runs.into_iter().map(|it| it.case).collect();
    ExperimentReport { answer, promise, parameters, cases, notes, ..base }
}
