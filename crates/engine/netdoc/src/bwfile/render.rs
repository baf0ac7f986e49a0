//! Serializes a bandwidth file.

use std::fmt::{Display, Write as _};

use super::as_tor::{MAX_HEADER_COUNT_IN_VOTE, MAX_HEADERS_LEN_IN_VOTE};
use super::{BandwidthFile, Header, KNOWN_HEADERS, KNOWN_RELAY_KEYS, NodeIdStyle, RelayLine};
use crate::text;

/// Longer lines cause warnings in sbws's tools, and tor up to 0.3.4 ignored them.
const MAX_LINE: usize = 1022;

/// Why a [`BandwidthFile`] cannot be serialized.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RenderError {
    /// A key or a value has characters that would break its line.
    #[error(
        "`{key}={value}` can't be written: keys are letters, digits, `_` and `-`; values are \
         printing ASCII without spaces, and not empty"
    )]
    BadPair {
        /// The key.
        key: String,
        /// The value, shortened.
        value: String,
    },
    /// An additional pair has a reserved or duplicate key.
    #[error("the key {key:?} is a duplicate or reserved; rename it")]
    ReservedKey {
        /// The key.
        key: String,
    },
    /// A relay has a bandwidth of 0, which makes old tor fail.
    #[error("relay {relay} has bw=0; give it at least 1 KB/s")]
    ZeroBandwidth {
        /// Which relay.
        relay: identity::RsaId,
    },
    /// Tor skips the line of a relay with a bandwidth of more than 63 bits.
    #[error("relay {relay} has a bandwidth of more than 63 bits, which tor cannot read")]
    HugeBandwidth {
        /// Which relay.
        relay: identity::RsaId,
    },
    /// A line is too long for some readers.
    #[error("the line of relay {relay} has {len} bytes of {MAX_LINE}; shorten its extra pairs")]
    LineTooLong {
        /// Which relay.
        relay: identity::RsaId,
        /// The line's length in bytes.
        len: usize,
    },
    /// Tor would omit the header from its vote.
    #[error(
        "the header has {count} lines and {len} bytes, and tor votes on {MAX_HEADER_COUNT_IN_VOTE} \
         lines and {MAX_HEADERS_LEN_IN_VOTE} bytes only; shorten it"
    )]
    HeaderTooLong {
        /// The number of lines, the timestamp included.
        count: usize,
        /// Their length, joined.
        len: usize,
    },
    /// The timestamp and `latest_bandwidth` differ.
    #[error("latest_bandwidth must be the timestamp, {timestamp}")]
    LatestDiffers {
        /// The timestamp, in Unix seconds.
        timestamp: u64,
    },
}

impl BandwidthFile {
    /// The file's text, in which every line ends with a newline.
    ///
    /// `version` is second, as required; `node_id` is first in a relay's line and `vote=0` last.
    ///
    /// # Errors
    /// [`RenderError`] for anything that readers would misinterpret or skip.
    pub fn to_text(&self, style: NodeIdStyle) -> Result<String, RenderError> {
        if self.header.latest_bandwidth.is_some_and(|latest| latest != self.timestamp) {
            return Err(RenderError::LatestDiffers { timestamp: self.timestamp });
        }
        let mut out = String::with_capacity(1024 + self.relays.len() * 192);
        add(&mut out, format_args!("{}\n", self.timestamp));
        let count = 1 + write_header(&mut out, &self.header)?;
        // In the vote, `timestamp=` comes before the number, and a space replaces each newline.
        let len = "timestamp=".len() + out.len() - 1;
        if count > MAX_HEADER_COUNT_IN_VOTE || len > MAX_HEADERS_LEN_IN_VOTE {
            return Err(RenderError::HeaderTooLong { count, len });
        }
        out.push_str("=====\n");
        for relay in &self.relays {
            let start = out.len();
            write_relay(&mut out, relay, style)?;
            let len = out.len() - start;
            if len > MAX_LINE {
                return Err(RenderError::LineTooLong { relay: relay.node_id, len });
            }
        }
        Ok(out)
    }
}

fn add(out: &mut String, text: impl Display) {
    // Writing to a `String` can't fail.
    let _ = write!(out, "{text}");
}

/// Writes the header's lines after the timestamp, and returns their number.
fn write_header(out: &mut String, header: &Header) -> Result<usize, RenderError> {
    check_keys(&header.other)?;
    let mut count = 0;
    for (key, value) in header.pairs() {
        check_pair(key, &value)?;
        add(out, format_args!("{key}={value}\n"));
        count += 1;
    }
    Ok(count)
}

fn write_relay(out: &mut String, relay: &RelayLine, style: NodeIdStyle) -> Result<(), RenderError> {
    if relay.bw_kb_s == 0 {
        return Err(RenderError::ZeroBandwidth { relay: relay.node_id });
    }
    if i64::try_from(relay.bw_kb_s).is_err() {
        return Err(RenderError::HugeBandwidth { relay: relay.node_id });
    }
    let dollar = if style == NodeIdStyle::Dollar { "$" } else { "" };
    add(out, format_args!("node_id={dollar}{} bw={}", relay.node_id, relay.bw_kb_s));
    if let Some(nick) = relay.nick {
        add(out, format_args!(" nick={nick}"));
    }
    if let Some(key) = relay.master_key_ed25519 {
        add(out, format_args!(" master_key_ed25519={key}"));
    }
    if let Some(time) = relay.time {
        add(out, format_args!(" time={}", text::iso(time)));
    }
    check_keys(&relay.extra)?;
    for (key, value) in &relay.extra {
        check_pair(key, value)?;
        add(out, format_args!(" {key}={value}"));
    }
    let marks = [
        (" unmeasured=1", relay.unmeasured),
        (" under_min_report=1", relay.under_min_report),
        (" vote=0", !relay.vote),
    ];
    for (mark, _) in marks.into_iter().filter(|(_, present)| *present) {
        out.push_str(mark);
    }
    out.push('\n');
    Ok(())
}

/// Header and relay lines must use neither each other's keys nor a key twice.
fn check_keys(pairs: &[(String, String)]) -> Result<(), RenderError> {
    for (i, (key, _)) in pairs.iter().enumerate() {
        let known =
            KNOWN_RELAY_KEYS.contains(&key.as_str()) || KNOWN_HEADERS.contains(&key.as_str());
        if known || pairs[..i].iter().any(|(earlier, _)| earlier == key) {
            return Err(RenderError::ReservedKey { key: key.clone() });
        }
    }
    Ok(())
}

fn check_pair(key: &str, value: &str) -> Result<(), RenderError> {
    let key_is_fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let fine = !key.is_empty()
        && key.bytes().all(key_is_fine)
        && !value.is_empty()
        && value.bytes().all(|b| b.is_ascii_graphic());
    if fine {
        return Ok(());
    }
    Err(RenderError::BadPair { key: key.to_owned(), value: text::excerpt(value.as_bytes()) })
}
