//! `flashflow-lab sim sample`: a scenario of any size, sampled from a consensus.

mod countries;

use super::figures::{counted, rate};
use clap::Args;
use cli::Error;
use countries::Countries;
use documents::{consensus, newest, no_weights, read};
use link::unix_time_s;
use netdoc::RsaId;
use netdoc::consensus::{Flag, Router};
use netdoc::descriptor;
use onion::Rate;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terminal::{Exit, Output};
use tornet::network::Network;
use tornet::sample::{KnownRelay, Sample, Wanted, sample};
use tornet::scenario::scenario_text;
use tornet::shadow::read_models;

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A sample of a network.
    Sample {
        /// The scenario.
        file: &'a Path,
        /// Its relays.
        relays: usize,
        /// Relays of the whole network.
        relays_known: usize,
        /// The sum of the capacities of its relays.
        capacity_gbit_per_s: f64,
        /// Its clients.
        clients: usize,
        /// Its servers.
        servers: usize,
        /// Relays whose rates are guessed.
        guessed_rates: usize,
        /// Relays whose countries are guessed.
        guessed_countries: usize,
    },
}

/// Sample a network of any size from a consensus and descriptors.
///
/// Relays are sampled from strata of consensus weight, separately for guards, exits, both and neither. Clients, servers and their
/// locations follow Shadow's published 5 % sample. The result is a scenario for `flashflow-lab sim run` and `flashflow-lab sim batch`.
/// See simulation.md in the documentation.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab sim sample --consensus 2020-02-29-10-00-00-consensus --descriptors server-descriptors \\
      --scale 0.05 --models tornet-0.05-1/conf --out five-percent.toml

Exit status: 0 done; 1 a file cannot be read or written, or the network would be too small; 2 wrong arguments.")]
pub(crate) struct SampleOptions {
    /// Consensus of either flavour.
    #[arg(long, value_name = "FILE")]
    consensus: PathBuf,
    /// Server descriptors, for the observed bandwidth of relays; may be repeated, and the largest value counts. The consensus weight is
    /// used for relays without a descriptor.
    #[arg(long, value_name = "FILE")]
    descriptors: Vec<PathBuf>,
    /// Countries of addresses: tor's geoip file, or a CSV file whose first columns are address and country. A relay without a country
    /// is placed at random.
    #[arg(long, value_name = "FILE")]
    countries: Option<PathBuf>,
    /// Folder with TGen's traffic models (tgen.tor-flowmodel*, -streammodel*, -packetmodel*), such as conf/ of a Shadow network.
    /// Without models, the only clients are benchmarks.
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Size relative to the Tor network, 0.0001 to 10.
    #[arg(long, value_name = "FACTOR")]
    scale: f64,
    /// Seed of the sample.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File for the scenario.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn run(options: &SampleOptions, output: &Output) -> Result<Exit, Error> {
    let scale = options.scale;
    if !(0.0001..=10.0).contains(&scale) {
        return Err(Error::Usage(format!("--scale {scale}: must lie in 0.0001..=10")));
    }
    let consensus = consensus(&options.consensus, unix_time_s())?;
    let claims = claims(&options.descriptors)?;
    let countries = match &options.countries {
        Some(path) => Countries::read(path)?,
        None => Countries::default(),
    };
    let known: Vec<KnownRelay> = consensus
        .routers()
        .iter()
        .filter(|router| router.flags.contains(Flag::Running) && router.flags.contains(Flag::Valid))
        .map(|router| known(router, &claims, &countries))
        .collect();
    if known.iter().all(|relay| relay.weight == 0) {
        return Err(no_weights(&format!("the consensus in {}", options.consensus.display())).into());
    }
    let models = options.models.as_deref().map(read_models).transpose()?.map(Arc::new);
    let wanted = Wanted { scale, seed: options.seed, models };
    let drawn = sample(&known, &wanted)?;
    let folder = match &options.models {
        // An absolute path, so that the scenario can be moved.
        Some(path) => Some(fs::canonicalize(path).map_err(|source| Error::File {
            what: "find",
            path: path.clone(),
            source,
        })?),
        None => None,
    };
    let scenario = scenario_text(&drawn.network, folder.as_deref())?;
    let text = format!("{}\n{scenario}", heading(options, known.len(), &drawn));
    let out = &options.out;
    // The written file must be a valid scenario, whatever the consensus and the descriptors contain.
    Network::parse(&text, out)?;
    files::replace(out, text.as_bytes(), files::Access::Umask).map_err(|source| Error::File {
        what: "write",
        path: out.clone(),
        source,
    })?;
    print(options, known.len(), &drawn, output);
    Ok(Exit::Done)
}

/// The observed bandwidth and the rate limit of each relay, by its descriptors.
fn claims(files: &[PathBuf]) -> Result<BTreeMap<RsaId, (u64, u64)>, Error> {
    let mut claims: BTreeMap<RsaId, (u64, u64)> = BTreeMap::new();
    for path in files {
        let text = read(path, "read the descriptors")?;
        // The largest observed bandwidth of several descriptors counts.
        newest(path, &text)?;
        for descriptor in descriptor::iter(&text).flatten() {
            let claim = claims.entry(descriptor.fingerprint).or_default();
            claim.0 = claim.0.max(descriptor.bandwidth_observed_bytes_s);
            claim.1 = claim
                .1
                .max(descriptor.bandwidth_avg_bytes_s.min(descriptor.bandwidth_burst_bytes_s));
        }
    }
    Ok(claims)
}

fn known(
    router: &Router,
    claims: &BTreeMap<RsaId, (u64, u64)>,
    countries: &Countries,
) -> KnownRelay {
    let has = |flag| router.flags.contains(flag);
    // A new relay has no observed bandwidth.
    let claim = claims.get(&router.fingerprint).filter(|(observed, _)| *observed > 0);
    KnownRelay {
        name: router.nickname.to_string(),
        country: countries.of(router.address).map(str::to_owned),
        weight: router.bandwidth_kb_s.unwrap_or(0).into(),
        is_guard: has(Flag::Guard),
        is_exit: has(Flag::Exit) && !has(Flag::BadExit),
        observed: claim.map(|(observed, _)| Rate::from_byte_per_s(*observed)),
        limit: claim.map(|(_, limit)| Rate::from_byte_per_s(*limit)),
    }
}

/// A comment with the origin of the scenario.
fn heading(options: &SampleOptions, of: usize, drawn: &Sample) -> String {
    format!(
        "# {} of {of} relays of {}, scale {}, seed {}, by flashflow {}.
# Guessed: the rates of {} relays, the countries of {}.\n",
        drawn.network.relays.len(),
        options.consensus.display(),
        options.scale,
        options.seed,
        env!("CARGO_PKG_VERSION"),
        drawn.guessed_rates,
        drawn.guessed_countries,
    )
}

fn print(options: &SampleOptions, of: usize, drawn: &Sample, output: &Output) {
    let network = &drawn.network;
    let (relays, clients, servers) =
        (network.relays.len(), network.clients.len(), network.servers.len());
    let bit_per_s = network.capacities().iter().sum::<f64>();
    if options.models.is_none() {
        output.step("no --models: the only clients of this network are benchmarks");
    }
    let Sample { guessed_rates, guessed_countries, .. } = drawn;
    output.result(
        format!(
            "{}: {relays} of {}, {}; {}, {}
guessed: the rates of {}, the countries of {guessed_countries}",
            options.out.display(),
            counted(of as u64, "relay"),
            rate(bit_per_s),
            counted(clients as u64, "client"),
            counted(servers as u64, "server"),
            counted(*guessed_rates as u64, "relay"),
        ),
        || Line::Sample {
            file: &options.out,
            relays,
            relays_known: of,
            capacity_gbit_per_s: bit_per_s * 1e-9,
            clients,
            servers,
            guessed_rates: *guessed_rates,
            guessed_countries: *guessed_countries,
        },
    );
}
