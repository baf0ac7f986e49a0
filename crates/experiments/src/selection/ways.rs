//! The strategies that are compared.

use super::scene::SelectionNetwork;
use crate::error::{Error, Result};
use client::model::Model;
use client::strategy::{
    GeoRule, Geography, Latency, Ranking, Strategy, Throughput, Uniform, Weighted,
};
use netdoc::descriptor;
use netdoc::fetch::{Fetcher, Resource};
use std::sync::Arc;

/// The weight of an index compared with a uniform choice.
const INFLUENCE: f64 = 0.95;

/// The names of all; from the sixth on they need distances.
pub(super) const NAMES: [&str; 9] = [
    "uniform",
    "weighted",
    "ranking",
    "latency",
    "throughput",
    "unique-continents",
    "single-continent-eu",
    "single-country-us",
    "single-country-de",
];

/// A way of choosing paths.
pub(super) struct NamedStrategy {
    pub(super) name: &'static str,
    pub(super) strategy: Box<dyn Strategy>,
}

impl NamedStrategy {
    /// All that the scene permits.
    pub(super) fn all(scene: &SelectionNetwork, model: &Arc<Model>) -> Result<Vec<Self>> {
        let way = |name, strategy: Box<dyn Strategy>| Self { name, strategy };
        let mut ways = vec![
            way("uniform", Box::new(Uniform)),
            way("weighted", Box::new(Weighted)),
            way("ranking", Box::new(ranking(scene)?)),
            way("latency", Box::new(Latency::new(Arc::clone(model), INFLUENCE))),
            way("throughput", Box::new(Throughput::new(Arc::clone(model), INFLUENCE))),
        ];
        if let Some(table) = scene.countries() {
            for (name, rule) in [
                ("unique-continents", "continents=unique"),
                ("single-continent-eu", "continent=EU"),
                ("single-country-us", "country=US"),
                ("single-country-de", "country=DE"),
            ] {
                let rule: GeoRule = rule.parse().map_err(Error::Usage)?;
                let table = Arc::clone(&table);
                let strategy = Geography::new(Box::new(Uniform), vec![rule], table, 3);
                ways.push(way(name, Box::new(strategy.map_err(Error::Usage)?)));
            }
        }
        Ok(ways)
    }
}

fn ranking(scene: &SelectionNetwork) -> Result<Ranking> {
    let authorities = scene.authorities();
    let first = authorities.first().copied();
    let first = first.ok_or_else(|| Error::Failed("a network without authorities".to_owned()))?;
    let text = Fetcher::default().get(first, &Resource::AllDescriptors)?;
    let (descriptors, _bad) = descriptor::parse_all(&text);
    Ok(Ranking::new(&Ranking::claims(&descriptors), INFLUENCE))
}
