//! The pages and JSON of a site.

use super::SiteError;
use super::decided::{Decision, Measured};
use crate::figures;
use crate::format::{large, outcome, rate, time};
use askama::Template;
use documents::Vote;
use onion::Rate;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use store::{Limiter, Measurement, Reader, RelayRow, Second, State, mode_word};

/// Rows of the table of a relay.
const ROWS: usize = 10;
/// Measurements in the JSON of a relay.
const IN_JSON: usize = 30;
/// Words in place of an address.
const HIDDEN: &str = "(address)";

/// What all pages have.
pub(super) struct Pages {
    now_unix_s: u64,
    made: String,
}

#[derive(Template)]
#[template(path = "site_index.html")]
struct Index<'a> {
    root: &'static str,
    made: &'a str,
    capacity: String,
    estimated: u64,
    relays: usize,
    consensus: Option<String>,
    authorities: String,
    figures: Vec<String>,
    prefixes: Vec<&'a str>,
}

#[derive(Template)]
#[template(path = "site_list.html")]
struct List<'a> {
    root: &'static str,
    made: &'a str,
    prefix: &'a str,
    rows: Vec<ListRow<'a>>,
}

struct ListRow<'a> {
    fingerprint: String,
    nickname: &'a str,
    capacity: String,
    state: &'static str,
    class: &'static str,
}

impl<'a> From<&'a RelayRow> for ListRow<'a> {
    fn from(relay: &'a RelayRow) -> Self {
        Self {
            fingerprint: relay.rsa.to_string(),
            nickname: &relay.nickname,
            capacity: rate(relay.capacity),
            state: relay.last_state.map_or("", State::in_words),
            class: relay.last_state.map_or("", State::name),
        }
    }
}

#[derive(Template)]
#[template(path = "site_relay.html")]
struct Page<'a> {
    root: &'static str,
    made: &'a str,
    fingerprint: String,
    nickname: &'a str,
    first_seen: String,
    last_seen: String,
    explanation: &'a [String],
    rule: String,
    votes: &'a [Measured<'a>],
    figure: Option<String>,
    rows: Vec<Row>,
}

struct Row {
    ended: String,
    state: &'static str,
    class: &'static str,
    capacity: String,
    reason: String,
}

/// A relay, for its page and its JSON.
pub(super) struct RelayPage<'a> {
    pub(super) relay: &'a RelayRow,
    pub(super) weight_kb_s: Option<u64>,
    pub(super) explanation: &'a [String],
    /// The newest first.
    pub(super) measurements: &'a [Measurement],
    pub(super) decision: Decision<'a>,
}

/// The JSON of a relay. Rates are in bytes per second, weights in KB/s of 1,000 bytes, times in Unix seconds.
#[derive(Serialize)]
struct RelayJson<'a> {
    fingerprint: String,
    nickname: &'a str,
    first_seen_unix_s: u64,
    last_seen_unix_s: u64,
    /// The last estimate.
    capacity_byte_s: Option<u64>,
    estimated_unix_s: Option<u64>,
    is_conclusive: Option<bool>,
    mode: Option<&'static str>,
    /// What limited most of its counted seconds.
    limited_by: Option<&'static str>,
    /// The weight in the bandwidth file of this coordinator; `null` without a vote.
    weight_kb_s: Option<u64>,
    /// The median of the votes, if three authorities or more have measured the relay.
    voted_kb_s: Option<u32>,
    votes: &'a [Measured<'a>],
    explanation: &'a [String],
    /// The newest first.
    measurements: Vec<MeasurementJson<'a>>,
}

#[derive(Serialize)]
struct MeasurementJson<'a> {
    ended_unix_s: Option<u64>,
    state: &'static str,
    capacity_byte_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
}

impl Pages {
    pub(super) fn new(now_unix_s: u64) -> Self {
        Self { now_unix_s, made: time(Some(now_unix_s)) }
    }

    pub(super) fn index(
        &self,
        reader: &Reader,
        votes: &[Vote],
        relays: usize,
        prefixes: Vec<&str>,
    ) -> Result<String, SiteError> {
        let overview = reader.overview(self.now_unix_s)?;
        let totals = figures::totals(&figures::read_totals(reader, self.now_unix_s)?);
        let weights = figures::weights(&reader.weighed()?);
        let has_figures = overview.relays > 0;
        let figures = [totals, weights].into_iter().filter(|_| has_figures);
        let measuring = votes.iter().filter(|vote| !vote.measured_kb_s.is_empty());
        let authorities: Vec<&str> = measuring.map(|vote| vote.authority.as_str()).collect();
        let page = Index {
            root: "",
            made: &self.made,
            capacity: large(overview.capacity),
            estimated: overview.relays,
            relays,
            consensus: overview.consensus.map(|consensus| time(Some(consensus.valid_after_unix_s))),
            authorities: authorities.join(", "),
            figures: figures.map(|figure| in_page(&figure.without_values())).collect(),
            prefixes,
        };
        Ok(page.render()?)
    }

    pub(super) fn list(&self, prefix: &str, relays: &[&RelayRow]) -> Result<String, SiteError> {
        let mut rows: Vec<ListRow<'_>> = relays.iter().map(|relay| ListRow::from(*relay)).collect();
        rows.sort_by(|one, other| one.fingerprint.cmp(&other.fingerprint));
        Ok(List { root: "../../", made: &self.made, prefix, rows }.render()?)
    }

    pub(super) fn relay(&self, page: &RelayPage<'_>) -> Result<String, SiteError> {
        let RelayPage { relay, explanation, measurements, decision, .. } = page;
        let has_history = measurements.iter().any(|measurement| measurement.capacity.is_some());
        let history = has_history.then(|| figures::history(measurements).without_values());
        let page = Page {
            root: "../../",
            made: &self.made,
            fingerprint: relay.rsa.to_string(),
            nickname: &relay.nickname,
            first_seen: time(Some(relay.first_seen_unix_s)),
            last_seen: time(Some(relay.last_seen_unix_s)),
            explanation,
            rule: decision.rule(),
            votes: &decision.votes,
            figure: history.as_ref().map(in_page),
            rows: measurements.iter().take(ROWS).map(row).collect(),
        };
        Ok(page.render()?)
    }
}

impl RelayPage<'_> {
    pub(super) fn to_json(&self) -> String {
        let Self { relay, weight_kb_s, explanation, measurements, decision } = self;
        let seconds = measurements
            .iter()
            .map(|measurement| &measurement.seconds)
            .find(|seconds| !seconds.is_empty());
        let json = RelayJson {
            fingerprint: relay.rsa.to_string(),
            nickname: &relay.nickname,
            first_seen_unix_s: relay.first_seen_unix_s,
            last_seen_unix_s: relay.last_seen_unix_s,
            capacity_byte_s: relay.capacity.map(Rate::as_byte_per_s),
            estimated_unix_s: relay.estimated_unix_s,
            is_conclusive: relay.is_conclusive,
            mode: relay.mode.map(mode_word),
            limited_by: seconds.and_then(|seconds| limited_by(seconds)),
            weight_kb_s: *weight_kb_s,
            voted_kb_s: decision.weight_kb_s(),
            votes: &decision.votes,
            explanation,
            measurements: measurements.iter().take(IN_JSON).map(MeasurementJson::from).collect(),
        };
        serde_json::to_string(&json).unwrap_or_default()
    }
}

impl<'a> From<&'a Measurement> for MeasurementJson<'a> {
    fn from(measurement: &'a Measurement) -> Self {
        Self {
            ended_unix_s: measurement.ended_unix_s,
            state: measurement.state.name(),
            capacity_byte_s: measurement.capacity.map(Rate::as_byte_per_s),
            cause: measurement.cause.as_deref(),
        }
    }
}

/// A figure in a page.
fn in_page(figure: &report::experiment::ExperimentFigure) -> String {
    // The captions are constants without markup.
    format!("<figure>{}<figcaption>{}</figcaption></figure>", figure.to_html(), figure.caption)
}

fn row(measurement: &Measurement) -> Row {
    Row {
        ended: time(measurement.ended_unix_s),
        state: outcome(measurement),
        class: measurement.state.name(),
        capacity: rate(measurement.capacity),
        reason: measurement.reason.as_deref().map(without_addresses).unwrap_or_default(),
    }
}

/// What limited most of the counted seconds of the last round.
fn limited_by(seconds: &[Second]) -> Option<&'static str> {
    let counted = || seconds.iter().filter(|second| second.counts);
    let last = counted().map(|second| second.round).max()?;
    let limiters = || counted().filter(|second| second.round == last).map(|second| second.limiter);
    let count = |limiter: Limiter| limiters().filter(|other| *other == limiter).count();
    limiters().max_by_key(|limiter| count(*limiter)).map(Limiter::name)
}

/// The text without the addresses of hosts, which failures name.
pub(super) fn without_addresses(text: &str) -> String {
    let hide = |word: &str| {
        let inner =
            word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '[' | ']'));
        let bare = inner.trim_start_matches('[').trim_end_matches(']');
        let inner_dots = inner.trim_end_matches(']');
        let is_address = inner.parse::<SocketAddr>().is_ok()
            || inner_dots.parse::<SocketAddr>().is_ok()
            || bare.parse::<IpAddr>().is_ok();
        if is_address { word.replace(inner, HIDDEN) } else { word.to_owned() }
    };
    text.split(' ').map(hide).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::without_addresses;

    #[test]
    fn texts_lose_addresses_and_nothing_else() {
        for (text, expected) in [
            ("cannot connect to 192.0.2.7:9001: refused", "cannot connect to (address): refused"),
            ("host 192.0.2.7, again", "host (address), again"),
            ("at [2001:db8::1]:443.", "at (address)."),
            ("(2001:db8::1)", "((address))"),
            ("at 10:05:00, 1.5 Mbit/s of 100", "at 10:05:00, 1.5 Mbit/s of 100"),
        ] {
            assert_eq!(without_addresses(text), expected);
        }
    }
}
