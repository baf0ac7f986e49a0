//! The results that a report is made of.

use crate::RoundAccount;
use crate::text::finite;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A run of the program: the relays it measured, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// When the report was made, in Unix seconds.
    pub generated_unix_s: i64,
    /// This software's version.
    pub software_version: String,
    /// The version of the tor that was measured; `None` if unknown, or if there were several.
    pub tor_version: Option<String>,
    /// The parameters of the measurements, as name and value with its unit.
    pub parameters: Vec<(String, String)>,
    /// Remarks for the reader, a paragraph each.
    pub notes: Vec<String>,
    /// The relays, in the order in which to show them.
    pub relays: Vec<RelayReport>,
    /// The bandwidth file that the results went into.
    pub bandwidth_file: Option<PathBuf>,
    /// Whether a consensus was seen that carries the weights of `bandwidth_file`; `None` if
    /// nobody looked.
    pub weights_in_consensus: Option<bool>,
}

/// How the measurement of one relay ended. Rates count each cell once: a relay that forwards
/// 10 Mbit/s receives and sends 10 Mbit/s.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RelayReport {
    /// What the relay calls itself: not trusted, not unique.
    pub nickname: String,
    /// The relay's RSA identity, in hex.
    pub fingerprint: String,
    /// How the relay was loaded.
    pub mode: Mode,
    /// The limit that the relay was configured with, where that is known: the truth to compare
    /// the estimate with. In Mbit/s.
    pub limit_mbit_per_s: Option<f64>,
    /// *z*, the median over the seconds of the last round, in Mbit/s; `None` if it failed.
    pub estimate_mbit_per_s: Option<f64>,
    /// The median of what the relay itself said it carried in those seconds, in Mbit/s.
    pub relay_reported_mbit_per_s: Option<f64>,
    /// Share of one processor core that the relay's process used in those seconds, from zero to one
    /// or a little more, since tor has helper threads.
    pub relay_cpu_share: Option<f64>,
    /// Whether the load was large enough to bound the capacity from above.
    pub conclusive: bool,
    /// Why it was not.
    pub inconclusive_reason: Option<String>,
    /// The load's limit below which an estimate is conclusive, Σ*aᵢ*(1−ε₁)/*m* of the last round,
    /// in Mbit/s.
    pub conclusive_limit_mbit_per_s: Option<f64>,
    /// The true capacity lies between these, in Mbit/s; there may be no upper bound.
    pub bounds_mbit_per_s: Option<(f64, Option<f64>)>,
    /// How far the seconds of the last round lie apart.
    pub spread_mbit_per_s: Option<Spread>,
    /// Rounds it took, the last one included.
    pub rounds: u32,
    /// Length of a round, in seconds.
    pub seconds: u32,
    /// Cells whose content was checked and found right.
    pub cells_checked: u64,
    /// Why the measurement failed; `None` if it gave an estimate.
    pub error: Option<String>,
    /// The relay's weight in our bandwidth file, in kB/s.
    pub weight_kb_s: Option<u64>,
    /// The relay's weight in the consensus, in kB/s.
    pub consensus_weight_kb_s: Option<u64>,
    /// Where the sockets of each measurer waited, round by round, where the kernels report it.
    pub accounts: Vec<RoundAccount>,
    /// All rounds, second by second, in the order of time.
    pub series: Vec<SecondPoint>,
}

/// How a relay is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The relay forwards cells and knows nothing of the measurement, so its client traffic is not
    /// counted: estimates are lower bounds.
    #[default]
    Transit,
    /// The relay returns cells, and reports its client traffic.
    Echo,
}

/// How far the seconds of a round lie apart, in Mbit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The slowest second.
    pub min: f64,
    /// A quarter of the seconds were at most as fast.
    pub lower_quartile: f64,
    /// A quarter of the seconds were at least as fast.
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
    /// What was measured, in Mbit/s.
    pub measured_mbit_per_s: f64,
    /// What the relay itself said it carried, in Mbit/s.
    pub relay_reported_mbit_per_s: Option<f64>,
}

/// The measurement of a relay in one word, with its reason.
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
    /// How the measurement ended.
    #[must_use]
    pub fn verdict(&self) -> Verdict<'_> {
        match (&self.error, self.estimate()) {
            (Some(error), _) => Verdict::Failed(error),
            (None, None) => Verdict::Failed("there is no estimate"),
            (None, Some(_)) if self.conclusive => Verdict::Conclusive,
            (None, Some(_)) => {
                Verdict::Inconclusive(self.inconclusive_reason.as_deref().unwrap_or("not said why"))
            }
        }
    }

    /// It as JSON, with its `type`; without its seconds, which are printed one by one as they end.
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

    /// The estimate over the configured limit.
    pub(crate) fn ratio_to_limit(&self) -> Option<f64> {
        ratio(self.estimate_mbit_per_s, self.limit_mbit_per_s)
    }

    /// The estimate over what the relay said.
    pub(crate) fn ratio_to_relay_reported(&self) -> Option<f64> {
        ratio(self.estimate_mbit_per_s, self.relay_reported_mbit_per_s)
    }
}

impl Verdict<'_> {
    /// The word alone.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Conclusive => "conclusive",
            Self::Inconclusive(_) => "inconclusive",
            Self::Failed(_) => "failed",
        }
    }

    /// Why; `None` for a conclusive estimate.
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
