//! `flashflow-lab client`: a SOCKS proxy over the engine's circuits.

use crate::authorities::{Authorities, Known};
use crate::choosing::{Choosing, StrategyName};
use clap::{Args, ValueEnum};
use cli::Error;
use client::{Choices, ClientProxy, Event, Settings, path::PathRules};
use onion::cell::msg::DesiredUx;
use onion::tunnel::conflux::{LegScheduler, schedulers};
use schemars::JsonSchema;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use terminal::{Exit, Interrupt, Output};

/// Interval of checks for an interrupt.
const STEP: Duration = Duration::from_millis(100);
/// Length of its circuits.
const HOPS: usize = 3;

/// A line of the command that is no event.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The proxy accepts connections. The first line.
    Socks {
        /// Its address.
        address: SocketAddr,
    },
    /// It has ended as requested. The last line.
    Ended,
}

/// Run a Tor client for research: a SOCKS proxy with a choice of path selection strategies.
///
/// The client is for private networks and experiments. It does not protect your anonymity: it has not been audited, it can be
/// distinguished from other clients, and it prints the relays of each circuit. Use Tor Browser, C tor or Arti for anonymity. Onion
/// services are not supported.
#[derive(Debug, Args)]
#[command(
    override_usage = "flashflow-lab client [OPTIONS] <--authority ...|--network ...|--public>",
    after_help = "Examples:
  flashflow-lab lab up --dir /tmp/net --limits 0,0,0 --exits
  flashflow-lab client --network /tmp/net --socks 127.0.0.1:9150
  curl --socks5-hostname 127.0.0.1:9150 http://127.0.0.1:8000/
  flashflow-lab client --network /tmp/net --legs 2 --json
  flashflow-lab client --authority 127.0.0.1:7001,127.0.0.1:7002 --json
  flashflow-lab client --network /tmp/net --strategy ranking --influence 0.5
  flashflow-lab client --network /tmp/net --geo entry=DE --geo countries=2.. --countries geoip
  flashflow-lab client --network /tmp/net --strategy measured --bwfile v3bw
  flashflow-lab client --network /tmp/net --strategy latency --model model.gz

Streams with different SOCKS users or passwords never share a circuit. The first line on stdout is \
`SOCKS at ADDRESS`; events are printed on stderr, with --json on stdout as well: bootstrapped, leg_built, leg_lost, \
circuit_built, circuit_closed, stream_opened, stream_closed, request_refused, trouble. Destinations are printed as \
`[scrubbed]` without --show-destinations.

Exit status: 0 interrupted; 1 failed; 2 wrong arguments."
)]
pub(crate) struct ClientOptions {
    /// Address of the SOCKS port; port 0 for any free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9150")]
    socks: SocketAddr,
    /// Allow an address for --socks that other hosts reach. They can then use the network in your name.
    #[arg(long)]
    allow_others: bool,
    #[command(flatten)]
    authorities: Authorities,
    /// Strategy that chooses relays.
    #[arg(long, value_enum, default_value_t)]
    strategy: StrategyName,
    #[command(flatten)]
    choosing: Choosing,
    /// Measure the round trip of each circuit every ten seconds, and attach streams to the fastest circuit. Streams of one program
    /// may then use several exits.
    #[arg(long)]
    by_latency: bool,
    /// Never use two relays of one /16 (IPv4) or /32 (IPv6) network in a path. Always set with --public.
    #[arg(long)]
    distinct_subnets: bool,
    /// Number of circuits in a Conflux set, with different guards and middles. One circuit is used if no exit supports Conflux, or
    /// the network has too few relays.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    legs: u8,
    /// Scheduler that chooses the leg of a Conflux set for data to the exit.
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    leg_scheduler: LegSchedulerName,
    /// Desired user experience (DESIRED_UX), as a request to the exit. A C tor exit uses the fastest leg with room for throughput, and
    /// only the fastest leg for latency.
    #[arg(long, value_enum, default_value_t, value_name = "WISH")]
    leg_wish: LegWish,
    /// Folder for guards and directory documents. By default a temporary folder.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print the destinations of streams and of refused requests.
    #[arg(long)]
    show_destinations: bool,
}

/// Chooses the leg of the next cell.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LegSchedulerName {
    /// The fastest leg only, as clients of C tor.
    #[default]
    MinRtt,
    /// The fastest leg with room, as exits of C tor.
    LowRtt,
    /// The fastest leg with room, unless waiting for a faster leg is sooner.
    CwndRtt,
    /// The leg with room whose last round trip was the shortest (Kristel et al.).
    CurrentRtt,
    /// The fastest leg, or the next one if that does not block the first (BLEST).
    Blest,
}

impl LegSchedulerName {
    const fn get(self) -> &'static dyn LegScheduler {
        match self {
            Self::MinRtt => &schedulers::MinRtt,
            Self::LowRtt => &schedulers::LowRtt,
            Self::CwndRtt => &schedulers::CwndRtt,
            Self::CurrentRtt => &schedulers::CurrentRtt,
            Self::Blest => &schedulers::Blest,
        }
    }
}

/// The use of a Conflux set.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LegWish {
    /// High throughput.
    #[default]
    Throughput,
    /// Low latency.
    Latency,
}

impl LegWish {
    const fn get(self) -> DesiredUx {
        match self {
            Self::Throughput => DesiredUx::HighThroughput,
            Self::Latency => DesiredUx::MinLatency,
        }
    }
}

impl ClientOptions {
    fn settings(&self, folder: PathBuf) -> Result<Settings, Error> {
        if !self.socks.ip().is_loopback() && !self.allow_others {
            return Err(Error::Usage(format!(
                "--socks {}: others would reach the proxy there; use an address of loopback, or add \
                 --allow-others",
                self.socks
            )));
        }
        let Known { authorities, identities, directories } = self.authorities.find()?;
        Ok(Settings {
            socks: self.socks,
            choices: Choices {
                strategy: self.choosing.strategy(self.strategy, HOPS, &authorities)?,
                by_latency: self.by_latency,
                rules: PathRules {
                    distinct_subnets: self.distinct_subnets || self.authorities.public,
                },
                legs: usize::from(self.legs),
                leg_scheduler: self.leg_scheduler.get(),
                desired: self.leg_wish.get(),
                // On the public network no exit reaches addresses of private networks, and to ask for one gives away that a
                // program would.
                rejects_internal: self.authorities.public,
                names_destinations: self.show_destinations,
            },
            authorities,
            directories,
            identities,
            folder,
        })
    }
}

pub(crate) fn run(
    options: &ClientOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let temporary = match options.data {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(|source| Error::File {
            what: "make a folder in",
            path: std::env::temp_dir(),
            source,
        })?),
    };
    let inside = || temporary.as_ref().map(|folder| folder.path().join("client"));
    let folder = options.data.clone().or_else(inside).unwrap_or_default();
    let (sender, events) = mpsc::channel();
    let proxy = ClientProxy::start(options.settings(folder)?, sender)?;
    interrupt.wind_up_in_order();
    let address = proxy.socks();
    output.result(format!("SOCKS at {address}"), || Line::Socks { address });
    while !interrupt.is_requested() {
        match events.recv_timeout(STEP) {
            Ok(Event::Ended { error }) => return Err(ended(&error)),
            Ok(event) => print(&event, output),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ended("its threads have ended: a bug"));
            }
        }
    }
    drop(proxy);
    // Events of the shutdown.
    events.try_iter().for_each(|event| print(&event, output));
    output.step("ended");
    output.record(|| Line::Ended);
    Ok(Exit::Done)
}

fn print(event: &Event, output: &Output) {
    output.step(event);
    output.record(|| event);
}

fn ended(reason: &str) -> Error {
    Error::Failed(format!("the client has ended: {reason}"))
}
