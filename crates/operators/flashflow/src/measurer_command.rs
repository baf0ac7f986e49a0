//! `flashflow measurer`: the daemon of a measurer.

mod metrics;
mod own_policy;

use authority::config_file::{self as config, Key, Mbit};
use authority::log::{self, LogArguments};
use clap::Args;
use cli::Error;
use control::keys::SecretKey;
use control::{HandedList, MeasurerServer, Rules, ServerOptions};
use coordinator::policy::{PolicyInForce, PolicyRelays};
use coordinator::{Params, is_local};
use link::unix_time_s;
use measurer::member::MemberError;
use measurer::{
    Consent, LocalMember, LocalOptions, LocalTeam, PortRange, Site, TeamOptions, free_cores,
};
use onion::{Duration, Rate};
use own_policy::{OwnPolicy, RelayReader};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terminal::{Exit, Hangup, Interrupt, Output};

/// File descriptors for one socket to a relay, in transit: the socket, the connection of the relay to the return relay, and the
/// listening sockets of the return relay, some of which are left from the previous round.
const DESCRIPTORS_PER_SOCKET: u32 = 5;

/// File descriptors for everything else: sessions, logs, and epoll of the threads.
const DESCRIPTORS_OTHER: u32 = 512;

/// Ports for the sockets of one relay, and for those of its previous round.
const LANDING_PORTS_OF_A_RELAY: usize = 320;

/// The maximum delay until SIGHUP is noticed.
const LATENCY: Duration = Duration::from_millis(200);

/// Run a measurer, which loads relays for its coordinators.
///
/// A measurer accepts sessions of the coordinators whose keys its configuration lists. It loads only relays on its own opt-in list,
/// relays on private addresses if its configuration has `private_network = true`, and, for a coordinator on this host, relays on
/// loopback. By a measurement policy it also loads relays of the consensus that do not decline. It prints `listening on ADDRESS:PORT` when it is ready.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow measurer --config measurer.toml
  flashflow measurer --config measurer.toml --check

The sample measurer.toml has all settings: in the source under docs/, in the package under /usr/share/doc/flashflow/examples.
SIGHUP reloads the opt-in list, `accept_opt_in`, `opt_in_key`, `policy`, `coordinators`, `private_network` and `peers`; running
measurements continue. While measurer.stop exists next to measurer.toml, there is no load. SIGTERM or Ctrl-C ends the measurer and its measurements. The log goes to stderr; RUST_LOG=debug adds details.

Exit status: 0 interrupted, or the check passed; 1 failed; 2 wrong arguments.")]
pub(crate) struct MeasurerOptions {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Read the configuration and all files that it names, print what the measurer would do, and end. Contacts no other host.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    log: LogArguments,
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// The measurer is ready.
    Listening {
        /// Its address, with the port that was taken.
        address: SocketAddr,
    },
    /// Prometheus can read metrics.
    Metrics {
        /// The address.
        address: SocketAddr,
    },
    /// With `--check`: what the measurer would do.
    Check(CheckLine<'a>),
}

/// A checked configuration.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CheckLine<'a> {
    /// The file.
    configuration: &'a Path,
    /// The public key.
    key: &'a str,
    /// The address for coordinators.
    listen: SocketAddr,
    /// The capacity; `null` if it is measured at the start.
    capacity_mbit_per_s: Option<f64>,
    /// The number of coordinators.
    coordinators: usize,
    /// The number of relays on the opt-in list.
    opted_in: usize,
    /// Whether lists of coordinators are accepted.
    accept_opt_in: bool,
    /// The key that must have signed them.
    opt_in_key: Option<String>,
    /// Whether there is a measurement policy.
    policy: bool,
    /// Whether all private addresses are measured.
    private_network: bool,
    /// The ports at which relays connect; `null` for any.
    landing_ports: Option<&'a str>,
    /// Settings that are valid, and limit or prevent measurements.
    warnings: &'a [String],
}

/// `measurer.toml`.
#[derive(Clone, Debug, Deserialize)]
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
    /// Whether relays on the opt-in lists of coordinators may be loaded, too.
    #[serde(default)]
    accept_opt_in: bool,
    /// The key that must have signed such a list.
    opt_in_key: Option<Key>,
    /// The measurement policy of an authority.
    policy: Option<PathBuf>,
    /// The identity of that authority.
    policy_authority: Option<String>,
    /// For the policy: a directory authority or cache with the consensus and descriptors.
    authority: Option<SocketAddr>,
    /// For the policy: a file with the consensus.
    consensus: Option<PathBuf>,
    /// For the policy: a file with descriptors.
    descriptors: Option<PathBuf>,
    /// Whether relays on private addresses are measured for coordinators on other hosts.
    #[serde(default)]
    private_network: bool,
    /// Measurers on public addresses that may take part in capacity tests.
    peers: Option<Vec<IpAddr>>,
    /// Address of the return relays; that of the route to the relay if absent.
    own_address: Option<IpAddr>,
    /// Ports of the return relays; any if absent.
    landing_ports: Option<Ports>,
    /// Address for Prometheus; no metrics if absent.
    metrics: Option<SocketAddr>,
}

impl Config {
    fn handed(&self) -> HandedList {
        match &self.opt_in_key {
            Some(key) => HandedList::SignedBy(key.0),
            None if self.accept_opt_in => HandedList::Accepted,
            None => HandedList::Ignored,
        }
    }

    /// The names of changed settings that take effect only after a restart.
    fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        [
            ("listen", self.listen != other.listen),
            ("key", self.key != other.key),
            ("capacity_mbit_per_s", self.capacity_mbit_per_s != other.capacity_mbit_per_s),
            ("pumps", self.pumps != other.pumps),
            ("own_address", self.own_address != other.own_address),
            ("metrics", self.metrics != other.metrics),
            ("landing_ports", self.landing_ports != other.landing_ports),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports(PortRange);

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A configuration, with the files that it names.
struct Checked {
    config: Config,
    key: SecretKey,
    consent: Consent,
    policy: Option<Arc<OwnPolicy>>,
}

impl Checked {
    fn read(path: &Path) -> Result<Self, Error> {
        let config: Config = config::read(path)?;
        if config.coordinators.is_empty() {
            let problem = "`coordinators` is empty: no coordinator could use this measurer";
            return Err(Error::Config { path: path.to_owned(), problem: problem.to_owned() });
        }
        if let Some(address) = config.metrics.filter(|metric| !is_local(metric.ip())) {
            let problem = format!(
                "`metrics` is at {address}, where others could read them: use a loopback or private address"
            );
            return Err(Error::Config { path: path.to_owned(), problem });
        }
        let key = SecretKey::read(&config::resolve(path, &config.key))?;
        let local = Consent::local_only();
        let consent = match &config.opt_in {
            Some(list) => measurer::read_opt_in(local, &config::resolve(path, list))?,
            None => local,
        };
        let consent = consent.in_private_network(config.private_network);
        let policy = OwnPolicy::read(&config, path)?.map(Arc::new);
        Ok(Self { config, key, consent, policy })
    }

    /// The rules, with the relays of the newest consensus for the measurement policy.
    fn rules(&self, relays: Option<Arc<PolicyRelays>>) -> Rules {
        let team = [self.key.public().0].into();
        let policy = self.policy.as_ref().map(|own| PolicyInForce {
            policy: Arc::new(own.signed.policy.clone()),
            relays,
            team,
        });
        Rules {
            coordinators: self.config.coordinators.iter().map(|key| key.0).collect(),
            consent: self.consent.clone().with_policy(policy),
            peers: self.config.peers.iter().flatten().copied().collect(),
            handed: self.config.handed(),
        }
    }

    /// Settings that are valid, and limit or stop measurements.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(Ports(ports)) = &self.config.landing_ports {
            if ports.count() < LANDING_PORTS_OF_A_RELAY {
                warnings.push(format!(
                    "landing_ports: {} are too few: each relay that is measured at the same time uses up to {LANDING_PORTS_OF_A_RELAY}",
                    report::plural(ports.count() as u64, "port"),
                ));
            }
            if ports.contains(self.config.listen.port()) {
                warnings.push(format!(
                    "landing_ports: {ports} contains the port of `listen`: choose other ports"
                ));
            }
            if ports.first() < 1024 {
                warnings.push(format!(
                    "landing_ports: {ports} begins with ports that only root may use: choose ports from 1024"
                ));
            }
            if let Some(ephemeral) = ephemeral_ports().filter(|range| range.overlaps(ports)) {
                warnings.push(format!(
                    "landing_ports: {ports} overlaps {ephemeral}, the ports that the kernel gives to other connections \
                     (net.ipv4.ip_local_port_range): choose lower ports"
                ));
            }
        }
        if self.config.metrics == Some(self.config.listen) {
            warnings.push(
                "metrics: the same address and port as `listen`: choose another port".to_owned(),
            );
        }
        if self.config.policy.is_some()
            && self.config.accept_opt_in
            && self.config.opt_in_key.is_none()
        {
            warnings.push(
                "accept_opt_in: with `policy` it has no effect, since a coordinator could pass the policy by it: use `opt_in_key`"
                    .to_owned(),
            );
        }
        let own = self.key.public();
        if let Some(signed) = self.policy.as_ref().map(|own| &own.signed) {
            let until = &signed.policy.valid_until;
            if until.unix_s <= unix_time_s() {
                warnings.push(format!(
                    "policy: it was valid until {} UTC, and permits nothing",
                    until.text
                ));
            }
            if signed.policy.share(&own.0) == 0 {
                warnings.push(format!("policy: it gives this measurer, {own}, no share"));
            }
        }
        if self.config.coordinators.iter().any(|key| key.0 == own) {
            warnings.push(format!(
                "coordinators: {own} is the key of this measurer: write the public key of the coordinator"
            ));
        }
        let descriptors = link::raise_descriptor_limit();
        let (sockets, needed) = (sockets_max(descriptors), Params::default().sockets);
        if sockets < needed {
            warnings.push(format!(
                "the limit of {descriptors} file descriptors allows {}, and the measurement of a relay uses up to {needed}: set \
                 LimitNOFILE=65536 in the unit, or run `ulimit -n 65536` before",
                report::plural(u64::from(sockets), "socket"),
            ));
        }
        warnings
    }

    fn pumps(&self) -> u32 {
        self.config.pumps.map_or_else(free_cores, NonZeroU32::get)
    }
}

pub(crate) fn run(
    options: &MeasurerOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let checked = Checked::read(&options.config)?;
    if options.check {
        return check(&options.config, &checked, output);
    }
    log::start(options.log, output);
    checked.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    let hangup = Hangup::install()?;
    let server = MeasurerServer::start(server_options(&options.config, &checked)?)?;
    let metrics = start_metrics(checked.config.metrics, &server)?;
    interrupt.wind_up_in_order();
    let address = server.address();
    log::announce(output, format!("listening on {address}"), || Line::Listening { address });
    if let Some(metrics) = &metrics {
        let address = metrics.address();
        tracing::info!("metrics at http://{address}/metrics");
        output.record(|| Line::Metrics { address });
    }
    // The server ends without a signal only after a fatal error, which it logs.
    let started_with = checked.config.clone();
    let mut state = Reloadable { checked, relays: None, reader: RelayReader::new() };
    state.reader.read_soon(state.checked.policy.as_ref());
    while !server.has_ended() {
        if hangup.take() {
            state.reload(&options.config, &started_with, &server);
        }
        state.take_relays(&server);
        if interrupt.wait(LATENCY) {
            tracing::info!("ending");
            drop(server);
            return Ok(Exit::Done);
        }
    }
    Ok(Exit::Failed)
}

fn start_metrics(
    address: Option<SocketAddr>,
    server: &MeasurerServer,
) -> Result<Option<::metrics::Server>, Error> {
    let Some(address) = address else { return Ok(None) };
    let status = server.status();
    let started = ::metrics::Server::start(address, move || Some(metrics::text(&status.read())));
    started.map(Some).map_err(|error| {
        Error::Failed(format!("cannot serve metrics on {address}: {error}; is the port free?"))
    })
}

/// Prints what a measurer with this configuration would do.
fn check(path: &Path, checked: &Checked, output: &Output) -> Result<Exit, Error> {
    let Checked { config, key, consent, .. } = checked;
    config::check_listen(config.listen)?;
    config.metrics.into_iter().try_for_each(config::check_listen)?;
    if let Some(own) = config.own_address {
        config::check_listen(SocketAddr::new(own, 0))?;
    }
    let (key, capacity) = (
        key.public().to_string(),
        config.capacity_mbit_per_s.map(|capacity_mbit_per_s| capacity_mbit_per_s.0),
    );
    let (coordinators, opted_in) = (config.coordinators.len(), consent.listed());
    let ports = config.landing_ports.as_ref().map(|ports| ports.0.to_string());
    let policy = checked
        .policy
        .as_ref()
        .map(|own| documents::policy::describe(&own.signed.policy, unix_time_s()).join(" "));
    let or = |value: Option<String>, or: &str| value.unwrap_or_else(|| or.to_owned());
    let text = [
        format!("{}: the configuration is valid", path.display()),
        format!("measurer: {key}, listening on {}", config.listen),
        format!(
            "capacity: {}",
            or(capacity.map(|capacity| capacity.to_string()), "measured at the start")
        ),
        format!("coordinators: {coordinators}"),
        format!("relays on the opt-in list: {opted_in}"),
        format!(
            "opt-in lists of coordinators: {}",
            match config.handed() {
                HandedList::Ignored => "ignored".to_owned(),
                HandedList::Accepted => "accepted".to_owned(),
                HandedList::SignedBy(key) => format!("accepted if signed by {key}"),
            }
        ),
        format!("measurement policy: {}", or(policy.clone(), "none")),
        format!(
            "private addresses: {}",
            if config.private_network { "all" } else { "listed ones" }
        ),
        format!("ports of landings: {}", or(ports.clone(), "any")),
    ];
    let warnings = checked.warnings();
    let text: Vec<String> =
        text.into_iter().chain(warnings.iter().map(|text| format!("warning: {text}"))).collect();
    output.result(text.join("\n"), || {
        Line::Check(CheckLine {
            configuration: path,
            key: &key,
            listen: config.listen,
            capacity_mbit_per_s: capacity.map(Rate::as_mbit_per_s),
            coordinators,
            opted_in,
            accept_opt_in: config.accept_opt_in,
            opt_in_key: config.opt_in_key.as_ref().map(|key| key.0.to_string()),
            policy: policy.is_some(),
            private_network: config.private_network,
            landing_ports: ports.as_deref(),
            warnings: &warnings,
        })
    });
    Ok(Exit::Done)
}

/// The configuration that a running measurer may reload, and the relays of the newest consensus.
struct Reloadable {
    checked: Checked,
    relays: Option<Arc<PolicyRelays>>,
    reader: RelayReader,
}

impl Reloadable {
    /// Reloads the configuration, the opt-in list and the measurement policy. If they are invalid, the previous ones stay in effect.
    /// Running rounds continue.
    fn reload(&mut self, path: &Path, started_with: &Config, server: &MeasurerServer) {
        let reloaded = Checked::read(path).and_then(|checked| {
            // Who declines depends on the policy.
            let kept = checked.policy.as_ref().zip(self.checked.policy.as_ref());
            let kept = kept.filter(|(new, old)| new.is_same_policy(old));
            let relays = kept.and_then(|_| self.relays.clone());
            server.reload(checked.rules(relays.clone()))?;
            Ok((checked, relays))
        });
        match reloaded {
            Ok((checked, relays)) => {
                let listed = report::plural(checked.consent.listed() as u64, "relay");
                tracing::info!("configuration reloaded, with {listed} on the opt-in list");
                let fixed = checked.config.fixed_differences(started_with);
                if !fixed.is_empty() {
                    tracing::warn!("only a restart changes: {}", fixed.join(", "));
                }
                (self.checked, self.relays) = (checked, relays);
                self.reader.read_soon(self.checked.policy.as_ref());
            }
            Err(error) => {
                tracing::error!(
                    "configuration not reloaded: {error}; the previous one stays in effect"
                );
            }
        }
    }

    /// Puts the relays of a newer consensus in force.
    fn take_relays(&mut self, server: &MeasurerServer) {
        let Some(relays) = self.reader.take(self.checked.policy.as_ref()) else { return };
        self.relays = Some(relays);
        if let Err(error) = server.reload(self.checked.rules(self.relays.clone())) {
            tracing::error!("the consensus is not used for the measurement policy: {error}");
        }
    }
}

/// `path` is that of the configuration.
fn server_options(path: &Path, checked: &Checked) -> Result<ServerOptions, Error> {
    let Checked { config, key, .. } = checked;
    let pumps = checked.pumps();
    let capacity = match config.capacity_mbit_per_s {
        Some(Mbit(capacity)) => capacity,
        None => own_capacity(pumps)?,
    };
    let sockets_max = sockets_max(link::raise_descriptor_limit());
    let (public, pumps_text) = (key.public(), report::plural(u64::from(pumps), "pump"));
    tracing::info!("measurer {public}: {capacity}, {pumps_text}, {sockets_max} sockets");
    let site = Site::new().map_err(measurer::TeamError::from)?;
    let site = match &config.landing_ports {
        Some(Ports(ports)) => site.with_landing_ports(ports.clone()),
        None => site,
    };
    let options = LocalOptions {
        name: "pump".to_owned(),
        key_seed: key.seed(),
        pumps,
        address: config.own_address,
    };
    let site_of_members = site.clone();
    Ok(ServerOptions {
        listen: config.listen,
        key: key.clone(),
        rules: checked.rules(None),
        capacity,
        sockets_max,
        members: Box::new(move || {
            let member = LocalMember::new(site_of_members.clone(), options.clone());
            member
                .map(|member| Box::new(member) as _)
                .map_err(|error| MemberError::from_error(&error))
        }),
        site,
        pumps,
        stop_file: Some(stop_file(path)),
    })
}

/// The file that ends all load: `measurer.stop` next to `measurer.toml`.
fn stop_file(config: &Path) -> PathBuf {
    config.with_extension("stop")
}

/// The ports from which the kernel takes those of outgoing connections.
fn ephemeral_ports() -> Option<PortRange> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    text.split_whitespace().collect::<Vec<_>>().join("-").parse().ok()
}

/// The number of sockets to relays that this number of file descriptors allows, at least one.
fn sockets_max(descriptors: u32) -> u32 {
    (descriptors.saturating_sub(DESCRIPTORS_OTHER) / DESCRIPTORS_PER_SOCKET).max(1)
}

/// The capacity of this machine.
fn own_capacity(pumps: u32) -> Result<Rate, Error> {
    let options = TeamOptions { measurers: 1, pumps: Some(pumps), ..TeamOptions::default() };
    Ok(LocalTeam::new(&options)?.capacity())
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
        let sample = include_str!("../../../../docs/measurer.toml");
        let config = parse(sample).expect("valid");
        assert_eq!(config.coordinators.len(), 1);
        // The commented settings are valid, too.
        let all: String = sample
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n")
            .collect();
        let config = parse(&all).expect("valid");
        assert!(config.pumps.is_some() && config.opt_in.is_some() && config.own_address.is_some());
        assert_eq!(config.landing_ports.map(|Ports(ports)| ports.count()), Some(1000));
        assert_eq!(config.peers.map(|peers| peers.len()), Some(2));
    }

    #[test]
    fn errors_name_the_setting() {
        let good = format!("listen = \"127.0.0.1:0\"\nkey = \"k\"\ncoordinators = [\"{KEY}\"]\n");
        parse(&good).expect("valid");
        for (more, word) in [
            ("capacity = 5", "`capacity`"),
            ("pumps = 0", "nonzero"),
            ("pumps = \"two\"", "pumps = \"two\""),
            ("capacity_mbit_per_s = -3", "above zero"),
            ("capacity_mbit_per_s = nan", "above zero"),
            ("landing_ports = \"20000\"", "20000-20999"),
            ("capacity_mbit_per_s = \"1000\"", "a number, without quotes"),
            ("pumps = \"2\"", "a number, without quotes"),
            ("private_network = \"true\"", "true or false, without quotes"),
            ("opt_in = 5", "in quotes"),
            ("own_address = \"measurer.example.org\"", "host names are not looked up"),
            ("metrics = \"127.0.0.1\"", "with a port, such as 192.0.2.7:7100"),
        ] {
            let error = parse(&format!("{good}{more}\n")).expect_err(more).to_string();
            assert!(error.contains(word) && error.contains("measurer.toml"), "{error}");
        }
        let error = parse("listen = \"here\"").expect_err("no address").to_string();
        assert!(error.contains("listen = \"here\""), "{error}");
        assert!(error.contains("such as 192.0.2.7:7100"), "{error}");
        let list = format!("coordinators = [\"{KEY}\"]");
        let error = parse(&good.replace(&list, &format!("coordinators = \"{KEY}\"")));
        let error = error.expect_err("no list").to_string();
        assert!(error.contains("a list in brackets"), "{error}");
        let error = parse(&good.replace(KEY, "AAAA")).expect_err("no key").to_string();
        assert!(error.contains("flashflow keys"), "{error}");
        let error = parse(&good.replace("key = \"k\"", "")).expect_err("no key").to_string();
        assert!(error.contains("missing field `key`"), "{error}");
    }
}
