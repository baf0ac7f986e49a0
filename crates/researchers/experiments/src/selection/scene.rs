//! The simulated network: relays of unequal rates in many countries, and users who load them, all of them clients with fixed windows that
//! choose relays by the rule of 2007.

use crate::error::{Error, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use client::countries::Countries;
use client::strategy::{Claim, Claims};
use client::{NetDir, RelayInfo};
use netdoc::RsaId;
use netdoc::consensus::Consensus;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sim::world::{Fetch, HostId, PositionWeights, Size};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tornet::network::{Choices, Client, Network, Relay, Site, Users};

/// The relays of each country: as in the network of 2007, half of them in Germany and the United States.
const RELAYS: [(&str, usize); 16] = [
    ("DE", 26),
    ("US", 24),
    ("FR", 8),
    ("NL", 6),
    ("GB", 6),
    ("SE", 4),
    ("CA", 4),
    ("AT", 3),
    ("CH", 3),
    ("JP", 3),
    ("IT", 2),
    ("PL", 2),
    ("AU", 2),
    ("CN", 1),
    ("BR", 1),
    ("RU", 1),
];
/// Rates of relays in kB/s, for four relays each, from uplinks of home connections to those of universities. A tenth of the relays has more
/// than half of the capacity.
const RATES_KB_S: [u64; 24] = [
    32, 32, 34, 36, 38, 40, 44, 48, 52, 58, 64, 72, 80, 90, 105, 125, 150, 190, 250, 330, 450, 650,
    1000, 1700,
];
/// Countries of users, in turn.
const USERS: [&str; 10] = ["DE", "US", "FR", "US", "DE", "GB", "IT", "US", "JP", "PL"];
/// The number of users by default.
pub(super) const USERS_DEFAULT: u32 = 400;
/// A user's downloads begin at this interval.
const EVERY: Duration = Duration::from_secs(10);
/// Nine of ten downloads are pages, the others files.
const SIZES: [(f64, u32); 2] = [(0.9, 50_000), (0.1, 500_000)];
/// After this time a user gives up.
const PATIENCE: Duration = Duration::from_secs(120);
/// The web sites: as in the paper, half of them in Germany and half in the United States.
pub(super) const SITES: usize = 100;
/// The measuring client is in Germany.
pub(super) const HOME: &str = "DE";

/// A simulated network and what clients know of it.
pub(super) struct Scene {
    pub(super) network: Network,
    pub(super) view: NetDir,
    pub(super) countries: Arc<Countries>,
    fingerprints: Vec<RsaId>,
}

impl Scene {
    /// The network with this number of users.
    pub(super) fn new(users: u32) -> Result<Self> {
        let relays = relays();
        let fingerprints: Vec<RsaId> = (1..=relays.len()).map(fingerprint).collect();
        let countries = Countries::parse(&countries(&relays));
        let countries = countries.map_err(|error| Error::Failed(error.to_string()))?;
        let consensus = Consensus::parse(consensus(&relays).as_bytes());
        let consensus = consensus.map_err(|error| Error::Failed(error.to_string()))?;
        let choices = Choices {
            scheduler: SchedulerConfig::vanilla(),
            guards: 3,
            ramp: RAMP,
            ..Choices::default()
        };
        let server = |number: usize| {
            let country = if number < SITES / 2 { HOME } else { "US" };
            Site::new(format!("site{number}"), country, Rate::from_mbit_per_s(1000.0))
        };
        let network = Network {
            relays,
            servers: (0..SITES).map(server).collect(),
            clients: (0..users as usize).map(user).collect(),
            choices,
            ..Network::default()
        };
        let view = NetDir::for_study(&consensus, &[]);
        Ok(Self { network, view, countries: Arc::new(countries), fingerprints })
    }

    /// The host of a relay.
    pub(super) fn host(&self, relay: &RsaId) -> HostId {
        let place = self.fingerprints.binary_search(relay).unwrap_or_default();
        HostId(u32::try_from(place).unwrap_or_default())
    }

    /// What relays would state in their descriptors: uptimes of one to twenty days, and true rates.
    pub(super) fn claims(&self) -> Claims {
        let claim = |(place, relay): (usize, &RelayInfo)| {
            let uptime_s = (place as u64 * 13 % 20 + 1) * 86_400;
            let bytes_s = u64::from(relay.weight_kb_s) * 1000;
            let claim = Claim { uptime_s, average_bytes_s: bytes_s, observed_bytes_s: bytes_s };
            (relay.fingerprint, claim)
        };
        self.view.relays().iter().enumerate().map(claim).collect()
    }
}

/// Users begin within this time; measurements begin after it.
pub(super) const RAMP: Duration = Duration::from_secs(60);

/// Two of five relays are exits. All may be first hops, since the paper chose all positions among all relays.
fn relays() -> Vec<Relay> {
    let countries = RELAYS.into_iter().flat_map(|(country, count)| vec![country; count]);
    let relay = |(place, country): (usize, &str)| {
        // 7 and 24 have no common divisor: each country has slow and fast relays.
        let kb_s = RATES_KB_S[(place * 7 + 3) % RATES_KB_S.len()];
        let rate = Rate::from_byte_per_s(kb_s * 1000);
        let site = Site::new(format!("relay{}", place + 1), country, rate);
        Relay { site, weight: kb_s, is_guard: true, is_exit: place % 5 < 2, limit: None }
    };
    countries.enumerate().map(relay).collect()
}

fn user(number: usize) -> Client {
    let timeout = Some(PATIENCE);
    let size = |(weight, bytes)| Size { weight, bytes, timeout, stallout: None };
    let sizes = SIZES.into_iter().map(size).collect();
    let fetch = Fetch { pauses: vec![EVERY], count: None, sizes };
    client(format!("user{number}"), USERS[number % USERS.len()], fetch)
}

/// A client behind a home connection.
pub(super) fn client(name: String, country: &str, fetch: Fetch) -> Client {
    let site = Site {
        down: Rate::from_mbit_per_s(16.0),
        ..Site::new(name, country, Rate::from_mbit_per_s(1.0))
    };
    let users = Users::Fetch(Arc::new(fetch));
    Client { site, users, dirtiness: Duration::from_mins(10), begins: Duration::ZERO }
}

/// The fingerprint of a relay: its number.
fn fingerprint(number: usize) -> RsaId {
    let mut bytes = [0; 20];
    bytes[12..].copy_from_slice(&(number as u64).to_be_bytes());
    RsaId(bytes)
}

/// An address for each relay.
fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0001 + u32::try_from(place).unwrap_or_default())
}

fn countries(relays: &[Relay]) -> String {
    let mut text = String::new();
    for (place, relay) in relays.iter().enumerate() {
        let address = address(place);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{address},{address},{}", relay.site.country);
    }
    text
}

/// The consensus from which clients choose: relays with their rates as weights, and the weights of positions that follow from them.
fn consensus(relays: &[Relay]) -> String {
    let mut text = "network-status-version 3\nvote-status consensus\nconsensus-method 28\n\
        valid-after 2020-01-01 00:00:00\nfresh-until 2020-01-01 01:00:00\nvalid-until 2020-01-01 03:00:00\n\
        voting-delay 300 300\nknown-flags Exit Fast Guard Running Stable V2Dir Valid\n"
        .to_owned();
    for (place, relay) in relays.iter().enumerate() {
        let identity = BASE64_STANDARD_NO_PAD.encode(fingerprint(place + 1).0);
        let (name, address, exit) =
            (&relay.site.name, address(place), if relay.is_exit { "Exit " } else { "" });
        let digest = BASE64_STANDARD_NO_PAD.encode([0; 20]);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "r {name} {identity} {digest} 2020-01-01 00:00:00 {address} 9001 0\n\
             s {exit}Fast Guard Running Stable V2Dir Valid\nw Bandwidth={}",
            relay.weight
        );
    }
    let total = |is_exit: bool| -> f64 {
        relays
            .iter()
            .filter(|relay| relay.is_exit == is_exit)
            .map(|relay| relay.weight as f64)
            .sum()
    };
    let PositionWeights { guard, middle, exit } =
        PositionWeights::of(total(false), 0.0, 0.0, total(true));
    let weights = [
        ("Wed", exit[1]),
        ("Wee", exit[0]),
        ("Wgd", guard[1]),
        ("Wgg", guard[0]),
        ("Wmd", middle[3]),
        ("Wme", middle[2]),
        ("Wmg", middle[1]),
        ("Wmm", middle[0]),
    ];
    let weights = weights.map(|(name, weight)| format!("{name}={:.0}", weight * 10_000.0));
    let (zeros, weights) = ("0".repeat(40), weights.join(" "));
    let _ = write!(
        text,
        "directory-footer\nbandwidth-weights {weights}\ndirectory-signature {zeros} {zeros}\n\
         -----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_know_all_relays_with_their_rates_and_countries() {
        let scene = Scene::new(1).expect("a scene");
        let relays = &scene.network.relays;
        assert_eq!((relays.len(), scene.view.relays().len()), (96, 96));
        for relay in scene.view.relays() {
            let its = &relays[scene.host(&relay.fingerprint).0 as usize];
            assert_eq!(u64::from(relay.weight_kb_s), its.capacity().as_byte_per_s() / 1000);
            assert_eq!((relay.is_exit(), relay.may_be_guard()), (its.is_exit, true));
            let country = scene.countries.find(relay.address.into()).expect("a country");
            assert_eq!(country.to_string(), its.site.country);
        }
    }
}
