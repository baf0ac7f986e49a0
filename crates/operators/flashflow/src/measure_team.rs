//! `flashflow measure-team`: measures the capacity of the measurers.

use authority::{Config, ConfiguredMeasurer};
use clap::{ArgGroup, Args};
use cli::Error;
use control::{CapacityPlan, Remotes};
use coordinator::{MemberTraffic, TeamCapacity, team_capacities};
use measurer::capacity::{
    CapacityError, CapacityPeer, CapacityReport, LoopbackTest, PeerReport, SOCKETS_PER_MEMBER,
};
use onion::{Duration, Rate};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use terminal::{Exit, Interrupt, Output};

/// From the start to the load: time for the handshakes of all connections.
const START_DELAY: Duration = Duration::from_secs(5);

/// The rate of a local measurer by default.
const LOCAL_RATE: Rate = Rate::from_bit_per_s(1_000_000_000);

/// Measure how much each measurer can send and receive at the same time.
///
/// All measurers of a team load each other over TLS connections, in both directions at the same time. The capacity of a measurer is
/// the median over the seconds of the smaller direction. Run it when measurers are new or have changed: with --team it prints the
/// lines for the coordinator's configuration, which bound what the coordinator allocates.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("who").required(true).args(["local", "coordinator"]))]
#[command(after_help = "Examples:
  flashflow measure-team --local 3 --seconds 10 --rate 200
  flashflow measure-team --team coordinator.toml

The firewalls of measurers must admit each other to their `landing_ports`, any port without that setting. Measurers on public addresses
must list each other as `peers` in their configurations.

Exit status: 0 all measured; 1 failed, or a measurer was lost; 2 wrong arguments;
130 interrupted.")]
pub(crate) struct MeasureTeamOptions {
    /// Run this number of measurers in this process, over loopback: 2 to 16. The result is limited by this machine's processors.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=16))]
    pub(crate) local: Option<u16>,
    /// Measure the measurers of a coordinator's configuration.
    #[arg(long = "team", value_name = "FILE")]
    pub(crate) coordinator: Option<PathBuf>,
    /// Length of the exchange in seconds, 1 to 600.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: u32,
    /// Maximum rate at which a measurer sends, in Mbit/s. By default 1000 with --local; with --team, the capacity in the coordinator's
    /// or else the measurer's configuration.
    #[arg(long, value_name = "MBIT")]
    pub(crate) rate: Option<f64>,
}

pub(crate) fn run(
    options: &MeasureTeamOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let rate = options.rate.map(|mbit| match Rate::from_mbit_per_s(mbit) {
        Rate::ZERO => Err(Error::Usage(format!("--rate {mbit}: not a rate in Mbit/s"))),
        rate => Ok(rate),
    });
    let rate = rate.transpose()?;
    interrupt.wind_up_in_order();
    let seconds = options.seconds;
    let cancel = interrupt.requested();
    let mut team = Vec::new();
    let reports = match (options.local, &options.coordinator) {
        (Some(count), _) => {
            output
                .doing(format!("{count} measurers load each other over loopback for {seconds} s"));
            let rate = rate.unwrap_or(LOCAL_RATE);
            let test = LoopbackTest { measurers: count, seconds, start_delay: START_DELAY, rate };
            test.run(cancel).map_err(Error::from)
        }
        (None, Some(path)) => {
            let config = Config::read(path)?;
            config.check_stop_file()?;
            let count = config.measurers.len();
            output.doing(format!("{count} measurers load each other for {seconds} s"));
            let reports = remote(&config, seconds, rate, output, cancel);
            team = config.measurers;
            reports
        }
        (None, None) => Err(Error::Usage("no measurers: give --local or --team".to_owned())),
    };
    output.quiet();
    if interrupt.is_requested() {
        return Ok(output.interrupted());
    }
    let reports = reports?;
    let exit = print(seconds, &reports, output);
    if let Some(lines) = lines(seconds, &reports, &team) {
        output.text(format!("\nFor the coordinator's configuration:\n{lines}"));
    }
    Ok(exit)
}

/// The `[[measurers]]` of a coordinator's configuration, with the measured capacities.
fn lines(seconds: u32, reports: &[CapacityReport], team: &[ConfiguredMeasurer]) -> Option<String> {
    let traffic: Vec<MemberTraffic> = reports.iter().map(CapacityReport::traffic).collect();
    let found = team_capacities(seconds, &traffic).into_iter();
    let lines = found.filter_map(|found| {
        let ConfiguredMeasurer { address, key, .. } = team.get(usize::from(found.index))?;
        // Rounded down, because it is a bound.
        let mbit = (found.capacity?.as_mbit_per_s() * 10.0).floor() / 10.0;
        Some(format!(
            "\n[[measurers]]\naddress = \"{address}\"\nkey = \"{key}\"\ncapacity_mbit_per_s = {mbit}\n"
        ))
    });
    let lines: String = lines.collect();
    (!lines.is_empty()).then_some(lines)
}

/// The reports of the measurers. Errors of the others are printed.
fn remote(
    config: &Config,
    seconds: u32,
    rate: Option<Rate>,
    output: &Output,
    cancel: &AtomicBool,
) -> Result<Vec<CapacityReport>, Error> {
    if config.measurers.len() < 2 {
        let message = "a capacity test needs two measurers or more, and this team has one. Write what its link carries into \
                       the configuration by hand: `capacity_mbit_per_s = 1000` in its `[[measurers]]`";
        return Err(Error::Failed(message.to_owned()));
    }
    let remotes = Remotes::start(config.secret.clone())?;
    let mut team = Vec::new();
    for mate in &config.measurers {
        team.push((remotes.measurer(mate.address, mate.key)?, rate.or(mate.capacity)));
    }
    let others = u16::try_from(team.len() - 1).unwrap_or(u16::MAX);
    let sockets = SOCKETS_PER_MEMBER.div_ceil(others);
    let plan = CapacityPlan { sockets, seconds, start_delay: START_DELAY };
    let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(CapacityError::Random)?;
    let results = remotes.test_capacities(&team, plan, &mut rng, cancel)?;
    let mut reports = Vec::new();
    for (index, result) in results.into_iter().enumerate() {
        match result {
            Ok(report) => reports.push(report),
            Err(error) => {
                output.step(format!("measurer {index}: {error}"));
                output.record(|| Line::Failed { index, error: error.to_string() });
            }
        }
    }
    Ok(reports)
}

/// Prints the results.
fn print(seconds: u32, reports: &[CapacityReport], output: &Output) -> Exit {
    let traffic: Vec<MemberTraffic> = reports.iter().map(CapacityReport::traffic).collect();
    let capacities = team_capacities(seconds, &traffic);
    output.text(format!("{:<10}{:>15}{:>15}{:>15}", "Measurer", "Capacity", "Sent", "Received"));
    output.text(format!("{:<10}{:>15}{:>15}{:>15}", "", "Mbit/s", "Mbit/s", "Mbit/s"));
    for (report, found) in reports.iter().zip(&capacities) {
        let row = Row::new(seconds, report, reports);
        output.result(row.text(found), || row.line(found, report));
        for (peer, why) in report.lost() {
            let CapacityPeer { index, address } = peer.peer;
            output.text(format!("    without measurer {index} at {address}: {why}"));
        }
        for (peer, error) in
            report.peers.iter().filter_map(|peer| Some((peer, peer.send_error.as_ref()?)))
        {
            output.text(format!("    lost a connection to {}: {error}", peer.peer.address));
        }
        if report.stranger_connections > 0 {
            output.text(format!(
                "    refused {} connections from unknown hosts",
                report.stranger_connections
            ));
        }
    }
    let measured = capacities.iter().any(|capacity| capacity.capacity.is_some());
    let total: Option<Rate> =
        measured.then(|| capacities.iter().filter_map(|capacity| capacity.capacity).sum());
    let is_whole = !capacities.is_empty()
        && capacities
            .iter()
            .all(|capacity| capacity.capacity.is_some() && capacity.missing.is_empty());
    let text = total.map_or_else(
        || "No measurer's capacity was measured.".to_owned(),
        |total| format!("The team together: {total}"),
    );
    output.result(text, || Line::Summary {
        measurers: capacities.len(),
        seconds,
        complete: is_whole,
        capacity_mbit_per_s: total.map(Rate::as_mbit_per_s),
        capacities_mbit_per_s: capacities
            .iter()
            .map(|measurer| measurer.capacity.map(Rate::as_mbit_per_s))
            .collect(),
    });
    if is_whole { Exit::Done } else { Exit::Failed }
}

/// The mean rates of a measurer.
struct Row {
    sent: Rate,
    received: Rate,
}

impl Row {
    fn new(seconds: u32, report: &CapacityReport, all: &[CapacityReport]) -> Self {
        let received = |peers: &mut dyn Iterator<Item = &PeerReport>| {
            let seconds_of_peers = peers.flat_map(|peer| &peer.seconds);
            let counts = seconds_of_peers.map(|second| second.received_bytes);
            let bytes = counts.fold(0, u64::saturating_add);
            Rate::from_bytes_over(bytes, Duration::from_secs(u64::from(seconds)))
        };
        let elsewhere = all.iter().flat_map(|other| &other.peers);
        Self {
            // What is still in its buffers at the end was not sent.
            sent: received(&mut elsewhere.filter(|peer| peer.peer.index == report.index)),
            received: received(&mut report.peers.iter()),
        }
    }

    fn text(&self, found: &TeamCapacity) -> String {
        let capacity = found
            .capacity
            .map_or_else(|| "–".to_owned(), |capacity| format!("{:.1}", capacity.as_mbit_per_s()));
        format!(
            "{:<10}{capacity:>15}{:>15.1}{:>15.1}",
            found.index,
            self.sent.as_mbit_per_s(),
            self.received.as_mbit_per_s(),
        )
    }

    fn line<'a>(&self, found: &'a TeamCapacity, report: &'a CapacityReport) -> Line<'a> {
        Line::Measurer {
            index: found.index,
            capacity_mbit_per_s: found.capacity.map(Rate::as_mbit_per_s),
            missing: &found.missing,
            sent_mbit_per_s: self.sent.as_mbit_per_s(),
            received_mbit_per_s: self.received.as_mbit_per_s(),
            stranger_connections: report.stranger_connections,
            peers: report.peers.iter().map(PeerLine::from).collect(),
        }
    }
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A measurer that reported.
    Measurer {
        /// Its place in the configuration, from 0.
        index: u16,
        /// The median second of the smaller of sent and received; `null` if unknown.
        capacity_mbit_per_s: Option<f64>,
        /// The indices of peers that are missing from the result.
        missing: &'a [u16],
        /// The mean rate at which the others received its load.
        sent_mbit_per_s: f64,
        /// The mean rate at which it received.
        received_mbit_per_s: f64,
        /// Connections without proof of belonging to the test, which were refused.
        stranger_connections: u64,
        /// The traffic with each peer.
        peers: Vec<PeerLine>,
    },
    /// A measurer that did not report.
    Failed {
        /// Its place in the configuration, from 0.
        index: usize,
        /// The reason.
        error: String,
    },
    /// The end of the test.
    Summary {
        /// The number of measurers that reported.
        measurers: usize,
        /// The length of the exchange.
        seconds: u32,
        /// Whether all that reported were measured, with all their peers.
        complete: bool,
        /// The capacity of all together; `null` if none was measured.
        capacity_mbit_per_s: Option<f64>,
        /// The capacity of each that reported.
        capacities_mbit_per_s: Vec<Option<f64>>,
    },
}

/// The traffic of a measurer with a peer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PeerLine {
    /// The peer's place in the configuration.
    index: u16,
    /// Its address.
    address: String,
    /// Bytes sent to it, by second.
    sent_bytes: Vec<u64>,
    /// Bytes received from it, by second.
    received_bytes: Vec<u64>,
    /// Why the peer was lost.
    lost: Option<String>,
    /// Why a connection to it was lost.
    send_error: Option<String>,
}

impl From<&PeerReport> for PeerLine {
    fn from(report: &PeerReport) -> Self {
        Self {
            index: report.peer.index,
            address: report.peer.address.to_string(),
            sent_bytes: report.seconds.iter().map(|second| second.sent_bytes).collect(),
            received_bytes: report.seconds.iter().map(|second| second.received_bytes).collect(),
            lost: report.lost.map(|why| why.to_string()),
            send_error: report.send_error.clone(),
        }
    }
}
