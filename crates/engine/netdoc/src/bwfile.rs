//! Bandwidth files, which directory authorities read (`V3BandwidthsFile`) to vote on the bandwidth
//! of relays. bandwidth-file-spec.txt, versions 1.0.0 to 1.9.0.
//!
//! [`BandwidthFile::generate`] makes one from measurements and applies the rules that tor leaves to
//! the generator: the limit by the descriptor, the minimum of 1 KB/s, the 60 % rule.
//! `BandwidthFile::write_atomically` publishes it (feature `store`), [`BandwidthFile::parse`] reads any version,
//! [`check_as_tor`] predicts what tor does with it, and [`advise`] reports problems that tor does
//! not.

mod advice;
mod as_tor;
mod compare;
mod first_line;
mod generate;
mod headers;
mod read;
mod render;
#[cfg(feature = "store")]
mod store;
#[cfg(test)]
mod tests;

pub use self::advice::{Advice, Context, advise};
pub use self::as_tor::{FileVerdict, LineVerdict, Report, VoteHeaders, Warning, check_as_tor};
pub use self::compare::Difference;
pub use self::first_line::first_line;
pub use self::generate::{Eligibility, Estimate, GenerateError, Outcome, Settings};
pub use self::headers::{HEADER_KEYS, HeaderForm, HeaderKey, SCANNER_COUNTRY};
pub use self::read::{Parsed, ReadError, Skipped};
pub use self::render::RenderError;
#[cfg(feature = "store")]
pub use self::store::{
    LATEST, StoreError, Written, remove_later, remove_old, remove_superseded, stored,
};
use identity::{Ed25519Id, Nickname, RsaId};

/// Header keys with a field in [`Header`], besides the timestamp.
const KNOWN_HEADERS: [&str; 12] = [
    "version",
    "software",
    "software_version",
    "file_created",
    "generator_started",
    "earliest_bandwidth",
    "latest_bandwidth",
    "number_eligible_relays",
    "minimum_number_eligible_relays",
    "number_consensus_relays",
    "percent_eligible_relays",
    "minimum_percent_eligible_relays",
];

/// Relay keys with a field in [`RelayLine`].
const KNOWN_RELAY_KEYS: [&str; 8] = [
    "node_id",
    "bw",
    "nick",
    "master_key_ed25519",
    "time",
    "unmeasured",
    "under_min_report",
    "vote",
];

/// A bandwidth file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BandwidthFile {
    /// The time of the newest result, in Unix seconds: tor ignores the file three days after it.
    pub timestamp: u64,
    /// The lines before the terminator.
    pub header: Header,
    /// The relays, in the order of the file.
    pub relays: Vec<RelayLine>,
}

/// The header of a bandwidth file (bandwidth-file-spec.txt, section 2.2).
///
/// Times are Unix seconds here, and `YYYY-MM-DDTHH:MM:SS` in the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Header {
    /// The version of the format; none means 1.0.0.
    pub version: Option<String>,
    /// The program that wrote the file; `None` means `torflow`.
    pub software: Option<String>,
    /// Its version.
    pub software_version: Option<String>,
    /// When the file was created.
    pub file_created: Option<u64>,
    /// When the program started.
    pub generator_started: Option<u64>,
    /// The time of the oldest result.
    pub earliest_bandwidth: Option<u64>,
    /// The time of the newest result: equals the timestamp.
    pub latest_bandwidth: Option<u64>,
    /// Relays with an eligible result.
    pub number_eligible_relays: Option<u64>,
    /// The minimum of eligible relays before authorities vote on any.
    pub minimum_number_eligible_relays: Option<u64>,
    /// Relays in the consensus.
    pub number_consensus_relays: Option<u64>,
    /// The eligible ones among them, in per cent, rounded down.
    pub percent_eligible_relays: Option<u64>,
    /// The minimum percentage.
    pub minimum_percent_eligible_relays: Option<u64>,
    /// All other lines, in order.
    pub other: Vec<(String, String)>,
}

/// A relay's line (bandwidth-file-spec.txt, section 2.3).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RelayLine {
    /// Its RSA identity.
    pub node_id: RsaId,
    /// Its bandwidth in KB/s, at least 1 when written.
    pub bw_kb_s: u64,
    /// Its nickname.
    pub nick: Option<Nickname>,
    /// Its Ed25519 identity; tor ignores it.
    pub master_key_ed25519: Option<Ed25519Id>,
    /// When it was measured, in Unix seconds.
    pub time: Option<u64>,
    /// Whether the measurement failed (`unmeasured=1`).
    pub unmeasured: bool,
    /// Whether too few relays are eligible (`under_min_report=1`).
    pub under_min_report: bool,
    /// Whether authorities may vote on it: `vote=0` makes tor skip the line.
    pub vote: bool,
    /// All other pairs, in order.
    pub extra: Vec<(String, String)>,
}

impl RelayLine {
    /// A line with only an identity and a bandwidth.
    #[must_use]
    pub const fn new(node_id: RsaId, bw_kb_s: u64) -> Self {
        Self {
            node_id,
            bw_kb_s,
            nick: None,
            master_key_ed25519: None,
            time: None,
            unmeasured: false,
            under_min_report: false,
            vote: true,
            extra: Vec::new(),
        }
    }

    /// The value of a key among the [other pairs](Self::extra).
    #[must_use]
    pub fn extra(&self, key: &str) -> Option<&str> {
        let found = self.extra.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// The reason that a name identifies no single line of a bandwidth file.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// No line has this fingerprint.
    #[error("it has no line for {0}")]
    Fingerprint(RsaId),
    /// No line has this nickname.
    #[error("it has no line with nick={0}")]
    Nickname(String),
    /// Several lines have the nickname.
    #[error("{} relays call themselves {name}: give a fingerprint: {}", candidates.len(),
        candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// The nickname.
        name: String,
        /// The relays with it.
        candidates: Vec<RsaId>,
    },
}

impl BandwidthFile {
    /// The line of the relay with this fingerprint (40 hex digits, with or without `$`) or nickname.
    ///
    /// # Errors
    /// There is no such line, or there are several.
    pub fn find(&self, name: &str) -> Result<&RelayLine, LookupError> {
        if let Ok(fingerprint) = name.parse() {
            let found = self.relays.iter().find(|line| line.node_id == fingerprint);
            return found.ok_or(LookupError::Fingerprint(fingerprint));
        }
        let is_called = |line: &&RelayLine| line.nick.is_some_and(|nick| nick.as_str() == name);
        let found: Vec<&RelayLine> = self.relays.iter().filter(is_called).collect();
        match found[..] {
            [line] => Ok(line),
            [] => Err(LookupError::Nickname(name.to_owned())),
            _ => Err(LookupError::Ambiguous {
                name: name.to_owned(),
                candidates: found.iter().map(|line| line.node_id).collect(),
            }),
        }
    }
}

/// How `node_id` is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NodeIdStyle {
    /// `node_id=$HEX`, which every version of tor reads.
    #[default]
    Dollar,
    /// `node_id=HEX`, as format 1.9.0 has it; tor reads it since 0.4.8.11 only.
    Plain,
}
