//! The places of hosts and the paths between them: by the network's map, otherwise by countries.

use crate::error::Error;
use crate::map::{Map, MapPath};
use crate::network::{Network, Site};
use crate::places::{Place, Places};
use onion::Duration;
use std::collections::BTreeMap;

/// Smaller latencies are not simulated: a window is as long as the minimum latency.
const LEAST: Duration = Duration::from_micros(200);

/// The places of some hosts.
pub(crate) struct HostPaths<'a> {
    spots: Spots<'a>,
    /// The number of each host's place.
    place_of: Vec<u16>,
}

enum Spots<'a> {
    Nodes { map: &'a Map, ids: Vec<u32> },
    Countries { places: Vec<Place>, names: Vec<&'a str>, loss_at_300_ms: f64 },
}

impl<'a> HostPaths<'a> {
    /// For hosts in a network, its own and others.
    ///
    /// # Errors
    /// If the location of one is unknown.
    pub(crate) fn new(network: &'a Network, sites: &[&'a Site]) -> Result<Self, Error> {
        let known = Places::new()?;
        let Some(map) = &network.map else {
            let names: Vec<&str> = sites.iter().map(|site| site.country.as_str()).collect();
            let (names, place_of) = numbered(&names);
            let places = names.iter().map(|name| known.find(name)).collect::<Result<_, Error>>()?;
            let loss_at_300_ms = network.choices.loss_at_300_ms;
            return Ok(Self {
                spots: Spots::Countries { places, names, loss_at_300_ms },
                place_of,
            });
        };
        let node = |site: &&Site| {
            let node = site.node.or_else(|| map.nearest(&site.country, &known));
            node.filter(|node| map.node(*node).is_some()).ok_or_else(|| {
                Error::Impossible(format!("{} is nowhere on the network's map", site.name))
            })
        };
        let nodes = sites.iter().map(node).collect::<Result<Vec<u32>, Error>>()?;
        let (ids, place_of) = numbered(&nodes);
        Ok(Self { spots: Spots::Nodes { map, ids }, place_of })
    }

    /// The number of places.
    pub(crate) fn places(&self) -> u16 {
        let count = match &self.spots {
            Spots::Nodes { ids, .. } => ids.len(),
            Spots::Countries { places, .. } => places.len(),
        };
        u16::try_from(count).unwrap_or(u16::MAX)
    }

    /// The place of each host, in the order in which they were given.
    pub(crate) fn place_of(&self) -> &[u16] {
        &self.place_of
    }

    /// The path from one place to another.
    pub(crate) fn between(&self, from: u16, to: u16) -> MapPath {
        let (from, to) = (usize::from(from), usize::from(to));
        match &self.spots {
            Spots::Nodes { map, ids } => {
                let path = map.path(ids[from], ids[to]);
                MapPath { latency: path.latency.max(LEAST), ..path }
            }
            Spots::Countries { places, loss_at_300_ms, .. } => {
                let latency = places[from].latency_to(&places[to]);
                MapPath { latency, loss: loss_at_300_ms * latency.as_secs_f64() / 0.3 }
            }
        }
    }

    /// The country of a place, if known.
    pub(crate) fn country(&self, place: u16) -> Option<&str> {
        match &self.spots {
            Spots::Nodes { map, ids } => map.node(ids[usize::from(place)])?.country.as_deref(),
            Spots::Countries { names, .. } => Some(names[usize::from(place)]),
        }
    }
}

/// Distinct values in order of first occurrence, and the index of each.
fn numbered<T: Copy + Ord>(all: &[T]) -> (Vec<T>, Vec<u16>) {
    let mut numbers = BTreeMap::new();
    let mut once = Vec::new();
    let number = |value: &T| {
        *numbers.entry(*value).or_insert_with(|| {
            once.push(*value);
            u16::try_from(once.len() - 1).unwrap_or(u16::MAX)
        })
    };
    let place_of = all.iter().map(number).collect();
    (once, place_of)
}
