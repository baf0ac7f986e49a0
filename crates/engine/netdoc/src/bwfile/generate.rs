//! Generates a bandwidth file from measurements, by the rules that tor leaves to the generator.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{BandwidthFile, Header, RelayLine};
use crate::consensus::Consensus;
use identity::{Ed25519Id, Nickname, RsaId};

/// Maximum age of the newest result: tor considers an older file stale (`bwauth.h`).
const RECENT_S: u64 = 3 * 24 * 60 * 60;

/// The longest diagnostic that is written, so that no failure makes a line unreadable.
const MAX_REASON: usize = 120;

/// Tor stores bandwidths in 32 bits, signed in some places.
const MAX_BW_KB_S: u64 = i32::MAX as u64;

/// The result for one relay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Estimate {
    /// The relay's RSA identity.
    pub fingerprint: RsaId,
    /// Its Ed25519 identity, if it has one.
    pub ed25519: Option<Ed25519Id>,
    /// Its nickname.
    pub nickname: Nickname,
    /// The outcome.
    pub outcome: Outcome,
    /// Further pairs for its line, such as `flashflow_mode=transit`. Keys consist of letters,
    /// digits, `_` and `-`, values of printing ASCII without spaces.
    pub extra: Vec<(String, String)>,
}

/// The outcome of a measurement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was measured.
    Measured {
        /// Its capacity, in bytes/s.
        capacity_bytes_s: u64,
        /// When, in Unix seconds.
        measured_at: u64,
        /// `bandwidth-avg` of its descriptor, in bytes/s: the limit that its operator has set.
        descriptor_avg_bytes_s: Option<u64>,
    },
    /// It could not be measured.
    Failed {
        /// The reason; becomes `error=`, with anything but printing ASCII replaced by `_`.
        reason: String,
        /// When it was attempted, in Unix seconds.
        tried_at: Option<u64>,
    },
}

/// The numbers of the 60 % rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Eligibility {
    /// Relays with an eligible result.
    pub eligible: u64,
    /// Relays that could have one.
    pub in_consensus: u64,
}

impl Eligibility {
    /// Counts relays of the consensus with the flag Running and without Authority, and those among
    /// them that were measured.
    #[must_use]
    pub fn count(consensus: &Consensus, estimates: &[Estimate]) -> Self {
        let measured: BTreeSet<_> = estimates
            .iter()
            .filter(|e| matches!(e.outcome, Outcome::Measured { .. }))
            .map(|e| e.fingerprint)
            .collect();
        let mut counts = Self { eligible: 0, in_consensus: 0 };
        for router in consensus.routers() {
            if router.is_measurable() {
                counts.in_consensus += 1;
                counts.eligible += u64::from(measured.contains(&router.fingerprint));
            }
        }
        counts
    }

    /// The percentage of eligible relays, rounded down, so that the printed number reaches the
    /// minimum exactly when the rule is met; 0 without any relay.
    #[must_use]
    pub const fn percent(self) -> u64 {
        match self.eligible.saturating_mul(100).checked_div(self.in_consensus) {
            Some(percent) => percent,
            None => 0,
        }
    }

    /// The minimum number of eligible relays for a minimum percentage.
    #[must_use]
    pub const fn minimum(self, percent: u64) -> u64 {
        self.in_consensus.saturating_mul(percent).div_ceil(100)
    }
}

/// Facts about the generator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The version of the format; 1.9.0 by default.
    pub format_version: String,
    /// The version of FlashFlow.
    pub software_version: String,
    /// When the generator started, in Unix seconds.
    pub generator_started: u64,
    /// The current time, in Unix seconds.
    pub file_created: u64,
    /// The minimum percentage of eligible relays; 60 by default.
    pub minimum_percent: u64,
}

impl Settings {
    /// The defaults, except for the given values.
    #[must_use]
    pub fn new(software_version: &str, generator_started: u64, file_created: u64) -> Self {
        Self {
            format_version: "1.9.0".to_owned(),
            software_version: software_version.to_owned(),
            generator_started,
            file_created,
            minimum_percent: 60,
        }
    }
}

/// Why no file is written. The previous one stays, as the specification requires.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GenerateError {
    /// No relay was measured.
    #[error(
        "none of {tried} relays has a result, so there is nothing to write; look at the failures' \
         reasons, and measure again"
    )]
    NoResults {
        /// The number of relays attempted.
        tried: usize,
    },
    /// The newest result is too old for tor to use.
    #[error(
        "the newest result is {age_s} s old, and tor ignores files older than three days; measure \
         again"
    )]
    NoRecentResults {
        /// The age of the newest result, in seconds.
        age_s: u64,
    },
    /// A relay occurs twice; tor would use the later line.
    #[error("relay {relay} occurs twice; merge its results first")]
    Duplicate {
        /// The relay.
        relay: RsaId,
    },
}

impl BandwidthFile {
    /// Generates a file from all estimates.
    ///
    /// The timestamp is the time of the newest result. Bandwidths are in KB/s, rounded, limited by
    /// the descriptor and at least 1. Relays that failed get `bw=1 unmeasured=1 vote=0`. If fewer
    /// than the minimum percentage are eligible, every line gets `under_min_report=1 vote=0` and
    /// keeps its bandwidth. A result that is dated after the file is from a clock that was wrong: its
    /// relay counts as failed, and the others are not affected.
    ///
    /// # Errors
    /// [`GenerateError`] if there is no recent result, or the estimates make no valid file.
    pub fn generate(
        estimates: &[Estimate],
        counts: Eligibility,
        settings: &Settings,
    ) -> Result<Self, GenerateError> {
        let now = settings.file_created;
        let dated: Vec<Cow<'_, Estimate>> =
            estimates.iter().map(|estimate| estimate.dated_by(now)).collect();
        let wrong =
            dated.iter().filter(|estimate| matches!(estimate, Cow::Owned(_))).count() as u64;
        let counts = Eligibility { eligible: counts.eligible.saturating_sub(wrong), ..counts };
        let times = check(&dated, now)?;
        let minimum = counts.minimum(settings.minimum_percent);
        let under_min_report = counts.in_consensus == 0 || counts.eligible < minimum;
        let header = Header {
            version: Some(settings.format_version.clone()),
            software: Some("flashflow".to_owned()),
            software_version: Some(settings.software_version.clone()),
            file_created: Some(settings.file_created),
            generator_started: Some(settings.generator_started),
            earliest_bandwidth: Some(times.oldest),
            latest_bandwidth: Some(times.newest),
            number_eligible_relays: Some(counts.eligible),
            minimum_number_eligible_relays: Some(minimum),
            number_consensus_relays: Some(counts.in_consensus),
            percent_eligible_relays: Some(counts.percent()),
            minimum_percent_eligible_relays: Some(settings.minimum_percent),
            other: Vec::new(),
        };
        let relays = dated.iter().map(|e| relay_line(e, under_min_report)).collect();
        Ok(Self { timestamp: times.newest, header, relays })
    }
}

struct Times {
    oldest: u64,
    newest: u64,
}

impl Estimate {
    /// The estimate, or a failure if it is dated after `now`: tor would use it for too long.
    fn dated_by(&self, now: u64) -> Cow<'_, Self> {
        match self.outcome {
            Outcome::Measured { measured_at, .. } if measured_at > now => {
                let reason = format!("dated {} s after this file", measured_at - now);
                let outcome = Outcome::Failed { reason, tried_at: None };
                Cow::Owned(Self { outcome, extra: Vec::new(), ..self.clone() })
            }
            _ => Cow::Borrowed(self),
        }
    }
}

fn check(estimates: &[Cow<'_, Estimate>], now: u64) -> Result<Times, GenerateError> {
    let mut seen = BTreeSet::new();
    let mut times: Option<Times> = None;
    for estimate in estimates {
        let relay = estimate.fingerprint;
        if !seen.insert(relay) {
            return Err(GenerateError::Duplicate { relay });
        }
        let Outcome::Measured { measured_at: at, .. } = estimate.outcome else { continue };
        let so_far = times.get_or_insert(Times { oldest: at, newest: at });
        so_far.oldest = so_far.oldest.min(at);
        so_far.newest = so_far.newest.max(at);
    }
    let times = times.ok_or(GenerateError::NoResults { tried: estimates.len() })?;
    match now - times.newest {
        age_s if age_s > RECENT_S => Err(GenerateError::NoRecentResults { age_s }),
        _ => Ok(times),
    }
}

fn relay_line(estimate: &Estimate, under_min_report: bool) -> RelayLine {
    let (bw_kb_s, time) = match estimate.outcome {
        Outcome::Measured { capacity_bytes_s, measured_at, descriptor_avg_bytes_s } => {
            (bw_kb_s(capacity_bytes_s, descriptor_avg_bytes_s), Some(measured_at))
        }
        Outcome::Failed { tried_at, .. } => (1, tried_at),
    };
    let mut line = RelayLine {
        nick: Some(estimate.nickname),
        master_key_ed25519: estimate.ed25519,
        time,
        under_min_report,
        vote: !under_min_report,
        extra: estimate.extra.clone(),
        ..RelayLine::new(estimate.fingerprint, bw_kb_s)
    };
    if let Outcome::Failed { reason, .. } = &estimate.outcome {
        line.unmeasured = true;
        line.vote = false;
        line.extra.push(("error".to_owned(), printable(reason)));
    }
    line
}

/// Rounds to the nearest KB/s, but never above the limit and never to 0.
fn bw_kb_s(capacity_bytes_s: u64, cap_bytes_s: Option<u64>) -> u64 {
    let rounded = capacity_bytes_s.saturating_add(500) / 1000;
    let cap = cap_bytes_s.map_or(MAX_BW_KB_S, |cap| cap / 1000);
    rounded.min(cap).clamp(1, MAX_BW_KB_S)
}

fn printable(reason: &str) -> String {
    let shown = reason.chars().take(MAX_REASON);
    let text: String = shown.map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
    if text.is_empty() { "unknown".to_owned() } else { text }
}
