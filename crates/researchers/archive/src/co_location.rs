//! The coordinator's test for relays that share a machine, over the published bandwidths of a dataset.
//!
//! A day is a period, and the bandwidth in force at its first view is the estimate. Relays advertise what they carried, so a pair
//! moves alike also because it has the same load: see [`coordinator::CoLocationTest`] on other common causes.

use crate::engine::{Engine, View, integers, numbers, texts};
use crate::error::ArchiveError;
use crate::times::DAY_S;
use coordinator::policy::network_of;
use coordinator::{CoLocationTest, Suspicion};
use onion::Rate;
use onion::identity::RsaId;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The addresses of relays.
pub type Addresses = BTreeMap<RsaId, IpAddr>;

/// Two relays that a test named.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NamedPair {
    /// Their fingerprints.
    pub relays: [String; 2],
    /// Pairs of days in which both moved.
    pub moves: u32,
    /// Those in which both moved up, or both down.
    pub alike: u32,
    /// Expected number of such pairs of relays by chance, in a network of this size.
    pub by_chance: f64,
    /// Whether they have the same address; none if an address is unknown.
    pub shares_address: Option<bool>,
    /// Whether the first two bytes of their IPv4 addresses are the same; none if an address is unknown.
    pub shares_network: Option<bool>,
}

/// The result of all tests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CoLocation {
    /// Days with a view.
    pub days: usize,
    /// Tests, each of up to 256 days.
    pub tests: usize,
    /// Relays with a bandwidth on two consecutive days.
    pub relays: usize,
    /// Different pairs that a test named, the most likely first: of each test at most a thousand.
    pub pairs: usize,
    /// Those with the addresses of both relays.
    pub pairs_with_addresses: usize,
    /// Those with the same address.
    pub shared_address_pairs: usize,
    /// Those with the same network (/16).
    pub shared_network_pairs: usize,
    /// The share of the pairs of all such relays that have the same address.
    pub all_pairs_shared_address_share: f64,
    /// The share of the pairs of all such relays that have the same network.
    pub all_pairs_shared_network_share: f64,
    /// The named pairs.
    #[serde(skip)]
    pub named: Vec<NamedPair>,
}

/// Bandwidths of relays on a day, by the number of the day.
type Days = BTreeMap<i64, Vec<(RsaId, Rate)>>;

/// Tests all relays of an origin, in blocks of the test's length. Addresses are those given, or else the last ones in the table `relays`.
///
/// # Errors
/// The dataset cannot be read, or has no bandwidths.
pub fn tested(
    engine: &Engine,
    origin: &str,
    addresses: &Addresses,
) -> Result<CoLocation, ArchiveError> {
    let mut known = published_addresses(engine)?;
    known.extend(addresses);
    Ok(of_days(&days(engine, origin)?, &known))
}

/// The bandwidths in force at the first view of each day.
fn days(engine: &Engine, origin: &str) -> Result<Days, ArchiveError> {
    engine.view(View { periods: Vec::new(), ..View::new(origin) })?;
    let rows = engine.query(&format!(
        "SELECT relay, valid_after_unix_s AS t, advertised_byte_per_s AS a FROM relay_hours \
         WHERE advertised_byte_per_s > 0 AND valid_after_unix_s IN \
         (SELECT MIN(valid_after_unix_s) FROM statuses WHERE origin = '{origin}' GROUP BY valid_after_unix_s / {DAY_S})"
    ))?;
    let (relays, times, bandwidths) =
        (texts(&rows, 0), integers(&rows, "t")?, numbers(&rows, "a")?);
    let mut days = Days::new();
    for ((relay, time), bandwidth) in relays.iter().zip(times).zip(bandwidths) {
        let (Some(relay), Some(bandwidth)) = (relay.parse().ok(), bandwidth) else { continue };
        let rate = Rate::from_mbit_per_s(bandwidth * 8e-6);
        days.entry(time.div_euclid(DAY_S)).or_default().push((relay, rate));
    }
    Ok(days)
}

fn published_addresses(engine: &Engine) -> Result<Addresses, ArchiveError> {
    let rows = engine.query(
        "SELECT relay, address FROM relays WHERE address IS NOT NULL ORDER BY last_seen_unix_s",
    )?;
    let (relays, addresses) = (texts(&rows, 0), texts(&rows, 1));
    let pair =
        |(relay, address): (&String, &String)| Some((relay.parse().ok()?, address.parse().ok()?));
    Ok(relays.iter().zip(&addresses).filter_map(pair).collect())
}

fn of_days(days: &Days, addresses: &Addresses) -> CoLocation {
    // Each day is in one pair, whatever the first day is.
    let pairs: Vec<[&Vec<(RsaId, Rate)>; 2]> = days
        .iter()
        .filter(|(day, _)| *day % 2 == 0)
        .filter_map(|(day, first)| Some([first, days.get(&(day + 1))?]))
        .collect();
    let mut found = CoLocation { days: days.len(), ..CoLocation::default() };
    let mut all: BTreeSet<RsaId> = BTreeSet::new();
    let mut named: BTreeMap<(RsaId, RsaId), Suspicion> = BTreeMap::new();
    for block in pairs.chunks(CoLocationTest::PAIRS_OF_PERIODS_MAX as usize) {
        let mut test = CoLocationTest::default();
        for [first, second] in block {
            let second: BTreeMap<RsaId, Rate> = second.iter().copied().collect();
            let both =
                first.iter().filter_map(|(relay, rate)| Some((*relay, *rate, *second.get(relay)?)));
            let both: Vec<(RsaId, Rate, Rate)> = both.collect();
            all.extend(both.iter().map(|(relay, ..)| *relay));
            test.add(&both);
        }
        found.tests += 1;
        for suspicion in test.suspicions(|_, _| false) {
            let earlier = named.entry(suspicion.relays).or_insert(suspicion);
            if suspicion.by_chance < earlier.by_chance {
                *earlier = suspicion;
            }
        }
    }
    found.relays = all.len();
    let mut named: Vec<Suspicion> = named.into_values().collect();
    named.sort_by(|one, other| one.by_chance.total_cmp(&other.by_chance));
    found.named = named.iter().map(|suspicion| named_pair(suspicion, addresses)).collect();
    let count = |is: fn(&NamedPair) -> bool| found.named.iter().filter(|pair| is(pair)).count();
    found.pairs = found.named.len();
    found.pairs_with_addresses = count(|pair| pair.shares_address.is_some());
    found.shared_address_pairs = count(|pair| pair.shares_address == Some(true));
    found.shared_network_pairs = count(|pair| pair.shares_network == Some(true));
    let of_all = || all.iter().filter_map(|relay| addresses.get(relay));
    found.all_pairs_shared_address_share = shared(of_all());
    found.all_pairs_shared_network_share = shared(of_all().map(|address| network_of(*address)));
    found
}

fn named_pair(suspicion: &Suspicion, addresses: &Addresses) -> NamedPair {
    let (one, other) = suspicion.relays;
    let both = addresses.get(&one).zip(addresses.get(&other));
    NamedPair {
        relays: [one, other].map(|relay| relay.to_string()),
        moves: suspicion.moves,
        alike: suspicion.alike,
        by_chance: suspicion.by_chance,
        shares_address: both.map(|(one, other)| one == other),
        shares_network: both.map(|(one, other)| network_of(*one) == network_of(*other)),
    }
}

/// The share of pairs of equal values among all pairs.
fn shared<T: Ord>(values: impl Iterator<Item = T>) -> f64 {
    let mut counts: BTreeMap<T, f64> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1.0);
    let pairs = |count: f64| count * (count - 1.0) / 2.0;
    let equal: f64 = counts.values().map(|count| pairs(*count)).sum();
    equal / pairs(counts.values().sum::<f64>()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relays of 256 days, of which two share a machine: their bandwidths are the same sequence.
    fn sharing() -> Days {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1.0 + (state >> 40) as f64 / f64::from(1 << 24)
        };
        let day = |day: i64| {
            let mut relays: Vec<(RsaId, Rate)> = (0..30)
                .map(|relay| (RsaId([relay; 20]), Rate::from_mbit_per_s(10.0 * random())))
                .collect();
            relays[7].1 = relays[3].1.scaled(2.0);
            (day, relays)
        };
        (0..300).map(day).collect()
    }

    #[test]
    fn relays_that_move_together_are_named_with_their_addresses() {
        let address = |relay: u8, last: u8| (RsaId([relay; 20]), IpAddr::from([192, 0, 2, last]));
        let found =
            of_days(&sharing(), &Addresses::from([address(3, 1), address(7, 2), address(8, 2)]));
        assert_eq!((found.days, found.tests, found.relays), (300, 2, 30));
        let [pair] = &found.named[..] else { panic!("{found:?}") };
        assert_eq!(pair.relays, ["03".repeat(20), "07".repeat(20)]);
        assert_eq!((pair.shares_address, pair.shares_network), (Some(false), Some(true)));
        assert_eq!((found.pairs_with_addresses, found.shared_address_pairs), (1, 0));
        assert_eq!(found.shared_network_pairs, 1);
        assert!((found.all_pairs_shared_address_share - 1.0 / 3.0).abs() < 1e-9);
        assert!((found.all_pairs_shared_network_share - 1.0).abs() < 1e-9);
    }

    #[test]
    fn days_are_paired_with_the_next_one_only() {
        let mut days = sharing();
        days.retain(|day, _| day % 2 == 0);
        let found = of_days(&days, &Addresses::new());
        assert_eq!((found.days, found.tests, found.pairs), (150, 0, 0));
    }
}
