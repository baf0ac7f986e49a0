//! `flashflow-lab experiment adversary`: relays, coordinators and measurers that lie or break the rules.

mod evasion;
mod figures;
mod inflating;
mod inflation;
mod parties;
mod relays;
mod timing;

use crate::common::Session;
use crate::error::Result;
use crate::reporting::{self, parameter, print_case};
use crate::testbed::{Testbed, echo_limit};
use clap::Args;
use onion::Rate;
use report::experiment::{Case, CaseVerdict, ExperimentReport};
use terminal::{Interrupt, Output};

/// *r*, the largest share of clients: what it takes to gain a third, and no more.
const RATIO: f64 = 0.25;

/// What bursts and the edges of seconds may add to any bound.
const TOLERANCE: f64 = 0.05;

/// 1/(1−r).
const GAIN: f64 = 1.0 / (1.0 - RATIO);

/// Measurers, each a process with one pump.
const MEASURERS: usize = 2;

/// What each of them has, of what relays can carry: enough for relays that gain or have twice as much.
const CAPACITY: f64 = 3.0;

/// What do relays, coordinators and measurers gain that lie?
///
/// Each relay that lies is measured as an echo by two measurer processes, with a known rate limit: it
/// gains at most 1/(1-r), or is found out; but one that is fast only while it is measured is believed.
/// Coordinators and measurers that break the rules are refused, each with the number of the reason.
/// Measurers that inflate their counts are found out, since the relay says what it sent to each. Two relays on one machine that take
/// turns or burst together, and one that is fast only at the minute at which it was measured the day before, are computed. Then many relays that
/// forge answers are measured in virtual time: how many are checked before k forged answers have come back?
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment adversary --quick --out results")]
pub(super) struct Options {
    /// Length of each measurement in seconds, 3 to 120; 15 by default, 6 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// What relays can carry, in Mbit/s, 20 or more.
    #[arg(long, default_value_t = 100.0, value_name = "MBIT")]
    limit: f64,
    /// Only these relays, by name.
    #[arg(long, value_delimiter = ',', value_name = "RELAY,…",
        value_parser = clap::builder::PossibleValuesParser::new(relays::names()))]
    only: Vec<String>,
    /// Relays that forge answers, in virtual time; 2000 by default, 300 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    forgers: Option<u32>,
    /// Seed of the first forger; each next one has the next.
    #[arg(long, default_value_t = 0, value_name = "NUMBER",
        value_parser = clap::value_parser!(u64).range(..=u64::MAX >> 2))]
    seed: u64,
}

struct AdversarySettings {
    seconds: u32,
    limit: Rate,
    /// Relays to be measured; all if empty.
    only: Vec<String>,
    forgers: u32,
    first_seed: u64,
}

/// What all parts of the experiment have at hand.
struct Laboratory<'s> {
    stage: &'s Testbed,
    plan: AdversarySettings,
    output: &'s Output,
    interrupt: &'s Interrupt,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let plan = AdversarySettings {
        seconds: session.or(options.seconds, 6, 15),
        limit: echo_limit(options.limit)?,
        only: options.only.clone(),
        forgers: session.or(options.forgers, 300, 2000),
        first_seed: options.seed,
    };
    let stage = Testbed::with_measurers(MEASURERS, plan.limit.scaled(CAPACITY), output)?;
    let scene = Laboratory { stage: &stage, plan, output, interrupt };
    let relays = relays::cases(&scene);
    let parties = parties::cases(&scene)?;
    let inflation = inflation::cases(&scene)?;
    let timing = timing::cases(&scene);
    let evasion = evasion::Evasion::play(&scene)?;

    let mut report = begin(&scene.plan);
    report.figures.extend(figures::gains(&relays));
    report.figures.extend(evasion.as_ref().map(evasion::Evasion::figure));
    report.answer = answer(&relays, &parties, &inflation, &timing, evasion.as_ref());
    report.cases.extend(relays);
    report.cases.extend(parties);
    report.cases.extend(inflation);
    report.cases.extend(timing);
    report.cases.extend(evasion.iter().flat_map(evasion::Evasion::cases));
    Ok(report)
}

impl Laboratory<'_> {
    /// Plays cases one after another until the user has had enough, reporting each as it ends. What
    /// cannot be played is a case that failed, too.
    fn each<N: Into<String>, T>(
        &self,
        parts: impl IntoIterator<Item = (N, T)>,
        mut play: impl FnMut(T) -> Result<Case>,
    ) -> Vec<Case> {
        let mut cases = Vec::new();
        for (name, part) in parts {
            if self.interrupt.is_requested() {
                break;
            }
            let case = play(part).unwrap_or_else(|error| {
                Case::named(name).ended(CaseVerdict::Failed, error.to_string())
            });
            if self.interrupt.is_requested() {
                break; // it was cut short
            }
            print_case(&case, self.output);
            cases.push(case);
        }
        cases
    }
}

fn begin(plan: &AdversarySettings) -> ExperimentReport {
    let text = include_str!("../../../docs/experiments/adversary.md");
    let report = reporting::report("adversary", text);
    ExperimentReport {
        parameters: vec![
            parameter("limit of the relays", plan.limit),
            parameter("share of clients r", RATIO),
            parameter("length of a measurement", format!("{} s", plan.seconds)),
            parameter("measurers", format!("{MEASURERS} processes")),
            parameter("forgers in virtual time", plan.forgers),
            parameter("seed of the first forger", plan.first_seed),
        ],
        ..report
    }
}

fn answer(
    relays: &[Case],
    parties: &[Case],
    inflation: &[Case],
    timing: &[Case],
    evasion: Option<&evasion::Evasion>,
) -> String {
    let refused =
        |cases: &[Case]| cases.iter().filter(|case| case.verdict == CaseVerdict::Refused).count();
    let believed = |case: &&Case| Some(case.name.as_str()) == relays::believed();
    let most = relays.iter().filter(|case| !believed(case)).filter_map(|case| case.ratio);
    let most = most.fold(0.0, f64::max);
    let mut answer = format!(
        "{} of {} relays were found out, and no other gained more than {most:.3} times what it has \
         (bound: {GAIN:.3})",
        refused(relays),
        relays.len(),
    );
    if let Some(gain) = relays.iter().find(believed).and_then(|case| case.ratio) {
        answer += &format!(
            ", but for one that is fast only while it is measured: {gain:.3} times what it carries otherwise"
        );
    }
    answer += &format!(
        "; {} of {} breaches of the rules by coordinators and measurers were refused, and {} of {} measurers that \
         claimed more than came back to them.",
        refused(parties),
        parties.len(),
        refused(inflation),
        inflation.len(),
    );
    let ratio = |name| timing.iter().find(|case| case.name == name).and_then(|case| case.ratio);
    if let (Some(turns), Some(bursts)) = (ratio(timing::TURNS), ratio(timing::BURSTS)) {
        answer += &format!(
            " Two relays on one machine have at most {turns:.3} times its capacity together if they take turns, and {bursts:.3} \
             times if the machine bursts."
        );
    }
    if let Some(yesterday) = ratio(timing::YESTERDAY) {
        answer += &format!(
            " A relay that is fast only at the minute of yesterday's measurement has {yesterday:.3} of its usual capacity."
        );
    }
    if let Some(evasion) = evasion {
        answer += " ";
        answer += &evasion.answer();
    }
    answer
}
