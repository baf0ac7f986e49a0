//! The gate of a bandwidth file: whether it should replace the previous one, check by check.
//!
//! Everything here is a pure function of parsed documents: `flashflow bwfile gate` and the coordinator's publication read them, and
//! show the same [`Outcome`].

mod bias;
mod checks;
mod limits;
mod others;
#[cfg(test)]
mod tests;

pub use bias::median;
pub use limits::Limits;
pub use others::{Others, read_votes};

use crate::countries::Countries;
use crate::places::{Place, UnreadPlace};
use checks::Subject;
use netdoc::RsaId;
use netdoc::consensus::Consensus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The name of the file with the [`Outcome`] of a coordinator's last gate, next to its bandwidth files.
pub const OUTCOME: &str = "gate.json";

/// What a file is compared with. A check without its documents is not made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Comparison<'a> {
    /// The previous bandwidth file.
    pub previous: Option<&'a [u8]>,
    /// A consensus of the time of the file: it lists the relays that could be measured.
    pub consensus: Option<&'a Consensus>,
    /// The measurements of other authorities.
    pub others: Option<&'a Others>,
    /// The mean round-trip time from the measurers to each relay, in milliseconds.
    pub round_trips_ms: Option<&'a BTreeMap<RsaId, f64>>,
    /// The countries of addresses.
    pub countries: Option<&'a Countries>,
    /// The bandwidth files of teams at other places, or why they cannot be used.
    pub places: &'a [Result<Place, UnreadPlace>],
}

/// A check.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CheckName {
    /// Lines that violate the specification, or that tor leaves out.
    BadLines,
    /// The age of the newest result.
    Age,
    /// The 60 % rule.
    Measured,
    /// The number of measured relays compared with that of other authorities.
    Compared,
    /// Relays that others measured and the file does not.
    Missing,
    /// The sum has fallen.
    TotalFall,
    /// The sum has risen.
    TotalRise,
    /// The scale of the bandwidths compared with that of the others.
    Scale,
    /// Relays whose shares differ much from those of the others.
    Deviating,
    /// The share of the largest relay.
    LargestShare,
    /// Large relays that lost.
    LargeLosses,
    /// Large relays that gained.
    LargeGains,
    /// Lower bounds among the largest relays.
    LowerBounds,
    /// Differences by distance from the measurers.
    BiasByDistance,
    /// Differences by country.
    BiasByCountry,
    /// The median ratio to the weights of another place.
    PlaceRatio,
    /// The weight of relays that differ much from that ratio.
    PlaceDeviating,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// The figure is within its limit.
    Pass,
    /// It is not.
    Fail,
    /// Data are missing.
    NotChecked,
}

/// The unit of a figure and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of lines.
    Lines,
    /// Hours.
    Hours,
    /// Per cent.
    Percent,
    /// A factor.
    Factor,
}

/// A check with its figure and limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The check.
    pub check: CheckName,
    /// The other place, if the check compares with one.
    #[serde(default)]
    pub place: Option<String>,
    /// Its result.
    pub verdict: CheckVerdict,
    /// The figure; `null` if the check was not made.
    pub figure: Option<f64>,
    /// The limit.
    pub limit: f64,
    /// The setting of the limit.
    pub limit_name: String,
    /// Whether the figure must not be below the limit, instead of above it.
    pub is_minimum: bool,
    /// The unit of both.
    pub unit: Unit,
    /// What was found, and if it is not a pass, what to do.
    pub what: String,
}

/// The result of all checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Whether no check has failed.
    pub passed: bool,
    /// The time for which the age was checked, in Unix seconds.
    pub checked_unix_s: u64,
    /// The checks.
    pub checks: Vec<Check>,
}

impl CheckName {
    /// Its name in output and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::BadLines => "bad_lines",
            Self::Age => "age",
            Self::Measured => "measured",
            Self::Compared => "compared",
            Self::Missing => "missing",
            Self::TotalFall => "total_fall",
            Self::TotalRise => "total_rise",
            Self::Scale => "scale",
            Self::Deviating => "deviating",
            Self::LargestShare => "largest_share",
            Self::LargeLosses => "large_losses",
            Self::LargeGains => "large_gains",
            Self::LowerBounds => "lower_bounds",
            Self::BiasByDistance => "bias_by_distance",
            Self::BiasByCountry => "bias_by_country",
            Self::PlaceRatio => "place_ratio",
            Self::PlaceDeviating => "place_deviating",
        }
    }
}

impl Unit {
    /// A value with this unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        // Two figures that differ must not look equal.
        let digits = if value.fract() == 0.0 { 0 } else { 1 };
        match self {
            Self::Lines => format!("{value:.0} lines"),
            Self::Hours => format!("{value:.digits$} h"),
            Self::Percent => format!("{value:.digits$} %"),
            Self::Factor => format!("{value:.2} times"),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            CheckVerdict::Pass => "pass",
            CheckVerdict::Fail => "FAIL",
            CheckVerdict::NotChecked => "-",
        };
        let figure = self.figure.map_or_else(|| "-".to_owned(), |value| self.unit.show(value));
        let least = if self.is_minimum { "at least" } else { "at most" };
        let limit = self.unit.show(self.limit);
        let name = self.check.word();
        write!(f, "{verdict:4}  {name:16}  {figure:>10}, {least} {limit:>10}  {}", self.what)
    }
}

impl Outcome {
    /// The checks that have failed.
    pub fn failed(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.verdict == CheckVerdict::Fail)
    }

    /// The number of checks that were not made.
    #[must_use]
    pub fn not_checked(&self) -> usize {
        let missing = |check: &&Check| check.verdict == CheckVerdict::NotChecked;
        self.checks.iter().filter(missing).count()
    }
}

/// Judges a bandwidth file as of a time, in Unix seconds. Votes are taken as at the time of the file, so that an old file fails
/// for its age alone.
#[must_use]
pub fn judge(file: &[u8], now_unix_s: u64, with: Comparison<'_>, limits: &Limits) -> Outcome {
    let subject = Subject::new(file, now_unix_s, with, limits);
    let checks = subject.checks();
    let passed = checks.iter().all(|check| check.verdict != CheckVerdict::Fail);
    Outcome { passed, checked_unix_s: now_unix_s, checks }
}
