//! `flashflow-lab experiment adversary`: relays, coordinators and measurers that lie or break the rules.

mod evasion;
mod figures;
mod inflating;
mod inflation;
mod parties;
mod relays;
mod starving;
mod timing;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::measuring::measure;
use crate::reporting::{self, parameter, print_case};
use crate::testbed::{Testbed, echo_limit};
use authority::one_relay::Request;
use authority::shell::Team;
use clap::Args;
use coordinator::{Outcome, Progress};
use onion::Rate;
use report::experiment::{Case, CaseVerdict, ExperimentReport};
use terminal::{Interrupt, Output};

/// *r*, the maximum share of client traffic. With it a lying relay gains at most a third.
const RATIO: f64 = 0.25;

/// The tolerance of every bound, for bursts and the boundaries of seconds.
const TOLERANCE: f64 = 0.05;

/// 1/(1−r).
const GAIN: f64 = 1.0 / (1.0 - RATIO);

/// The number of measurer processes, each with one pump.
const MEASURERS: usize = 2;

/// The capacity of each measurer, relative to the relays' limit: enough for relays that gain or have twice as much.
const CAPACITY: f64 = 3.0;

/// The numbers of client circuits of the curve.
const CLIENT_CIRCUITS: [u32; 7] = [1, 3, 10, 30, 100, 300, 1000];

/// What do relays, coordinators and measurers gain by lying?
///
/// Two measurer processes measure lying relays with a known rate limit by echo. A relay must be detected or gain at most 1/(1-r). A relay
/// that is fast only while it is measured is believed. The relay must refuse coordinators and measurers that break the rules, with the
/// error number of the reason. Measurers that inflate their counts must be detected by the relay's own counts. The gains of two relays
/// on one machine that take turns or burst together, and of a relay that is fast only at the minute of yesterday's measurement, are
/// computed. A client that uses an honest relay over many circuits while it is measured, all day or from the start of the measurement on,
/// must not lower an estimate that is called conclusive. Finally, relays that forge answers are measured in virtual time: how many of them return k forged answers undetected?
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment adversary --quick --out results")]
pub(super) struct Options {
    /// Duration of each measurement in seconds, 3 to 120; 15 by default, 6 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// Rate limit of the relays in Mbit/s, 20 or more.
    #[arg(long, default_value_t = 100.0, value_name = "MBIT")]
    limit: f64,
    /// Relays to measure; all by default.
    #[arg(long, value_delimiter = ',', value_name = "RELAY,…",
        value_parser = clap::builder::PossibleValuesParser::new(relays::names().into_iter().chain(starving::names())))]
    only: Vec<String>,
    /// Number of relays that forge answers in virtual time; 2000 by default, 300 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    forgers: Option<u32>,
    /// Numbers of client circuits, up to 2000 each, at which our relay and C tor are measured in transit; none if --quick.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,…", value_parser = clap::value_parser!(u32).range(1..=2000))]
    client_circuits: Vec<u32>,
    /// Seed of the first forger. The seeds of the others follow.
    #[arg(long, default_value_t = 0, value_name = "NUMBER",
        value_parser = clap::value_parser!(u64).range(..=u64::MAX >> 2))]
    seed: u64,
}

struct AdversarySettings {
    seconds: u32,
    limit: Rate,
    /// The relays to measure; all if empty.
    only: Vec<String>,
    forgers: u32,
    client_circuits: Vec<u32>,
    first_seed: u64,
}

/// What all parts of the experiment use.
struct Context<'s> {
    testbed: &'s Testbed,
    settings: AdversarySettings,
    output: &'s Output,
    interrupt: &'s Interrupt,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let settings = AdversarySettings {
        seconds: session.or(options.seconds, 6, 15),
        limit: echo_limit(options.limit)?,
        only: options.only.clone(),
        forgers: session.or(options.forgers, 300, 2000),
        client_circuits: match options.client_circuits.as_slice() {
            [] if session.common.quick || !options.only.is_empty() => Vec::new(),
            [] => CLIENT_CIRCUITS.to_vec(),
            given => given.to_vec(),
        },
        first_seed: options.seed,
    };
    let testbed = Testbed::with_measurers(MEASURERS, settings.limit.scaled(CAPACITY), output)?;
    let context = Context { testbed: &testbed, settings, output, interrupt };
    let relays = relays::cases(&context);
    let parties = parties::cases(&context)?;
    let inflation = inflation::cases(&context)?;
    let timing = timing::cases(&context);
    let starving = starving::cases(&context);
    let curve = starving::curve(&context, &context.settings.client_circuits)?;
    let evasion = evasion::Evasion::run(&context)?;

    let mut report = begin(&context.settings);
    report.figures.extend(figures::gains(&relays));
    report.figures.extend(evasion.as_ref().map(evasion::Evasion::figure));
    report.figures.extend(starving::figure(&curve));
    report.answer = answer(&relays, &parties, &inflation, &timing, evasion.as_ref());
    let downward = relays.iter().chain(&starving).chain(&curve);
    report.answer += &starving::answer(downward);
    report.cases.extend(relays);
    report.cases.extend(parties);
    report.cases.extend(inflation);
    report.cases.extend(timing);
    report.cases.extend(starving);
    report.cases.extend(curve);
    report.cases.extend(evasion.iter().flat_map(evasion::Evasion::cases));
    Ok(report)
}

impl Context<'_> {
    /// Measures a relay. A failure is judged, so the measurement is not repeated.
    ///
    /// # Errors
    /// Also if the user has interrupted: then the case does not count.
    fn measure(
        &self,
        team: &dyn Team,
        request: Request,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Outcome> {
        let request = Request { repeats_failures: false, ..request };
        let measured = measure(team, request, on_progress, self.interrupt.requested())?;
        let interrupted = || Error::Failed("interrupted".to_owned());
        measured.map(|measured| measured.record.outcome()).ok_or_else(interrupted)
    }

    /// Runs cases one after another until the user interrupts, and prints each when it ends. If a case cannot be run, its verdict is
    /// failed.
    fn each<N: Into<String>, T>(
        &self,
        parts: impl IntoIterator<Item = (N, T)>,
        mut run: impl FnMut(T) -> Result<Case>,
    ) -> Vec<Case> {
        let mut cases = Vec::new();
        for (name, part) in parts {
            if self.interrupt.is_requested() {
                break;
            }
            let case =
                run(part).unwrap_or_else(|error| reporting::failed_case(name.into(), &error));
            if self.interrupt.is_requested() {
                break; // the case is incomplete
            }
            print_case(&case, self.output);
            cases.push(case);
        }
        cases
    }
}

fn begin(settings: &AdversarySettings) -> ExperimentReport {
    let text = include_str!("../../../../docs/experiments/adversary.md");
    let report = reporting::report("adversary", text);
    ExperimentReport {
        parameters: vec![
            parameter("limit of the relays", settings.limit),
            parameter("share of clients r", RATIO),
            parameter("length of a measurement", format!("{} s", settings.seconds)),
            parameter("measurers", format!("{MEASURERS} processes")),
            parameter("forgers in virtual time", settings.forgers),
            parameter("seed of the first forger", settings.first_seed),
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
    let max = relays.iter().filter(|case| !believed(case)).filter_map(|case| case.ratio);
    let max = max.fold(0.0, f64::max);
    let mut answer = format!(
        "{} of {} relays were detected, and no other gained more than a factor of {max:.3} (bound: {GAIN:.3})",
        refused(relays),
        relays.len(),
    );
    if let Some(gain) = relays.iter().find(believed).and_then(|case| case.ratio) {
        answer += &format!(
            ", except one that is fast only while it is measured: {gain:.3} times what it carries otherwise"
        );
    }
    answer += &format!(
        "; {} of {} breaches of the rules by coordinators and measurers were refused, and {} of {} measurers that \
         inflated their counts.",
        refused(parties),
        parties.len(),
        refused(inflation),
        inflation.len(),
    );
    let ratio = |name| timing.iter().find(|case| case.name == name).and_then(|case| case.ratio);
    if let (Some(turns), Some(bursts)) = (ratio(timing::TURNS), ratio(timing::BURSTS)) {
        answer += &format!(
            " Two relays on one machine together gain at most a factor of {turns:.3} if they take turns, and {bursts:.3} if they burst \
             together."
        );
    }
    if let Some(yesterday) = ratio(timing::YESTERDAY) {
        answer += &format!(
            " A relay that is fast only at the minute of yesterday's measurement is credited with {yesterday:.3} of its usual capacity."
        );
    }
    if let Some(evasion) = evasion {
        answer += " ";
        answer += &evasion.answer();
    }
    answer
}
