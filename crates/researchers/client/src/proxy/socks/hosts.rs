//! Destinations as programs write them, and which of them C tor accepts.

use ed25519_dalek::VerifyingKey;
use sha3::{Digest, Sha3_256};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// An address, including one in text form.
    Address(IpAddr),
    /// A host name in lower case; or one in brackets, which C tor parses and then refuses.
    Name(String),
}

/// Whether a host name is an onion service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onion {
    Not,
    /// Version 3.
    Valid,
    Invalid,
    /// It has a dot after `onion` or `exit`.
    Rooted,
}

/// Length of an onion service address (rend-spec-v3 §6).
const ONION_CHARS: usize = 56;

impl Host {
    /// Parses a destination. `None` for what C tor calls malformed: an empty name or label, a label
    /// that begins with `-` or `_`, any character but letters, digits, `-`, `_` and `.`.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        // C strings end at the first NUL.
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(text).ok()?;
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = parse_address(text) {
            return Some(Self::Address(address));
        }
        let inner = bracketed.unwrap_or(text);
        let is_taken = inner.parse::<Ipv4Addr>().is_ok() || is_name(inner);
        is_taken.then(|| Self::Name(text.to_ascii_lowercase()))
    }

    pub(super) const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address(ip) => Some(*ip),
            Self::Name(_) => None,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Address(_) => "",
            Self::Name(name) => name,
        }
    }

    /// Whether this is its last label.
    pub(super) fn ends_with(&self, label: &str) -> bool {
        self.name().strip_suffix(label).is_some_and(|rest| rest.ends_with('.'))
    }

    pub(super) fn is_bracketed(&self) -> bool {
        self.name().starts_with('[')
    }

    /// Whether it is this host or in a non-public network.
    pub(super) fn is_internal(&self) -> bool {
        match self {
            Self::Address(ip) => is_internal(*ip),
            Self::Name(name) => name == "localhost" || name == "local" || self.ends_with("local"),
        }
    }

    /// Whether it is in the range to which C tor maps names (`VirtualAddrNetwork…`), which has no
    /// meaning elsewhere.
    pub(super) fn is_virtual(&self) -> bool {
        match self {
            Self::Address(IpAddr::V4(v4)) => {
                let [first, second, ..] = v4.octets();
                first == 127 && second >= 192
            }
            Self::Address(IpAddr::V6(v6)) => v6.is_unicast_link_local(),
            Self::Name(_) => self.ends_with("virtual"),
        }
    }

    pub(super) fn onion(&self) -> Onion {
        if self.ends_with("onion.") || self.ends_with("exit.") {
            return Onion::Rooted;
        }
        if !self.ends_with("onion") {
            return Onion::Not;
        }
        // Labels before the last two are for the service.
        let service = self.name().rsplit('.').nth(1).unwrap_or_default();
        if is_onion_address(service) { Onion::Valid } else { Onion::Invalid }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// An address; IPv6 may be in brackets.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bracketed {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

/// C tor accepts `_` inside labels, since such zones exist. The name may end with a dot.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && !label.starts_with(['-', '_']) && label.bytes().all(is_fit)
    };
    text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
}

/// Whether it is a version 3 onion address: key, checksum, version (rend-spec-v3 §6).
fn is_onion_address(text: &str) -> bool {
    if text.len() != ONION_CHARS {
        return false;
    }
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for character in text.bytes() {
        let value = match character {
            b'a'..=b'z' => character - b'a',
            b'2'..=b'7' => character - b'2' + 26,
            _ => return false,
        };
        bits = bits << 5 | u32::from(value);
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count).to_le_bytes()[0]);
        }
    }
    let Some((key, [first, second, version])) = bytes.split_first_chunk::<32>() else {
        return false;
    };
    let hash = Sha3_256::new().chain_update(".onion checksum").chain_update(key);
    let hash = hash.chain_update([*version]).finalize();
    *version == 3 && hash[..2] == [*first, *second] && VerifyingKey::from_bytes(key).is_ok()
}

/// Addresses that C tor calls internal.
pub(super) fn is_internal(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            // 100.64/10 is for carrier-grade NAT (RFC 6598).
            let is_shared = first == 100 && second & 0xc0 == 64;
            first == 0 || v4.is_private() || v4.is_loopback() || v4.is_link_local() || is_shared
        }
        IpAddr::V6(v6) => {
            // Site-local addresses are deprecated (RFC 3879) but in use.
            let is_site_local = v6.segments()[0] & 0xffc0 == 0xfec0;
            let is_local = v6.is_unique_local() || v6.is_unicast_link_local() || is_site_local;
            is_local || v6.is_unspecified() || v6.is_loopback()
        }
    }
}

/// The reverse DNS name of an address (RFC 1035 §3.5, RFC 3596 §2.5).
pub(super) fn reverse_name(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).collect::<String>() + "ip6.arpa"
        }
    }
}
