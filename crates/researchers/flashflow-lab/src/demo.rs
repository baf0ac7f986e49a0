//! `flashflow-lab demo`: measures a private network end to end.

mod observed;
mod options;

pub(crate) use options::DemoOptions;

use authority::shell::{self, Beginning, FixedNetwork};
use cli::Error;
use coordinator::period::{Knowledge, PeriodConfig};
use coordinator::{Consent, Params};
use documents::{Documents, Origin};
use experiments::private_network as network;
use lab::{Network, NetworkSpec, OwnRelay, OwnRelaySpec, RelayReports, RelaySpec};
use link::{Clock, unix_time_s};
use measurer::LocalTeam;
use netdoc::bwfile::{self, BandwidthFile, Eligibility, NodeIdStyle, Settings};
use netdoc::consensus::Consensus;
use observed::{Observed, Watched};
use onion::Rate;
use onion::identity::RsaId;
use onion::measure::protocol::CoordinatorKey;
use report::{RelayReport, Report};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};
use terminal::measuring::{self, Watch};
use terminal::{End, Exit, Interrupt, Output, TeamArguments};

/// A line of the command that is no second of a measurement.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// All relays, last.
    Summary {
        /// The results, in order of the relays.
        #[schemars(with = "Vec<RelayLine>")]
        relays: Vec<Value>,
        /// The bandwidth file.
        bandwidth_file: Option<&'a Path>,
        /// Whether the consensus has its weights.
        weights_in_consensus: bool,
        /// The page.
        report: &'a Path,
    },
}

/// The result of a relay. Reports print themselves: this is a schema.
#[derive(JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "a schema")]
pub(crate) enum RelayLine {
    /// The result, once it is measured.
    Relay(RelayReport),
}

/// Maximum number of rounds by the echo protocol. The relays of the demo allow any number.
const ROUNDS_MAX: u32 = 20;

/// Timeout until the authorities list the relays.
const LISTING_PATIENCE: Duration = Duration::from_secs(120);

/// Voting rounds after which the weights must be in the consensus.
const VOTINGS: u32 = 6;

pub(crate) fn run(
    options: &DemoOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let options = &options.settled();
    let generator_started = unix_time_s();
    let mut relays = network::relays(options.relays, &options.limits)?;
    let key_seed = shell::random()?;
    let patched = patched_relays(options, CoordinatorKey::of_seed(&key_seed))?;
    let patched_names: Vec<String> = patched.iter().map(|relay| relay.nickname.clone()).collect();
    relays.extend(patched);
    measuring::check(&options.team)?;
    let out = &options.out;
    let file_error = |what| move |source| Error::File { what, path: out.clone(), source };
    fs::create_dir_all(out).map_err(file_error("make the folder"))?;
    let out = out.canonicalize().map_err(file_error("find the folder"))?;
    let spec = NetworkSpec { keep: options.keep, ..NetworkSpec::new(relays) };
    let team = measuring::local_team(&options.team, output)?;
    let network = network::start(&spec, output)?;
    interrupt.wind_up_in_order();
    if options.keep {
        output.step(format!("network: its folder is kept: {}", network.dir().display()));
    }
    let clock = Clock::start();
    let echoes = echo_relays(options, &network, &key_seed, clock, output)?;
    let consensus = wait_until_listed(&network, &echoes, output)?;
    let documents = documents(&network, &consensus)?;
    let mut watches = Vec::new();
    for node in network.relays() {
        let watch = Watch::new(Watched(RelayReports::watch(node)?), node.limit());
        watches.push((RsaId(node.rsa()), watch));
    }
    for echo in &echoes {
        let watch = Watch::new(Watched(RelayReports::watch_own(echo, clock)), echo.spec.limit);
        watches.push((RsaId(echo.rsa()), watch));
    }
    // The relays of the private network have no clients.
    let params = Params { may_have_clients: false, ..measuring::params(&options.team) };
    let guess = Rate::from_mbit_per_s(options.team.guess);
    let config = authority::one_by_one(params, guess, team.configured(), ROUNDS_MAX)?;
    let limits = network.relays().iter().map(lab::Node::limit);
    let limits = limits.chain(echoes.iter().map(|echo| echo.spec.limit));
    let config = PeriodConfig {
        always_authenticate: options.team.authenticate,
        at_once_max: (!fit_together(limits, team.capacity())).then_some(1),
        ..config
    };
    let all = watches.iter().map(|(id, _)| *id).collect();
    let patched = network
        .relays()
        .iter()
        .filter(|relay| patched_names.iter().any(|name| name == relay.nickname()));
    let echo =
        echoes.iter().map(OwnRelay::rsa).chain(patched.map(lab::Node::rsa)).map(RsaId).collect();
    let view = authority::view(&documents, Some(all), echo);
    let surroundings = FixedNetwork { team: &team, view };
    let mut observer = Observed::new(&documents, watches, output);
    let beginning = Beginning {
        config,
        consent: Consent::local_only(),
        knowledge: Knowledge::default(),
        key_seed,
    };
    let end = thread::scope(|scope| {
        shell::play(scope, &surroundings, &mut observer, beginning, interrupt.requested())
    })?;
    if end.is_interrupted {
        output.quiet();
        output.step("interrupted: taking the network down");
        output.record(|| End::Interrupted);
        network.stop()?;
        return Ok(Exit::Interrupted);
    }
    let (mut reports, estimates) = observer.results()?;

    let settings = Settings::new(env!("CARGO_PKG_VERSION"), generator_started, unix_time_s());
    let bandwidth_file = publish(&network, &documents, &estimates, &settings, &out, output)?;
    let voted = match &bandwidth_file {
        Some(published) => compare(&network, published, &mut reports, output, interrupt)?,
        None => false,
    };
    let report_path = out.join("report.html");
    let report = Report {
        title: "FlashFlow demo: a private Tor network".to_owned(),
        generated_unix_s: i64::try_from(unix_time_s()).unwrap_or(i64::MAX),
        software_version: output.version().to_owned(),
        tor_version: tor_version(&documents.consensus),
        parameters: parameters(&options.team, &team),
        notes: notes(),
        relays: reports,
        bandwidth_file: bandwidth_file.as_ref().map(|published| published.path.clone()),
        weights_in_consensus: Some(voted),
    };
    report.write_html(&report_path)?;
    output.quiet();
    network.stop()?;
    Ok(conclude(&report, &report_path, output, interrupt))
}

/// Whether relays with these limits can be measured at the same time. C tor's processes share this machine with the measurers, so
/// all limits together must be at most a quarter of a measurer's capacity. A relay without a limit would take all of the machine.
fn fit_together(limits: impl Iterator<Item = Option<Rate>>, of_measurer: Rate) -> bool {
    let sum: Option<Rate> = limits.sum();
    sum.is_some_and(|sum| sum.scaled(4.0) <= of_measurer)
}

/// The relays of a patched tor, which the coordinator with this key may measure by echo.
fn patched_relays(
    options: &DemoOptions,
    coordinator: CoordinatorKey,
) -> Result<Vec<RelaySpec>, Error> {
    let Some(tor) = &options.tor else { return Ok(Vec::new()) };
    let tor = lab::patched_tor_at(tor)?;
    let relays = network::relays(None, &options.tor_limits)?;
    let patched = (1..).zip(relays).map(|(number, relay)| {
        let relay = RelaySpec { nickname: format!("patched{number}"), ..relay };
        relay.measured_by_echo(&tor, coordinator)
    });
    Ok(patched.collect())
}

/// Starts the relays that take part in their measurement.
fn echo_relays(
    options: &DemoOptions,
    network: &Network,
    key_seed: &[u8; 32],
    clock: Clock,
    output: &Output,
) -> Result<Vec<OwnRelay>, Error> {
    // The keeper of the network removes its folder even if this process is killed.
    let folder = network.dir().join("own");
    let limits: Vec<f64> = options.echo_limits.iter().copied().flatten().collect();
    if let Some(bad) = limits.iter().find(|limit| !limit.is_finite() || **limit < 0.0) {
        return Err(Error::Usage(format!("--echo-limits {bad}: not a rate in Mbit/s")));
    }
    let mut relays = Vec::new();
    for (number, mbit) in (1..).zip(limits) {
        let nickname = format!("echo{number}");
        output.doing(format!("starting {nickname}"));
        let spec = OwnRelaySpec {
            limit: (mbit > 0.0).then(|| Rate::from_mbit_per_s(mbit)),
            authorities: network.directory_addrs(),
            ..OwnRelaySpec::new(nickname, CoordinatorKey::of_seed(key_seed))
        };
        relays.push(OwnRelay::start(spec, &folder, clock)?);
    }
    Ok(relays)
}

/// Waits until the network's consensus lists all relays, and returns it.
fn wait_until_listed(
    network: &Network,
    echoes: &[OwnRelay],
    output: &Output,
) -> Result<String, Error> {
    output.doing("waiting until the authorities list all relays");
    let ours = echoes.iter().map(OwnRelay::rsa);
    let all: Vec<[u8; 20]> = network.relays().iter().map(lab::Node::rsa).chain(ours).collect();
    // A later consensus may lack a relay if a vote is late.
    let consensus = network.wait_until_running(&all, LISTING_PATIENCE)?;
    if !echoes.is_empty() {
        let ours = report::plural(echoes.len() as u64, "relay");
        output.step(format!("network: the authorities list {ours} that take part (echo)"));
    }
    Ok(consensus)
}

/// The documents of a network with this consensus.
fn documents(network: &Network, consensus: &str) -> Result<Documents, Error> {
    let what = "the consensus of the private network".to_owned();
    let authority = network.authorities().iter().find_map(lab::Node::dir_addr);
    let authority = authority
        .ok_or_else(|| Error::Failed("the network has no authority that answers".to_owned()))?;
    Ok(Documents::new(what, consensus.as_bytes(), Origin::Authority(authority), unix_time_s())?)
}

/// Prints the results.
fn conclude(report: &Report, path: &Path, output: &Output, interrupt: &Interrupt) -> Exit {
    output.text(report::table(&report.relays));
    let voted = report.weights_in_consensus == Some(true);
    if let Some(file) = &report.bandwidth_file {
        output.text(format!("bandwidth file: {}", file.display()));
    }
    output.text(format!(
        "weights in the network's consensus: {}",
        if voted { "all as measured" } else { "NOT as measured" }
    ));
    output.text(format!("report: {}", path.display()));
    output.record(|| {
        let relay = |report: &RelayReport| report.value("relay");
        Line::Summary {
            relays: report.relays.iter().map(relay).collect(),
            bandwidth_file: report.bandwidth_file.as_deref(),
            weights_in_consensus: voted,
            report: path,
        }
    });
    let all_measured = report.relays.iter().all(|relay| relay.estimate_mbit_per_s.is_some());
    if interrupt.is_requested() {
        Exit::Interrupted
    } else if all_measured && voted {
        Exit::Done
    } else {
        Exit::Failed
    }
}

/// A bandwidth file that was written for the authorities.
struct Published {
    path: PathBuf,
    file: BandwidthFile,
    at_unix_s: u64,
}

/// Writes the bandwidth file for the user and for the authorities; `None` without any result.
fn publish(
    network: &Network,
    documents: &Documents,
    estimates: &[bwfile::Estimate],
    settings: &Settings,
    out: &Path,
    output: &Output,
) -> Result<Option<Published>, Error> {
    let eligibility = Eligibility::count(&documents.consensus, estimates);
    let file = match BandwidthFile::generate(estimates, eligibility, settings) {
        Ok(file) => file,
        Err(bwfile::GenerateError::NoResults { .. }) => {
            output.step("no bandwidth file: no relay was measured");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let written = file.write_atomically(out, NodeIdStyle::Dollar)?;
    let voted = network.bandwidth_file_path();
    if let Some(folder) = voted.parent() {
        file.write_atomically(folder, NodeIdStyle::Dollar)?;
    }
    Ok(Some(Published { path: written.path, file, at_unix_s: unix_time_s() }))
}

/// Waits for a consensus that was voted after the file was written, and compares its weights with the file.
fn compare(
    network: &Network,
    published: &Published,
    reports: &mut [RelayReport],
    output: &Output,
    interrupt: &Interrupt,
) -> Result<bool, Error> {
    output.doing("waiting for the authorities to vote with the bandwidth file");
    let patience = Duration::from_secs(u64::from(VOTINGS * lab::MIN_VOTING_INTERVAL_S));
    let mut newest: Option<Consensus> = None;
    let mut accept = |text: &str| {
        newest = Consensus::parse(text.as_bytes()).ok().or_else(|| newest.take());
        let voted = newest.as_ref().is_some_and(|consensus| carries(consensus, &published.file));
        voted || interrupt.is_requested()
    };
    // After a timeout the newest consensus is compared.
    let waited = network.wait_for_consensus(Some(published.at_unix_s), &mut accept, patience);
    if let Err(error) = waited {
        output.step(format!("no consensus with the measured weights: {error}"));
    }
    let Some(consensus) = newest else { return Ok(false) };
    for report in reports {
        let Ok(fingerprint) = report.fingerprint.parse::<RsaId>() else { continue };
        report.weight_kb_s =
            weights(&published.file).find(|(known, _)| *known == fingerprint).map(|(_, bw)| bw);
        let voted = consensus.by_fingerprint(&fingerprint).and_then(|router| router.bandwidth_kb_s);
        report.consensus_weight_kb_s = voted.map(u64::from);
    }
    Ok(carries(&consensus, &published.file))
}

/// The weights that tor takes from the file.
fn weights(file: &BandwidthFile) -> impl Iterator<Item = (RsaId, u64)> + '_ {
    file.relays.iter().filter(|line| line.vote).map(|line| (line.node_id, line.bw_kb_s))
}

/// Whether the consensus has every weight of the file as a measured one.
fn carries(consensus: &Consensus, file: &BandwidthFile) -> bool {
    let mut count = 0;
    let all = weights(file).all(|(fingerprint, bw)| {
        count += 1;
        consensus.by_fingerprint(&fingerprint).is_some_and(|router| {
            !router.unmeasured && router.bandwidth_kb_s.map(u64::from) == Some(bw)
        })
    });
    all && count > 0
}

/// The version of the first relay of the consensus.
fn tor_version(consensus: &Consensus) -> Option<String> {
    consensus.routers().first()?.tor_version().map(ToOwned::to_owned)
}

fn parameters(arguments: &TeamArguments, team: &LocalTeam) -> Vec<(String, String)> {
    let params = measuring::params(arguments);
    let pair = |name: &str, value: String| (name.to_owned(), value);
    vec![
        pair("seconds t", params.seconds.to_string()),
        pair("sockets s, at most", params.sockets.to_string()),
        pair("multiplier m", params.multiplier.to_string()),
        pair("excess factor f", format!("{:.3}", params.excess_factor())),
        pair("error bounds ε₁, ε₂", format!("{}, {}", params.epsilon_below, params.epsilon_above)),
        pair("share of cells checked p", params.check_share.to_string()),
        pair("measurers", arguments.measurers.to_string()),
        pair("capacity of each", team.capacity().to_string()),
    ]
}

fn notes() -> Vec<String> {
    vec![
        "Relays of C tor were measured in transit: measurers sent cells through the relay and back to \
         themselves over circuits of two hops. This method does not count client traffic, so in a network \
         with clients the estimates are lower bounds. This network has no clients."
            .to_owned(),
        "FlashFlow's relays and those of a patched tor took part (echo): they returned each cell decrypted, and reported their \
         clients' traffic, which counts up to the share r."
            .to_owned(),
        "C tor forwards about 92 % of the configured rate, because of the way it refills its token \
         buckets; the traffic that the relay itself reports agrees."
            .to_owned(),
    ]
}
