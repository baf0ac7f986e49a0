//! `flashflow-lab experiment location`: what the location of relays does to their weights, in several networks.

use crate::common::Session;
use crate::correlation::Correlation;
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{claim_case, parameter};
use crate::simulated::Interval;
use clap::Args;
use onion::Duration;
use report::experiment::{Case, CaseVerdict, ExperimentFigure, ExperimentReport};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use tornet::balance::{Balancer, Conditions, FlashFlow, SCANNER_COUNTRY, TorFlow, Weighing};
use tornet::errors::{group_weight_error, network_weight_error};
use tornet::network::Network;
use tornet::places::Places;

/// The upper limit of the deviation of far relays' mean share with FlashFlow.
const BIAS_MAX: f64 = 0.05;

/// The deviation that at most one network of ten may exceed with FlashFlow.
const DEVIATION_MAX: f64 = 0.10;

/// Does the location of relays decide their weight?
///
/// Measures the relays of each network inside a simulation with users, by a scanner that downloads (sbws, TorFlow) and by FlashFlow,
/// and compares the weight of the relays far from the scanner with their capacity.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab sim sample --consensus CONSENSUS --descriptors DESCRIPTORS --countries /usr/share/tor/geoip \\
      --models tornet-0.05-1/conf --scale 0.01 --seed 1 --out sample-1.toml
  flashflow-lab experiment location sample-1.toml")]
pub(super) struct Options {
    /// Scenarios, or folders of networks for Shadow.
    #[arg(required = true, value_name = "PATH")]
    networks: Vec<PathBuf>,
    /// Simulated seconds for measuring the relays of a network, at most; 3600 by default, 900 with --quick.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    measure_seconds: Option<u32>,
    /// Threads of each simulation, 1 to 256.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    grid: GridOptions,
}

/// A measurement method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    TorFlow,
    FlashFlow,
}

impl Method {
    const ALL: [Self; 2] = [Self::TorFlow, Self::FlashFlow];

    fn balancer(self) -> Box<dyn Balancer> {
        match self {
            Self::TorFlow => Box::new(TorFlow::default()),
            Self::FlashFlow => Box::new(FlashFlow::default()),
        }
    }
}

/// A network measured by a method.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cell {
    /// Counted from 1, in the order of the arguments.
    network: usize,
    method: Method,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network {}, {}", self.network, self.method.balancer().name())
    }
}

/// The weights of a network, by location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Shares {
    relays: usize,
    not_measured: usize,
    simulated_s: f64,
    /// The share of the weight of far relays over their share of the capacity.
    far_share: f64,
    distance_correlation: f64,
    network_weight_error_percent: f64,
}

struct Location {
    names: Vec<String>,
    networks: Vec<Network>,
    distances: Vec<Distances>,
    seconds_max: u32,
    threads: u16,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let read = |path: &PathBuf| Ok(Network::read(path)?.without_authorities());
    let networks = options.networks.iter().map(read).collect::<Result<Vec<_>>>()?;
    let name = |(path, network): (&PathBuf, &Network)| {
        format!("{} (digest {})", path.display(), network.digest())
    };
    let names: Vec<String> = options.networks.iter().zip(&networks).map(name).collect();
    let distances = names.iter().zip(&networks).map(|(name, network)| {
        Distances::new(network, &network.capacities()).ok_or_else(|| {
            Error::Usage(format!("{name}: the countries of its relays are not known"))
        })
    });
    let location = Location {
        distances: distances.collect::<Result<_>>()?,
        names,
        networks,
        seconds_max: session.or(options.measure_seconds, 900, 3600),
        threads: options.threads,
    };
    grid::run(&location, options.grid, session)
}

impl Grid for Location {
    type Cell = Cell;
    type Setup = ();
    const NAME: &'static str = "location";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/location.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        let of_network = |network| Method::ALL.map(|method| Cell { network, method });
        (1..=self.networks.len()).flat_map(of_network).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let mut all = vec![parameter("simulated seconds, at most", self.seconds_max)];
        all.extend(
            (1..)
                .zip(&self.names)
                .map(|(number, name): (usize, _)| parameter(&format!("network {number}"), name)),
        );
        all
    }

    fn start(&self, _: &Cell, _: Session<'_>) -> Result<Option<()>> {
        Ok(Some(()))
    }

    fn run(&self, (): &mut (), run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, session, .. } = run;
        let Some(network) = self.networks.get(cell.network - 1) else { return Ok(None) };
        let progress = |second: u32, wall: Duration| {
            let wall_s = wall.as_secs_f64();
            session.output.doing(format!("{cell}: {second} s simulated in {wall_s:.0} s"));
        };
        let how = Conditions {
            seed: cell.network as u64,
            threads: self.threads,
            seconds_max: self.seconds_max,
            stop: session.interrupt.requested(),
            progress: &progress,
        };
        let weighing = match cell.method.balancer().weigh(network, &how) {
            Err(tornet::Error::Interrupted) => return Ok(None),
            weighed => weighed?,
        };
        let name = &self.names[cell.network - 1];
        let shares = shares(network, &self.distances[cell.network - 1], &weighing)
            .ok_or_else(|| Error::Failed(format!("{name}: no relay is far from the scanner")))?;
        let detail = format!(
            "far relays get {:.1} % of their share, correlation with distance {:+.2}",
            shares.far_share * 100.0,
            shares.distance_correlation
        );
        let case = Case::named(cell.to_string()).ended(CaseVerdict::Reported, detail);
        Ok(Some(Row::from(case.with(cell).with(&shares)).with_data(&shares)?))
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let all: Vec<(Method, Shares)> =
            rows.data().map(|(cell, shares): (&Cell, Shares)| (cell.method, shares)).collect();
        let claims = claims(&all);
        report.answer = claims
            .iter()
            .map(|case| format!("{}: {}.", case.name, case.detail))
            .collect::<Vec<_>>()
            .join(" ");
        report.cases.extend(claims);
        let held = rows.are_complete()
            && report.count(CaseVerdict::Held) > 0
            && report.count(CaseVerdict::Missed) == 0;
        report.promise = Self::promise(held);
        let of = |method: Method| far_shares(&all, method).collect::<Vec<_>>();
        report.figures.push(ExperimentFigure::distributions(
            "far",
            "The share of relays far from the scanner, over networks",
            "share of weight ÷ share of capacity",
            vec![
                ("TorFlow".to_owned(), of(Method::TorFlow)),
                ("FlashFlow".to_owned(), of(Method::FlashFlow)),
            ],
        ));
    }
}

fn far_shares(all: &[(Method, Shares)], method: Method) -> impl Iterator<Item = f64> {
    all.iter().filter(move |(other, _)| *other == method).map(|(_, shares)| shares.far_share)
}

fn claims(all: &[(Method, Shares)]) -> Vec<Case> {
    let [torflow, flashflow] = Method::ALL.map(|method| Interval::of(far_shares(all, method)));
    let deviations = |method| far_shares(all, method).map(|share| (share - 1.0).abs());
    let [torflow_bias, flashflow_bias] = Method::ALL.map(|method| Interval::of(deviations(method)));
    let are_known = torflow.count > 0 && flashflow.count > 0;
    let outliers =
        deviations(Method::FlashFlow).filter(|deviation| *deviation > DEVIATION_MAX).count();
    vec![
        claim_case(
            "On average far relays get their share within 5 % with FlashFlow, and the scanner deviates more"
                .to_owned(),
            are_known
                .then_some((flashflow.mean - 1.0).abs() <= BIAS_MAX && torflow_bias.mean > flashflow_bias.mean),
            format!(
                "{:.1} % of it with FlashFlow, {:.1} % with the scanner; mean deviations {:.1} and {:.1} %",
                flashflow.times(100.0),
                torflow.times(100.0),
                flashflow_bias.mean * 100.0,
                torflow_bias.mean * 100.0
            ),
        ),
        claim_case(
            "In at most one network of ten FlashFlow deviates by more than 10 %".to_owned(),
            are_known.then_some(outliers * 10 <= flashflow.count),
            format!("in {outliers} of {}", flashflow.count),
        ),
    ]
}

/// `None` if no relay is far, or the weights are zero. Relays without an estimate do not count: they keep the network's own weights.
#[expect(clippy::cast_precision_loss, reason = "weights and rates are far below 2⁵³")]
fn shares(network: &Network, distances: &Distances, weighing: &Weighing) -> Option<Shares> {
    let estimates = weighing.estimates_bit_per_s.as_deref();
    let is_measured =
        |place: usize| estimates.is_none_or(|all| all.get(place).is_some_and(Option::is_some));
    let of_measured = |all: Vec<f64>| -> Vec<f64> {
        let all = all.into_iter().enumerate();
        all.map(|(place, value)| if is_measured(place) { value } else { 0.0 }).collect()
    };
    let capacities = of_measured(network.capacities());
    let weights = of_measured(weighing.weights.iter().map(|weight| *weight as f64).collect());
    let over = weights.iter().zip(&capacities).map(|(weight, capacity)| (weight / capacity).ln());
    let latencies = distances.latencies.iter().map(|latency| latency.as_secs_f64());
    let pairs: Vec<(f64, f64)> = latencies.zip(over).filter(|(_, over)| over.is_finite()).collect();
    Some(Shares {
        relays: network.relays.len(),
        not_measured: weighing.not_measured,
        simulated_s: weighing.simulated_s,
        far_share: group_weight_error(&weights, &capacities, &distances.are_far)?,
        distance_correlation: Correlation::from_pairs(&pairs).coefficient,
        network_weight_error_percent: network_weight_error(&weights, &capacities)? * 100.0,
    })
}

/// The distances of a network's relays from TorFlow's scanner.
pub(crate) struct Distances {
    /// One-way latencies between the countries.
    latencies: Vec<Duration>,
    /// Whether a relay is farther than those with the near half of the capacity.
    pub(crate) are_far: Vec<bool>,
}

impl Distances {
    /// `None` if a relay's country is unknown.
    pub(crate) fn new(network: &Network, capacities: &[f64]) -> Option<Self> {
        let places = Places::new().ok()?;
        let scanner = places.find(SCANNER_COUNTRY).ok()?;
        let latency = |country: &str| Some(scanner.latency_to(&places.find(country).ok()?));
        let latencies: Vec<_> = network
            .relays
            .iter()
            .map(|relay| latency(&relay.site.country))
            .collect::<Option<_>>()?;
        let mut nearest: Vec<_> =
            latencies.iter().copied().zip(capacities.iter().copied()).collect();
        nearest.sort_by_key(|(latency, _)| *latency);
        let half = capacities.iter().sum::<f64>() / 2.0;
        let mut sum = 0.0;
        let border = nearest.iter().find(|(_, capacity)| {
            sum += capacity;
            sum >= half
        });
        let border = border?.0;
        let are_far = latencies.iter().map(|latency| *latency > border).collect();
        Some(Self { latencies, are_far })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;
    use tornet::network::{Relay, Site};

    fn network(relays: &[(&str, f64)]) -> Network {
        let relay = |(country, mbit): &(&str, f64)| {
            let site = Site::new(*country, *country, Rate::from_mbit_per_s(*mbit));
            Relay { site, weight: 1, is_guard: true, is_exit: false, limit: None }
        };
        Network { relays: relays.iter().map(relay).collect(), ..Network::default() }
    }

    #[test]
    fn weights_by_speed_of_downloads_give_far_relays_less_than_their_share() {
        let network = network(&[("US", 30.0), ("CA", 20.0), ("JP", 30.0), ("DE", 20.0)]);
        let weighed = |weights: [u64; 4]| {
            let weighing = Weighing { weights: weights.into(), ..Weighing::default() };
            let distances = Distances::new(&network, &network.capacities()).expect("known");
            shares(&network, &distances, &weighing).expect("some are far")
        };
        let right = weighed([30, 20, 30, 20]);
        assert!((right.far_share - 1.0).abs() < 1e-9, "{right:?}");
        let biased = weighed([45, 30, 15, 10]);
        assert!((biased.far_share - 0.5).abs() < 1e-9, "{biased:?}");
        assert!(biased.distance_correlation < -0.8, "{biased:?}");
    }

    #[test]
    fn relays_without_an_estimate_do_not_count() {
        let network = network(&[("US", 30.0), ("CA", 20.0), ("JP", 30.0), ("DE", 20.0)]);
        let distances = Distances::new(&network, &network.capacities()).expect("known");
        let of = |estimates: [Option<u64>; 4]| {
            let estimates_bit_per_s = Some(estimates.into());
            let weights = vec![30, 20, 30, 900];
            let weighing = Weighing { weights, estimates_bit_per_s, ..Weighing::default() };
            shares(&network, &distances, &weighing).expect("some are far").far_share
        };
        assert!((of([Some(30), Some(20), Some(30), None]) - 1.0).abs() < 1e-9);
        assert!(of([Some(30), Some(20), Some(30), Some(900)]) > 1.5);
    }

    #[test]
    fn a_relay_of_an_unknown_country_leaves_no_distances() {
        assert!(Distances::new(&network(&[("", 30.0)]), &[1.0]).is_none());
    }

    #[test]
    fn the_mean_share_and_the_number_of_outliers_are_judged() {
        let judged = |ours: &[f64], theirs: f64| {
            let of = |method, far_share| (method, Shares { far_share, ..Shares::default() });
            let all: Vec<_> = ours
                .iter()
                .flat_map(|ours| [of(Method::FlashFlow, *ours), of(Method::TorFlow, theirs)])
                .collect();
            claims(&all).iter().map(|case| case.verdict).collect::<Vec<_>>()
        };
        let [held, missed] = [CaseVerdict::Held, CaseVerdict::Missed];
        assert_eq!(judged(&[1.04, 0.96], 0.8), [held, held]);
        assert_eq!(judged(&[1.04, 0.96], 1.02), [missed, held], "the scanner deviates less");
        assert_eq!(judged(&[1.08, 1.08], 0.8), [missed, held]);
        assert_eq!(judged(&[1.2, 0.8], 0.7), [held, missed]);
        let mut ten = [1.0; 10];
        ten[3] = 1.3;
        assert_eq!(judged(&ten, 0.8), [held, held]);
        assert_eq!(
            claims(&[]).iter().map(|case| case.verdict).collect::<Vec<_>>(),
            [CaseVerdict::Failed; 2]
        );
    }
}
