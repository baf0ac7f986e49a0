//! `flashflow-lab lab`: private networks, and paths with latency and loss.

pub(crate) mod path;

use clap::{Args, Subcommand};
use cli::Error;
use experiments::private_network as network;
use lab::{NetworkSpec, RelaySpec};
use path::PathOptions;
use schemars::JsonSchema;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use terminal::{Exit, Interrupt, Output};

/// Run private networks of C tor, and make paths with latency and loss.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab lab up --dir /tmp/net --limits 10,0
  flashflow-lab lab status --dir /tmp/net
  flashflow-lab lab down --dir /tmp/net
  flashflow-lab lab path --rtt-ms 100 --loss-percent 0.1

Exit status: 0 done, or all nodes run; 1 failed, or a node is dead; 2 wrong arguments.")]
pub(crate) struct LabOptions {
    #[command(subcommand)]
    pub(crate) action: LabAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabAction {
    /// Start a network that runs until `flashflow-lab lab down`.
    #[command(after_help = "Example:\n  flashflow-lab lab up --dir /tmp/net --limits 10,0")]
    Up {
        /// Folder of the network: absent or empty.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Number of relays, 1 to 50. By default one for each limit.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50))]
        relays: Option<u32>,
        /// Rate limits of the relays in Mbit/s, used cyclically; 0 for no limit.
        #[arg(long, value_delimiter = ',', default_value = "10,50,100,250", value_name = "MBIT,…")]
        limits: Vec<f64>,
        /// Make the relays exits that allow all destinations, including this machine.
        #[arg(long)]
        exits: bool,
        /// Address of all nodes, on loopback or private: that of a host of `lab path`, for example.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = private)]
        address: Ipv4Addr,
    },
    /// Show the nodes of a network, their addresses, and whether they run.
    #[command(after_help = "Example:\n  flashflow-lab lab status --dir /tmp/net")]
    Status {
        /// Folder of the network.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Stop a network and remove its folder.
    #[command(after_help = "Example:\n  flashflow-lab lab down --dir /tmp/net

Exit status: 0 done; 1 failed; 2 wrong arguments.")]
    Down {
        /// Folder of the network.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    Path(Box<PathOptions>),
}

fn private(text: &str) -> Result<Ipv4Addr, String> {
    let address: Ipv4Addr = text.parse().map_err(|_| "not an IPv4 address".to_owned())?;
    match address.is_loopback() || address.is_private() {
        true => Ok(address),
        false => Err("neither on loopback nor private".to_owned()),
    }
}

pub(crate) fn run(
    action: &LabAction,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    match action {
        LabAction::Path(options) => path::run(options, output, interrupt),
        LabAction::Up { dir, relays, limits, exits, address } => {
            let mut relays = network::relays(*relays, limits)?;
            if *exits {
                let open = |relay: RelaySpec| relay.exiting_to("accept *:*");
                relays = relays.into_iter().map(open).collect();
            }
            let spec = NetworkSpec {
                dir: Some(dir.clone()),
                detached: true,
                address: *address,
                ..NetworkSpec::new(relays)
            };
            let network = network::start(&spec, output)?;
            output.quiet();
            let nodes: Vec<LabNode> = network.nodes().iter().map(LabNode::new).collect();
            let lines = network.nodes().iter().map(node_line).collect::<Vec<_>>().join("\n");
            let bandwidth_file = network.bandwidth_file_path();
            let dir = network.detach()?;
            let text = format!(
                "{lines}\nThe authorities use the bandwidth file {} once it exists.\nStop the network with: flashflow-lab lab \
                 down --dir {}",
                bandwidth_file.display(),
                dir.display()
            );
            output.result(text, || Line::Lab {
                dir: &dir,
                up: None,
                nodes,
                valid_after_unix_s: None,
                bandwidth_file: Some(&bandwidth_file),
            });
            Ok(Exit::Done)
        }
        LabAction::Status { dir } => {
            let status = lab::status(dir)?;
            output.quiet();
            let lines = status.nodes.iter().map(|node| {
                let state = if node.is_alive() { "running" } else { "DEAD" };
                format!("{}  {state}", node_line(node))
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            let alive =
                |node: &lab::Node| LabNode { alive: Some(node.is_alive()), ..LabNode::new(node) };
            let bandwidth_file = status.bandwidth_file_path();
            output.result(text, || Line::Lab {
                dir: &status.dir,
                up: Some(status.is_up()),
                nodes: status.nodes.iter().map(alive).collect(),
                valid_after_unix_s: status.valid_after_unix,
                bandwidth_file: Some(&bandwidth_file),
            });
            Ok(if status.is_up() { Exit::Done } else { Exit::Failed })
        }
        LabAction::Down { dir } => {
            lab::down(dir)?;
            output.quiet();
            output.result(format!("{} is down", dir.display()), || Line::Lab {
                dir,
                up: Some(false),
                nodes: Vec::new(),
                valid_after_unix_s: None,
                bandwidth_file: None,
            });
            Ok(Exit::Done)
        }
    }
}

/// A line of the commands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A network.
    Lab {
        /// Its folder.
        dir: &'a Path,
        /// Whether all nodes run; of `lab status` and `lab down`.
        #[serde(skip_serializing_if = "Option::is_none")]
        up: Option<bool>,
        /// Its nodes; not of `lab down`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<LabNode>,
        /// The date of its consensus; of `lab status`.
        #[serde(skip_serializing_if = "Option::is_none")]
        valid_after_unix_s: Option<u64>,
        /// The bandwidth file that its authorities read; not of `lab down`.
        #[serde(skip_serializing_if = "Option::is_none")]
        bandwidth_file: Option<&'a Path>,
    },
}

/// An authority or a relay.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LabNode {
    /// Its name.
    nickname: String,
    /// Its RSA identity.
    fingerprint: String,
    /// The address of its OR port.
    or_address: SocketAddr,
    /// The address of an authority's directory port.
    dir_address: Option<SocketAddr>,
    /// The address of its control port.
    control_address: SocketAddr,
    /// Its process.
    pid: u32,
    /// Its configured limit.
    limit_mbit_per_s: Option<f64>,
    /// Whether it runs; in `lab status` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    alive: Option<bool>,
}

impl LabNode {
    fn new(node: &lab::Node) -> Self {
        Self {
            nickname: node.nickname().to_owned(),
            fingerprint: node.rsa_hex(),
            or_address: node.or_addr(),
            dir_address: node.dir_addr(),
            control_address: node.control_addr(),
            pid: node.pid(),
            limit_mbit_per_s: node.limit().map(onion::Rate::as_mbit_per_s),
            alive: None,
        }
    }
}

fn node_line(node: &lab::Node) -> String {
    let directory = node.dir_addr().map_or_else(String::new, |address| format!("  dir {address}"));
    format!("{:<8} {}  or {}{directory}", node.nickname(), node.rsa_hex(), node.or_addr())
}
