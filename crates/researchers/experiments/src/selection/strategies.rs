//! The compared strategies.

use super::network::SelectionNetwork;
use crate::error::{Error, Result};
use client::countries::Countries;
use client::model::Model;
use client::strategy::{
    Claims, GeoRule, Geography, Latency, Ranking, Strategy, Throughput, Uniform, Weighted,
    Weighted2007,
};
use netdoc::descriptor;
use netdoc::fetch::{Fetcher, Resource};
use std::sync::Arc;

/// The influence of an index, compared with a uniform choice.
const INFLUENCE: f64 = 0.95;

/// The names of all strategies. The last four need distances.
pub(super) const NAMES: [&str; 10] = [
    "uniform",
    "weighted",
    "weighted-2007",
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

/// The paper's rules of geography (§IV-B.4), each with the rules of [`GeoRule`] that it consists of.
const GEOGRAPHY: [(&str, &[&str]); 4] = [
    ("unique-continents", &["continents=unique"]),
    ("single-continent-eu", &["continent=EU", "entry=DE", "countries=3.."]),
    ("single-country-us", &["country=US"]),
    ("single-country-de", &["country=DE"]),
];

impl NamedStrategy {
    pub(super) fn new(name: &'static str, strategy: impl Strategy + 'static) -> Self {
        Self { name, strategy: Box::new(strategy) }
    }

    /// All strategies that the network permits.
    pub(super) fn all(network: &SelectionNetwork, model: &Arc<Model>) -> Result<Vec<Self>> {
        let mut all = Self::without_geography(&claims(network)?, model);
        if let Some(table) = network.countries() {
            all.extend(Self::geographic(&table)?);
        }
        Ok(all)
    }

    /// Those by bandwidth and by measurements.
    pub(super) fn without_geography(claims: &Claims, model: &Arc<Model>) -> Vec<Self> {
        vec![
            Self::new("uniform", Uniform),
            Self::new("weighted", Weighted),
            Self::new("weighted-2007", Weighted2007),
            Self::new("ranking", Ranking::new(claims, INFLUENCE)),
            Self::new("latency", Latency::new(Arc::clone(model), INFLUENCE)),
            Self::new("throughput", Throughput::new(Arc::clone(model), INFLUENCE)),
        ]
    }

    /// Uniform choices within countries and continents, for paths of three hops.
    pub(super) fn geographic(table: &Arc<Countries>) -> Result<Vec<Self>> {
        let strategy = |(name, rules): (&'static str, &[&str])| {
            let rules: Result<Vec<GeoRule>, String> =
                rules.iter().map(|rule| rule.parse()).collect();
            let strategy = rules
                .and_then(|rules| Geography::new(Box::new(Uniform), rules, Arc::clone(table), 3));
            Ok(Self::new(name, strategy.map_err(Error::Usage)?))
        };
        GEOGRAPHY.into_iter().map(strategy).collect()
    }
}

fn claims(network: &SelectionNetwork) -> Result<Claims> {
    let authorities = network.authorities();
    let first = authorities.first().copied();
    let first = first.ok_or_else(|| Error::Failed("a network without authorities".to_owned()))?;
    let text = Fetcher::default().get(first, &Resource::AllDescriptors)?;
    let (descriptors, _invalid) = descriptor::parse_all(&text);
    Ok(Ranking::claims(&descriptors))
}
