//! `flashflow measurer`: the daemon of a measurer.

use authority::config_file::{self as config, Key, Mbit};
use clap::Args;
use cli::Error;
use control::keys::SecretKey;
use control::{MeasurerServer, ServerOptions};
use measurer::member::MemberError;
use measurer::{Consent, LocalMember, LocalOptions, Site, Team, TeamOptions, free_cores};
use onion::{Duration, Rate};
use serde::Deserialize;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use terminal::{Exit, Interrupt, Output};

/// File descriptors for one socket to a relay, in transit: the socket, the connection of the relay to the return relay, and the
/// listening sockets of the return relay, some of which are left from the previous round.
const DESCRIPTORS_PER_SOCKET: u32 = 5;

/// File descriptors for everything else: sessions, logs, and epoll of the threads.
const DESCRIPTORS_OTHER: u32 = 512;

/// Run a measurer, which loads relays for its coordinators.
///
/// A measurer accepts sessions of the coordinators whose keys its configuration lists. It loads only relays on its own opt-in list,
/// relays on private addresses if its configuration has `private_network = true`, and, for a coordinator on this host, relays on
/// loopback. It prints `listening on ADDRESS:PORT` when it is ready.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow measurer --config measurer.toml

The sample measurer.toml has all settings: in the source under docs/, in the package under /usr/share/doc/flashflow/examples.
SIGTERM or Ctrl-C ends the measurer and its measurements. The log goes to stderr; RUST_LOG=debug adds details.

Exit status: 0 interrupted; 1 failed; 2 wrong arguments.")]
pub(crate) struct MeasurerOptions {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// `measurer.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Address to listen on; port 0 for any free one.
    listen: SocketAddr,
    /// File with the key of the measurer.
    key: PathBuf,
    /// Public keys of the coordinators that may give orders.
    coordinators: Vec<Key>,
    /// Capacity; measured if absent.
    capacity_mbit_per_s: Option<Mbit>,
    /// Number of load generators; one for each free core if absent.
    pumps: Option<NonZeroU32>,
    /// File with fingerprints of relays whose operators agreed to be measured.
    opt_in: Option<PathBuf>,
    /// Whether relays on private addresses are measured for coordinators on other hosts.
    #[serde(default)]
    private_network: bool,
    /// Measurers on public addresses that may take part in capacity tests.
    peers: Option<Vec<IpAddr>>,
    /// Address of the return relays; that of the route to the relay if absent.
    own_address: Option<IpAddr>,
}

pub(crate) fn run(
    options: &MeasurerOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    config::log_to_stderr();
    let config: Config = config::read(&options.config)?;
    let peers = config.peers.iter().flatten().copied().collect();
    let server =
        MeasurerServer::start_with_peers(server_options(&options.config, &config)?, peers)?;
    interrupt.wind_up_in_order();
    let address = server.address();
    output.result(
        format!("listening on {address}"),
        || json!({"type": "listening", "address": address}),
    );
    // The server ends without a signal only after a fatal error, which it logs.
    while !server.has_ended() {
        if interrupt.wait(Duration::from_secs(1)) {
            tracing::info!("ending");
            drop(server);
            return Ok(Exit::Done);
        }
    }
    Ok(Exit::Failed)
}

fn server_options(path: &Path, config: &Config) -> Result<ServerOptions, Error> {
    let bad = |problem: &str| Error::Config { path: path.to_owned(), problem: problem.to_owned() };
    if config.coordinators.is_empty() {
        return Err(bad("`coordinators` is empty: no coordinator could use this measurer"));
    }
    let key = SecretKey::read(&config::resolve(path, &config.key))?;
    let consent = match &config.opt_in {
        Some(list) => measurer::read_opt_in(Consent::local_only(), &config::resolve(path, list))?,
        None => Consent::local_only(),
    };
    let consent = consent.in_private_network(config.private_network);
    let pumps = config.pumps.map_or_else(free_cores, NonZeroU32::get);
    let capacity = match config.capacity_mbit_per_s {
        Some(Mbit(capacity)) => capacity,
        None => own_capacity(pumps)?,
    };
    let sockets_max = sockets_max(link::raise_descriptor_limit());
    let (public, pumps_text) = (key.public(), report::plural(u64::from(pumps), "pump"));
    tracing::info!("measurer {public}: {capacity}, {pumps_text}, {sockets_max} sockets");
    let site = Site::new().map_err(measurer::TeamError::from)?;
    let local = LocalOptions {
        name: "pump".to_owned(),
        key_seed: key.seed(),
        pumps,
        address: config.own_address,
    };
    Ok(ServerOptions {
        listen: config.listen,
        key,
        coordinators: config.coordinators.iter().map(|key| key.0).collect(),
        capacity,
        sockets_max,
        consent,
        members: Box::new(move || {
            let member = LocalMember::new(site.clone(), local.clone());
            member.map(|it| Box::new(it) as _).map_err(|error| MemberError::of(&error))
        }),
    })
}

/// The number of sockets to relays that this number of file descriptors allows, at least one.
fn sockets_max(descriptors: u32) -> u32 {
    (descriptors.saturating_sub(DESCRIPTORS_OTHER) / DESCRIPTORS_PER_SOCKET).max(1)
}

/// The capacity of this machine.
fn own_capacity(pumps: u32) -> Result<Rate, Error> {
    let options = TeamOptions { measurers: 1, pumps: Some(pumps), ..TeamOptions::default() };
    Ok(Team::new(options)?.capacity())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_bounded_by_file_descriptors() {
        assert_eq!([0, 1024, 4096, 65_536].map(sockets_max), [1, 102, 716, 13_004]);
    }

    const KEY: &str = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";

    fn parse(text: &str) -> Result<Config, Error> {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("measurer.toml");
        std::fs::write(&path, text).expect("space");
        config::read(&path)
    }

    #[test]
    fn the_sample_is_a_configuration() {
        let sample = include_str!("../../../docs/measurer.toml");
        let config = parse(sample).expect("valid");
        assert_eq!(config.coordinators.len(), 1);
        // What is commented out is valid, too.
        let all: String = sample
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n")
            .collect();
        let config = parse(&all).expect("valid");
        assert!(config.pumps.is_some() && config.opt_in.is_some() && config.own_address.is_some());
        assert_eq!(config.peers.map(|peers| peers.len()), Some(2));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = format!("listen = \"127.0.0.1:0\"\nkey = \"k\"\ncoordinators = [\"{KEY}\"]\n");
        parse(&good).expect("valid");
        for (more, word) in [
            ("capacity = 5", "`capacity`"),
            ("pumps = 0", "nonzero"),
            ("pumps = \"two\"", "pumps = \"two\""),
            ("capacity_mbit_per_s = -3", "above zero"),
            ("capacity_mbit_per_s = nan", "above zero"),
        ] {
            let error = parse(&format!("{good}{more}\n")).expect_err(more).to_string();
            assert!(error.contains(word) && error.contains("measurer.toml"), "{error}");
        }
        let error = parse("listen = \"here\"").expect_err("no address").to_string();
        assert!(error.contains("listen = \"here\""), "{error}");
        let error = parse(&good.replace(KEY, "AAAA")).expect_err("no key").to_string();
        assert!(error.contains("flashflow keys"), "{error}");
        let error = parse(&good.replace("key = \"k\"", "")).expect_err("no key").to_string();
        assert!(error.contains("missing field `key`"), "{error}");
    }
}
