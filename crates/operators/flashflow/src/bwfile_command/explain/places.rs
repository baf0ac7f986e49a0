//! The estimates of one relay by teams at several places, side by side.

use documents::gate::median;
use documents::{CAUSE, Place, estimate_in};
use netdoc::RsaId;
use onion::Rate;
use schemars::JsonSchema;
use serde::Serialize;
use store::{RelayRow, utc};

/// The factor between an estimate and the median of all places, in either direction, from which on it is far off. Repeated measurements
/// of a relay by one place differ by less: the coordinator confirms a fall to two thirds.
const FAR: f64 = 1.5;

/// The estimate of the relay by a team.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PlaceEstimate {
    /// The place: the country of its coordinator, and the path of its bandwidth file if the country is unknown or not unique. Of the store,
    /// `here` and the country.
    place: String,
    /// The bandwidth file; `null` for the store.
    file: Option<String>,
    /// The estimate, in bytes per second.
    capacity_byte_s: Option<u64>,
    /// When it was made, in Unix seconds.
    estimated_unix_s: Option<u64>,
    /// Whether it has an upper bound.
    is_conclusive: Option<bool>,
    /// Why there is no estimate, or why it is a lower bound.
    reason: Option<String>,
    /// The estimate divided by the median of all places.
    ratio: Option<f64>,
    /// Whether the ratio is 1.5 or more in either direction.
    is_far_off: bool,
}

/// The estimate in our store, whose coordinator is in this country, and those in the files of other places.
pub(super) fn estimates(
    relay: &RelayRow,
    country: Option<String>,
    places: &[Place],
) -> Vec<PlaceEstimate> {
    let is_conclusive = relay.is_conclusive == Some(true);
    // A later failure says nothing about the estimate.
    let is_of_estimate =
        relay.capacity.is_none() || relay.last_ended_unix_s == relay.estimated_unix_s;
    let here = PlaceEstimate {
        place: country.map_or_else(|| "here".to_owned(), |country| format!("here ({country})")),
        file: None,
        capacity_byte_s: relay.capacity.map(Rate::as_byte_per_s),
        estimated_unix_s: relay.estimated_unix_s,
        is_conclusive: relay.is_conclusive,
        reason: relay.last_cause.clone().filter(|_| is_of_estimate && !is_conclusive),
        ratio: None,
        is_far_off: false,
    };
    let mut estimates = vec![here];
    estimates.extend(places.iter().map(|place| estimate_at(place, relay.rsa)));
    let known = estimates.iter().filter_map(|estimate| estimate.capacity_byte_s);
    let logs: Vec<f64> = known.filter(|rate| *rate > 0).map(|rate| (rate as f64).ln()).collect();
    if logs.len() < 2 {
        return estimates;
    }
    let median = median(logs);
    for estimate in &mut estimates {
        let capacity = estimate.capacity_byte_s.map(|rate| rate as f64);
        estimate.ratio = capacity.map(|rate| rate / median.exp());
        estimate.is_far_off = estimate.ratio.is_some_and(|ratio| ratio.max(ratio.recip()) >= FAR);
    }
    estimates
}

/// The estimate of a relay in the file of a place.
fn estimate_at(place: &Place, relay: RsaId) -> PlaceEstimate {
    let line = place.file.relays.iter().find(|line| line.node_id == relay);
    let estimate = line.and_then(estimate_in);
    let reason = match line {
        None => Some("it has no line".to_owned()),
        Some(line) if estimate.is_some() => line.extra(CAUSE).map(str::to_owned),
        Some(line) => line.extra("error").map(|reason| reason.replace('_', " ")),
    };
    PlaceEstimate {
        place: place.name.clone(),
        file: Some(place.path.display().to_string()),
        capacity_byte_s: estimate.map(|estimate| estimate.capacity.as_byte_per_s()),
        estimated_unix_s: estimate.map(|estimate| estimate.measured_unix_s),
        is_conclusive: estimate.and_then(|estimate| estimate.is_conclusive),
        reason,
        ratio: None,
        is_far_off: false,
    }
}

impl PlaceEstimate {
    /// Its columns for people.
    fn columns(&self) -> [String; 4] {
        let rate = self.capacity_byte_s.map(Rate::from_byte_per_s);
        let rate = rate.map_or_else(|| "no estimate".to_owned(), |rate| rate.to_string());
        let ratio = match self.ratio {
            Some(ratio) => format!("{ratio:.2} times"),
            None => String::new(),
        };
        let mut notes = Vec::new();
        notes.extend(self.estimated_unix_s.map(utc));
        match (self.is_conclusive, &self.reason) {
            (Some(true), _) => notes.push("conclusive".to_owned()),
            (Some(false), Some(reason)) => notes.push(format!("lower bound: {reason}")),
            (Some(false), None) => notes.push("lower bound".to_owned()),
            (None, reason) => notes.extend(reason.clone()),
        }
        notes.extend(self.is_far_off.then(|| "far off".to_owned()));
        [self.place.clone(), rate, ratio, notes.join(", ")]
    }
}

/// The estimates as a table with aligned columns, a line for each.
pub(super) fn table(estimates: &[PlaceEstimate]) -> Vec<String> {
    let rows: Vec<[String; 4]> = estimates.iter().map(PlaceEstimate::columns).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let [first, second, third] = [0, 1, 2].map(|column| width(column).unwrap_or_default());
    let line = |[place, rate, ratio, notes]: &[String; 4]| {
        format!("  {place:first$}  {rate:>second$}  {ratio:>third$}  {notes}").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// How far the estimates are apart, and which are far off, in sentences.
pub(super) fn in_words(estimates: &[PlaceEstimate]) -> String {
    let measured: Vec<&PlaceEstimate> =
        estimates.iter().filter(|estimate| estimate.ratio.is_some()).collect();
    let rates = || measured.iter().filter_map(|estimate| estimate.capacity_byte_s);
    let (Some(least), Some(most)) = (rates().min(), rates().max()) else {
        return "Fewer than two places have an estimate of it.".to_owned();
    };
    let spread = format!(
        "The largest estimate of {} places is {:.2} times the smallest.",
        measured.len(),
        most as f64 / least.max(1) as f64
    );
    let far: Vec<&str> = measured
        .iter()
        .filter(|estimate| estimate.is_far_off)
        .map(|estimate| estimate.place.as_str())
        .collect();
    match (far.len(), measured.len()) {
        (0, _) => format!("{spread} None is far from their median."),
        // Each is then as far from the median as the other.
        (2, 2) => format!("{spread} Two places cannot show which one is wrong: compare a third."),
        _ => format!(
            "{spread} Far from their median: {}. Look at the paths and the capacity of the team there first.",
            far.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests;
