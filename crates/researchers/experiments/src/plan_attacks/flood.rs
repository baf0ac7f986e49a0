//! A flood of new relays (a Sybil attack): are old relays still measured, and how long do honest newcomers wait?

mod history;
mod network;
mod population;

use super::Settings;
use super::authorities::PlanKind;
use crate::columns::rounded;
use crate::error::Result;
use crate::grid::Row;
use history::History;
use network::Network;
use onion::identity::RsaId;
use population::{HOUR, Population};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The tables of who ran when, in the folder with data.
const MEMBERSHIP: &str = "membership-2024-2026";

/// The tables with countries of relays. They lack those that never ran a recommended version at the time of a list.
const COUNTRIES: &str = "onionoo-2025-2026";

/// The identities of the flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Flood {
    /// There is none.
    None,
    /// Random ones.
    RandomIdentities,
    /// Smaller ones than those of all honest relays. On average, one of 256 keys has such an identity.
    SmallIdentities,
    /// That of 4 February 2026, as if from 20 networks.
    ReplayedFewNetworks,
    /// That of 4 February 2026, as if each relay had a random network.
    ReplayedManyNetworks,
}

impl Flood {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::RandomIdentities => "random identities",
            Self::SmallIdentities => "small identities",
            Self::ReplayedFewNetworks => "4 February 2026, 20 networks",
            Self::ReplayedManyNetworks => "4 February 2026, random networks",
        }
    }
}

/// A case.
#[derive(Clone, Debug, Serialize)]
struct Columns {
    plan: PlanKind,
    flood: Flood,
    old_relays: usize,
    flood_relays: usize,
    /// Measurements of old relays in the period of the flood that are not in the same slot as without it.
    moved_measurements: usize,
    /// Old relays without a measurement in their time: the period, or in our plan 54 hours.
    overdue_old_relays: usize,
    newcomers: usize,
    newcomers_measured: usize,
    wait_median_h: Option<f64>,
    wait_max_h: Option<f64>,
    flood_relays_measured: usize,
    /// The countries with the most relays of the flood, with their numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    flood_countries: Option<String>,
}

/// Plays a network with and without the flood.
pub(super) fn row(plan: PlanKind, flood: Flood, settings: &Settings) -> Result<Row> {
    let relays = |flood: Flood| {
        let rng = &mut StdRng::seed_from_u64(settings.seed);
        let seed = seed(rng);
        (Population::random(flood, settings.old_relays, rng), seed)
    };
    Ok(case(&columns(plan, flood, [relays(Flood::None), relays(flood)])).into())
}

/// Plays the network of February 2026 with and without its flood.
pub(super) fn replayed(
    plan: PlanKind,
    flood: Flood,
    data: &Path,
    settings: &Settings,
) -> Result<Row> {
    let rng = &mut StdRng::seed_from_u64(settings.seed);
    let seed = seed(rng);
    let history = History::read(&data.join(MEMBERSHIP))?;
    let flooded = Population::replayed(&history, flood == Flood::ReplayedManyNetworks, rng);
    let countries = data.join(COUNTRIES);
    let countries = match countries.is_dir() {
        true => Some(most(&flooded, &history::countries(&countries)?)),
        false => None,
    };
    let networks = [(flooded.without_flood(), seed), (flooded, seed)];
    let columns = Columns { flood_countries: countries, ..columns(plan, flood, networks) };
    Ok(case(&columns).into())
}

/// The three countries with the most relays of a flood, with their numbers, and the number of the relays without a country.
fn most(relays: &Population, countries: &[(RsaId, String)]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, country) in countries.iter().filter(|(relay, _)| relays.flood.contains(relay)) {
        *counts.entry(country).or_default() += 1;
    }
    let unknown = relays.flood.len() - counts.values().sum::<usize>();
    let mut sorted: Vec<(&str, usize)> = counts.into_iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words = sorted.iter().take(3).map(|(country, count)| format!("{country} {count}"));
    words.chain([format!("unknown {unknown}")]).collect::<Vec<_>>().join(", ")
}

fn seed(rng: &mut StdRng) -> [u8; 32] {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    seed
}

/// The results of a network without and with the flood.
fn columns(plan: PlanKind, flood: Flood, networks: [(Population, [u8; 32]); 2]) -> Columns {
    let [calm, flooded] = networks.map(|(relays, seed)| {
        let mut network = Network::new(plan, relays, seed);
        network.run();
        network
    });
    let Population { old, flood: sybils, newcomers, .. } = &flooded.relays;
    let mut waits: Vec<u64> =
        newcomers.iter().filter_map(|relay| flooded.wait_slots(*relay)).collect();
    waits.sort_unstable();
    let hours = |slots: &u64| rounded(*slots as f64 / f64::from(HOUR), 2);
    let is_measured = |relay: &&RsaId| flooded.wait_slots(**relay).is_some();
    Columns {
        plan,
        flood,
        old_relays: old.len(),
        flood_relays: sybils.len(),
        moved_measurements: calm.of_flood_day.difference(&flooded.of_flood_day).count(),
        overdue_old_relays: flooded.overdue,
        newcomers: newcomers.len(),
        newcomers_measured: waits.len(),
        wait_median_h: waits.get(waits.len() / 2).and_then(hours),
        wait_max_h: waits.last().and_then(hours),
        flood_relays_measured: sybils.iter().filter(is_measured).count(),
        flood_countries: None,
    }
}

fn case(columns: &Columns) -> Case {
    let Columns { moved_measurements: moved, overdue_old_relays: overdue, .. } = *columns;
    let Columns { newcomers, newcomers_measured, wait_max_h, .. } = *columns;
    let name = format!("flood, {}, {}", columns.plan.name(), columns.flood.name());
    let longest = wait_max_h.map_or_else(|| "–".to_owned(), |hours| format!("{hours:.1}"));
    let detail = format!(
        "{moved} measurements of old relays moved, {overdue} overdue; {newcomers_measured} of {newcomers} newcomers measured, after \
         {longest} h at most",
    );
    let is_held = moved == 0 && overdue == 0 && newcomers_measured == newcomers;
    Case::named(name).ended(CaseVerdict::of(is_held), detail).with(columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_flood_moves_no_measurement_of_an_old_relay() {
        let settings = Settings { old_relays: 40, ..Settings::small() };
        for plan in [PlanKind::Paper, PlanKind::Memoryless] {
            let row = row(plan, Flood::RandomIdentities, &settings).expect("a row");
            let [case] = &row.cases[..] else { panic!("{row:?}") };
            let number = |column: &str| case.value(column).and_then(Value::as_u64);
            assert_eq!(number("moved_measurements"), Some(0), "{case:?}");
            assert_eq!(number("overdue_old_relays"), Some(0), "{case:?}");
            assert_eq!(number("flood_relays"), Some(400), "{case:?}");
            assert!(number("flood_relays_measured") > Some(0), "{case:?}");
        }
    }

    #[test]
    fn newcomers_without_a_flood_are_measured_within_two_hours() {
        let settings = Settings { old_relays: 40, ..Settings::small() };
        let row = row(PlanKind::Memoryless, Flood::None, &settings).expect("a row");
        let longest = row.cases[0].value("wait_max_h").and_then(Value::as_f64);
        assert!(longest < Some(2.0), "{:?}", row.cases);
    }
}
