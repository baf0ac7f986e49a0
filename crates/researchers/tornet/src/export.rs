//! Export of a network for Shadow 3, with C tor and TGen, so that results can be compared with Shadow's.
//!
//! The files are those of tornettools, and [`shadow`](crate::shadow) reads them again: `shadow.config.yaml`,
//! `v3bw`, `conf/` with torrcs and TGen's graphs, and `shadow.data.template/` with each host's keys. The map of
//! latencies and losses, `conf/network.gml`, is that of this simulator.

mod config;
mod graphs;
mod keys;
mod names;
mod torrc;

pub use keys::Programs;

use crate::error::Error;
use crate::network::{Client, Network, Relay, Site, Users};
use keys::Keys;
use sim::world::Fetch;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The number of authorities, which relay nothing: those that the network names, or added ones.
const AUTHORITIES: usize = 3;

/// The prefix of authorities' names, as in tornettools: they come first in the alphabet.
const AUTHORITY: &str = "4uthority";

/// The data to write.
#[derive(Debug)]
struct Plan<'a> {
    network: &'a Network,
    /// Including authorities.
    relays: Vec<Relay>,
    keys: Vec<Keys>,
    /// What some clients fetch, and the name of the file: one file for each kind.
    fetches: Vec<Arc<Fetch>>,
    seconds: u32,
}

impl Plan<'_> {
    fn is_authority(relay: &Relay) -> bool {
        relay.site.name.starts_with(AUTHORITY)
    }

    fn authorities(&self) -> impl Iterator<Item = (usize, &Relay)> {
        self.relays.iter().enumerate().filter(|(_, relay)| Self::is_authority(relay))
    }

    /// All hosts: relays, servers, clients.
    fn sites(&self) -> Vec<&Site> {
        let relays = self.relays.iter().map(|relay| &relay.site);
        let clients = self.network.clients.iter().map(|client| &client.site);
        relays.chain(&self.network.servers).chain(clients).collect()
    }

    /// The file that describes a client's traffic.
    fn tgen_of(&self, client: &Client) -> String {
        match &client.users {
            Users::Models(_) => "tgen-markov.tgenrc.graphml".into(),
            Users::Fetch(fetch) => {
                let place =
                    self.fetches.iter().position(|known| Arc::ptr_eq(known, fetch)).unwrap_or(0);
                graphs::perf_name(place)
            }
        }
    }
}

/// Writes a network to a folder, which is created or must be empty. Hosts whose names tor or Shadow would
/// refuse are renamed. C tor creates the keys of all relays: half a minute for some hundreds.
///
/// # Errors
/// If the network has a feature that Shadow or tor cannot have, the folder is not empty, a file cannot be
/// written, or tor's programs fail.
pub fn write(
    network: &Network,
    folder: &Path,
    programs: &Programs,
    seconds: u32,
) -> Result<(), Error> {
    let write_error = |source| Error::Write { path: folder.into(), source };
    fs::create_dir_all(folder).map_err(write_error)?;
    if fs::read_dir(folder).map_err(write_error)?.next().is_some() {
        let problem = format!("{} is not empty: choose another folder", folder.display());
        return Err(Error::Impossible(problem));
    }
    if (network.choices.load - 1.0).abs() > 1e-9 {
        let problem = "TGen's models say how much users do: a network to be exported has load = 1";
        return Err(Error::Impossible(problem.into()));
    }
    let mut network = network.clone();
    names::make_legal(&mut network);
    let network = &network;
    let mut relays = network.relays.clone();
    let named = relays.iter().filter(|relay| Plan::is_authority(relay)).count();
    let mut names = (1..).map(|number| format!("{AUTHORITY}{number}"));
    for _ in named..AUTHORITIES {
        let mut authority = network.relays[0].clone();
        let is_free = |name: &String| relays.iter().all(|relay| relay.site.name != *name);
        let Some(name) = names.find(is_free) else { break };
        authority.site.name = name;
        (authority.weight, authority.is_guard, authority.is_exit) = (1, false, false);
        authority.limit = None;
        relays.push(authority);
    }
    // The order in which they are read again.
    relays.sort_by(|a, b| a.site.name.cmp(&b.site.name));
    let mut fetches: Vec<Arc<Fetch>> = Vec::new();
    for client in &network.clients {
        if let Users::Fetch(fetch) = &client.users
            && !fetches.iter().any(|known| Arc::ptr_eq(known, fetch))
        {
            fetches.push(fetch.clone());
        }
    }
    let hosts = folder.join("shadow.data.template/hosts");
    let keys = keys::make(&relays, &hosts, programs)?;
    let plan = Plan { network, relays, keys, fetches, seconds };
    torrc::write(&plan, folder)?;
    graphs::write(&plan, folder)?;
    config::write(&plan, folder)
}

/// Writes a file.
fn put(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.into(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}
