//! The compared strategies.

use super::network::SelectionNetwork;
use crate::error::{Error, Result};
use client::model::Model;
use client::strategy::{
    GeoRule, Geography, Latency, Ranking, Strategy, Throughput, Uniform, Weighted,
};
use netdoc::descriptor;
use netdoc::fetch::{Fetcher, Resource};
use std::sync::Arc;

/// The influence of an index, compared with a uniform choice.
const INFLUENCE: f64 = 0.95;

/// The names of all strategies. The last four need distances.
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

/// A path selection strategy with its name.
pub(super) struct NamedStrategy {
    pub(super) name: &'static str,
    pub(super) strategy: Box<dyn Strategy>,
}

impl NamedStrategy {
    /// All strategies that the network permits.
    pub(super) fn all(network: &SelectionNetwork, model: &Arc<Model>) -> Result<Vec<Self>> {
        let named = |name, strategy: Box<dyn Strategy>| Self { name, strategy };
        let mut all = vec![
            named("uniform", Box::new(Uniform)),
            named("weighted", Box::new(Weighted)),
            named("ranking", Box::new(ranking(network)?)),
            named("latency", Box::new(Latency::new(Arc::clone(model), INFLUENCE))),
            named("throughput", Box::new(Throughput::new(Arc::clone(model), INFLUENCE))),
        ];
        if let Some(table) = network.countries() {
            for (name, rule) in [
                ("unique-continents", "continents=unique"),
                ("single-continent-eu", "continent=EU"),
                ("single-country-us", "country=US"),
                ("single-country-de", "country=DE"),
            ] {
                let rule: GeoRule = rule.parse().map_err(Error::Usage)?;
                let table = Arc::clone(&table);
                let strategy = Geography::new(Box::new(Uniform), vec![rule], table, 3);
                all.push(named(name, Box::new(strategy.map_err(Error::Usage)?)));
            }
        }
        Ok(all)
    }
}

fn ranking(network: &SelectionNetwork) -> Result<Ranking> {
    let authorities = network.authorities();
    let first = authorities.first().copied();
    let first = first.ok_or_else(|| Error::Failed("a network without authorities".to_owned()))?;
    let text = Fetcher::default().get(first, &Resource::AllDescriptors)?;
    let (descriptors, _invalid) = descriptor::parse_all(&text);
    Ok(Ranking::new(&Ranking::claims(&descriptors), INFLUENCE))
}
