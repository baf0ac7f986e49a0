//! Computes the errors of section 3 and appendix A of the FlashFlow paper (equations 1 to 7) over a dataset.
//!
//! *t* is the time of a consensus or relay list; *C(r,t,p)* is the column `capacity_P_byte_per_s` of `relay_hours`. Relays without a
//! descriptor or with capacity 0 have no error. *W* and *C̄* of equations 5 and 6 are normalized over the relays that have both a
//! weight and a capacity. If an archive lacks some descriptors, or has weights of guards only, the errors are those of the others.

mod figures;
mod paper;
#[cfg(test)]
mod tests;

pub use figures::report;
pub use paper::{Line, lines};

use crate::engine::{Engine, Period, View, integers, numbers};
use crate::error::ArchiveError;
use crate::times::minute;

/// The time from which on the errors of a period count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// For all periods, the longest period after the first consensus, as in the paper.
    Longest,
    /// The length of the period after the first consensus.
    Own,
}

/// Which errors to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorsOptions {
    /// The relays, weights and periods.
    pub view: View,
    /// The beginning of errors after the first consensus.
    pub warm_up: WarmUp,
    /// The earliest *t*, in Unix seconds.
    pub from_unix_s: Option<i64>,
    /// The first time after the last *t*.
    pub until_unix_s: Option<i64>,
}

/// The errors of the network at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkHour {
    /// *t*, in Unix seconds.
    pub unix_s: i64,
    /// NCE, equation 3.
    pub capacity_error: Option<f64>,
    /// NWE, equation 6.
    pub weight_error: Option<f64>,
}

/// The errors of a period *p*.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodErrors {
    /// The period.
    pub period: Period,
    /// The first *t*.
    pub from_unix_s: i64,
    /// Mean RCE of each relay (equation 2), ascending.
    pub capacity_errors: Vec<f64>,
    /// Mean RWE of each relay (equation 5), ascending.
    pub weight_errors: Vec<f64>,
    /// Mean RSD of the advertised bandwidths of each relay (equation 7), ascending.
    pub advertised_rsds: Vec<f64>,
    /// Mean RSD of the weight shares of each relay, ascending.
    pub weight_rsds: Vec<f64>,
    /// The errors of the network, in order of time.
    pub network: Vec<NetworkHour>,
}

/// The errors of all periods.
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    /// In the order of the options.
    pub periods: Vec<PeriodErrors>,
    /// Number of rows of `relay_hours`.
    pub rows: u64,
    /// Number of relays.
    pub relays: usize,
    /// Times of the first and last consensus or relay list, in Unix seconds.
    pub span_unix_s: (i64, i64),
}

/// Computes the errors.
///
/// # Errors
/// The dataset has no consensuses of this origin, or cannot be read.
pub fn compute(engine: &Engine, options: &ErrorsOptions) -> Result<Errors, ArchiveError> {
    let periods = &options.view.periods;
    let longest = periods.iter().map(|period| period.length_s).max().unwrap_or_default();
    let (first, last) = span(engine, &options.view.origin)?;
    let begin = |period: &Period| {
        let warm_up = if options.warm_up == WarmUp::Own { period.length_s } else { longest };
        (first + warm_up).max(options.from_unix_s.unwrap_or(i64::MIN))
    };
    let until = options.until_unix_s.unwrap_or(i64::MAX);
    // Before the computation, which takes minutes for a year.
    if let Some(earliest) =
        periods.iter().map(begin).min().filter(|first| *first > last || *first >= until)
    {
        return Err(ArchiveError::Missing(format!(
            "no errors: the dataset ends on {}, but errors count only from {} on; use --warm-up own, shorter --periods, or import more",
            minute(last.min(until)),
            minute(earliest),
        )));
    }
    engine.view(options.view.clone())?;
    let names: Vec<&str> = periods.iter().map(|period| period.name.as_str()).collect();
    let network = engine.query(&network_query(&names))?;
    let times = integers(&network, "t")?;
    engine.keep("network", network.clone())?;
    let weights = engine.query(&weights_query(&names))?;
    let begins: Vec<(&str, i64)> =
        periods.iter().map(|period| (period.name.as_str(), begin(period))).collect();
    let relays = engine.query(&relays_query(&begins, until))?;

    let advertised = numbers(&network, "advertised")?;
    let weight_times = integers(&weights, "t")?;
    let errors = |period: &Period| -> Result<PeriodErrors, ArchiveError> {
        let name = &period.name;
        let from_unix_s = begin(period);
        let capacities = numbers(&network, &format!("capacity_{name}"))?;
        let mut weight_errors =
            weight_times.iter().zip(numbers(&weights, &format!("nwe_{name}"))?).peekable();
        let mut hours = Vec::new();
        for ((unix_s, advertised), capacity) in times.iter().zip(&advertised).zip(capacities) {
            while weight_errors.next_if(|(time, _)| *time < unix_s).is_some() {}
            let weight_error =
                weight_errors.next_if(|(time, _)| *time == unix_s).and_then(|(_, error)| error);
            if (from_unix_s..until).contains(unix_s) {
                let capacity = capacity.filter(|capacity| *capacity > 0.0);
                let capacity_error = advertised.zip(capacity).map(|(a, c)| 1.0 - a / c);
                hours.push(NetworkHour { unix_s: *unix_s, capacity_error, weight_error });
            }
        }
        let means = |what: &str| -> Result<Vec<f64>, ArchiveError> {
            let means = numbers(&relays, &format!("{what}_{name}"))?;
            let mut means: Vec<f64> = means.into_iter().flatten().collect();
            means.sort_by(f64::total_cmp);
            Ok(means)
        };
        Ok(PeriodErrors {
            period: period.clone(),
            from_unix_s,
            capacity_errors: means("rce")?,
            weight_errors: means("rwe")?,
            advertised_rsds: means("rsd_a")?,
            weight_rsds: means("rsd_w")?,
            network: hours,
        })
    };
    Ok(Errors {
        periods: periods.iter().map(errors).collect::<Result<_, _>>()?,
        rows: integers(&network, "relays")?.iter().sum::<i64>() as u64,
        relays: relays.iter().map(datafusion::arrow::array::RecordBatch::num_rows).sum(),
        span_unix_s: (first, last),
    })
}

/// The times of the first and the last consensus or relay list of an origin, in Unix seconds.
///
/// # Errors
/// The dataset has none, or cannot be read.
pub fn span(engine: &Engine, origin: &str) -> Result<(i64, i64), ArchiveError> {
    let origin_sql = origin.replace('\'', "''");
    let found = engine.query(&format!(
        "SELECT MIN(valid_after_unix_s) AS first, MAX(valid_after_unix_s) AS last FROM statuses \
         WHERE origin = '{origin_sql}' AND is_running HAVING COUNT(*) > 0"
    ))?;
    let ends = integers(&found, "first")?.first().copied();
    ends.zip(integers(&found, "last")?.first().copied()).ok_or_else(|| {
        ArchiveError::Missing(format!(
            "the dataset has no consensuses or relay lists of the origin `{origin}`"
        ))
    })
}

/// The sums of the network at each time: over all relays with a descriptor, and over those with a weight as well.
fn network_query(periods: &[&str]) -> String {
    let mut sql = "SELECT valid_after_unix_s AS t, COUNT(*) AS relays, SUM(advertised_byte_per_s) AS advertised, \
                   SUM(CASE WHEN advertised_byte_per_s IS NOT NULL THEN weight_kb_per_s END) AS weight"
        .to_owned();
    for name in periods {
        sql += &format!(
            ", SUM(capacity_{name}_byte_per_s) AS capacity_{name}, \
             SUM(CASE WHEN weight_kb_per_s IS NOT NULL THEN capacity_{name}_byte_per_s END) AS weighted_{name}"
        );
    }
    sql + " FROM relay_hours GROUP BY valid_after_unix_s ORDER BY valid_after_unix_s"
}

/// Normalized weight of a row, in SQL.
const SHARE: &str = "CAST(h.weight_kb_per_s AS DOUBLE) / NULLIF(n.weight, 0)";

fn capacity_share(name: &str) -> String {
    format!("CAST(h.capacity_{name}_byte_per_s AS DOUBLE) / NULLIF(n.weighted_{name}, 0)")
}

/// The sum over relays adds integers, in units of 2⁻⁵², so that it does not depend on the order in which threads and machines add.
fn weights_query(periods: &[&str]) -> String {
    let mut sql = "SELECT h.valid_after_unix_s AS t".to_owned();
    for name in periods {
        let difference = format!("ABS({SHARE} - {})", capacity_share(name));
        sql += &format!(
            ", CAST(SUM(CAST({difference} * 4503599627370496.0 AS BIGINT)) AS DOUBLE) / 9007199254740992.0 AS nwe_{name}"
        );
    }
    sql + " FROM relay_hours h JOIN network n ON h.valid_after_unix_s = n.t \
           WHERE h.weight_kb_per_s IS NOT NULL AND h.advertised_byte_per_s IS NOT NULL \
           GROUP BY h.valid_after_unix_s ORDER BY h.valid_after_unix_s"
}

fn relays_query(periods: &[(&str, i64)], until: i64) -> String {
    let mut sql = "SELECT h.relay AS relay".to_owned();
    for (name, from) in periods {
        let counts = format!(
            "FILTER (WHERE h.valid_after_unix_s >= {from} AND h.valid_after_unix_s < {until})"
        );
        // Null where the capacity is 0.
        let capacity = format!("NULLIF(h.capacity_{name}_byte_per_s, 0)");
        sql += &format!(
            ", AVG(1.0 - CAST(h.advertised_byte_per_s AS DOUBLE) / {capacity}) {counts} AS rce_{name}\
             , AVG(({SHARE}) / NULLIF({}, 0)) {counts} AS rwe_{name}\
             , AVG(h.advertised_rsd_{name}) {counts} AS rsd_a_{name}\
             , AVG(h.weight_rsd_{name}) {counts} AS rsd_w_{name}",
            capacity_share(name),
        );
    }
    sql + " FROM relay_hours h JOIN network n ON h.valid_after_unix_s = n.t GROUP BY h.relay"
}
