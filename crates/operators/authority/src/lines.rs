//! What a coordinator prints with `--json`, one object per line.

use report::RelayReport;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// A line of `flashflow coordinator --json`, in addition to those of each second and of the end.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line<'a> {
    /// A relay's measurement has ended.
    Relay(Box<RelayReport>),
    /// The period has ended.
    Summary {
        /// Results, without relays for which no measurer was left.
        #[schemars(with = "Vec<Result>")]
        relays: Vec<Value>,
        /// The bandwidth file; `null` if no relay was measured.
        bandwidth_file: Option<&'a Path>,
    },
    /// The machine's clock was set.
    ClockJumped {
        /// By how many seconds, forward if positive.
        by_s: i64,
    },
    /// With `--check`: what the coordinator would do.
    Check(Check<'a>),
    /// Authorities have agreed on a seed for a period, or failed to.
    Agreement {
        /// The begin of the period, in Unix seconds.
        period_unix_s: u64,
        /// Whether there is a common seed.
        agreed: bool,
        /// The keys of the members.
        members: Vec<String>,
        /// The other authorities.
        without: Vec<Left>,
        /// Keys of authorities that may not have received our statements, and may use another seed.
        unconfirmed: Vec<String>,
        /// Equal marks are equal seeds.
        mark: Option<String>,
    },
}

/// A relay's result in the summary.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Result {
    /// The result.
    Relay(Box<RelayReport>),
}

/// A coordinator's checked configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Check<'a> {
    /// The file.
    pub configuration: &'a Path,
    /// The public key.
    pub key: &'a str,
    /// The number of measurers.
    pub measurers: usize,
    /// The capacity of the team.
    pub capacity_mbit_per_s: f64,
    /// The number of relays on the opt-in list.
    pub opted_in: usize,
    /// Whether there is a measurement policy.
    pub policy: bool,
    /// The length of a period.
    pub period_s: u64,
    /// The length of a slot.
    pub slot_s: u64,
    /// The number of other authorities that share the seed.
    pub authorities: usize,
    /// The database of measurements.
    pub store: &'a Path,
    /// The folder of bandwidth files.
    pub out: &'a Path,
    /// Whether bandwidth files have to pass a gate.
    pub gate: bool,
    /// Settings that are valid, and probably wrong.
    pub warnings: Vec<String>,
}

/// An authority without part in an agreement.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Left {
    /// Its public key.
    pub key: String,
    /// Its name in the configuration.
    pub name: String,
    /// The reason.
    pub why: String,
}
