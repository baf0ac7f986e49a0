//! `flashflow-lab experiment client-impact`: what clients feel of a relay of ours that is far away, beside a stock one.

mod judge;
mod scene;

use crate::common::{Common, or, percent};
use crate::error::Error;
use crate::telling::{report, tell};
use clap::{Args, ValueEnum};
use judge::{Judged, Rates};
use lab::Content;
use lab::wan::{Congestion, Way};
use onion::Duration;
use report::experiment::ExperimentReport;
use scene::{Scene, Who};
use std::fmt;
use terminal::{Interrupt, Output};

/// A download that no figure is made of.
const WARM_UP_BYTES: u64 = 10_000;

/// Do clients feel the same through a relay of ours, over real distances?
///
/// A stock client downloads through a private network of stock tor, in which one place of the circuit is far away: a
/// relay of ours, or a stock relay at the same host, in turn. Between that host and all others are the round trips
/// and losses of the grid, on each of its two ways. Each download has a circuit of its own and is compared by its
/// SHA-256; links between relays are there before. Downloads through the two take turns. Ours is slower where the whole 95 % interval of the ratio ours over
/// stock, of paired downloads, is below 1; where it holds 1 and is wide, the case decides nothing. Needs root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment client-impact --quick --out results
  flashflow-lab experiment client-impact --places guard --rtts-ms 100 --losses-percent 0 --congestion bbr")]
pub(super) struct Options {
    /// Downloads through each of the two for each case; 5 by default, 4 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Bytes of a download; 20 MB by default, 4 MB if --quick.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1024..))]
    bytes: Option<u64>,
    /// Round trips; 20,100,200 by default, 20,100 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "MS,…",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    rtts_ms: Vec<u32>,
    /// Packets lost on each way; 0,0.1 by default.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", value_parser = percent,
        default_values_t = [0.0, 0.1])]
    losses_percent: Vec<f64>,
    /// The far place of the circuit; all by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PLACE,…")]
    places: Vec<Place>,
    /// Congestion control of all hosts.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    congestion: Congestion,
    /// Seed of what is lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A place of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Place {
    /// The first.
    Guard,
    /// The second.
    Middle,
    /// The last.
    Exit,
}

impl Place {
    const ALL: [Self; 3] = [Self::Guard, Self::Middle, Self::Exit];

    /// Its number on the circuit.
    const fn number(self) -> usize {
        match self {
            Self::Guard => 0,
            Self::Middle => 1,
            Self::Exit => 2,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Middle => "middle",
            Self::Exit => "exit",
        }
    }
}

/// A relay at some distance from all others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    place: Place,
    rtt_ms: u32,
    loss_percent: f64,
}

impl Case {
    /// Each of its two ways.
    fn way(&self) -> Way {
        let one_way = Duration::from_micros(u64::from(self.rtt_ms) * 500);
        Way::with_latency(one_way).losing(self.loss_percent / 100.0)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} ms, {} %", self.place.word(), self.rtt_ms, self.loss_percent)
    }
}

struct Plan {
    runs: u32,
    bytes: u64,
    cases: Vec<Case>,
    congestion: Congestion,
    seed: u64,
}

fn plan(options: &Options, is_quick: bool) -> Plan {
    let rtts = or(&options.rtts_ms, is_quick, &[20, 100], &[20, 100, 200]);
    let places = or(&options.places, is_quick, &Place::ALL, &Place::ALL);
    let mut cases = Vec::new();
    for place in places {
        for rtt_ms in rtts.iter().copied() {
            for loss_percent in options.losses_percent.iter().copied() {
                cases.push(Case { place, rtt_ms, loss_percent });
            }
        }
    }
    Plan {
        runs: options.runs.unwrap_or(if is_quick { 4 } else { 5 }),
        bytes: options.bytes.unwrap_or(if is_quick { 4_000_000 } else { 20_000_000 }),
        cases,
        congestion: options.congestion,
        seed: options.seed,
    }
}

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let plan = plan(options, common.quick);
    let mut scene = Scene::start(plan.congestion, plan.seed, output)?;
    let mut judged = Vec::new();
    for case in &plan.cases {
        let mut rates = Rates::default();
        for who in [Who::Stock, Who::Ours] {
            // Relays keep their links: who was used before has them already.
            let warmed = scene.download(case, who, Content { len: WARM_UP_BYTES, seed: 0 })?;
            if let Err(error) = warmed {
                output.step(format!("{case}, {}: the first download failed: {error}", who.word()));
            }
        }
        for run in 1..=plan.runs {
            for who in [Who::Stock, Who::Ours] {
                if interrupt.is_requested() {
                    break;
                }
                output.doing(format!("{case}, run {run}: {}", who.word()));
                let seed = rates.count();
                let content = Content { len: plan.bytes, seed };
                rates.add(who, scene.download(case, who, content)?);
            }
        }
        if interrupt.is_requested() {
            break;
        }
        let it = Judged::new(case, &rates);
        tell(&it.case, output);
        judged.push(it);
    }
    scene.stop()?;
    Ok(judge::report(&plan, judged, report("client-impact", judge::TITLE, judge::QUESTION)))
}
