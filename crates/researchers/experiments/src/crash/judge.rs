//! The verdict on a round.

use super::plan::Victim;
use super::round::{CrashRound, Phase, TOLERANCE, Verdict};
use crate::reporting;
use onion::{Duration, Rate};
use report::experiment::{Case, CaseVerdict};
use std::ops::RangeInclusive;

/// The range of a correct estimate, relative to the limit and to what the measurers' sockets received.
pub(super) const BOUNDS: RangeInclusive<f64> = 0.90..=1.05;

/// The burst of an idle relay, in seconds of its rate, as configured.
const BURST_S: f64 = 1.0;

impl CrashRound {
    /// The time from the kill (in a control: from the start) to the end of the last survivor; `None` if one did not end.
    pub(super) fn took(&self) -> Option<Duration> {
        let from = self.kill.map_or(Duration::ZERO, |(at, _)| at);
        let ends: Option<Vec<Duration>> = self.ends.values().copied().collect();
        ends?.into_iter().max().map(|last| last.saturating_sub(from))
    }

    /// The round as a case of the report.
    pub(super) fn case(&self, limit: Rate) -> Case {
        let Self { plan, .. } = self;
        let done = self.fault.participle();
        let name = match self.kill {
            Some((at, phase)) => format!(
                "round {}: {} {done} {}, after {:.2} s",
                plan.number,
                plan.victim,
                phase.description(),
                at.as_secs_f64()
            ),
            None if plan.victim == Victim::Nobody => {
                format!("control after round {}: nobody {done}", plan.number)
            }
            None => format!(
                "round {}: {} was to be {done}, but had ended before: a control",
                plan.number, plan.victim
            ),
        };
        let estimate = self.verdict.as_ref().and_then(|verdict| verdict.estimate_mbit_per_s);
        let error = self.verdict.as_ref().and_then(|verdict| verdict.error.clone());
        let case = Case::new(name, estimate.map(|_| limit.as_mbit_per_s()), estimate);
        let problems = self.problems(case.ratio, limit);
        let (verdict, detail) = if !problems.is_empty() {
            (CaseVerdict::Missed, problems.join("; "))
        } else if let Some(error) = &error {
            (CaseVerdict::Refused, error.clone())
        } else {
            (CaseVerdict::Held, self.remark(case.ratio))
        };
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let end = |who: Victim| seconds(self.ends.get(&who).copied().flatten());
        let killed = self.kill.map(|(at, _)| at);
        case.ended(verdict, detail)
            .column("victim", plan.victim.to_string())
            .column("phase", self.kill.map(|(_, phase)| phase.description()))
            .column("killed_at_s", seconds(killed))
            .column("coordinator_ended_at_s", end(Victim::Coordinator))
            .column("measurer_0_ended_at_s", end(Victim::Measurer(0)))
            .column("measurer_1_ended_at_s", end(Victim::Measurer(1)))
            .column("target_ended_at_s", end(Victim::Target))
            .column("deadline_at_s", self.deadline.as_secs_f64())
            .column("kill_to_end_s", seconds(killed.and_then(|_| self.took())))
            .column("control", self.kill.is_none())
            .column("ratio_to_received", self.ratio_to_received())
            .column("ratio_received_to_allowed", self.ratio_to_allowed(limit))
            .column("conclusive", self.verdict.as_ref().map(|verdict| verdict.is_conclusive))
            .column("error", error)
    }

    /// The estimate relative to what the measurers' sockets received in the same seconds.
    fn ratio_to_received(&self) -> Option<f64> {
        let estimate = self.verdict.as_ref()?.estimate_mbit_per_s?;
        let received =
            reporting::median_or_mean(self.received.iter().map(|rate| rate.as_mbit_per_s()))?;
        (received > 0.0).then(|| estimate / received)
    }

    /// What the measurers' sockets received during the measurement, relative to what the relay's limit allows in that time.
    fn ratio_to_allowed(&self, limit: Rate) -> Option<f64> {
        let received: f64 = self.received.iter().map(|rate| rate.as_mbit_per_s()).sum();
        let seconds = f64::from(u32::try_from(self.received.len()).ok()?);
        (seconds > 0.0).then(|| received / (limit.as_mbit_per_s() * (seconds + BURST_S)))
    }

    fn remark(&self, ratio: Option<f64>) -> String {
        match &self.verdict {
            Some(_) if ratio.is_some_and(|ratio| ratio > *BOUNDS.end()) => format!(
                "correct: the estimate is {:.3} of what the measurers' sockets received, including the burst after \
                 a pause that the limit allows",
                self.ratio_to_received().unwrap_or_default()
            ),
            None => "the survivors ended without their coordinator".to_owned(),
            Some(verdict) if !verdict.is_conclusive => "marked as a lower bound".to_owned(),
            Some(_) => String::new(),
        }
    }

    /// Everything that is wrong.
    fn problems(&self, ratio: Option<f64>, limit: Rate) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(over) = self.ratio_to_allowed(limit).filter(|over| over > BOUNDS.end()) {
            problems.push(format!(
                "by the kernel, the relay sent {over:.3} times what its limit allows"
            ));
        }
        for (who, end) in &self.ends {
            let deadline = match who {
                Victim::Target => self.target_deadline,
                _ => self.deadline,
            };
            match end {
                None => problems.push(format!("{who} did not end")),
                Some(at) if *at > deadline + TOLERANCE => problems.push(format!(
                    "{who} ended {:.2} s after the deadline",
                    at.saturating_sub(deadline).as_secs_f64()
                )),
                Some(_) => {}
            }
        }
        if let Some(verdict) = &self.verdict {
            problems.extend(self.verdict_problem(verdict, ratio));
        }
        // A round has a single order, which the relay must accept.
        problems
            .extend(self.refusals.iter().map(|refusal| format!("the relay refused: {refusal}")));
        problems.extend(self.leftovers.iter().cloned());
        problems
    }

    fn verdict_problem(&self, verdict: &Verdict, ratio: Option<f64>) -> Option<String> {
        let Verdict { status, is_conclusive, error, .. } = verdict;
        let victim = self.kill.map_or(Victim::Nobody, |_| self.plan.victim);
        match (ratio, error, status.code()) {
            (Some(ratio), _, Some(0 | 3)) => self.estimate_problem(ratio, *is_conclusive),
            (None, Some(error), Some(1)) if victim == Victim::Nobody => {
                Some(format!("failed, though nobody was {}: {error}", self.fault.participle()))
            }
            (None, Some(error), Some(1)) if !self.names(victim, error) => {
                Some(format!("does not name the {victim} as lost: {error}"))
            }
            (None, Some(_), Some(1)) => None,
            _ => Some(format!("the coordinator ended with {status} and without a result")),
        }
    }

    /// What is wrong with an estimate. A lower bound may be too low if it is marked as such. In few seconds, the burst after a pause may
    /// raise the median above the limit; the estimate is then correct if it matches what was received. Whether that exceeds the limit is
    /// judged separately.
    fn estimate_problem(&self, ratio: f64, is_conclusive: bool) -> Option<String> {
        let least = if is_conclusive { *BOUNDS.start() } else { 0.0 };
        let correct = least..=*BOUNDS.end();
        let Some(ratio_to_received) = self.ratio_to_received() else {
            return Some("an estimate, though the measurers' sockets received nothing".to_owned());
        };
        if !correct.contains(&ratio_to_received) {
            Some(format!(
                "a wrong estimate: {ratio_to_received:.3} of what the measurers' sockets received"
            ))
        } else if ratio < *correct.start() {
            Some(format!("a wrong estimate: {ratio:.3} of the limit"))
        } else {
            None
        }
    }

    /// Whether an error names the victim as lost.
    fn names(&self, victim: Victim, error: &str) -> bool {
        let is_at = |address: std::net::SocketAddr| error.contains(&address.to_string());
        match victim {
            Victim::Measurer(place) => {
                let named =
                    self.address.is_some_and(is_at) || error.contains(&format!("measurer {place}"));
                named && error.contains("the measurer")
            }
            Victim::Target => error.contains("the relay") && !error.contains("the measurer"),
            Victim::Coordinator | Victim::Nobody => false,
        }
    }
}

impl Phase {
    pub(super) fn description(self) -> String {
        match self {
            Self::Beginning => "before the order was accepted".to_owned(),
            Self::Opening => "before the first second was over".to_owned(),
            Self::Measuring(seconds) => format!("after second {seconds}"),
            Self::Over => "after the end".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
