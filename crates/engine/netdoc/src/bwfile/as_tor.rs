//! Predicts what a directory authority does with a bandwidth file.
//!
//! It follows tor 0.4.9.11's `bwauth.c` and `dirvote.c`, including their quirks, so that a file can
//! be checked before an authority votes on it. It is no substitute for the stricter
//! [`BandwidthFile::parse`](super::BandwidthFile::parse).

use std::collections::BTreeMap;

use crate::consensus::{Consensus, Flag};
use crate::text::{self, Lines, words};
use identity::RsaId;

/// The maximum age of a file: three days (`MAX_MEASUREMENT_AGE`).
const MAX_AGE_S: i64 = 3 * 24 * 60 * 60;

/// Limit on header lines in a vote, including the timestamp (`MAX_BW_FILE_HEADER_COUNT_IN_VOTE`).
pub(super) const MAX_HEADER_COUNT_IN_VOTE: usize = 50;

/// Limit on their joined length (`MAX_BW_FILE_HEADERS_LINE_LEN`).
pub(super) const MAX_HEADERS_LEN_IN_VOTE: usize = 1024;

/// What tor does with the file as a whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileVerdict {
    /// Reads the lines.
    Read,
    /// Warns that the file is empty.
    Empty,
    /// Warns that the first line is not a number and a newline, and stops.
    /// [`first_line`](super::first_line) explains what the line looks like.
    BadTimestamp,
    /// Warns that the file is more than three days old, and stops.
    Stale {
        /// The age in seconds, at least 259,201.
        age_s: u64,
    },
}

/// What tor does with one line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LineVerdict {
    /// The timestamp.
    Timestamp,
    /// A header line, copied into the vote.
    Header,
    /// The `=====` that ends the header.
    Terminator,
    /// A relay's bandwidth, used in the vote.
    Relay {
        /// The relay.
        node_id: RsaId,
        /// Its bandwidth in KB/s, as voted: tor stores 32 bits.
        bw_kb_s: u32,
        /// Whether it replaces an earlier line of the same relay.
        replaces_earlier: bool,
    },
    /// Skipped.
    Skipped {
        /// The reason.
        reason: &'static str,
        /// Whether tor logs a warning.
        warns: bool,
    },
}

impl LineVerdict {
    /// Whether the line is skipped without asking for it by `vote=0`.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Skipped { reason, .. } if *reason != NO_VOTE)
    }
}

/// Why a line with `vote=0` is skipped.
const NO_VOTE: &str = "vote=0";

/// A warning in tor's log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    /// The line of the file, from 1.
    pub line: usize,
    /// The message, as tor 0.4.9.11 logs it. Tor truncates messages of more than about 10,000
    /// bytes.
    pub text: String,
}

/// The header in the vote.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct VoteHeaders {
    /// `timestamp=` and the header lines that tor collects.
    pub lines: Vec<String>,
    /// Their length in bytes, joined by spaces.
    pub joined_len: usize,
    /// Whether that exceeds 1,024, so that the vote has none of them.
    pub too_long: bool,
}

/// What tor does with a bandwidth file. Returned by [`check_as_tor`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The file as a whole.
    pub verdict: FileVerdict,
    /// Every line that tor reads, with its number from 1.
    pub lines: Vec<(usize, LineVerdict)>,
    /// Tor's log at the level "warn" for this file, in order.
    pub warnings: Vec<Warning>,
    /// The header in the vote.
    pub headers: VoteHeaders,
    /// The bandwidths in the vote, in KB/s.
    pub relays: BTreeMap<RsaId, u32>,
    /// Whether there is a `=====` line. Without one, the first relay that tor accepts ends the
    /// header, and lines with `vote=0` before it count as header.
    pub has_terminator: bool,
}

impl Report {
    fn warn(&mut self, line: usize, text: String) {
        self.warnings.push(Warning { line, text });
    }

    /// The skipped lines, with their numbers and reasons.
    pub fn skipped(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.lines.iter().filter_map(|(number, verdict)| match verdict {
            LineVerdict::Skipped { reason, .. } => Some((*number, *reason)),
            _ => None,
        })
    }

    /// Directory authorities among the relays of the file. Tor writes their bandwidth into its vote
    /// as `MeasuredButAuthority=`, which no consensus uses.
    #[must_use]
    pub fn authorities(&self, consensus: &Consensus) -> Vec<RsaId> {
        let is_authority = |relay: &&RsaId| {
            let router = consensus.by_fingerprint(relay);
            router.is_some_and(|router| router.flags.contains(Flag::Authority))
        };
        self.relays.keys().filter(is_authority).copied().collect()
    }

    /// Relays whose bandwidth is negative in tor's vote, from 2^31 KB/s on. An authority that lists
    /// one of them cannot parse its own vote ("Generated a networkstatus vote we couldn't parse")
    /// and publishes none. Observed with tor 0.4.9.11.
    pub fn breaks_vote(&self) -> impl Iterator<Item = RsaId> {
        let has_sign = |(_, bw): &(&RsaId, &u32)| i32::try_from(**bw).is_err();
        self.relays.iter().filter(has_sign).map(|(relay, _)| *relay)
    }

    /// Whether tor logs no warning about the file and its vote has the complete header.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let replaces = |(_, verdict): &(usize, LineVerdict)| {
            matches!(verdict, LineVerdict::Relay { replaces_earlier: true, .. })
        };
        self.verdict == FileVerdict::Read
            && !self.headers.too_long
            && self.warnings.is_empty()
            && !self.lines.iter().any(replaces)
            && self.breaks_vote().next().is_none()
    }
}

/// Predicts what tor does with this file at `now` (Unix seconds).
#[must_use]
pub fn check_as_tor(bytes: &[u8], now: u64) -> Report {
    let mut report = Report {
        verdict: FileVerdict::Read,
        lines: Vec::new(),
        warnings: Vec::new(),
        headers: VoteHeaders::default(),
        relays: BTreeMap::new(),
        has_terminator: false,
    };
    let mut lines = Lines::new(bytes).map(|line| (line.number, CLine::new(line)));
    let Some((_, first)) = lines.next() else {
        report.verdict = FileVerdict::Empty;
        report.warn(1, "Empty bandwidth file".to_owned());
        return report;
    };
    let Some(time) = timestamp(first) else {
        report.verdict = FileVerdict::BadTimestamp;
        let what = if first.has_newline { "Non-integer" } else { "Long or truncated" };
        report.warn(
            1,
            format!("{what} time in bandwidth file: {}", escaped(first.text.iter().copied())),
        );
        return report;
    };
    // Tor's time is signed: a number beyond its range becomes a time long before 1970, and the
    // largest wrap around to the future.
    let age = now.cast_signed().wrapping_sub(time.cast_signed());
    if age > MAX_AGE_S {
        report.verdict = FileVerdict::Stale { age_s: age.unsigned_abs() };
        #[expect(clippy::cast_possible_truncation, reason = "tor prints an unsigned of 32 bits")]
        let printed = age.unsigned_abs() as u32;
        report.warn(1, format!("Bandwidth measurement file stale. Age: {printed}"));
        return report;
    }
    report.lines.push((1, LineVerdict::Timestamp));
    report.headers.lines.push(format!("timestamp={time}"));

    let mut in_header = true;
    for (number, line) in lines {
        let verdict = report.line(number, line, in_header);
        if matches!(verdict, LineVerdict::Relay { .. } | LineVerdict::Terminator) {
            in_header = false;
        }
        report.lines.push((number, verdict));
    }
    let headers = &mut report.headers;
    headers.joined_len =
        headers.lines.iter().map(|line| line.len() + 1).sum::<usize>().saturating_sub(1);
    headers.too_long = headers.joined_len > MAX_HEADERS_LEN_IN_VOTE;
    report
}

/// A line as C reads it: it ends at the first NUL, which also hides its newline.
#[derive(Clone, Copy)]
struct CLine<'a> {
    text: &'a [u8],
    has_newline: bool,
}

impl<'a> CLine<'a> {
    fn new(line: text::Line<'a>) -> Self {
        match line.bytes.iter().position(|b| *b == 0) {
            Some(end) => Self { text: &line.bytes[..end], has_newline: false },
            None => Self { text: line.bytes, has_newline: line.complete },
        }
    }

    /// The text with its newline.
    fn whole(self) -> impl Iterator<Item = u8> + 'a {
        self.text.iter().copied().chain(self.has_newline.then_some(b'\n'))
    }
}

/// A text as tor quotes it in its log.
fn escaped(text: impl IntoIterator<Item = u8>) -> String {
    let mut quoted = String::from('"');
    for byte in text {
        match byte {
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            b'\t' => quoted.push_str("\\t"),
            b'"' | b'\'' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted.push('"');
    quoted
}

impl Report {
    fn line(&mut self, number: usize, line: CLine<'_>, in_header: bool) -> LineVerdict {
        let refusal = match relay(line) {
            Ok((node_id, bw)) => {
                #[expect(clippy::cast_possible_truncation, reason = "tor cuts it off likewise")]
                let bw_kb_s = bw as u32;
                let replaces_earlier = self.relays.insert(node_id, bw_kb_s).is_some();
                return LineVerdict::Relay { node_id, bw_kb_s, replaces_earlier };
            }
            Err(refusal) => refusal,
        };
        if line.has_newline && line.text == b"=====" {
            self.has_terminator = true;
            // Tor warns about such a line after the end of the header.
            if in_header {
                return LineVerdict::Terminator;
            }
        }
        let is_pair = text::key_value(line.text).is_some();
        let full = self.headers.lines.len() >= MAX_HEADER_COUNT_IN_VOTE;
        if in_header && is_pair && !line.text.contains(&b' ') && !full {
            // Tor removes the last character, whether or not it is a newline.
            let len = line.text.len() - usize::from(!line.has_newline);
            self.headers.lines.push(String::from_utf8_lossy(&line.text[..len]).into_owned());
            return LineVerdict::Header;
        }
        let reason = match refusal {
            Refusal::NotARelay if !in_header => "it has no bw= or no node_id=",
            Refusal::NotARelay if !is_pair => "as a header line, it isn't key=value",
            Refusal::NotARelay if full => "the vote has its 50 header lines already",
            Refusal::NotARelay => "as a header line, it has a space",
            Refusal::NoVote => NO_VOTE,
            Refusal::Broken { reason, .. } => reason,
        };
        let warning = match refusal {
            Refusal::NotARelay if in_header => None,
            Refusal::NotARelay => Some("Incomplete line in bandwidth file"),
            Refusal::NoVote => None,
            Refusal::Broken { warning, .. } => Some(warning),
        };
        if let Some(warning) = warning {
            // A line that begins with NUL has no text that tor could quote.
            let is_quoted = line.has_newline || !line.text.is_empty();
            let quoted = is_quoted.then(|| format!(": {}", escaped(line.whole())));
            self.warn(number, format!("{warning}{}", quoted.unwrap_or_default()));
        }
        LineVerdict::Skipped { reason, warns: warning.is_some() }
    }
}

/// Why a line has no usable bandwidth.
#[derive(Clone, Copy)]
enum Refusal {
    NoVote,
    NotARelay,
    /// The reason, and the beginning of tor's warning.
    Broken {
        reason: &'static str,
        warning: &'static str,
    },
}

const fn broken(reason: &'static str, warning: &'static str) -> Refusal {
    Refusal::Broken { reason, warning }
}

fn relay(line: CLine<'_>) -> Result<(RsaId, u64), Refusal> {
    if words(line.text).next().is_none() {
        let is_nothing = line.text.is_empty() && !line.has_newline;
        let warning = if is_nothing {
            "Empty line in bandwidth file"
        } else {
            "Invalid line in bandwidth file"
        };
        return Err(broken("it is empty", warning));
    }
    if !line.has_newline {
        let warning = "Incomplete line in bandwidth file";
        return Err(broken("it doesn't end with a newline", warning));
    }
    let (mut bw, mut node_id) = (None, None);
    for word in words(line.text) {
        if has_no_vote(word) {
            return Err(Refusal::NoVote);
        } else if let Some(value) = word.strip_prefix(b"bw=") {
            if bw.is_some() {
                return Err(broken("it has bw= twice", "Double bw= in bandwidth file line"));
            }
            let refusal =
                broken("its bw= isn't a number", "Invalid bandwidth in bandwidth file line");
            bw = Some(bandwidth(value).ok_or(refusal)?);
        } else if let Some(value) = word.strip_prefix(b"node_id=") {
            if node_id.is_some() {
                let warning = "Double node_id= in bandwidth file line";
                return Err(broken("it has node_id= twice", warning));
            }
            let refusal = |_| {
                let warning = "Invalid node_id in bandwidth file line";
                broken("its node_id= isn't 40 hex digits", warning)
            };
            node_id = Some(RsaId::parse(value).map_err(refusal)?);
        }
    }
    node_id.zip(bw).ok_or(Refusal::NotARelay)
}

/// Whether the line of this word gets no vote.
pub(super) fn has_no_vote(word: &[u8]) -> bool {
    word.starts_with(b"vote=0")
}

const fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Like `strtoul` in base 10: the sign, the value of the digits, and the rest; `None` without
/// digits, or if they do not fit 64 bits.
fn strtoul(text: &[u8]) -> Option<(bool, u64, &[u8])> {
    let start = text.iter().position(|b| !is_c_space(*b))?;
    let text = &text[start..];
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let len = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
    Some((negative, text::decimal(&digits[..len])?, &digits[len..]))
}

fn timestamp(line: CLine<'_>) -> Option<u64> {
    let (negative, value, rest) = strtoul(line.text)?;
    (line.has_newline && rest.is_empty())
        .then(|| if negative { value.wrapping_neg() } else { value })
}

/// The value of `bw=`: a number with or without a sign, up to white space.
pub(super) fn bandwidth(text: &[u8]) -> Option<u64> {
    let (negative, value, rest) = strtoul(text)?;
    let in_range = i64::try_from(value).is_ok() && (!negative || value == 0);
    let ended = rest.first().is_none_or(|b| is_c_space(*b));
    (in_range && ended).then_some(value)
}
