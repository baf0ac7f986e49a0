//! `flashflow demo`: a private network, measured end to end.

use crate::cli::DemoOptions;
use crate::error::{Error, Exit};
use crate::interrupt::Interrupt;
use crate::measuring::{self, Subject};
use crate::network;
use crate::output::Output;
use crate::relay_said::RelaySaid;
use lab::{Network, NetworkSpec};
use link::unix_time_s;
use measurer::{Approach, Consent, Defences, Request};
use netdoc::bwfile::{self, BandwidthFile, Eligibility, NodeIdStyle, Settings};
use netdoc::consensus::Consensus;
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Fingerprint, Nickname};
use onion::Rate;
use onion::measure::pump::Target;
use report::{RelayReport, Report};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    let documents = Documents::fetch(&network)?;

    let mut reports = Vec::new();
    let mut estimates = Vec::new();
    for node in network.relays() {
        let subject = subject(node, &documents.consensus, options.team.guess)?;
        Consent::local_only().check(subject.target().ids.rsa, subject.target().address.ip())?;
        let mut said = RelaySaid::watch(node)?;
        let (result, report) =
            measuring::measure(&mut team, &subject, Some(&mut said), output, interrupt)?;
        if interrupt.is_requested() {
            output.quiet();
            output.step("interrupted: taking the network down");
            output.record(|| json!({"type": "interrupted"}));
            network.stop()?;
            return Ok(Exit::Interrupted);
        }
        output.step(measuring::line(&report));
        output.record(|| relay_value(&report, "relay"));
        estimates.push(documents.estimate(node, &report, &result.outcome)?);
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
        tor_version: documents.tor_version(),
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
        let relays: Vec<Value> =
            report.relays.iter().map(|report| relay_value(report, "relay")).collect();
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

/// A relay's result as JSON, without its seconds, which have been told one by one.
pub(crate) fn relay_value(report: &RelayReport, kind: &str) -> Value {
    let mut value = json!(report);
    if let Value::Object(fields) = &mut value {
        fields.remove("series");
        fields.insert("type".to_owned(), json!(kind));
    }
    value
}

/// What the network's authorities publish.
struct Documents {
    consensus: Consensus,
    /// The limit that each relay's operator sets, in bytes per second.
    averages: Vec<(Fingerprint, u64)>,
}

impl Documents {
    fn fetch(network: &Network) -> Result<Self, Error> {
        let authority = authority(network)?;
        let fetcher = Fetcher::default();
        let text = fetcher.get(authority, &Resource::Consensus)?;
        let what = || format!("the consensus from {authority}");
        let consensus =
            Consensus::parse(&text).map_err(|source| Error::Consensus { what: what(), source })?;
        let text = fetcher.get(authority, &Resource::AllDescriptors)?;
        // A descriptor that does not parse leaves its relay without the cap that it would set.
        let (descriptors, _bad) = netdoc::descriptor::parse_all(&text);
        let averages = descriptors
            .iter()
            .map(|descriptor| (descriptor.fingerprint, descriptor.bandwidth_avg_bytes_s))
            .collect();
        Ok(Self { consensus, averages })
    }

    fn average(&self, fingerprint: &Fingerprint) -> Option<u64> {
        let found = self.averages.iter().find(|(known, _)| known == fingerprint);
        found.map(|(_, average)| *average)
    }

    fn tor_version(&self) -> Option<String> {
        let router = self.consensus.routers().first()?;
        router.tor_version().map(ToOwned::to_owned)
    }

    /// What goes into the bandwidth file.
    fn estimate(
        &self,
        node: &lab::Node,
        report: &RelayReport,
        outcome: &coordinator::Outcome,
    ) -> Result<bwfile::Estimate, Error> {
        let fingerprint = Fingerprint::from_bytes(node.rsa());
        let nickname: Nickname = node
            .nickname()
            .parse()
            .map_err(|_| Error::Usage(format!("{} is no nickname", node.nickname())))?;
        let mut extra = vec![("flashflow_mode".to_owned(), "transit".to_owned())];
        let outcome = match outcome {
            coordinator::Outcome::Measured(estimate) => {
                // A lower bound is still nearer to the truth than what the relay claims.
                let conclusive = u8::from(report.conclusive).to_string();
                extra.push(("flashflow_conclusive".to_owned(), conclusive));
                bwfile::Outcome::Measured {
                    capacity_bytes_s: estimate.capacity.as_byte_per_s(),
                    measured_at: unix_time_s(),
                    descriptor_avg_bytes_s: self.average(&fingerprint),
                }
            }
            failed @ coordinator::Outcome::Failed { .. } => bwfile::Outcome::Failed {
                reason: failed.to_string(),
                tried_at: Some(unix_time_s()),
            },
        };
        let ed25519 = Some(netdoc::Ed25519Identity::from_bytes(node.ed25519()));
        Ok(bwfile::Estimate { fingerprint, ed25519, nickname, outcome, extra })
    }
}

fn authority(network: &Network) -> Result<SocketAddr, Error> {
    let found = network.authorities().iter().find_map(lab::Node::dir_addr);
    found.ok_or_else(|| Error::Usage("the network has no authority that answers".to_owned()))
}

fn subject(node: &lab::Node, consensus: &Consensus, guess_mbit: f64) -> Result<Subject, Error> {
    let fingerprint = Fingerprint::from_bytes(node.rsa());
    let Some(router) = consensus.by_fingerprint(&fingerprint) else {
        return Err(Error::Usage(format!("{} is not in the consensus", node.nickname())));
    };
    let target = Target {
        address: SocketAddr::new(router.address.into(), router.or_port),
        ids: Subject::ids(fingerprint, Some(node.ed25519())),
    };
    let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
    let request = Request {
        target,
        guess: Rate::from_mbit_per_s(guess_mbit),
        defences,
        approach: Approach::Transit,
    };
    Ok(Subject { nickname: node.nickname().to_owned(), fingerprint, limit: node.limit(), request })
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
        "Relays were loaded in transit: cells went from the measurers through the relay and back to \
         the measurers over circuits of two hops. Client traffic is not counted that way, so the \
         estimates are lower bounds on a network that has clients; this one has none."
            .to_owned(),
        "Stock tor passes less than the configured rate, about 92 %, by the way it refills its token \
         buckets; what the relay itself said shows it."
            .to_owned(),
    ]
}
