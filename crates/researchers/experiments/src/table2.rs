//! `flashflow-lab experiment table2`: load balancers side by side, each under the attacks that concern it, at flow level.

mod load;
mod result;

use crate::common::{Session, as_text, values_or, values_or_all};
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{list, parameter};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use load::Load;
use onion::Duration;
use report::experiment::{CaseVerdict, ExperimentFigure, ExperimentReport};
use result::{CONCEDED, SeedResult, Speeds, case_of};
use serde::Serialize;
use sim::world::SplitMix64;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use tornet::flow_level::{
    ATTACKS, Attack, EigenSpeed, FlashFlow, FlashFlowDynamic, FlowBalancer, MleFlow, PeerFlow,
    PeerMedian, Scaling, Scanner, Scene, SceneOptions, TrueCapacities, Weighed,
};
use tornet::network::Network;

/// The default network: one relay of a hundred of the Tor network.
const SAMPLE: &str = include_str!("../../../../docs/scenarios/one-percent.toml");

/// The share of relays and of capacity that the authorities trust, as in the paper's table.
const TRUSTED_SHARE: f64 = 0.2;

/// How much more weight does an adversary get than it deserves, from each load balancer?
///
/// Balancers weigh the relays of networks that are drawn from the capacities of a real one, each under the attacks that concern
/// what it observes. FlashFlow is the real coordinator in virtual time; flows of clients, relays and the other balancers'
/// observations are models. Reports the attack advantage (share of weight over share of capacity), the weight error,
/// the time until relays have weights, the rate of the balancer's servers, and download times of honest clients. Draws the paper's table 2.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment table2 --quick --out results
  flashflow-lab experiment table2 --balancers eigenspeed --attacks mutual-praise,sybils --relays 2000")]
pub(super) struct Options {
    /// The balancers; all by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "NAME,…")]
    balancers: Vec<Name>,
    /// The attacks; all by default. Each balancer is tried under those that can affect it.
    #[arg(long, value_delimiter = ',', value_name = "ATTACK,…",
        value_parser = PossibleValuesParser::new(ATTACKS.iter().map(|attack| attack.name)))]
    attacks: Vec<String>,
    /// What clients want, in percent of all capacity, or `saturated` if they take all that they get; 50,saturated by default.
    #[arg(long, value_delimiter = ',', value_name = "LOAD,…")]
    loads: Vec<Load>,
    /// A scenario or sample, from whose capacities those of relays are drawn; one percent of the Tor network by default.
    #[arg(long, value_name = "PATH")]
    network: Option<PathBuf>,
    /// The number of hosts with relays.
    #[arg(long, default_value_t = 1000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(50..=20_000))]
    relays: u32,
    /// The number of networks of each case, with the seeds 1, 2, …; 30 by default, 10 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=1000))]
    seeds: Option<u32>,
    #[command(flatten)]
    grid: GridOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Self-reports times the ratio of a relay's downloads to the mean.
    #[value(name = "torflow")]
    TorFlow,
    /// Self-reports and downloads by sbws' rules, with its limit of 5 % of all weight for a relay.
    Sbws,
    /// Self-reports and downloads by sbws' rules without that limit.
    SbwsUncapped,
    /// TorFlow-P of MLEFlow's paper: downloads without self-reports.
    #[value(name = "torflow-p")]
    TorFlowP,
    /// Maximum likelihood of all downloads so far.
    #[value(name = "mleflow")]
    MleFlow,
    /// The median of what relays observed of a relay.
    PeerMedian,
    /// The principal eigenvector of what relays observed.
    #[value(name = "eigenspeed")]
    EigenSpeed,
    /// Bytes that relays exchanged.
    #[value(name = "peerflow")]
    PeerFlow,
    /// The coordinator of this project.
    #[value(name = "flashflow")]
    FlashFlow,
    /// The coordinator of this project, with weights reduced by reported use.
    FlashflowDynamic,
    /// No balancer, but the bound of all: weights in proportion to true capacities.
    TrueCapacities,
}

impl Name {
    fn balancer(self) -> Box<dyn FlowBalancer> {
        match self {
            Self::TorFlow => Box::new(Scanner(Scaling::TorFlow)),
            Self::Sbws => Box::new(Scanner(Scaling::Sbws)),
            Self::SbwsUncapped => Box::new(Scanner(Scaling::SbwsUncapped)),
            Self::TorFlowP => Box::new(Scanner(Scaling::Probes)),
            Self::MleFlow => Box::new(MleFlow),
            Self::PeerMedian => Box::new(PeerMedian),
            Self::EigenSpeed => Box::new(EigenSpeed),
            Self::PeerFlow => Box::new(PeerFlow),
            Self::FlashFlow => Box::new(FlashFlow),
            Self::FlashflowDynamic => Box::new(FlashFlowDynamic),
            Self::TrueCapacities => Box::new(TrueCapacities),
        }
    }
}

/// A balancer under an attack.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cell {
    #[serde(rename = "balancer", serialize_with = "name_of")]
    name: Name,
    #[serde(serialize_with = "attack_name")]
    attack: Attack,
    #[serde(serialize_with = "as_text")]
    load: Load,
}

fn name_of<S: serde::Serializer>(name: &Name, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.balancer().name())
}

fn attack_name<S: serde::Serializer>(attack: &Attack, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(attack.name)
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, load {}", self.name.balancer().name(), self.attack.name, self.load)
    }
}

struct Table2 {
    names: Vec<Name>,
    attacks: Vec<String>,
    loads: Vec<Load>,
    /// Capacities of the network, in bits per second.
    sample: Vec<f64>,
    network: String,
    relays: u32,
    seeds: u32,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let network = match &options.network {
        Some(path) => Network::read(path)?,
        None => Network::parse(SAMPLE, Path::new("one-percent.toml"))?,
    };
    let network = network.without_authorities();
    let name = options
        .network
        .as_deref()
        .map_or("one percent of the Tor network".into(), |path| path.display().to_string());
    let loads = [Load(Some(50)), Load(None)];
    let table = Table2 {
        names: values_or_all(&options.balancers),
        attacks: options.attacks.clone(),
        loads: values_or(&options.loads, false, &loads, &loads),
        sample: network.capacities(),
        network: format!("{name} (digest {})", network.digest()),
        relays: options.relays,
        seeds: session.or(options.seeds, 10, 30),
    };
    grid::run(&table, options.grid, session)
}

impl Grid for Table2 {
    type Cell = Cell;
    type Setup = ();
    const NAME: &'static str = "table2";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/table2.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        let is_chosen = |name: &&&str| {
            self.attacks.is_empty() || self.attacks.iter().any(|chosen| chosen == *name)
        };
        let mut cells = Vec::new();
        for name in &self.names {
            let balancer = name.balancer();
            let attacks = balancer.attacks().iter().filter(is_chosen);
            for attack in attacks.filter_map(|name| Attack::named(name)) {
                // Downloads depend on the load even if weights do not.
                let is_load_relevant = balancer.depends_on_load() || attack.is_none();
                let loads = if is_load_relevant { self.loads.len() } else { 1 };
                let cell = |load: &Load| Cell { name: *name, attack, load: *load };
                cells.extend(self.loads.iter().take(loads).map(cell));
            }
        }
        cells
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("network", &self.network),
            parameter("hosts with relays", self.relays),
            parameter("trusted share of relays and capacity", TRUSTED_SHARE),
            parameter("seeds", self.seeds),
        ]
    }

    fn start(&self, _: &Cell, _: Session<'_>) -> Result<Option<()>> {
        Ok(Some(()))
    }

    fn run(&self, (): &mut (), run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, session, .. } = run;
        let mut results = Vec::new();
        for seed in 1..=u64::from(self.seeds) {
            if session.interrupt.is_requested() {
                return Ok(None);
            }
            session.output.doing(format!("{cell}: seed {seed} of {}", self.seeds));
            results.push(self.weigh(cell, seed));
        }
        let balancer = cell.name.balancer();
        let case = case_of(&cell.to_string(), balancer.name(), &cell.attack, &results);
        Ok(Some(Row::from(case).with_data(&results)?))
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let mut worst: Vec<(String, f64, &str)> = Vec::new();
        let mut distributions: Vec<(String, Vec<f64>)> = Vec::new();
        for name in self.names.iter().filter(|name| **name != Name::TrueCapacities) {
            let balancer = name.balancer();
            let judged = rows.data::<Vec<SeedResult>>().filter(|(cell, _)| {
                cell.name == *name && !is_conceded(balancer.name(), cell.attack.name)
            });
            let advantages = judged.map(|(cell, results)| {
                let advantages: Vec<f64> = results.iter().map(|seed| seed.advantage).collect();
                (mean(&advantages), cell.attack.name, advantages)
            });
            let largest = advantages.max_by(|one, other| one.0.total_cmp(&other.0));
            if let Some((mean, attack, all)) = largest {
                distributions.push((format!("{}, {attack}", balancer.name()), all));
                worst.push((balancer.name().to_owned(), mean, attack));
            }
        }
        let words = worst
            .iter()
            .map(|(name, advantage, attack)| format!("{name} {advantage:.2} ({attack})"));
        let conceded: BTreeSet<&str> = CONCEDED.into_iter().collect();
        report.answer = format!(
            "The largest attack advantages: {}. FlashFlow without what its paper concedes: {}.{}",
            list(&words.collect::<Vec<_>>()),
            list(&conceded.into_iter().collect::<Vec<_>>()),
            gains(&rows),
        );
        let held = report.count(CaseVerdict::Held) > 0 && report.count(CaseVerdict::Missed) == 0;
        report.promise = Self::promise(held);
        if !distributions.is_empty() {
            report.figures.push(ExperimentFigure::distributions(
                "advantages",
                "The attack of each balancer that gains the most, over seeds",
                "share of weight ÷ share of capacity",
                distributions,
            ));
        }
    }
}

impl Table2 {
    fn weigh(&self, cell: &Cell, seed: u64) -> SeedResult {
        let scene = Scene::draw(&SceneOptions {
            sample: self.sample.clone(),
            relays: usize::try_from(self.relays).unwrap_or(usize::MAX),
            trusted_share: TRUSTED_SHARE,
            load: cell.load.share(),
            attack: cell.attack,
            seed,
        });
        let weigh = |balancer: &dyn FlowBalancer, scene: &Scene| {
            balancer.weigh(scene, &mut SplitMix64::of(seed, 2))
        };
        let balancer = cell.name.balancer();
        let weighed = weigh(&*balancer, &scene);
        let downloads = |scene: &Scene, weighed: &Weighed| {
            scene.downloads(&weighed.last_weights, &mut SplitMix64::of(seed, 3))
        };
        let honest = scene.before_attack();
        let found = downloads(&scene, &weighed);
        let (mut calm, mut torflow) = (None, None);
        if cell.attack.is_none() {
            let weights = weigh(&Scanner(Scaling::TorFlow), &scene);
            torflow = Some(downloads(&scene, &weights));
        } else {
            calm = Some(downloads(&honest, &weigh(&*balancer, &honest)));
        }
        let speeds = Speeds::new(&found, calm.as_ref(), torflow.as_ref());
        SeedResult::new(&weighed, &scene, speeds)
    }
}

/// How much faster median downloads are than with TorFlow's weights, in a sentence.
fn gains(rows: &Rows<'_, Cell>) -> String {
    let gain = |(cell, results): (&Cell, Vec<SeedResult>)| {
        let gains: Option<Vec<f64>> = results.iter().map(|seed| seed.speeds.over_torflow).collect();
        let is_shown = matches!(cell.name, Name::MleFlow | Name::FlashFlow | Name::TrueCapacities);
        let gain = mean(&gains.filter(|_| is_shown)?);
        Some(format!("{} {gain:.2} at load {}", cell.name.balancer().name(), cell.load))
    };
    let gains: Vec<String> = rows.data::<Vec<SeedResult>>().filter_map(gain).collect();
    match gains.is_empty() {
        true => String::new(),
        false => format!(" Median download speeds over those with TorFlow: {}.", list(&gains)),
    }
}

/// Whether the paper concedes that an attack on FlashFlow succeeds.
fn is_conceded(balancer: &str, attack: &str) -> bool {
    balancer.starts_with("flashflow") && CONCEDED.contains(&attack)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(attacks: &[&str]) -> Table2 {
        Table2 {
            names: Name::value_variants().to_vec(),
            attacks: attacks.iter().map(|name| (*name).to_owned()).collect(),
            loads: vec![Load(Some(50))],
            sample: vec![1e6, 1e7, 1e8],
            network: String::new(),
            relays: 60,
            seeds: 2,
        }
    }

    #[test]
    fn every_attack_is_tried_on_a_balancer_and_every_balancer_without_one() {
        let cells = table(&[]).cells();
        for attack in ATTACKS {
            assert!(cells.iter().any(|cell| cell.attack.name == attack.name), "{}", attack.name);
        }
        assert_eq!(table(&["none"]).cells().len(), Name::value_variants().len());
        assert!(table(&["idle-claims"]).cells().len() == 1, "other balancers ask nobody");
    }

    #[test]
    fn names_of_the_command_line_are_those_of_the_balancers() {
        for name in Name::value_variants() {
            let value = name.to_possible_value().expect("all have names");
            assert_eq!(value.get_name(), name.balancer().name());
        }
    }
}
