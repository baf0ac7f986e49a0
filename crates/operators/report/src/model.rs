//! The data of a report.

use crate::RoundAccount;
use crate::text::finite;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A run of the program: the measured relays and the parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// The time of the report, in Unix seconds.
    pub generated_unix_s: i64,
    /// The version of this software.
    pub software_version: String,
    /// The version of the measured tor; `None` if it is unknown, or if there were several.
    pub tor_version: Option<String>,
    /// The parameters of the measurements: name, and value with its unit.
    pub parameters: Vec<(String, String)>,
    /// Remarks for the reader, a paragraph each.
    pub notes: Vec<String>,
    /// The relays, in display order.
    pub relays: Vec<RelayReport>,
    /// The bandwidth file with the results.
    pub bandwidth_file: Option<PathBuf>,
    /// Whether a consensus with the weights of `bandwidth_file` was seen; `None` if that was not checked.
    pub weights_in_consensus: Option<bool>,
}

/// The result of measuring one relay. Rates count each cell once: a relay that forwards 10 Mbit/s receives and sends 10 Mbit/s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RelayReport {
    /// The relay's nickname, which is neither trusted nor unique.
    pub nickname: String,
    /// The relay's RSA identity, in hex.
    pub fingerprint: String,
    /// How the relay was loaded.
    pub mode: Mode,
    /// The configured limit of the relay, if it is known, in Mbit/s: the truth for the estimate.
    pub limit_mbit_per_s: Option<f64>,
    /// *z*, the median over the seconds of the last round, in Mbit/s; `None` if it failed.
    pub estimate_mbit_per_s: Option<f64>,
    /// The median of the relay's own reports of traffic in those seconds, in Mbit/s.
    pub relay_reported_mbit_per_s: Option<f64>,
    /// Share of one processor core that the relay's process used in those seconds: from zero to one, or slightly more because of tor's
    /// helper threads.
    pub relay_cpu_share: Option<f64>,
    /// Whether the load was large enough to bound the capacity from above.
    pub conclusive: bool,
    /// The reason if it was not.
    pub inconclusive_reason: Option<String>,
    /// The load's limit below which an estimate is conclusive, Σ*aᵢ*(1−ε₁)/*m* of the last round,
    /// in Mbit/s.
    pub conclusive_limit_mbit_per_s: Option<f64>,
    /// The true capacity lies between these, in Mbit/s; there may be no upper bound.
    pub bounds_mbit_per_s: Option<(f64, Option<f64>)>,
    /// The spread of the seconds of the last round.
    pub spread_mbit_per_s: Option<Spread>,
    /// Number of rounds, including the last one.
    pub rounds: u32,
    /// Length of a round, in seconds.
    pub seconds: u32,
    /// Number of cells whose content was verified.
    pub cells_checked: u64,
    /// The reason for a failure; `None` if there is an estimate.
    pub error: Option<String>,
    /// The relay's weight in our bandwidth file, in kB/s.
    pub weight_kb_s: Option<u64>,
    /// The relay's weight in the consensus, in kB/s.
    pub consensus_weight_kb_s: Option<u64>,
    /// What limited the sockets of each measurer in each round, if the kernels report it.
    pub accounts: Vec<RoundAccount>,
    /// The seconds of all rounds, in order of time.
    #[schemars(skip)] // see `value`
    pub series: Vec<SecondPoint>,
}

/// The protocol of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The relay forwards cells without knowing of the measurement. Its client traffic is not counted, so estimates are lower bounds.
    #[default]
    Transit,
    /// The relay returns cells, and reports its client traffic.
    Echo,
}

/// The spread of the seconds of a round, in Mbit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// The slowest second.
    pub min: f64,
    /// The first quartile.
    pub lower_quartile: f64,
    /// The third quartile.
    pub upper_quartile: f64,
    /// The fastest second.
    pub max: f64,
}

/// One second of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SecondPoint {
    /// The round, counted from one.
    pub round: u32,
    /// The second of the round, counted from zero.
    pub second: u32,
    /// The measured traffic, in Mbit/s.
    pub measured_mbit_per_s: f64,
    /// The traffic reported by the relay, in Mbit/s.
    pub relay_reported_mbit_per_s: Option<f64>,
}

/// The verdict on a measurement, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// The estimate bounds the capacity from both sides.
    Conclusive,
    /// The estimate bounds the capacity from below only.
    Inconclusive(&'a str),
    /// There is no estimate.
    Failed(&'a str),
}

impl RelayReport {
    /// The verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict<'_> {
        match (&self.error, self.estimate()) {
            (Some(error), _) => Verdict::Failed(error),
            (None, None) => Verdict::Failed("there is no estimate"),
            (None, Some(_)) if self.conclusive => Verdict::Conclusive,
            (None, Some(_)) => Verdict::Inconclusive(
                self.inconclusive_reason.as_deref().unwrap_or("unknown reason"),
            ),
        }
    }

    /// The result as a JSON object with its `type`. It lacks the seconds, which are printed separately.
    #[must_use]
    pub fn value(&self, kind: &str) -> Value {
        let mut value = json!(self);
        if let Value::Object(fields) = &mut value {
            fields.remove("series");
            fields.insert("type".to_owned(), json!(kind));
        }
        value
    }

    /// The estimate, if it is a number.
    pub(crate) fn estimate(&self) -> Option<f64> {
        finite(self.estimate_mbit_per_s)
    }

    /// The estimate divided by the configured limit.
    pub(crate) fn ratio_to_limit(&self) -> Option<f64> {
        ratio(self.estimate_mbit_per_s, self.limit_mbit_per_s)
    }

    /// The estimate divided by the relay's own report.
    pub(crate) fn ratio_to_relay_reported(&self) -> Option<f64> {
        ratio(self.estimate_mbit_per_s, self.relay_reported_mbit_per_s)
    }
}

impl Verdict<'_> {
    /// The word without the reason.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Conclusive => "conclusive",
            Self::Inconclusive(_) => "inconclusive",
            Self::Failed(_) => "failed",
        }
    }

    /// The reason; `None` for a conclusive estimate.
    #[must_use]
    pub const fn reason(&self) -> Option<&str> {
        match self {
            Self::Conclusive => None,
            Self::Inconclusive(reason) | Self::Failed(reason) => Some(reason),
        }
    }
}

fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    finite(Some(part? / whole?))
}
