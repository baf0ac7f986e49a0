//! Whether a round was as it should be.

use super::plan::Victim;
use super::round::{CrashRound, Phase, TOLERANCE, Verdict};
use crate::reporting;
use onion::{Duration, Rate};
use report::experiment::{Case, CaseVerdict};
use std::ops::RangeInclusive;

/// What a right estimate is, over the limit, and over what the measurers' sockets got.
pub(super) const BOUNDS: RangeInclusive<f64> = 0.90..=1.05;

/// What a relay that has rested may send beyond its rate, in seconds of that: as configured.
const BURST_S: f64 = 1.0;

impl CrashRound {
    /// From the kill, or without one from the beginning, to the end of the last survivor; `None` if
    /// one did not end.
    pub(super) fn took(&self) -> Option<Duration> {
        let from = self.kill.map_or(Duration::ZERO, |(at, _)| at);
        let ends: Option<Vec<Duration>> = self.ends.values().copied().collect();
        ends?.into_iter().max().map(|last| last.saturating_sub(from))
    }

    /// The round as a case of the report.
    pub(super) fn case(&self, limit: Rate) -> Case {
        let Self { fate, .. } = self;
        let done = self.blow.done();
        let name = match self.kill {
            Some((at, phase)) => format!(
                "round {}: {} {done} {}, after {:.2} s",
                fate.number,
                fate.victim,
                phase.in_words(),
                at.as_secs_f64()
            ),
            None if fate.victim == Victim::Nobody => {
                format!("control after round {}: nobody {done}", fate.number)
            }
            None => format!(
                "round {}: {} was to be {done}, but had ended: a control",
                fate.number, fate.victim
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
            .column("victim", fate.victim.to_string())
            .column("phase", self.kill.map(|(_, phase)| phase.in_words()))
            .column("killed_at_s", seconds(killed))
            .column("coordinator_ended_at_s", end(Victim::Coordinator))
            .column("measurer_0_ended_at_s", end(Victim::Measurer(0)))
            .column("measurer_1_ended_at_s", end(Victim::Measurer(1)))
            .column("target_ended_at_s", end(Victim::Target))
            .column("deadline_at_s", self.deadline.as_secs_f64())
            .column("kill_to_end_s", seconds(killed.and_then(|_| self.took())))
            .column("control", self.kill.is_none())
            .column("ratio_to_got", self.ratio_to_got())
            .column("got_over_allowed", self.over_allowed(limit))
            .column("conclusive", self.verdict.as_ref().map(|verdict| verdict.is_conclusive))
            .column("error", error)
    }

    /// The estimate over what the measurers' sockets got in the same seconds.
    fn ratio_to_got(&self) -> Option<f64> {
        let estimate = self.verdict.as_ref()?.estimate_mbit_per_s?;
        let got = reporting::median_or_mean(self.got.iter().map(|rate| rate.as_mbit_per_s()))?;
        (got > 0.0).then(|| estimate / got)
    }

    /// What the measurers' sockets got while it was measured, over what the relay's limit allows in that
    /// time.
    fn over_allowed(&self, limit: Rate) -> Option<f64> {
        let got: f64 = self.got.iter().map(|rate| rate.as_mbit_per_s()).sum();
        let seconds = f64::from(u32::try_from(self.got.len()).ok()?);
        (seconds > 0.0).then(|| got / (limit.as_mbit_per_s() * (seconds + BURST_S)))
    }

    fn remark(&self, ratio: Option<f64>) -> String {
        match &self.verdict {
            Some(_) if ratio.is_some_and(|ratio| ratio > *BOUNDS.end()) => format!(
                "right: the measurers' sockets received it (the estimate is {:.3} of \
                 that), which is the burst after a pause that the limit allows",
                self.ratio_to_got().unwrap_or_default()
            ),
            None => "the survivors ended without their coordinator".to_owned(),
            Some(verdict) if !verdict.is_conclusive => "said to be a lower bound only".to_owned(),
            Some(_) => String::new(),
        }
    }

    /// All that was not as it should be.
    fn problems(&self, ratio: Option<f64>, limit: Rate) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(over) = self.over_allowed(limit).filter(|over| over > BOUNDS.end()) {
            problems.push(format!(
                "the relay let {over:.3} times as much through as its limit allows, by the kernel"
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
        // There is one order in a round, and it must find the relay free.
        problems.extend(self.refusals.iter().map(|it| format!("the relay refused: {it}")));
        problems.extend(self.remains.iter().cloned());
        problems
    }

    fn verdict_problem(&self, verdict: &Verdict, ratio: Option<f64>) -> Option<String> {
        let Verdict { status, is_conclusive, error, .. } = verdict;
        let victim = self.kill.map_or(Victim::Nobody, |_| self.fate.victim);
        match (ratio, error, status.code()) {
            (Some(ratio), _, Some(0 | 3)) => self.number_problem(ratio, *is_conclusive),
            (None, Some(error), Some(1)) if victim == Victim::Nobody => {
                Some(format!("failed, though nobody was {}: {error}", self.blow.done()))
            }
            (None, Some(error), Some(1)) if !self.names(victim, error) => {
                Some(format!("does not say that the {victim} was lost: {error}"))
            }
            (None, Some(_), Some(1)) => None,
            _ => Some(format!("the coordinator ended with {status}, and without a result")),
        }
    }

    /// What is wrong with an estimate. A lower bound that says so may be too low. In so few seconds the
    /// burst after a pause may reach into the median: it may be above the rate if it is what really came, and
    /// that is no more than the limit allows, which is judged apart.
    fn number_problem(&self, ratio: f64, is_conclusive: bool) -> Option<String> {
        let least = if is_conclusive { *BOUNDS.start() } else { 0.0 };
        let right = least..=*BOUNDS.end();
        let Some(of_got) = self.ratio_to_got() else {
            return Some("a number, though the measurers' sockets got nothing".to_owned());
        };
        if !right.contains(&of_got) {
            Some(format!("a wrong number: {of_got:.3} of what the measurers' sockets got"))
        } else if ratio < *right.start() {
            Some(format!("a wrong number: {ratio:.3} of the limit"))
        } else {
            None
        }
    }

    /// Whether an error says who was lost.
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
    pub(super) fn in_words(self) -> String {
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
