//! What a directory authority would do with a bandwidth file.
//!
//! This follows the behaviour of tor 0.4.9.11's `bwauth.c` and `dirvote.c`, quirks included, so that
//! a file can be judged before an authority votes on it. It is no substitute for the stricter
//! [`BandwidthFile::parse`](super::BandwidthFile::parse).

use std::collections::BTreeMap;

use crate::id::Fingerprint;
use crate::text::{self, Lines, words};

/// Files older than this are refused: three days (`MAX_MEASUREMENT_AGE`).
const MAX_AGE_S: i64 = 3 * 24 * 60 * 60;

/// How many header lines a vote has, the timestamp included (`MAX_BW_FILE_HEADER_COUNT_IN_VOTE`).
pub(super) const MAX_HEADER_COUNT_IN_VOTE: usize = 50;

/// How long they may be, joined (`MAX_BW_FILE_HEADERS_LINE_LEN`).
pub(super) const MAX_HEADERS_LEN_IN_VOTE: usize = 1024;

/// What tor does with the file as a whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileVerdict {
    /// It reads the lines.
    Read,
    /// It warns that the file is empty.
    Empty,
    /// It warns that the first line isn't a whole number and a newline, and reads no further.
    BadTimestamp,
    /// It warns that the file is more than three days old, and reads no further.
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
    /// A relay's bandwidth, taken for the vote.
    Relay {
        /// Which relay.
        node_id: Fingerprint,
        /// Its bandwidth in KB/s, as voted: tor keeps 32 bits.
        bw_kb_s: u32,
        /// Whether an earlier line for the same relay loses its place in the vote.
        replaces_earlier: bool,
    },
    /// Left out.
    Skipped {
        /// Why.
        reason: &'static str,
        /// Whether tor's log has a warning.
        warns: bool,
    },
}

/// The header as it gets into the vote.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct VoteHeaders {
    /// `timestamp=` and the header lines that tor collects.
    pub lines: Vec<String>,
    /// Their length in bytes, joined by spaces.
    pub joined_len: usize,
    /// Whether that is more than 1,024, so that the vote has none of them.
    pub too_long: bool,
}

/// What tor does with a bandwidth file. Made by [`check_as_tor`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The file as a whole.
    pub verdict: FileVerdict,
    /// Every line that tor looks at, with its number from 1.
    pub lines: Vec<(usize, LineVerdict)>,
    /// The header in the vote.
    pub headers: VoteHeaders,
    /// The bandwidths in the vote, in KB/s.
    pub relays: BTreeMap<Fingerprint, u32>,
    /// Whether there is a `=====` line. Without one the first relay tor accepts ends the header, and
    /// lines of relays with `vote=0` count as header until then.
    pub has_terminator: bool,
}

impl Report {
    /// The lines that were left out, with their numbers and reasons.
    pub fn skipped(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.lines.iter().filter_map(|(number, verdict)| match verdict {
            LineVerdict::Skipped { reason, .. } => Some((*number, *reason)),
            _ => None,
        })
    }

    /// Relays whose bandwidth has a sign once tor has written it into its vote, from 2^31 KB/s on. If an authority knows
    /// one of them it cannot read its own vote ("Generated a networkstatus vote we couldn't parse"), and makes none at all:
    /// seen with tor 0.4.9.11.
    pub fn breaks_vote(&self) -> impl Iterator<Item = Fingerprint> {
        let has_sign = |(_, bw): &(&Fingerprint, &u32)| i32::try_from(**bw).is_err();
        self.relays.iter().filter(has_sign).map(|(relay, _)| *relay)
    }

    /// Whether tor's log would have no warning about the file and its vote would lack no header.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let warns = |(_, verdict): &(usize, LineVerdict)| {
            matches!(
                verdict,
                LineVerdict::Skipped { warns: true, .. }
                    | LineVerdict::Relay { replaces_earlier: true, .. }
            )
        };
        self.verdict == FileVerdict::Read
            && !self.headers.too_long
            && !self.lines.iter().any(warns)
            && self.breaks_vote().next().is_none()
    }
}

/// Tells what tor would do with this file at this time (Unix seconds).
#[must_use]
pub fn check_as_tor(bytes: &[u8], now: u64) -> Report {
    let mut report = Report {
        verdict: FileVerdict::Read,
        lines: Vec::new(),
        headers: VoteHeaders::default(),
        relays: BTreeMap::new(),
        has_terminator: false,
    };
    let mut lines = Lines::new(bytes).map(|line| (line.number, CLine::new(line)));
    let Some((_, first)) = lines.next() else {
        report.verdict = FileVerdict::Empty;
        return report;
    };
    let Some(time) = timestamp(first) else {
        report.verdict = FileVerdict::BadTimestamp;
        return report;
    };
    // Tor's time is signed: a number beyond its range reads as one long before 1970, and the
    // farthest of them wraps around to the future.
    let age = now.cast_signed().wrapping_sub(time.cast_signed());
    if age > MAX_AGE_S {
        report.verdict = FileVerdict::Stale { age_s: age.unsigned_abs() };
        return report;
    }
    report.lines.push((1, LineVerdict::Timestamp));
    report.headers.lines.push(format!("timestamp={time}"));

    let mut in_header = true;
    for (number, line) in lines {
        let verdict = report.line(line, in_header);
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

/// A line as C sees it: it ends at the first NUL, and then its newline is lost too.
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
}

impl Report {
    fn line(&mut self, line: CLine<'_>, in_header: bool) -> LineVerdict {
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
            return LineVerdict::Terminator;
        }
        let is_pair = text::key_value(line.text).is_some();
        let full = self.headers.lines.len() >= MAX_HEADER_COUNT_IN_VOTE;
        if in_header && is_pair && !line.text.contains(&b' ') && !full {
            // Tor removes the last character, be it a newline or not.
            let len = line.text.len() - usize::from(!line.has_newline);
            self.headers.lines.push(String::from_utf8_lossy(&line.text[..len]).into_owned());
            return LineVerdict::Header;
        }
        let reason = match refusal {
            Refusal::NotARelay if !in_header => "it has no bw= or no node_id=",
            Refusal::NotARelay if !is_pair => "as a header line, it isn't key=value",
            Refusal::NotARelay if full => "the vote has its 50 header lines already",
            Refusal::NotARelay => "as a header line, it has a space",
            Refusal::NoVote => "vote=0",
            Refusal::Broken(reason) => reason,
        };
        let warns = match refusal {
            Refusal::NotARelay => !in_header,
            Refusal::NoVote => false,
            Refusal::Broken(_) => true,
        };
        LineVerdict::Skipped { reason, warns }
    }
}

/// Why a line gives no relay's bandwidth.
#[derive(Clone, Copy)]
enum Refusal {
    NoVote,
    NotARelay,
    Broken(&'static str),
}

fn relay(line: CLine<'_>) -> Result<(Fingerprint, u64), Refusal> {
    if words(line.text).next().is_none() {
        return Err(Refusal::Broken("it is empty"));
    }
    if !line.has_newline {
        return Err(Refusal::Broken("it doesn't end with a newline"));
    }
    let (mut bw, mut node_id) = (None, None);
    for word in words(line.text) {
        if word.starts_with(b"vote=0") {
            return Err(Refusal::NoVote);
        } else if let Some(value) = word.strip_prefix(b"bw=") {
            if bw.is_some() {
                return Err(Refusal::Broken("it has bw= twice"));
            }
            bw = Some(bandwidth(value).ok_or(Refusal::Broken("its bw= isn't a number"))?);
        } else if let Some(value) = word.strip_prefix(b"node_id=") {
            if node_id.is_some() {
                return Err(Refusal::Broken("it has node_id= twice"));
            }
            let id = Fingerprint::parse(value);
            node_id = Some(id.map_err(|_| Refusal::Broken("its node_id= isn't 40 hex digits"))?);
        }
    }
    node_id.zip(bw).ok_or(Refusal::NotARelay)
}

const fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Like `strtoul` in base 10: the sign, the value of the digits, and what follows them; nothing
/// without digits, or if they don't fit 64 bits.
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

fn bandwidth(text: &[u8]) -> Option<u64> {
    let (negative, value, rest) = strtoul(text)?;
    let in_range = i64::try_from(value).is_ok() && (!negative || value == 0);
    let ended = rest.first().is_none_or(|b| is_c_space(*b));
    (in_range && ended).then_some(value)
}
