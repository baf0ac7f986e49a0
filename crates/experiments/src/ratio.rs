//! `flashflow-lab experiment ratio`: a relay with clients is measured, once for each share that they may
//! have.

mod downloading;
mod judge;
mod scene;
mod seen;

use crate::client_load::ClientLoad;
use crate::common::Common;
use crate::error::Error;
use crate::stage::echo_limit;
use crate::telling::{self, pair, tell};
use crate::witness::{Count, Witness};
use clap::Args;
use coordinator::Params;
use downloading::Downloading;
use measurer::{Progress, TeamOptions};
use onion::{Duration, Rate};
use report::experiment::{Case, CaseVerdict, ExperimentReport};
use scene::Scene;
use seen::{Seen, Window};
use std::collections::BTreeSet;
use terminal::{Interrupt, Output};

/// The shares that clients may have, in per cent.
const SHARES_PERCENT: [u32; 3] = [10, 25, 50];

/// What steady clients send, of what the relay can carry; and what a stock client downloads. Together they
/// are over the first two shares, and under the last.
const STEADY: f64 = 0.2;
const STOCK: f64 = 0.2;

/// Measurers, each a process with one pump.
const MEASURERS: usize = 2;

/// Are clients held to their share while a relay is measured, and counted rightly?
///
/// Relays of ours with a rate limit, each a process of its own, carry clients' circuits all the time: a
/// steady load over two links, and downloads of a stock client of a private network, which enters by that
/// relay; each a fifth of what the relay can. Two measurer processes measure it as an echo, with r = 0.1 and
/// r = 0.25, where clients must give way, and with r = 0.5, where they need not. What really came to
/// measurers, to clients and to the relays behind is read from the kernel's counters of their sockets.
/// Figure 7 of the paper, drawn.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment ratio --quick --out results")]
pub(super) struct Options {
    /// Length of each measurement in seconds, 3 to 120; 30 by default, 10 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// Seconds in which clients have the relay for themselves, before and after; 10 by default, 6 if
    /// --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120), value_name = "SECONDS")]
    around: Option<u32>,
    /// What the relay can carry, in Mbit/s, 20 or more.
    #[arg(long, default_value_t = 200.0, value_name = "MBIT")]
    limit: f64,
    /// The shares r that clients may have, in per cent, 1 to 75.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", default_values_t = SHARES_PERCENT,
        value_parser = clap::value_parser!(u32).range(1..=75))]
    shares: Vec<u32>,
}

/// What is the same for all shares.
struct Plan {
    seconds: u32,
    around: u32,
    limit: Rate,
    /// In per cent, each once.
    shares: Vec<u32>,
}

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let plan = Plan {
        seconds: options.seconds.unwrap_or(if common.quick { 10 } else { 30 }),
        around: options.around.unwrap_or(if common.quick { 6 } else { 10 }),
        limit: echo_limit(options.limit)?,
        shares: BTreeSet::from_iter(options.shares.iter().copied()).into_iter().collect(),
    };
    let mut report = begin(&plan);
    let stock = plan.limit.scaled(STOCK);
    let Some(mut scene) = Scene::start(&plan, stock, output, interrupt)? else { return Ok(report) };
    for percent in plan.shares.iter().copied() {
        if interrupt.is_requested() {
            break;
        }
        // What cannot be played is a case that failed; the others are played all the same.
        let window = play(&mut scene, &plan, percent, output, interrupt)
            .unwrap_or_else(|error| Err(error.to_string()));
        if interrupt.is_requested() {
            break;
        }
        match window {
            Ok(window) => {
                report.cases.extend(window.cases());
                report.figures.push(window.figure());
                report.notes.push(window.note());
            }
            Err(problem) => {
                let case = Case::new(format!("r = {}", share(percent)), None, None);
                report.cases.push(case.ended(CaseVerdict::Failed, problem));
            }
        }
        let told = report.cases.iter().filter(|case| is_of(case, percent));
        told.for_each(|case| tell(case, output));
    }
    report.answer = answer(&report);
    Ok(report)
}

/// *r* as a number.
fn share(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

fn is_of(case: &Case, percent: u32) -> bool {
    let name = format!("r = {}", share(percent));
    case.name.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

fn begin(plan: &Plan) -> ExperimentReport {
    let report = telling::report(
        "ratio",
        "Clients while their relay is measured",
        "Are clients held to their share of a relay while it is measured, are they counted rightly, \
         and do they have it back at once?",
    );
    ExperimentReport {
        parameters: vec![
            pair("limit of the relay", plan.limit.to_string()),
            pair("steady clients", plan.limit.scaled(STEADY).to_string()),
            pair("downloads of a stock client", plan.limit.scaled(STOCK).to_string()),
            pair("length of a measurement", format!("{} s", plan.seconds)),
            pair("before and after", format!("{} s each", plan.around)),
            pair("measurers", format!("{MEASURERS} processes")),
        ],
        ..report
    }
}

/// Plays one measurement beside clients; the inner error is why it led to nothing.
fn play(
    scene: &mut Scene,
    plan: &Plan,
    percent: u32,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Result<Window, String>, Error> {
    let r = share(percent);
    scene.enter_by(percent)?;
    let (stage, relay) = (&scene.stage, scene.relay(percent)?);
    let clock = stage.clock();
    output.doing(format!("r = {r}: starting the relay's clients"));
    let from = relay.process.pid();
    let of = |by: Vec<u32>| Count::Received { by, from };
    // What it tells itself, as its directory does, never leaves it.
    let others = [&stage.measurer_pids()[..], &[from]].concat();
    let handed = Count::Handed { by: from, except: others };
    let counts = vec![of(stage.measurer_pids()), of(scene.client_pids()), handed];
    let witness = Witness::start(counts, clock)?;
    let steady = ClientLoad::start(relay.target, plan.limit.scaled(STEADY), clock)?;
    let name = format!("r {percent}");
    let demand = plan.limit.scaled(STOCK);
    let stock = Downloading::start(scene.downloads(), demand, &name, clock, interrupt)?;
    let flowing = clock.now();
    output.doing(format!("r = {r}: clients have the relay for themselves"));
    if interrupt.wait(Duration::from_secs(u64::from(plan.around))) {
        return Ok(Err("interrupted".to_owned()));
    }
    let params = Params { seconds: plan.seconds, ratio: r, ..TeamOptions::default().params };
    let mut team = stage.team(MEASURERS, params)?;
    let reading = || lab::cpu_time(relay.process.pid()).map(|used| (clock.now(), used));
    let mut cpu = (None, None);
    let mut progress = |progress: Progress| match progress {
        Progress::Preparing { .. } => {}
        Progress::Started { .. } => cpu = (reading(), None),
        Progress::Second { round, index, measured } => {
            cpu.1 = reading();
            let (mbit, second) = (measured.as_mbit_per_s(), index + 1);
            let of = plan.seconds;
            output.doing(format!(
                "r = {r}: round {round}, second {second} of {of}: {mbit:.1} Mbit/s"
            ));
        }
    };
    let request = stage.echo_request(relay.target, plan.limit);
    let ordered = clock.now();
    let result = team.measure(&request, &mut progress, interrupt.requested())?;
    if interrupt.is_requested() {
        return Ok(Err("interrupted".to_owned()));
    }
    let Some(estimate) = result.outcome.estimate() else {
        return Ok(Err(result.outcome.to_string()));
    };
    output.doing(format!("r = {r}: clients have the relay for themselves again"));
    interrupt.wait(Duration::from_secs(u64::from(plan.around)));
    let problem = steady.failure().or(stock.failure()).or(witness.problem());
    if let Some(problem) = problem {
        return Ok(Err(format!("clients were disturbed: {problem}")));
    }
    let Some(began) = seen::beginning(relay, clock, plan.seconds) else {
        return Ok(Err("the relay has not told each of its seconds".to_owned()));
    };
    let cpu_share = cpu.0.zip(cpu.1).map(|((from, before), (to, after))| {
        after.saturating_sub(before).as_secs_f64() / (to - from).as_secs_f64()
    });
    let (around, downloads) = (plan.around, stock.done());
    let seen = Seen { witness: &witness, flowing, ordered, began, around, cpu_share, downloads };
    Ok(Ok(seen.window(r, plan.limit, estimate)))
}

fn answer(report: &ExperimentReport) -> String {
    let kept = report.count(CaseVerdict::Held);
    let tried = report.cases.len();
    let worst = |about: &str| {
        let ratios = report.cases.iter().filter(|case| case.name.ends_with(about));
        let ratios = ratios.filter_map(|case| case.ratio).map(|ratio| format!("{ratio:.3}"));
        ratios.collect::<Vec<_>>().join(" and ")
    };
    format!(
        "{kept} of {tried} claims held; reported over what the kernel says was forwarded: {}, of clients \
         alone: {}; clients over their share: {}; estimate over limit: {}.",
        worst(judge::SUM),
        worst(judge::CLIENTS),
        worst(judge::HELD),
        worst(judge::ESTIMATE)
    )
}
