//! Parses a bandwidth file of any version, as its specification requires.

use std::collections::BTreeMap;

use super::as_tor::{bandwidth, has_no_vote};
use super::{BandwidthFile, Header, RelayLine, first_line};
use crate::input::without_annotations;
use crate::text::{self, Line, Lines, date_time, decimal, key_value, words};
use identity::{Ed25519Id, Nickname, RsaId};

/// Why a file cannot be parsed at all.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The file is empty.
    #[error("the bandwidth file is empty; generate it again")]
    Empty,
    /// The first line isn't Unix seconds.
    #[error(
        "line {line}: expected Unix seconds and a newline, found {found:?}: {}; generate it again",
        what.as_deref().unwrap_or("this isn't a bandwidth file, or it was cut")
    )]
    BadTimestamp {
        /// The line's number, from 1: the first after annotations.
        line: usize,
        /// The line's beginning.
        found: String,
        /// What the file is instead, if known.
        what: Option<String>,
    },
}

/// A line, or an item of one, that was skipped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Skipped {
    /// The line's number, from 1.
    pub line: usize,
    /// The reason.
    pub reason: String,
}

/// The result of parsing, with the skipped lines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parsed {
    /// The file.
    pub file: BandwidthFile,
    /// Malformed or ignored lines.
    pub skipped: Vec<Skipped>,
}

impl BandwidthFile {
    /// Parses a bandwidth file of any version, with a terminator of 5 or 4 characters or none, and
    /// with or without `@` annotations before it, as in CollecTor's archives. Tor accepts no
    /// annotated file; see [`check_as_tor`](super::check_as_tor).
    ///
    /// Malformed lines are skipped and reported, not fatal. What identifies a relay, its bandwidth and
    /// its vote are read as tor reads them: of two lines of a relay the later counts, unless it has
    /// `vote=0`, and a line without `node_id` is skipped, even if it has `master_key_ed25519`.
    ///
    /// # Errors
    /// [`ReadError`] if there is no timestamp in the first line.
    pub fn parse(bytes: &[u8]) -> Result<Parsed, ReadError> {
        let mut lines = Lines::new(bytes);
        while lines.peek().is_some_and(|line| line.bytes.starts_with(b"@")) {
            lines.next();
        }
        let annotations = lines.taken();
        let first = lines.next().ok_or(ReadError::Empty)?;
        let timestamp = Some(first.bytes).filter(|_| first.complete).and_then(decimal);
        let timestamp = timestamp.ok_or_else(|| ReadError::BadTimestamp {
            line: first.number,
            found: text::excerpt(first.bytes),
            what: first_line(without_annotations(bytes)),
        })?;

        let mut reader = Reader {
            file: Self { timestamp, header: Header::default(), relays: Vec::new() },
            skipped: Vec::new(),
            in_header: true,
            annotations,
            seen: BTreeMap::new(),
        };
        for line in lines {
            if let Err(reason) = reader.line(line) {
                reader.skipped.push(Skipped { line: line.number, reason });
            }
        }
        Ok(Parsed { file: reader.file, skipped: reader.skipped })
    }
}

struct Reader {
    file: BandwidthFile,
    skipped: Vec<Skipped>,
    in_header: bool,
    /// Lines before the timestamp.
    annotations: usize,
    /// The place of each relay in the file.
    seen: BTreeMap<RsaId, usize>,
}

impl Reader {
    fn line(&mut self, line: Line<'_>) -> Result<(), String> {
        if !line.complete {
            return Err("no newline at its end: the file was cut".to_owned());
        }
        if self.in_header {
            if matches!(line.bytes, b"=====" | b"====") {
                self.in_header = false;
                return Ok(());
            }
            // Version 1.0.0 has no terminator: the first relay's line ends the header.
            if !words(line.bytes).any(|word| word.starts_with(b"node_id=")) {
                return self.header(line);
            }
            self.in_header = false;
        }
        let relay = self.relay(line)?;
        let id = relay.node_id;
        let Some(earlier) = self.seen.get(&id).and_then(|at| self.file.relays.get_mut(*at)) else {
            self.seen.insert(id, self.file.relays.len());
            self.file.relays.push(relay);
            return Ok(());
        };
        if relay.vote || !earlier.vote {
            *earlier = relay;
            return Err(format!(
                "a second line for relay {id}, which tor takes instead of the first"
            ));
        }
        Err(format!("a second line for relay {id}; with vote=0 the first counts"))
    }

    fn header(&mut self, line: Line<'_>) -> Result<(), String> {
        let (key, value) = pair(line.bytes)?;
        let header = &mut self.file.header;
        let string = value.to_owned();
        let time = || date_time(value.as_bytes()).ok_or("expected YYYY-MM-DDTHH:MM:SS");
        let number = || decimal::<u64>(value.as_bytes()).ok_or("expected a number");
        match key {
            "version" if line.number != self.annotations + 2 => {
                Err("`version` must be in the line after the time")
            }
            "version" => set(&mut header.version, Ok(string)),
            "software" => set(&mut header.software, Ok(string)),
            "software_version" => set(&mut header.software_version, Ok(string)),
            "file_created" => set(&mut header.file_created, time()),
            "generator_started" => set(&mut header.generator_started, time()),
            "earliest_bandwidth" => set(&mut header.earliest_bandwidth, time()),
            "latest_bandwidth" => set(&mut header.latest_bandwidth, time()),
            "number_eligible_relays" => set(&mut header.number_eligible_relays, number()),
            "minimum_number_eligible_relays" => {
                set(&mut header.minimum_number_eligible_relays, number())
            }
            "number_consensus_relays" => set(&mut header.number_consensus_relays, number()),
            "percent_eligible_relays" => set(&mut header.percent_eligible_relays, number()),
            "minimum_percent_eligible_relays" => {
                set(&mut header.minimum_percent_eligible_relays, number())
            }
            _ if header.other.iter().any(|(earlier, _)| earlier == key) => Err(TWICE),
            _ => {
                header.other.push((key.to_owned(), string));
                Ok(())
            }
        }
        .map_err(|reason| format!("{key}: {reason}"))
    }

    fn relay(&mut self, line: Line<'_>) -> Result<RelayLine, String> {
        if line.has_nul() {
            return Err(text::NUL.to_owned());
        }
        let mut node_id = None;
        let mut bw_kb_s = None;
        let mut relay = RelayLine::new(RsaId([0; 20]), 0);
        let (mut unmeasured, mut under_min_report, mut vote) = (None, None, None);
        for word in words(line.bytes) {
            // Without a valid identity and bandwidth the line is useless.
            if let Some(value) = word.strip_prefix(b"node_id=") {
                let id = RsaId::parse(value).map_err(|_| "expected 40 hex digits");
                set(&mut node_id, id).map_err(|reason| format!("node_id: {reason}"))?;
                continue;
            }
            if let Some(value) = word.strip_prefix(b"bw=") {
                let bw = bandwidth(value).ok_or("expected a number");
                set(&mut bw_kb_s, bw).map_err(|reason| format!("bw: {reason}"))?;
                continue;
            }
            let noted = pair(word).and_then(|(key, value)| {
                let bytes = value.as_bytes();
                let flag = || match bytes {
                    b"0" => Ok(false),
                    b"1" => Ok(true),
                    _ => Err("expected 0 or 1"),
                };
                match key {
                    "nick" => {
                        let nick = Nickname::parse(bytes);
                        set(&mut relay.nick, nick.map_err(|_| "expected a nickname"))
                    }
                    "master_key_ed25519" => {
                        let key = Ed25519Id::parse(bytes);
                        set(&mut relay.master_key_ed25519, key.map_err(|_| "expected 32 bytes"))
                    }
                    "time" => {
                        let time = date_time(bytes).ok_or("expected YYYY-MM-DDTHH:MM:SS");
                        set(&mut relay.time, time)
                    }
                    "unmeasured" => set(&mut unmeasured, flag()),
                    "under_min_report" => set(&mut under_min_report, flag()),
                    "vote" => set(&mut vote, Ok(())),
                    _ if relay.extra.iter().any(|(earlier, _)| earlier == key) => Err(TWICE),
                    _ => {
                        relay.extra.push((key.to_owned(), value.to_owned()));
                        Ok(())
                    }
                }
                .map_err(|reason| format!("{key}: {reason}"))
            });
            if let Err(reason) = noted {
                self.skipped.push(Skipped { line: line.number, reason });
            }
        }
        relay.node_id = node_id.ok_or("a relay's line without `node_id`")?;
        relay.bw_kb_s = bw_kb_s.ok_or("a relay's line without `bw`")?;
        relay.unmeasured = unmeasured.unwrap_or(false);
        relay.under_min_report = under_min_report.unwrap_or(false);
        relay.vote = !words(line.bytes).any(has_no_vote);
        Ok(relay)
    }
}

const TWICE: &str = "given twice";

fn set<T>(slot: &mut Option<T>, value: Result<T, &'static str>) -> Result<(), &'static str> {
    if slot.is_some() {
        return Err(TWICE);
    }
    *slot = Some(value?);
    Ok(())
}

/// A key and a value as the format defines them.
fn pair(word: &[u8]) -> Result<(&str, &str), String> {
    let key_is_fine = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    key_value(word)
        .filter(|(key, value)| key.iter().all(key_is_fine) && !value.is_empty())
        .filter(|(_, value)| value.iter().all(u8::is_ascii_graphic))
        .and_then(|(key, value)| Some((text::utf8(key)?, text::utf8(value)?)))
        .ok_or_else(|| format!("expected `key=value`, found {:?}", text::excerpt(word)))
}
