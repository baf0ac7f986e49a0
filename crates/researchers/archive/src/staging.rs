//! Weight errors of a network that tornettools staged from a month of archives.

use crate::dataset::Dataset;
use crate::error::ArchiveError;
use crate::rows::{Relays, Staged};
use crate::speedtest::weight_error;
use schemars::JsonSchema;
use serde::Serialize;

/// Parts of a staged network: name, and the minimum share of the span's consensuses that list a relay.
pub const PARTS: [(&str, f64); 2] = [("all", 0.0), ("running at least half of the span", 0.5)];

/// A staged network, or a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct StagedErrors {
    /// Relays.
    pub relays: usize,
    /// The sum of min(capacity, rate, burst), Gbit/s.
    pub capacity_gbit_per_s: f64,
    /// The largest of these, Mbit/s.
    pub largest_mbit_per_s: f64,
    /// Their 75th percentile, Mbit/s.
    pub percentile_75_mbit_per_s: f64,
    /// Network weight error, equation 6, of the month; none if all weights or all capacities are zero.
    pub weight_error: Option<f64>,
    /// Among the relays with a capacity, the share of those whose weight is below it, both normalised.
    pub underweighted_share: f64,
}

/// The errors of each of the [`PARTS`], over all spans.
///
/// # Errors
/// The dataset has no staged network, or cannot be read.
pub fn errors(dataset: &Dataset) -> Result<[StagedErrors; 2], ArchiveError> {
    let rows: Vec<Staged> = dataset.read_all(&mut Relays::default())?;
    if rows.is_empty() {
        let problem =
            "the dataset has no staged network; import tornettools' relayinfo_staging_*.json";
        return Err(ArchiveError::Missing(problem.to_owned()));
    }
    let relays = |least: f64| rows.iter().filter(move |row| row.running_share >= least);
    Ok(PARTS.map(|(_, least)| {
        staged_errors(relays(least).map(|relay| (relay.weight_share, relay.limited_byte_per_s())))
    }))
}

fn staged_errors(relays: impl Iterator<Item = (f64, f64)> + Clone) -> StagedErrors {
    let (weights, capacities) =
        relays.clone().fold((0.0, 0.0), |sum, relay| (sum.0 + relay.0, sum.1 + relay.1));
    let mut sorted: Vec<f64> = relays.clone().map(|relay| relay.1).collect();
    sorted.sort_by(f64::total_cmp);
    let percentile = |share| crate::percentile(&sorted, share).unwrap_or_default() * 8e-6;
    let has_capacity = sorted.iter().filter(|capacity| **capacity > 0.0).count();
    let under = relays.clone().filter(|relay| relay.0 / weights < relay.1 / capacities).count();
    StagedErrors {
        relays: sorted.len(),
        capacity_gbit_per_s: capacities * 8e-9,
        largest_mbit_per_s: percentile(1.0),
        percentile_75_mbit_per_s: percentile(0.75),
        weight_error: weight_error(relays.map(|relay| (Some(relay.0), relay.1))),
        underweighted_share: under as f64 / has_capacity.max(1) as f64,
    }
}
