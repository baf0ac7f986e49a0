//! Relays, advertised bandwidth and weights of the network over time.

use crate::engine::{Engine, View, integers, numbers};
use crate::error::ArchiveError;
use crate::times::DAY_S;
use schemars::JsonSchema;
use serde::Serialize;

/// A day of the network: medians over its views.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Day {
    /// Its beginning, in Unix seconds.
    pub unix_s: i64,
    /// Views of the network.
    pub views: usize,
    /// Running relays.
    pub relays: f64,
    /// Relays with a published bandwidth.
    pub published_relays: f64,
    /// The sum of advertised bandwidths, Gbit/s; none without descriptors.
    pub advertised_gbit_per_s: Option<f64>,
    /// The sum of weights, in the unit of consensuses; none if no relay has one.
    pub weight_kb_per_s: Option<f64>,
}

/// The days of the dataset, in order.
///
/// # Errors
/// The dataset cannot be read.
pub fn days(engine: &Engine, view: View) -> Result<Vec<Day>, ArchiveError> {
    engine.view(view)?;
    let rows = engine.query(
        "SELECT valid_after_unix_s AS t, COUNT(*) AS relays, COUNT(advertised_byte_per_s) AS published, \
         SUM(advertised_byte_per_s) AS a, SUM(weight_kb_per_s) AS w \
         FROM relay_hours GROUP BY valid_after_unix_s ORDER BY valid_after_unix_s",
    )?;
    let times = integers(&rows, "t")?;
    let column = |name: &str| numbers(&rows, name);
    let columns = [column("relays")?, column("published")?, column("a")?, column("w")?];
    let mut days = Vec::new();
    let mut first = 0;
    while let Some(time) = times.get(first) {
        let day = time.div_euclid(DAY_S);
        let len = times
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take_while(|time| time.div_euclid(DAY_S) == day)
            .count();
        let median = |column: &[Option<f64>]| {
            let views = column.iter().skip(first).take(len);
            let mut values: Vec<f64> = views.copied().flatten().collect();
            values.sort_by(f64::total_cmp);
            crate::percentile(&values, 0.5)
        };
        let [relays, published, advertised, weight] = &columns;
        days.push(Day {
            unix_s: day * DAY_S,
            views: len,
            relays: median(relays).unwrap_or_default(),
            published_relays: median(published).unwrap_or_default(),
            advertised_gbit_per_s: median(advertised).map(|median| median * 8e-9),
            weight_kb_per_s: median(weight),
        });
        first += len;
    }
    Ok(days)
}
