//! One measurement of an experiment, with what is known of it besides the estimate.

use crate::common::Session;
use crate::error::{Error, Result};
use crate::reporting::median_or_mean;
use coordinator::{Estimate, MeasurerBottleneck, Outcome, Percentile, RoundHistory};
use lab::RelayReports;
use lab::processors::{Load, Reading};
use lab::witness::{Count, Witness, mbit};
use measurer::{Progress, Request, Team, WorkerLoad};
use onion::{Duration, Instant, Rate};
use report::experiment::{Case, CaseVerdict, Value};
use std::ops::RangeInclusive;

/// Estimate over truth: what the experiments promise (paper: 0.80 to 1.05).
pub(super) const BOUNDS: RangeInclusive<f64> = 0.90..=1.05;

/// A thread that ran or wanted to run this share of the time has nothing left.
const BUSY: f64 = 0.9;

/// Waiting for a processor for this share of the time costs as much of what is passed on.
const MUCH_WAITING: f64 = 0.05;

/// A relay is behind in a quarter of a second if in this share of looks there waits for it what it sends in [`BEHIND_TIME`]. One that is fast enough
/// has read everything at most looks; a bucket that is empty for a moment is filled again within a tenth of a second.
const BEHIND_SHARE: f64 = 0.9;
const BEHIND_TIME: Duration = Duration::from_millis(10);

/// What is looked at as a whole: sixteen times as long as stock tor's bucket waits to be filled again. Over a path with loss there are dips in which
/// less comes than the relay could pass on, and hardly a second without one.
const QUARTER: Duration = Duration::from_millis(250);

/// Of fewer quarters chance has too much to say.
const BEHIND_QUARTERS_MIN: usize = 16;

/// Time for the relay's word on the last second.
const LAST_WORD: Duration = Duration::from_millis(1200);

/// The relay of a trial, and those who measure it.
pub(super) struct Trial<'t, 'r> {
    /// In progress, such as `echo 10 Mbit/s, run 3`.
    pub(super) name: &'t str,
    pub(super) team: &'t mut Team,
    pub(super) request: Request,
    /// The relay's process.
    pub(super) pid: u32,
    pub(super) said: &'t mut RelayReports<'r>,
}

/// What came of it.
pub(super) struct Tried {
    pub(super) outcome: Outcome,
    /// The round that the estimate is of: the last, or one before it that showed more.
    pub(super) seconds: Vec<TriedSecond>,
    /// The relay's load then, and the machine's.
    pub(super) load: Load,
    /// Of the measurers that took part in the last round and reported.
    pub(super) measurers: Vec<WorkerLoad>,
    /// Of that round, over all measurers; `None` if there was none.
    pub(super) sockets: Option<u32>,
    /// The measurers that something of their own held back.
    pub(super) bottlenecks: Vec<MeasurerBottleneck>,
}

/// A second of the round that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct TriedSecond {
    /// When it ended, by the clock of what the relay says.
    pub(super) end: Instant,
    pub(super) measured: Rate,
    /// What the relay itself says of it.
    pub(super) said: Option<Rate>,
    /// What the kernel counted that the relay's process sent.
    pub(super) sent: Rate,
    /// One after the other.
    pub(super) quarters: [Quarter; 4],
}

/// A quarter of a second of the round that counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quarter {
    /// What the kernel counted that the relay's process sent.
    sent: Rate,
    /// In which share of looks more had come to the relay than it read.
    behind: f64,
}

impl Quarter {
    /// Nothing but itself kept the relay: what it did then is what it can do.
    fn is_behind(&self) -> bool {
        self.behind >= BEHIND_SHARE
    }
}

/// What is gathered while a round is on.
#[derive(Default)]
struct Round {
    /// Counted from one.
    number: u32,
    before: Option<Reading>,
    after: Option<Reading>,
    /// Each second, and when it was reported.
    seconds: Vec<(Instant, Rate)>,
}

impl Trial<'_, '_> {
    /// Measures; `None` if the user has interrupted.
    pub(super) fn run(self, session: Session<'_>) -> Result<Option<Tried>> {
        self.run_telling(session, &mut |_| ())
    }

    /// Measures, and reports progress to `told`, too.
    pub(super) fn run_telling(
        self,
        session: Session<'_>,
        told: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Tried>> {
        let Session { output, interrupt, .. } = session;
        let Self { name, team, request, pid, said } = self;
        let mut rounds: Vec<Round> = Vec::new();
        let witness = Witness::start(vec![Count::Sent { by: pid }], said.clock());
        let witness = witness.map_err(Error::witness)?;
        let of = team.options().params.seconds;
        let mut take = |progress: Progress| match progress {
            Progress::Preparing { round, allocated, .. } => {
                output.doing(format!("{name}: round {round}: preparing {allocated}"));
            }
            Progress::Started { round: number, .. } => {
                rounds.push(Round { number, ..Round::default() });
            }
            Progress::Second { round: number, index, measured } => {
                let Some(round) = rounds.last_mut() else { return };
                let second = index + 1;
                output
                    .doing(format!("{name}: round {number}, second {second} of {of}: {measured}"));
                let now = said.now();
                let reading = Reading::take(pid, now);
                // Not from the start on: a lead, in which the relay has less to do, is not told.
                round.before.get_or_insert_with(|| reading.clone());
                round.after = Some(reading);
                round.seconds.push((now, measured));
            }
        };
        let mut on_progress = |progress: Progress| {
            told(&progress);
            take(progress);
        };
        let result = team.measure(&request, &mut on_progress, interrupt.requested())?;
        if interrupt.is_requested() {
            return Ok(None);
        }
        let round = Round::that_counts(rounds, of, result.outcome.estimate().is_some());
        let seconds = round.seconds(said, &witness);
        if let Some(problem) = witness.problem() {
            return Err(Error::Witness(problem));
        }
        let load = round.before.zip(round.after).map(|(before, after)| after.since(&before));
        Ok(Some(Tried {
            outcome: result.outcome,
            seconds,
            load: load.unwrap_or_default(),
            measurers: result.loads.into_iter().flatten().collect(),
            sockets: sockets_of(&result.course, round.number),
            bottlenecks: result.course.bottlenecks(),
        }))
    }
}

impl Tried {
    /// What came back in each second of the round that counts, from its lead on: megabits per second, with spaces between.
    pub(super) fn seconds_text(&self) -> String {
        let seconds = self.seconds.iter().map(|it| format!("{:.1}", it.measured.as_mbit_per_s()));
        seconds.collect::<Vec<_>>().join(" ")
    }
}

/// Over all measurers, of the last round if there was none of this number.
fn sockets_of(course: &RoundHistory, number: u32) -> Option<u32> {
    let rounds = &course.rounds;
    let round = rounds.iter().find(|it| it.number == number).or_else(|| rounds.last())?;
    Some(round.allocation.sockets())
}

impl Round {
    /// The one that an estimate is of (docs/accuracy.md, "The best round"): what the relay did then is its truth, and over the sockets of a later
    /// one it may do less. Where there is no estimate, the last.
    fn that_counts(mut rounds: Vec<Self>, seconds: u32, has_estimate: bool) -> Self {
        let last = rounds.pop().unwrap_or_default();
        if !has_estimate {
            return last;
        }
        // The last second of a round that another one follows is not told.
        rounds.retain(|it| it.seconds.len() + 1 >= seconds as usize);
        rounds.push(last);
        let shown = |it: &Self| {
            median_or_mean(it.seconds.iter().map(|(_, measured)| measured.as_mbit_per_s()))
        };
        // Of two that showed as much it does not matter which.
        rounds
            .into_iter()
            .max_by(|one, other| shown(one).unwrap_or(0.0).total_cmp(&shown(other).unwrap_or(0.0)))
            .unwrap_or_default()
    }

    /// The seconds with what relay and kernel say of each.
    fn seconds(&self, said: &mut RelayReports<'_>, witness: &Witness) -> Vec<TriedSecond> {
        let after = |start: Instant, index: u32| start + Duration::from_secs(u64::from(index) + 1);
        let Some(start) = round_start(self.seconds.iter().map(|(told, _)| *told)) else {
            return Vec::new();
        };
        let count = u32::try_from(self.seconds.len()).unwrap_or(u32::MAX);
        said.gather_until(after(start, count.saturating_sub(1)) + LAST_WORD);
        let sent = witness.seconds_from(0, start, count).into_iter().map(Rate::from_mbit_per_s);
        let second = |(index, ((_, measured), sent)): (u32, (&(Instant, Rate), Rate))| {
            let end = after(start, index);
            let begin = start + Duration::from_secs(u64::from(index));
            let much = sent.bytes_in(BEHIND_TIME).max(1);
            let quarters = [0, 1, 2, 3].map(|number| {
                let begin = begin + QUARTER * number;
                let bytes = witness.bytes_between(0, begin, begin + QUARTER);
                Quarter {
                    sent: Rate::from_mbit_per_s(mbit(bytes) / QUARTER.as_secs_f64()),
                    behind: witness.share_unread(0, much, begin..begin + QUARTER),
                }
            });
            let said = said.second_ending(end);
            TriedSecond { end, measured: *measured, said, sent, quarters }
        };
        (0..).zip(self.seconds.iter().zip(sent)).map(second).collect()
    }
}

/// When a round began, of which each second is reported some time after its end: no later than the
/// promptest report lets it.
pub(super) fn round_start(told: impl Iterator<Item = Instant>) -> Option<Instant> {
    let began = |(seconds, told): (u64, Instant)| {
        Instant::ORIGIN + (told - Instant::ORIGIN).saturating_sub(Duration::from_secs(seconds))
    };
    (1..).zip(told).map(began).min()
}

impl Tried {
    pub(super) fn estimate(&self) -> Option<&Estimate> {
        self.outcome.estimate()
    }

    pub(super) fn estimate_mbit(&self) -> Option<f64> {
        self.estimate().map(|estimate| estimate.capacity.as_mbit_per_s())
    }

    /// The relay's own word, cut as an estimate is.
    pub(super) fn said_mbit(&self) -> Option<f64> {
        median_or_mean(
            self.seconds.iter().filter_map(|second| second.said).map(Rate::as_mbit_per_s),
        )
    }

    /// What the kernel counted that the relay's process sent to anybody, TLS included, cut as an estimate is.
    pub(super) fn sent_mbit(&self) -> Option<f64> {
        median_or_mean(self.seconds.iter().map(|second| second.sent.as_mbit_per_s()))
    }

    /// What it sent on average over the quarters of a second in which more had come to the relay than it read, all the time, as in the one before: what it does over
    /// these very sockets, on this machine. Data counts when it is acknowledged, a round trip later, so that the first quarter after a dip is of the dip.
    /// Not their median: what a rate limit lets through comes in lumps, and the median of such short pieces was 32.7 where that of the seconds was 35.6.
    /// `None` if there were hardly any, and where it may have been the lack of a processor that kept it from reading.
    pub(super) fn sent_behind_mbit(&self) -> Option<f64> {
        let quarters: Vec<Quarter> = self.quarters().collect();
        let pairs = quarters.windows(2).filter(|pair| pair.iter().all(Quarter::is_behind));
        let sent: Vec<f64> = pairs.map(|pair| pair[1].sent.as_mbit_per_s()).collect();
        if sent.len() < BEHIND_QUARTERS_MIN {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "rounds have far fewer than 2^53 quarters")]
        let [count, all] = [sent.len(), quarters.len()].map(|it| it as f64);
        (!self.lacked_processor(count / all)).then(|| sent.iter().sum::<f64>() / count)
    }

    /// Whether the relay waited for a processor so long that it may have done less than it would do alone.
    pub(super) fn waited_much(&self) -> bool {
        self.load.waited > MUCH_WAITING
    }

    /// Whether that may be all that kept it, over the whole round: it hardly slept.
    pub(super) fn is_starved(&self) -> bool {
        self.lacked_processor(1.0)
    }

    /// Whether the relay waited for a processor, and hardly slept in a part of the round of this share, even if all its work was in there. Who sleeps
    /// though there is something to read is kept by its own rate limit. (Stock tor's lets less through where it is woken late, and that is then what the relay does.)
    fn lacked_processor(&self, share: f64) -> bool {
        self.waited_much() && self.load.wanted > BUSY * share
    }

    /// In which share of looks more had come to the relay than it read, over the whole round. `None` if there was none.
    pub(super) fn share_behind(&self) -> Option<f64> {
        let (count, sum) =
            self.quarters().fold((0.0, 0.0), |(n, sum), it| (n + 1.0, sum + it.behind));
        (count > 0.0).then(|| sum / count)
    }

    fn quarters(&self) -> impl Iterator<Item = Quarter> {
        self.seconds.iter().flat_map(|it| it.quarters)
    }

    /// The case of a run, whose estimate is compared with what the relay carries, if that is known. The verdicts are those of a
    /// measurement without estimate, and of a lower bound.
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
                .ended(CaseVerdict::Failed, "what the relay carries is not known"),
        };
        match self.estimate().map(|it| it.inconclusive) {
            None => case.ended(failed, self.outcome.to_string()),
            Some(Some(reason)) => case.ended(lower_bound, reason.to_string()),
            Some(None) => case,
        }
    }

    /// Why the estimate is but a lower bound, if it is. A relay without limit is bound by its
    /// processor: short of that, it was held back by what shares this machine with it.
    pub(super) fn doubt(&self, has_limit: bool) -> Option<String> {
        let estimate = self.estimate()?;
        if let Some(reason) = estimate.inconclusive {
            return Some(reason.to_string());
        }
        let Load { used, .. } = self.load;
        (!has_limit && used < BUSY).then(|| {
            format!(
                "the relay's process got {:.0} % of a core: this machine was the bottleneck",
                used * 100.0
            )
        })
    }

    /// The case, in the light of this doubt: a lower bound that is near the truth has not held, since it
    /// might as well not be. One that is off is off.
    pub(super) fn doubted(case: Case, doubt: Option<&str>) -> Case {
        let Some(doubt) = doubt else { return case };
        let verdict = match case.verdict {
            CaseVerdict::Held => CaseVerdict::Inconclusive,
            other => other,
        };
        let doubt = format!("inconclusive: {doubt}");
        let parts = [case.detail.as_str(), doubt.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let detail = parts.join("; ");
        case.ended(verdict, detail)
    }

    /// The case with columns about who had the processors.
    pub(super) fn with_loads(&self, case: Case) -> Case {
        let percent = |share: f64| Value::from((share * 1000.0).round() / 10.0);
        case.column("relay_core_percent", percent(self.load.used))
            .column("relay_waited_percent", percent(self.load.waited))
            .column("measurer_busy_percent", self.busiest().map_or(Value::Null, percent))
            .column("machine_busy_percent", percent(self.load.machine))
    }

    /// How busy the busiest thread of the measurers was, from zero to one.
    fn busiest(&self) -> Option<f64> {
        self.measurers.iter().map(WorkerLoad::busy).reduce(f64::max)
    }

    /// Why what the kernel counted, where that is the truth, and the estimate may differ by chance: both are
    /// medians of the same few seconds, cut by two clocks.
    pub(super) fn scatter(&self) -> Option<String> {
        let mut sent: Vec<Rate> = self.seconds.iter().map(|second| second.sent).collect();
        sent.sort_unstable();
        let (low, high) = (Percentile::P25.of(&sent)?, Percentile::P75.of(&sent)?);
        let estimate = self.estimate()?.capacity;
        (low..=high).contains(&estimate).then(|| {
            format!(
                "by the kernel the relay sent {low} to {high} in the middle half of {} seconds, which the \
                 estimate lies within: that few seconds have no steadier median",
                sent.len()
            )
        })
    }

    /// What this machine has to do with an estimate that is too low, or with none at all.
    pub(super) fn starvation(&self) -> Option<String> {
        let Load { waited, wanted, machine, stolen, .. } = self.load;
        let busiest = self.busiest().unwrap_or_default();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut reasons = Vec::new();
        if waited > MUCH_WAITING {
            reasons.push(format!(
                "the relay had work for its thread {} of the time, and no processor {} of it",
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
        if stolen > MUCH_WAITING {
            reasons.push(format!("{} of the processors went to other machines", percent(stolen)));
        }
        (!reasons.is_empty()).then(|| {
            format!(
                "{}; all processors together were busy {}",
                reasons.join("; "),
                percent(machine)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_bound_never_holds_and_may_miss() {
        let judged = |estimate| Case::judged("run", 100.0, Some(estimate), BOUNDS);
        let doubted = |estimate| Tried::doubted(judged(estimate), Some("too little load"));
        assert_eq!(Tried::doubted(judged(99.0), None), judged(99.0));
        assert_eq!(doubted(99.0).verdict, CaseVerdict::Inconclusive);
        assert_eq!(doubted(99.0).detail, "inconclusive: too little load");
        assert_eq!(doubted(50.0).verdict, CaseVerdict::Missed);
        assert!(doubted(50.0).detail.starts_with("less than"), "{:?}", doubted(50.0));
    }

    #[test]
    fn the_truth_is_of_the_round_that_the_estimate_is_of() {
        let round = |number: u32, mbit: f64, seconds: usize| Round {
            number,
            seconds: vec![(Instant::ORIGIN, Rate::from_mbit_per_s(mbit)); seconds],
            ..Round::default()
        };
        // Of the second one second is not told. The third ended early: nothing is of it.
        let all =
            || vec![round(1, 200.0, 4), round(2, 212.0, 3), round(3, 230.0, 2), round(4, 203.0, 4)];
        assert_eq!(Round::that_counts(all(), 4, true).number, 2);
        assert_eq!(Round::that_counts(all(), 4, false).number, 4, "what failed was the last");
        assert_eq!(Round::that_counts(vec![round(1, 1.0, 2)], 4, true).number, 1, "a lower bound");
    }

    #[test]
    fn what_a_relay_sends_while_behind_is_what_it_can_unless_the_machine_kept_it_from_reading() {
        let rate = Rate::from_mbit_per_s;
        let second = |(number, sent, behind): (u64, f64, usize)| TriedSecond {
            end: Instant::from_millis(1000 * number),
            measured: rate(sent),
            said: None,
            sent: rate(sent),
            quarters: [0, 1, 2, 3].map(|it| Quarter {
                sent: rate(sent),
                behind: if it < behind { 0.94 } else { 0.86 },
            }),
        };
        let tried = |seconds: &[(u64, f64, usize)], waited, wanted| Tried {
            outcome: Outcome::Failed {
                reason: coordinator::Failure::GotNothing,
                measurer: None,
                round: 1,
                second: None,
            },
            seconds: seconds.iter().copied().map(second).collect(),
            load: Load { waited, wanted, ..Load::default() },
            measurers: Vec::new(),
            sockets: None,
            bottlenecks: Vec::new(),
        };
        let seconds =
            [(1, 30.0, 0), (2, 72.0, 4), (3, 74.0, 4), (4, 73.0, 4), (5, 73.0, 4), (6, 73.0, 1)];
        let behind = |seconds, waited, wanted| tried(seconds, waited, wanted).sent_behind_mbit();
        // Of 17 quarters the first is of the dip before: three of 72, four of 74, nine of 73.
        let expected = Some(73.0625);
        assert_eq!(behind(&seconds, 0.0, 0.1), expected);
        assert_eq!(behind(&seconds, 0.0, 1.0), expected, "its own processor is what it has");
        // Sixteen quarters of 24: all that it ran and waited for may have been in these two thirds.
        assert_eq!(behind(&seconds, 0.2, 0.59), expected, "it slept with data to read");
        assert_eq!(behind(&seconds, 0.2, 0.61), None, "it may have been kept from reading");
        assert_eq!(behind(&seconds[..5], 0.0, 0.1), None, "sixteen quarters, one of the dip");
        let mut lumpy = tried(&seconds, 0.0, 0.1);
        for second in &mut lumpy.seconds {
            for (quarter, sent) in second.quarters.iter_mut().zip([64.0, 64.0, 64.0, 96.0]) {
                *quarter = Quarter { sent: rate(sent), behind: 1.0 };
            }
        }
        assert_eq!(lumpy.sent_behind_mbit(), Some(1664.0 / 23.0), "it comes in lumps");
        let share = tried(&seconds[..2], 0.0, 0.1).share_behind().expect("two seconds");
        assert!((share - 0.9).abs() < 1e-9, "{share}");
        assert_eq!(tried(&[], 0.0, 0.0).share_behind(), None);
        let starved = |waited, wanted| tried(&seconds, waited, wanted).is_starved();
        assert!(starved(0.2, 0.95) && !starved(0.2, 0.61) && !starved(0.04, 0.95));
    }

    #[test]
    fn a_round_began_when_its_promptest_report_says() {
        let told = [1_400, 2_050, 3_500, 4_100].map(Instant::from_millis);
        assert_eq!(round_start(told.into_iter()), Some(Instant::from_millis(50)));
        assert_eq!(round_start(std::iter::empty()), None);
    }
}
