//! A network as Shadow 3 simulates it, with stock tor and TGen: so that anybody can hold our results beside Shadow's.
//!
//! What is written is what tornettools writes, and [`shadow`](crate::shadow) reads it again: `shadow.config.yaml`, `v3bw`, `conf/` with torrcs and TGen's graphs, and
//! `shadow.data.template/` with each host's keys. The map of latencies and losses, `conf/network.gml`, is that of our own world.

mod config;
mod graphs;
mod keys;
mod torrc;

pub use keys::Programs;

use crate::error::Error;
use crate::network::{Client, Network, Relay, Users};
use keys::Keys;
use sim::world::Fetch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// So many relays are authorities, which carry nothing: those that the network names, or ones that are added.
const AUTHORITIES: usize = 3;

/// What the names of authorities begin with, as tornettools has them: they come first in the alphabet.
const AUTHORITY: &str = "4uthority";

/// What is to be written.
#[derive(Debug)]
struct Plan<'a> {
    network: &'a Network,
    /// With the authorities.
    relays: Vec<Relay>,
    keys: Vec<Keys>,
    /// What some clients fetch, and how the file is called: one file for each kind.
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

    /// All places of the network, in the order of the map.
    fn countries(&self) -> BTreeMap<&str, usize> {
        let relays = self.relays.iter().map(|it| &it.site);
        let clients = self.network.clients.iter().map(|it| &it.site);
        let all = relays.chain(&self.network.servers).chain(clients);
        let names: BTreeSet<&str> = all.map(|it| it.country.as_str()).collect();
        names.into_iter().zip(0..).collect()
    }

    /// The file that says what a client does.
    fn tgen_of(&self, client: &Client) -> String {
        match &client.users {
            Users::Models(_) => "tgen-markov.tgenrc.graphml".into(),
            Users::Fetch(fetch) => {
                let place = self.fetches.iter().position(|it| Arc::ptr_eq(it, fetch)).unwrap_or(0);
                graphs::perf_name(place)
            }
        }
    }
}

/// Writes a network to a folder, which is made, or is empty. Stock tor makes the keys of all relays: half a minute for some hundreds.
///
/// # Errors
/// Where the network has what neither Shadow nor tor can have, the folder is not empty, a file cannot be written, or tor's programs fail.
pub fn write(
    network: &Network,
    folder: &Path,
    programs: &Programs,
    seconds: u32,
) -> Result<(), Error> {
    let write_error = |source| Error::Write { path: folder.into(), source };
    fs::create_dir_all(folder).map_err(write_error)?;
    if fs::read_dir(folder).map_err(write_error)?.next().is_some() {
        let problem = format!("{} is not empty: another folder please", folder.display());
        return Err(Error::Impossible(problem));
    }
    check_names(network)?;
    if (network.choices.load - 1.0).abs() > 1e-9 {
        let problem = "TGen's models say how much users do: a network to be exported has load = 1";
        return Err(Error::Impossible(problem.into()));
    }
    let mut relays = network.relays.clone();
    let named = relays.iter().filter(|it| Plan::is_authority(it)).count();
    let mut names = (1..).map(|number| format!("{AUTHORITY}{number}"));
    for _ in named..AUTHORITIES {
        let mut authority = network.relays[0].clone();
        let is_free = |name: &String| relays.iter().all(|it| it.site.name != *name);
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
            && !fetches.iter().any(|it| Arc::ptr_eq(it, fetch))
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

/// Shadow takes small letters, digits and hyphens, but none at the beginning; tor nicknames of 19 letters and digits.
fn check_names(network: &Network) -> Result<(), Error> {
    let relays = network.relays.iter().map(|it| (&it.site.name, 19));
    let clients = network.clients.iter().map(|it| (&it.site.name, 63));
    let servers = network.servers.iter().map(|it| (&it.name, 63));
    let mut seen = BTreeSet::new();
    for (name, longest) in relays.chain(clients).chain(servers) {
        if !seen.insert(name) {
            let problem = format!("two hosts are called {name:?}: Shadow has one of each name");
            return Err(Error::Impossible(problem));
        }
        let is_right = |it: char| {
            it.is_ascii_lowercase() || it.is_ascii_digit() || (it == '-' && longest > 19)
        };
        let is_sound = !name.is_empty() && !name.starts_with('-') && name.len() <= longest;
        if !is_sound || !name.chars().all(is_right) {
            let problem = format!(
                "{name:?} cannot be a name in Shadow: small letters and digits, 19 at most for a relay"
            );
            return Err(Error::Impossible(problem));
        }
    }
    Ok(())
}

/// Writes a file.
fn put(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.into(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}
