//! What came of it, beside what the paper found.

use super::plan::{Plan, Setting, Vary};
use super::scene::Scene;
use crate::error::Error;
use crate::mode::Mode;
use crate::telling::{pair, unplayed};
use crate::trial::{BOUNDS, Tried};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};

pub(super) const TITLE: &str = "How do the paper's parameters do over the paper's distances?";
pub(super) const QUESTION: &str = "Over the round trips and rates of the paper's hosts: is no estimate called conclusive that is not \
                                   within −10 % and +5 % of what the relay carries, whatever is varied?";

/// What the paper says of each.
const PAPER: [(Vary, &str); 5] = [
    (
        Vary::Team,
        "Paper, §6.2: of 7 runs with each team and limit all but one (99.8 %) were within −20 % and +5 %, 95 % within 11 %.",
    ),
    (
        Vary::Sockets,
        "Paper, E.1: each host peaks at another number of sockets and loses after it; IN, the slowest, at 160.",
    ),
    (
        Vary::Multiplier,
        "Paper, E.2: 2.25 is the least of 1.5, 1.75, 2, 2.25 and 2.5 without a median below 0.8 of the truth.",
    ),
    (
        Vary::Seconds,
        "Paper, E.3: of 10, 20, 30 and 60 seconds 30 has the smallest range, 0.84 to 1.01 of the truth.",
    ),
    (
        Vary::Buffers,
        "Paper, D.1: at all round trips a single socket is faster where the kernels' buffers may grow to 64 MiB.",
    ),
];

/// A run that has ended.
pub(super) struct Judged {
    pub(super) case: Case,
    vary: Vary,
    is_conclusive: bool,
}

impl Judged {
    pub(super) fn new(
        plan: &Plan,
        scene: &Scene,
        setting: &Setting,
        truth: Option<f64>,
        tried: Result<&Tried, &Error>,
    ) -> Self {
        let limit = plan.limits[setting.relay];
        let mode = scene.mode.word();
        let name = format!("{mode} {limit}, {setting}");
        let estimate = tried.ok().and_then(Tried::estimate_mbit);
        let found = tried.ok().and_then(Tried::estimate);
        let is_conclusive = found.is_some_and(|it| it.is_conclusive());
        let case = match truth {
            Some(truth) => Case::judged(name, truth, estimate, BOUNDS),
            None => Case::new(name, None, estimate)
                .ended(CaseVerdict::Failed, "what the relay carries is not known"),
        };
        let case = match (tried, found) {
            (Err(error), _) => case.ended(CaseVerdict::Failed, error.to_string()),
            (Ok(tried), None) => case.ended(CaseVerdict::Inconclusive, tried.outcome.to_string()),
            (Ok(_), Some(found)) => match &found.inconclusive {
                Some(reason) => case.ended(CaseVerdict::Inconclusive, reason.to_string()),
                None => case,
            },
        };
        let case = case
            .column("mode", mode)
            .column("limit_mbit_per_s", limit.as_mbit_per_s())
            .column("vary", setting.vary.word())
            .column("hosts", setting.team())
            .column("sockets", setting.sockets)
            .column("sockets_in_the_end", tried.ok().and_then(|it| it.sockets))
            .column("multiplier", setting.multiplier)
            .column("seconds", setting.seconds)
            .column("tuned", setting.is_tuned)
            .column("conclusive", is_conclusive)
            .column("rounds", found.map(|it| it.rounds))
            .column("sent_mbit_per_s", tried.ok().and_then(Tried::sent_mbit));
        let case = match tried {
            Ok(tried) => tried.with_loads(case),
            Err(_) => case,
        };
        Self { case, vary: setting.vary, is_conclusive }
    }

    /// Relays or hosts that could not be started.
    pub(super) fn unplayed(mode: Mode, error: &Error) -> Self {
        let case = unplayed(mode.word().to_owned(), error);
        Self { case, vary: Vary::Team, is_conclusive: false }
    }

    fn is_false(&self) -> bool {
        self.is_conclusive && self.case.verdict != CaseVerdict::Held
    }
}

pub(super) fn report(plan: &Plan, runs: Vec<Judged>, base: ExperimentReport) -> ExperimentReport {
    let wrong = runs.iter().filter(|it| it.is_false()).count();
    let conclusive = runs.iter().filter(|it| it.is_conclusive).count();
    let answer = format!(
        "{wrong} of {conclusive} conclusive estimates were wrong; {} of {} runs were lower bounds or failed.",
        runs.len() - conclusive,
        runs.len(),
    );
    let limits: Vec<String> = plan.limits.iter().map(ToString::to_string).collect();
    let parameters = vec![
        pair("seconds t, where not varied", plan.seconds.to_string()),
        pair("limits", limits.join(", ")),
        pair("congestion control", plan.congestion.to_string()),
        pair("lost on each way, %", plan.loss_percent.to_string()),
        pair(
            "sockets, where not varied",
            plan.sockets.map_or_else(|| "by distance and rate".to_owned(), |it| it.to_string()),
        ),
        pair("seed", plan.seed.to_string()),
    ];
    let of_paper = PAPER.iter().filter(|(vary, _)| runs.iter().any(|it| it.vary == *vary));
    let mut notes: Vec<String> = of_paper.map(|(_, said)| (*said).to_owned()).collect();
    notes.push(
        "The truth of a relay is what the kernel counted that its process sent, TLS included, while a measurer beside it \
         measured it, in the median second of the round that the estimate is of."
            .to_owned(),
    );
    let promise = Promise::Decided {
        held: wrong == 0 && conclusive > 0,
        rule: "no conclusive estimate is wrong".to_owned(),
    };
    let cases = runs.into_iter().map(|it| it.case).collect();
    ExperimentReport { answer, promise, parameters, cases, notes, ..base }
}
