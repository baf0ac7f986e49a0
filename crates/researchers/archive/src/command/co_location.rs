//! `flashflow-archive co-location`: relays that may share a machine, by their published bandwidths.

use super::Resources;
use super::datasets::DatasetOptions;
use super::lines::Line;
use archive::co_location::{self, Addresses};
use clap::Args;
use cli::Error;
use netdoc::consensus::{Consensus, Router};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use terminal::{Exit, Output};

/// Find relays that may share a machine, by the bandwidths that they published.
///
/// This is the coordinator's test: relays whose bandwidths rise and fall together from day to day, more often than by chance. A named
/// pair is a suspicion. Prints how many of the pairs share an address, or a network (/16).
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-archive co-location relays.dataset --addresses 2022-11-19-10-00-00-consensus

With --json: one line of `type` pair for each pair, the most likely first, and a last one of `type` co_location.

Exit status: 0 tested; 1 the dataset has no bandwidths, or a file cannot be read; 2 wrong arguments.")]
pub(crate) struct CoLocationCommand {
    #[command(flatten)]
    dataset: DatasetOptions,
    /// Use the relays of this origin.
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    /// A consensus (ns) with addresses of relays. By default those in the dataset's descriptors.
    #[arg(long, value_name = "FILE")]
    addresses: Option<PathBuf>,
    #[command(flatten)]
    resources: Resources,
}

impl CoLocationCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let addresses = match &self.addresses {
            Some(path) => consensus_addresses(path)?,
            None => Addresses::new(),
        };
        let engine = self.resources.open(&self.dataset, output)?;
        let origin = engine.origin(self.origin.as_deref())?;
        let found = co_location::tested(&engine, &origin, &addresses)?;
        for pair in &found.named {
            output.record(|| Line::Pair(pair));
        }
        let percent = |share: f64| share * 100.0;
        let text = format!(
            "{} pairs of {} relays in {} days move together; of {} with addresses {} share one, and {} a network \
             (of all pairs {:.3} and {:.3} %)",
            found.pairs,
            found.relays,
            found.days,
            found.pairs_with_addresses,
            found.shared_address_pairs,
            found.shared_network_pairs,
            percent(found.all_pairs_shared_address_share),
            percent(found.all_pairs_shared_network_share),
        );
        output.result(text, || Line::CoLocation(&found));
        Ok(Exit::Done)
    }
}

/// The addresses of the relays of a consensus.
fn consensus_addresses(path: &Path) -> Result<Addresses, Error> {
    let failed = |problem: String| Error::Failed(format!("{}: {problem}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let consensus = Consensus::parse(&bytes).map_err(|error| failed(error.to_string()))?;
    let address = |router: &Router| (router.fingerprint, IpAddr::V4(router.address));
    Ok(consensus.routers().iter().map(address).collect())
}
