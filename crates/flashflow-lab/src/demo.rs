//! `flashflow-lab demo`: a private network, measured end to end.

mod options;
mod subjects;

pub(crate) use options::DemoOptions;

use cli::Error;
use documents::Documents;
use lab::{Network, NetworkSpec, OwnRelay, OwnRelaySpec, RelaySaid};
use link::{Clock, unix_time_s};
use measurer::{Consent, Coordinator};
use netdoc::Fingerprint;
use netdoc::bwfile::{self, BandwidthFile, Eligibility, NodeIdStyle, Settings};
use netdoc::consensus::Consensus;
use onion::Rate;
use onion::measure::protocol::CoordinatorKey;
use rand::TryRng;
use rand::rngs::SysRng;
use report::{RelayReport, Report};
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use subjects::{documents, own_subject, subject};
use terminal::measuring::{self, Subject};
use terminal::{Exit, Interrupt, Output, network};

/// Rounds that a relay of ours may be measured in; it is told to allow any number.
const ROUNDS_MAX: u32 = 20;

/// Time for the authorities to list a relay that has published.
const LISTING_PATIENCE: Duration = Duration::from_secs(120);

/// Votings to wait for until the weights must be there.
const VOTINGS: u32 = 6;

pub(crate) fn run(
    options: &DemoOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let generator_started = unix_time_s();
    let relays = network::relays(options.relays, &options.limits)?;
    measuring::check(&options.team)?;
    let out = &options.out;
    let file_error = |what| move |source| Error::File { what, path: out.clone(), source };
    fs::create_dir_all(out).map_err(file_error("make the folder"))?;
    let out = out.canonicalize().map_err(file_error("find the folder"))?;
    let spec = NetworkSpec { keep: options.keep, ..NetworkSpec::new(relays) };
    let mut team = measuring::team(&options.team, output)?;
    let network = network::start(&spec, output)?;
    interrupt.wind_up_in_order();
    if options.keep {
        output.step(format!("network: its folder stays: {}", network.dir().display()));
    }
    let clock = Clock::start();
    let coordinator = Coordinator { key_seed: own_key()?, rounds_max: ROUNDS_MAX };
    let echoes = echo_relays(options, &network, &coordinator, clock, output)?;
    let consensus = wait_until_listed(&network, &echoes, output)?;
    let documents = documents(&network, &consensus)?;
    let guess = Rate::from_mbit_per_s(options.team.guess);
    let mut subjects: Vec<(Subject, RelaySaid<'_>)> = Vec::new();
    for node in network.relays() {
        subjects.push((subject(node, &documents.consensus, guess)?, RelaySaid::watch(node)?));
    }
    for echo in &echoes {
        let subject = own_subject(echo, &documents.consensus, guess, coordinator)?;
        subjects.push((subject, RelaySaid::watch_own(echo, clock)));
    }

    let mut reports = Vec::new();
    let mut estimates = Vec::new();
    for (subject, said) in &mut subjects {
        Consent::local_only().check(subject.target().ids.rsa, subject.target().address.ip())?;
        let (_, record) = measuring::measure(&mut team, subject, Some(said), output, interrupt)?;
        if interrupt.is_requested() {
            output.quiet();
            output.step("interrupted: taking the network down");
            output.record(|| json!({"type": "interrupted"}));
            network.stop()?;
            return Ok(Exit::Interrupted);
        }
        let report = RelayReport::from(&record);
        output.step(report::line(&report));
        output.record(|| report.value("relay"));
        estimates.push(documents.entry(&record)?);
        reports.push(report);
    }

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
        software_version: env!("CARGO_PKG_VERSION").to_owned(),
        tor_version: tor_version(&documents.consensus),
        parameters: parameters(&team),
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

/// Starts the relays of our own.
fn echo_relays(
    options: &DemoOptions,
    network: &Network,
    coordinator: &Coordinator,
    clock: Clock,
    output: &Output,
) -> Result<Vec<OwnRelay>, Error> {
    // In the network's folder, which its keeper removes, however we end.
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
            nickname,
            limit: (mbit > 0.0).then(|| Rate::from_mbit_per_s(mbit)),
            coordinator: CoordinatorKey::of_seed(&coordinator.key_seed).to_string(),
            authorities: network.directory_addrs(),
            client_percent: None,
            is_open_exit: false,
            address: Ipv4Addr::LOCALHOST,
        };
        relays.push(OwnRelay::start(spec, &folder, clock)?);
    }
    Ok(relays)
}

/// Waits until the network's consensus lists all relays, ours as well; returns it.
fn wait_until_listed(
    network: &Network,
    echoes: &[OwnRelay],
    output: &Output,
) -> Result<String, Error> {
    output.doing("waiting until the authorities list our own relays");
    let ours = echoes.iter().map(OwnRelay::rsa);
    let all: Vec<[u8; 20]> = network.relays().iter().map(lab::Node::rsa).chain(ours).collect();
    // A later one may lack a relay again for a while, where a vote came late.
    let consensus = network.wait_until_running(&all, LISTING_PATIENCE)?;
    if !echoes.is_empty() {
        let ours = report::plural(echoes.len() as u64, "relay");
        output.step(format!("network: the authorities list {ours} of our own"));
    }
    Ok(consensus)
}

/// A key for the demo alone.
fn own_key() -> Result<[u8; 32], Error> {
    let mut seed = [0; 32];
    SysRng.try_fill_bytes(&mut seed).map_err(|error| Error::Random(error.to_string()))?;
    Ok(seed)
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
        let relays: Vec<Value> = report.relays.iter().map(|report| report.value("relay")).collect();
        json!({
            "type": "summary", "relays": relays, "bandwidth_file": report.bandwidth_file,
            "weights_in_consensus": voted, "report": path,
        })
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

/// A bandwidth file that the authorities can read.
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
            output.step("no bandwidth file: not one relay was measured");
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

/// Waits for a consensus that the authorities voted after they could read the file, and compares.
fn compare(
    network: &Network,
    published: &Published,
    reports: &mut [RelayReport],
    output: &Output,
    interrupt: &Interrupt,
) -> Result<bool, Error> {
    output.doing("waiting for the authorities to vote with the bandwidth file");
    let patience = Duration::from_secs(u64::from(VOTINGS * lab::LEAST_VOTING_INTERVAL_S));
    let mut newest: Option<Consensus> = None;
    let mut accept = |text: &str| {
        newest = Consensus::parse(text.as_bytes()).ok().or_else(|| newest.take());
        let voted = newest.as_ref().is_some_and(|consensus| carries(consensus, &published.file));
        voted || interrupt.is_requested()
    };
    // That it takes too long is a result, too: the newest consensus is compared all the same.
    let waited = network.wait_for_consensus(Some(published.at_unix_s), &mut accept, patience);
    if let Err(error) = waited {
        output.step(format!("no consensus with our weights: {error}"));
    }
    let Some(consensus) = newest else { return Ok(false) };
    for report in reports {
        let Ok(fingerprint) = report.fingerprint.parse::<Fingerprint>() else { continue };
        report.weight_kb_s =
            weights(&published.file).find(|(known, _)| *known == fingerprint).map(|(_, bw)| bw);
        let voted = consensus.by_fingerprint(&fingerprint).and_then(|router| router.bandwidth_kb_s);
        report.consensus_weight_kb_s = voted.map(u64::from);
    }
    Ok(carries(&consensus, &published.file))
}

/// The weights that tor takes from the file.
fn weights(file: &BandwidthFile) -> impl Iterator<Item = (Fingerprint, u64)> + '_ {
    file.relays.iter().filter(|line| line.vote).map(|line| (line.node_id, line.bw_kb_s))
}

/// Whether the consensus has each weight of the file, as measured.
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

/// The relays' version, where all have the same program.
fn tor_version(consensus: &Consensus) -> Option<String> {
    consensus.routers().first()?.tor_version().map(ToOwned::to_owned)
}

fn parameters(team: &measurer::Team) -> Vec<(String, String)> {
    let params = &team.options().params;
    let pair = |name: &str, value: String| (name.to_owned(), value);
    vec![
        pair("seconds t", params.seconds.to_string()),
        pair("sockets s, at most", params.sockets.to_string()),
        pair("multiplier m", params.multiplier.to_string()),
        pair("excess factor f", format!("{:.3}", params.excess_factor())),
        pair("error bounds ε₁, ε₂", format!("{}, {}", params.epsilon_below, params.epsilon_above)),
        pair("share of cells checked p", params.check_share.to_string()),
        pair("measurers", team.options().measurers.to_string()),
        pair("capacity of each", team.capacities().next().unwrap_or_default().to_string()),
    ]
}

fn notes() -> Vec<String> {
    vec![
        "Stock relays were loaded in transit: cells went from the measurers through the relay and \
         back to the measurers over circuits of two hops. Client traffic is not counted that way, so \
         the estimates are lower bounds on a network that has clients; this one has none."
            .to_owned(),
        "Relays of our own (echo) took part: they returned each cell decrypted, and reported their \
         clients' traffic, which counts up to the share r."
            .to_owned(),
        "Stock tor passes less than the configured rate, about 92 %, by the way it refills its token \
         buckets; what the relay itself said shows it."
            .to_owned(),
    ]
}
