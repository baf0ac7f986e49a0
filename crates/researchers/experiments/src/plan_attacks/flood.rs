//! A flood of new relays (a Sybil attack): are old relays still measured, and how long do honest newcomers wait?

mod network;

use super::Settings;
use super::authorities::PlanKind;
use crate::columns::rounded;
use crate::error::Result;
use crate::grid::Row;
use network::{HOUR, Network};
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;

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
}

impl Flood {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::RandomIdentities => "random identities",
            Self::SmallIdentities => "small identities",
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
}

/// Plays a network with and without the flood.
pub(super) fn row(plan: PlanKind, flood: Flood, settings: &Settings) -> Result<Row> {
    let [calm, flooded] = [Flood::None, flood].map(|flood| {
        let mut network = Network::new(plan, flood, settings);
        network.run();
        network
    });
    let mut waits: Vec<u64> =
        flooded.newcomers().filter_map(|relay| flooded.wait_slots(relay)).collect();
    waits.sort_unstable();
    let hours = |slots: &u64| rounded(*slots as f64 / f64::from(HOUR), 2);
    let is_measured = |relay: &&_| flooded.wait_slots(**relay).is_some();
    let columns = Columns {
        plan,
        flood,
        old_relays: flooded.old.len(),
        flood_relays: flooded.flood.len(),
        moved_measurements: calm.of_flood_day.difference(&flooded.of_flood_day).count(),
        overdue_old_relays: flooded.overdue,
        newcomers: flooded.newcomers().count(),
        newcomers_measured: waits.len(),
        wait_median_h: waits.get(waits.len() / 2).and_then(hours),
        wait_max_h: waits.last().and_then(hours),
        flood_relays_measured: flooded.flood.iter().filter(is_measured).count(),
    };
    Ok(case(&columns).into())
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
