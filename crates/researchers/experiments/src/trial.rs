//! One measurement of an experiment: the estimate, and independent observations of the relay and of this machine.

use crate::common::Session;
use crate::error::{Error, Result};
use crate::measuring::{Measured, measure};
use crate::reporting::median_or_mean;
use authority::one_relay::Request;
use authority::shell::Team;
use coordinator::{
    Estimate, MeasurerBottleneck, Outcome, Percentile, Progress, Record, WorkerLoad,
};
use lab::RelayReports;
use lab::processors::{Load, Reading};
use lab::witness::{Count, Witness, mbit};
use onion::{Duration, Instant, Rate};
use report::experiment::{Case, CaseVerdict, ExperimentFigure, Miss, On, Role, Value};
use std::ops::RangeInclusive;

/// Estimate over truth within which a case holds (paper: 0.80 to 1.05).
pub(super) const BOUNDS: RangeInclusive<f64> = 0.90..=1.05;

/// A thread that ran or wanted to run for this share of the time was a bottleneck.
const BUSY: f64 = 0.9;

/// Waiting for a processor for this share of the time costs as large a share of the forwarded traffic.
const WAITING_MAX: f64 = 0.05;

/// A relay is behind in a quarter of a second if this share of samples finds unread data that takes it [`BEHIND_TIME`] to send. A
/// relay that is fast enough has read everything at most samples; an empty token bucket is refilled within 0.1 s.
const BEHIND_SHARE: f64 = 0.9;
const BEHIND_TIME: Duration = Duration::from_millis(10);

/// The length of one observation: sixteen refill intervals of C tor's token bucket. On a path with loss, hardly a whole second passes
/// without a dip in which less arrives than the relay could forward.
const QUARTER: Duration = Duration::from_millis(250);

/// The mean of fewer quarters depends too much on chance.
const BEHIND_QUARTERS_MIN: usize = 16;

/// Time for the relay's report on the last second.
const REPORT_GRACE: Duration = Duration::from_millis(1200);

/// A relay to measure, and the team that measures it.
pub(super) struct Trial<'t, 'r> {
    /// The name in progress messages, such as `echo 10 Mbit/s, run 3`.
    pub(super) name: &'t str,
    pub(super) team: &'t dyn Team,
    pub(super) request: Request,
    /// The relay's process.
    pub(super) pid: u32,
    pub(super) reports: &'t mut RelayReports<'r>,
}

/// The result of a trial.
pub(super) struct TrialResult {
    pub(super) outcome: Outcome,
    /// The outcome of the first turn that failed.
    pub(super) failed: Option<Outcome>,
    /// The seconds of the round that the estimate is of: the last round, or an earlier one with a higher rate.
    pub(super) seconds: Vec<TrialSecond>,
    /// The load of the relay's process and of the machine in that round.
    pub(super) load: Load,
    /// The loads of the measurers that reported in the last round.
    pub(super) measurers: Vec<WorkerLoad>,
    /// The sockets of all measurers in the measured round; `None` if there was no round.
    pub(super) sockets: Option<u32>,
    /// The bottlenecks of measurers.
    pub(super) bottlenecks: Vec<MeasurerBottleneck>,
}

/// A second of the measured round.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialSecond {
    /// When it ended, on the clock of the relay's reports.
    pub(super) end: Instant,
    pub(super) measured: Rate,
    /// The rate that the relay reported.
    pub(super) reported: Option<Rate>,
    /// The rate at which the relay's process sent, according to the kernel.
    pub(super) sent: Rate,
    pub(super) quarters: [Quarter; 4],
}

/// A quarter of a second of the measured round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quarter {
    /// The rate at which the relay's process sent, according to the kernel.
    sent: Rate,
    /// The share of samples that found unread data.
    behind: f64,
}

impl Quarter {
    /// Whether the relay almost always had unread data, so that only the relay itself limited its rate.
    fn is_behind(&self) -> bool {
        self.behind >= BEHIND_SHARE
    }
}

/// Observations during a round.
#[derive(Default)]
struct Round {
    /// Counted from one.
    number: u32,
    before: Option<Reading>,
    after: Option<Reading>,
    /// When each second was reported, and its measured rate.
    seconds: Vec<(Instant, Rate)>,
}

impl Trial<'_, '_> {
    /// Measures; `None` if the user has interrupted.
    pub(super) fn run(self, session: Session<'_>) -> Result<Option<TrialResult>> {
        self.run_with_progress(session, &mut |_| ())
    }

    /// Measures, and passes progress to `on_progress`. `None` if the user has interrupted.
    pub(super) fn run_with_progress(
        self,
        session: Session<'_>,
        on_progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<TrialResult>> {
        let Session { output, interrupt, .. } = session;
        let Self { name, team, request, pid, reports } = self;
        let mut rounds: Vec<Round> = Vec::new();
        let witness = Witness::start(vec![Count::Sent { by: pid }], reports.clock());
        let witness = witness.map_err(Error::witness)?;
        let seconds = request.params.seconds;
        let mut observe = |progress: Progress| {
            on_progress(&progress);
            match progress {
                Progress::Preparing { round, allocated, .. } => {
                    output.doing(format!("{name}: round {round}: preparing {allocated}"));
                }
                Progress::Started { round: number } => {
                    rounds.push(Round { number, ..Round::default() });
                }
                Progress::Second { round: number, index, of, measured } => {
                    let Some(round) = rounds.last_mut() else { return };
                    let second = index + 1;
                    output.doing(format!(
                        "{name}: round {number}, second {second} of {of}: {measured}"
                    ));
                    let now = reports.now();
                    let reading = Reading::take(pid, now);
                    // Not from the start: during the lead, which is not reported, the relay has less load.
                    round.before.get_or_insert_with(|| reading.clone());
                    round.after = Some(reading);
                    round.seconds.push((now, measured));
                }
            }
        };
        let measured = measure(team, request, &mut observe, interrupt.requested())?;
        let Some(measured) = measured else { return Ok(None) };
        let Measured { record, failed, loads: measurers } = measured;
        let outcome = record.outcome();
        let round = Round::measured(rounds, seconds, outcome.estimate().is_some());
        let seconds = round.seconds(reports, &witness);
        if let Some(problem) = witness.problem() {
            return Err(Error::Witness(problem));
        }
        let load = round.before.zip(round.after).map(|(before, after)| after.since(&before));
        Ok(Some(TrialResult {
            outcome,
            failed: failed.map(|record| record.outcome()),
            seconds,
            load: load.unwrap_or_default(),
            measurers,
            sockets: sockets_of(&record, round.number),
            bottlenecks: record.bottlenecks(),
        }))
    }
}

impl TrialResult {
    /// The measured rates of all seconds of the measured round, without its lead: Mbit/s, separated by spaces.
    fn seconds_text(&self) -> String {
        let seconds =
            self.seconds.iter().map(|second| format!("{:.1}", second.measured.as_mbit_per_s()));
        seconds.collect::<Vec<_>>().join(" ")
    }
}

/// The sockets of all measurers in this round, or in the last one if there is none with this number.
fn sockets_of(record: &Record, number: u32) -> Option<u32> {
    let rounds = &record.rounds;
    let round = rounds.iter().find(|round| round.number == number).or_else(|| rounds.last())?;
    Some(round.allocation.sockets())
}

impl Round {
    /// The round that an estimate is of (docs/accuracy.md, "The best round"), or the last round without an estimate. What the relay sent in
    /// that round is its truth: over the sockets of a later round it may send less.
    fn measured(mut rounds: Vec<Self>, seconds: u32, has_estimate: bool) -> Self {
        let last = rounds.pop().unwrap_or_default();
        if !has_estimate {
            return last;
        }
        // The last second of a round that is followed by another is not reported.
        rounds.retain(|round| round.seconds.len() + 1 >= seconds as usize);
        rounds.push(last);
        let rate = |round: &Self| {
            median_or_mean(round.seconds.iter().map(|(_, measured)| measured.as_mbit_per_s()))
        };
        rounds
            .into_iter()
            .max_by(|one, other| rate(one).unwrap_or(0.0).total_cmp(&rate(other).unwrap_or(0.0)))
            .unwrap_or_default()
    }

    /// The seconds, each with the relay's report and the kernel's counts.
    fn seconds(&self, reports: &mut RelayReports<'_>, witness: &Witness) -> Vec<TrialSecond> {
        let after = |start: Instant, index: u32| start + Duration::from_secs(u64::from(index) + 1);
        let Some(start) = round_start(self.seconds.iter().map(|(reported_at, _)| *reported_at))
        else {
            return Vec::new();
        };
        let count = u32::try_from(self.seconds.len()).unwrap_or(u32::MAX);
        reports.gather_until(after(start, count.saturating_sub(1)) + REPORT_GRACE);
        let sent = witness.seconds_from(0, start, count).into_iter().map(Rate::from_mbit_per_s);
        let second = |(index, ((_, measured), sent)): (u32, (&(Instant, Rate), Rate))| {
            let end = after(start, index);
            let begin = start + Duration::from_secs(u64::from(index));
            let backlog_bytes = sent.bytes_in(BEHIND_TIME).max(1);
            let quarters = [0, 1, 2, 3].map(|number| {
                let begin = begin + QUARTER * number;
                let bytes = witness.bytes_between(0, begin, begin + QUARTER);
                Quarter {
                    sent: Rate::from_mbit_per_s(mbit(bytes) / QUARTER.as_secs_f64()),
                    behind: witness.share_unread(0, backlog_bytes, begin..begin + QUARTER),
                }
            });
            let reported = reports.second_ending(end);
            TrialSecond { end, measured: *measured, reported, sent, quarters }
        };
        (0..).zip(self.seconds.iter().zip(sent)).map(second).collect()
    }
}

/// When a round began, from the times at which its seconds were reported. Reports may be late, so the earliest possible start
/// counts.
pub(super) fn round_start(reported_at: impl Iterator<Item = Instant>) -> Option<Instant> {
    let start = |(seconds, at): (u64, Instant)| {
        Instant::ORIGIN + (at - Instant::ORIGIN).saturating_sub(Duration::from_secs(seconds))
    };
    (1..).zip(reported_at).map(start).min()
}

impl TrialResult {
    pub(super) fn estimate(&self) -> Option<&Estimate> {
        self.outcome.estimate()
    }

    pub(super) fn estimate_mbit(&self) -> Option<f64> {
        self.estimate().map(|estimate| estimate.capacity.as_mbit_per_s())
    }

    /// The rate that the relay reported, computed as an estimate is.
    pub(super) fn reported_mbit(&self) -> Option<f64> {
        median_or_mean(
            self.seconds.iter().filter_map(|second| second.reported).map(Rate::as_mbit_per_s),
        )
    }

    /// The rate at which the relay's process sent according to the kernel, TLS included, computed as an estimate is.
    pub(super) fn sent_mbit(&self) -> Option<f64> {
        median_or_mean(self.seconds.iter().map(|second| second.sent.as_mbit_per_s()))
    }

    /// The mean rate over the quarters of a second in which the relay was behind with reading, and also in the quarter before: what it
    /// carries over these sockets, on this machine. Data counts when it is acknowledged, a round trip later, so the first quarter
    /// after a dip belongs to the dip. Not the median: a rate limit lets data through in bursts, and the median of such short
    /// intervals was 32.7 where that of the seconds was 35.6.
    ///
    /// `None` if there are too few such quarters, or if the lack of a processor may have kept the relay from reading.
    pub(super) fn mean_sent_while_behind_mbit(&self) -> Option<f64> {
        let quarters: Vec<Quarter> = self.quarters().collect();
        let pairs = quarters.windows(2).filter(|pair| pair.iter().all(Quarter::is_behind));
        let sent: Vec<f64> = pairs.map(|pair| pair[1].sent.as_mbit_per_s()).collect();
        if sent.len() < BEHIND_QUARTERS_MIN {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "rounds have far fewer than 2^53 quarters")]
        let [count, all] = [sent.len(), quarters.len()].map(|number| number as f64);
        (!self.lacked_processor(count / all)).then(|| sent.iter().sum::<f64>() / count)
    }

    /// Whether the relay waited for a processor so long that it may have carried less than it would alone.
    pub(super) fn waited_for_processor(&self) -> bool {
        self.load.waited > WAITING_MAX
    }

    /// Whether the lack of a processor may have been the only bottleneck in the whole round, because the relay hardly slept.
    pub(super) fn is_starved(&self) -> bool {
        self.lacked_processor(1.0)
    }

    /// Whether the relay waited for a processor and hardly slept in this share of the round, if all its work was in that part. A relay
    /// that sleeps with data to read is held back by its own rate limit. (C tor's limit lets less through if tor is woken late, which then
    /// is what the relay carries.)
    fn lacked_processor(&self, share: f64) -> bool {
        self.waited_for_processor() && self.load.wanted > BUSY * share
    }

    /// The share of samples in the whole round that found unread data. `None` if there was no round.
    pub(super) fn share_behind(&self) -> Option<f64> {
        let (count, sum) =
            self.quarters().fold((0.0, 0.0), |(n, sum), quarter| (n + 1.0, sum + quarter.behind));
        (count > 0.0).then(|| sum / count)
    }

    fn quarters(&self) -> impl Iterator<Item = Quarter> {
        self.seconds.iter().flat_map(|second| second.quarters)
    }

    /// The case of a run, which compares the estimate with what the relay carries, if that is known. `failed` is the verdict without an
    /// estimate, `lower_bound` that of an inconclusive one.
    pub(super) fn case(
        &self,
        name: String,
        truth: Option<f64>,
        failed: CaseVerdict,
        lower_bound: CaseVerdict,
    ) -> Case {
        let estimate = self.estimate_mbit();
        let case = match truth {
            Some(truth) => Case::judged(name, truth, estimate, BOUNDS),
            None => Case::new(name, None, estimate)
                .ended(CaseVerdict::Failed, "the relay's true capacity is not known"),
        };
        match self.estimate().map(|estimate| estimate.inconclusive) {
            None => case.ended(failed, self.outcome.to_string()),
            Some(Some(reason)) => case.ended(lower_bound, reason.to_string()),
            Some(None) => case,
        }
    }

    /// Why the estimate is only a lower bound, if it is. A relay without a limit is limited by its processor; if it did not use that fully,
    /// other processes on this machine held it back.
    pub(super) fn doubt(&self, has_limit: bool) -> Option<String> {
        let estimate = self.estimate()?;
        if let Some(reason) = estimate.inconclusive {
            return Some(reason.to_string());
        }
        let Load { used, .. } = self.load;
        (!has_limit && used < BUSY).then(|| {
            format!(
                "the relay's process had {:.0} % of a core: this machine was the bottleneck",
                used * 100.0
            )
        })
    }

    /// The case with the reason why its estimate is only a lower bound, if any. A lower bound within the bounds is inconclusive; one outside
    /// has still missed.
    pub(super) fn with_doubt(case: Case, doubt: Option<&str>) -> Case {
        let Some(doubt) = doubt else { return case };
        let verdict = match case.verdict {
            CaseVerdict::Held => CaseVerdict::Inconclusive,
            other => other,
        };
        let doubt = format!("inconclusive: {doubt}");
        let detail =
            if case.detail.is_empty() { doubt } else { format!("{}; {doubt}", case.detail) };
        case.ended(verdict, detail)
    }

    /// The case with columns for the loads of processors, and for the measured seconds.
    pub(super) fn with_loads(&self, case: Case) -> Case {
        let percent = |share: f64| Value::from((share * 1000.0).round() / 10.0);
        case.column("relay_core_percent", percent(self.load.used))
            .column("relay_waited_percent", percent(self.load.waited))
            .column("measurer_busy_percent", self.busiest().map_or(Value::Null, percent))
            .column("machine_busy_percent", percent(self.load.machine))
            .column("seconds_mbit_per_s", self.seconds_text())
    }

    /// The load of the busiest measurer thread, from zero to one.
    fn busiest(&self) -> Option<f64> {
        self.measurers.iter().map(WorkerLoad::busy).reduce(f64::max)
    }

    /// Why an estimate and the kernel's count may differ by chance: both are medians of the same few seconds, whose edges are set by
    /// two clocks.
    pub(super) fn scatter(&self) -> Option<String> {
        let mut sent: Vec<Rate> = self.seconds.iter().map(|second| second.sent).collect();
        sent.sort_unstable();
        let (low, high) = (Percentile::P25.of(&sent)?, Percentile::P75.of(&sent)?);
        let estimate = self.estimate()?.capacity;
        (low..=high).contains(&estimate).then(|| {
            format!(
                "according to the kernel, the relay sent {low} to {high} in the middle half of {} seconds, and the \
                 estimate is within this range: the median of so few seconds varies",
                sent.len()
            )
        })
    }

    /// The explanation of a case that missed or failed: the load of this machine, which explains only estimates that are too low, and
    /// chance.
    pub(super) fn miss(&self, case: &Case, chance: Option<String>) -> Option<Miss> {
        let is_good = matches!(case.verdict, CaseVerdict::Held | CaseVerdict::Inconclusive);
        let is_high = case.ratio.is_some_and(|ratio| ratio > *BOUNDS.end());
        let reasons = self.starvation().filter(|_| !is_high).into_iter().chain(chance);
        let explanation = reasons.collect::<Vec<_>>().join("; ");
        (!is_good && !explanation.is_empty()).then(|| Miss { case: case.name.clone(), explanation })
    }

    /// How the load of this machine explains an estimate that is too low, or missing.
    pub(super) fn starvation(&self) -> Option<String> {
        let Load { waited, wanted, machine, stolen, .. } = self.load;
        let busiest = self.busiest().unwrap_or_default();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut reasons = Vec::new();
        if waited > WAITING_MAX {
            reasons.push(format!(
                "the relay's thread had work {} of the time, and waited for a processor {} of the time",
                percent(wanted),
                percent(waited)
            ));
        } else if wanted > BUSY {
            reasons.push(format!("the relay's thread was busy {} of the time", percent(wanted)));
        }
        if busiest > BUSY {
            reasons.push(format!(
                "a measurer's thread ran, or waited for a processor, {} of the time",
                percent(busiest)
            ));
        }
        if stolen > WAITING_MAX {
            reasons
                .push(format!("other virtual machines had {} of the processors", percent(stolen)));
        }
        (!reasons.is_empty()).then(|| {
            format!(
                "{}; all processors together were {} busy",
                reasons.join("; "),
                percent(machine)
            )
        })
    }
}

/// The distributions of estimates divided by the truth, as in figure 6 of the paper.
pub(super) fn ratio_figure(
    name: &str,
    title: &str,
    truth: &str,
    groups: Vec<(String, Vec<f64>)>,
) -> ExperimentFigure {
    let label = format!("estimate ÷ {truth}");
    let mut figure = ExperimentFigure::distributions(name, title, &label, groups)
        .band(On::X, *BOUNDS.start(), *BOUNDS.end(), "−10 % to +5 %", Role::Truth)
        .caption("The share of runs whose estimate divided by the truth is at most x.");
    figure.x = figure.x.showing(0.85, 1.10);
    figure
}

#[cfg(test)]
impl TrialResult {
    pub(super) fn with_outcome(outcome: Outcome) -> Self {
        Self {
            outcome,
            failed: None,
            seconds: Vec::new(),
            load: Load::default(),
            measurers: Vec::new(),
            sockets: None,
            bottlenecks: Vec::new(),
        }
    }

    pub(super) fn with_estimate(
        capacity: Rate,
        inconclusive: Option<coordinator::Inconclusive>,
    ) -> Self {
        Self::with_outcome(Outcome::Measured(Estimate {
            mode: coordinator::Mode::Echo,
            capacity,
            inconclusive,
            rounds: 1,
            allocated: capacity.scaled(4.0),
            params: coordinator::Params::default(),
            seconds: Vec::new(),
            spread: coordinator::Spread::default(),
            checked_cells: 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_bound_is_inconclusive_or_missed() {
        let judged = |estimate| Case::judged("run", 100.0, Some(estimate), BOUNDS);
        let doubted = |estimate| TrialResult::with_doubt(judged(estimate), Some("too little load"));
        assert_eq!(TrialResult::with_doubt(judged(99.0), None), judged(99.0));
        assert_eq!(doubted(99.0).verdict, CaseVerdict::Inconclusive);
        assert_eq!(doubted(99.0).detail, "inconclusive: too little load");
        assert_eq!(doubted(50.0).verdict, CaseVerdict::Missed);
        assert!(doubted(50.0).detail.starts_with("less than"), "{:?}", doubted(50.0));
    }

    #[test]
    fn the_measured_round_is_the_one_that_the_estimate_is_of() {
        let round = |number: u32, mbit: f64, seconds: usize| Round {
            number,
            seconds: vec![(Instant::ORIGIN, Rate::from_mbit_per_s(mbit)); seconds],
            ..Round::default()
        };
        // One second of the second round is not reported. The third round ended early and does not count.
        let all =
            || vec![round(1, 200.0, 4), round(2, 212.0, 3), round(3, 230.0, 2), round(4, 203.0, 4)];
        assert_eq!(Round::measured(all(), 4, true).number, 2);
        assert_eq!(Round::measured(all(), 4, false).number, 4, "the last round failed");
        assert_eq!(Round::measured(vec![round(1, 1.0, 2)], 4, true).number, 1, "a lower bound");
    }

    #[test]
    fn a_relay_carries_what_it_sends_while_behind_unless_it_lacked_a_processor() {
        let rate = Rate::from_mbit_per_s;
        let second = |(number, sent, behind): (u64, f64, usize)| TrialSecond {
            end: Instant::from_millis(1000 * number),
            measured: rate(sent),
            reported: None,
            sent: rate(sent),
            quarters: [0, 1, 2, 3].map(|number| Quarter {
                sent: rate(sent),
                behind: if number < behind { 0.94 } else { 0.86 },
            }),
        };
        let result = |seconds: &[(u64, f64, usize)], waited, wanted| TrialResult {
            seconds: seconds.iter().copied().map(second).collect(),
            load: Load { waited, wanted, ..Load::default() },
            ..TrialResult::with_estimate(rate(73.0), None)
        };
        let seconds =
            [(1, 30.0, 0), (2, 72.0, 4), (3, 74.0, 4), (4, 73.0, 4), (5, 73.0, 4), (6, 73.0, 1)];
        let behind =
            |seconds, waited, wanted| result(seconds, waited, wanted).mean_sent_while_behind_mbit();
        // The first of 17 quarters belongs to the dip before: three of 72, four of 74, nine of 73.
        let expected = Some(73.0625);
        assert_eq!(behind(&seconds, 0.0, 0.1), expected);
        assert_eq!(behind(&seconds, 0.0, 1.0), expected, "its processor limits it");
        // Sixteen quarters of 24: all its work may have been in these two thirds.
        assert_eq!(behind(&seconds, 0.2, 0.59), expected, "it slept with data to read");
        assert_eq!(behind(&seconds, 0.2, 0.61), None, "it may have been kept from reading");
        assert_eq!(
            behind(&seconds[..5], 0.0, 0.1),
            None,
            "sixteen quarters, one of them of the dip"
        );
        let mut bursty = result(&seconds, 0.0, 0.1);
        for second in &mut bursty.seconds {
            for (quarter, sent) in second.quarters.iter_mut().zip([64.0, 64.0, 64.0, 96.0]) {
                *quarter = Quarter { sent: rate(sent), behind: 1.0 };
            }
        }
        assert_eq!(bursty.mean_sent_while_behind_mbit(), Some(1664.0 / 23.0), "it sends in bursts");
        let share = result(&seconds[..2], 0.0, 0.1).share_behind().expect("two seconds");
        assert!((share - 0.9).abs() < 1e-9, "{share}");
        assert_eq!(result(&[], 0.0, 0.0).share_behind(), None);
        let starved = |waited, wanted| result(&seconds, waited, wanted).is_starved();
        assert!(starved(0.2, 0.95) && !starved(0.2, 0.61) && !starved(0.04, 0.95));
    }

    #[test]
    fn the_earliest_report_determines_the_start_of_a_round() {
        let reported_at = [1_400, 2_050, 3_500, 4_100].map(Instant::from_millis);
        assert_eq!(round_start(reported_at.into_iter()), Some(Instant::from_millis(50)));
        assert_eq!(round_start(std::iter::empty()), None);
    }
}
