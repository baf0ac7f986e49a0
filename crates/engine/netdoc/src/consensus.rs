//! Network-status consensuses (and votes), of the ns and microdesc flavours: dir-spec.txt,
//! section 3.4.1.
//!
//! [`Consensus::parse`] makes one pass over the bytes and keeps what a scanner needs. It is strict
//! about the end, since half a consensus would silently shrink the network: a document without its
//! footer and a complete signature is refused. Signatures are counted, not verified.

mod flags;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV6};
use std::sync::Arc;

pub use self::flags::{Flag, Flags};
use identity::{Ed25519Id, IdError, Nickname, RsaId};

/// Why a document is not a usable consensus. Every message ends with the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConsensusError {
    /// The first line (after `@` annotations) isn't `network-status-version 3`.
    #[error(
        "line {line}: expected `network-status-version 3`, found {found:?}: this isn't a \
         consensus{}; check the file or address it came from, and fetch it again",
        what.map(|what| format!(" (it is {what})")).unwrap_or_default()
    )]
    NotAConsensus {
        /// The line's number, from 1.
        line: usize,
        /// The line's beginning.
        found: String,
        /// What the document is instead, if that is known.
        what: Option<&'static str>,
    },
    /// The flavour is not supported.
    #[error(
        "line {line}: a consensus of the flavour {flavour:?}, which is not known; fetch one of the flavour ns or microdesc"
    )]
    UnknownFlavour {
        /// The line's number, from 1.
        line: usize,
        /// The word in place of the flavour.
        flavour: String,
    },
    /// The document is a vote of one authority, not a consensus.
    #[error(
        "line {line}: this is a vote of one authority (`{found}`), not a consensus: its weights are the relays' own claims; \
         fetch a consensus"
    )]
    Vote {
        /// The line's number, from 1.
        line: usize,
        /// The line's beginning.
        found: String,
    },
    /// The document ends too early.
    #[error("truncated after line {after_line}: {missing}; fetch it again")]
    Truncated {
        /// The last complete line.
        after_line: usize,
        /// What should have followed.
        missing: &'static str,
    },
    /// A line breaks the format.
    #[error("line {line}: {what}, found {found:?}; fetch it again")]
    Malformed {
        /// The line's number, from 1.
        line: usize,
        /// What was expected.
        what: &'static str,
        /// The line's beginning.
        found: String,
    },
}

/// Why [`Consensus::by_nickname`] or [`Consensus::find`] found no single relay.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LookupError {
    /// No relay has that name or fingerprint.
    #[error("no relay {name:?} in the consensus; check the spelling, or fetch a newer consensus")]
    NotFound {
        /// The name requested.
        name: String,
    },
    /// Several relays share the nickname.
    #[error(
        "{} relays are nicknamed {name:?}; give a fingerprint instead: {}",
        candidates.len(),
        candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Ambiguous {
        /// The nickname requested.
        name: String,
        /// The relays that share it, ascending.
        candidates: Vec<RsaId>,
    },
    /// The text is neither a nickname nor a fingerprint.
    #[error(transparent)]
    BadName(#[from] IdError),
}

/// The kind of consensus (dir-spec.txt, sections 3.4.1 and 3.9.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flavour {
    /// The original flavour; its relay entries name server descriptors.
    Ns,
    /// The flavour that clients use; its relay entries name microdescriptors.
    Microdesc,
}

/// A directory authority that voted (dir-spec.txt, section 3.4.1, `dir-source`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authority {
    /// Its nickname; `-legacy` may follow the name of one that also signs with an old key.
    pub nickname: String,
    /// The digest of its v3 identity key, which is not its fingerprint as a relay.
    pub fingerprint: RsaId,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its directory port, for HTTP; 0 is none.
    pub dir_port: u16,
    /// Its onion-router port.
    pub or_port: u16,
}

/// The day's shared random value (dir-spec.txt, section 3.4.1, `shared-rand-current-value`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SharedRandom {
    /// The number of authorities that revealed their part.
    pub reveals: u32,
    /// The agreed value of 32 bytes.
    pub value: [u8; 32],
}

/// A relay's entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Router {
    /// Its nickname.
    pub nickname: Nickname,
    /// Its RSA identity.
    pub fingerprint: RsaId,
    /// Its Ed25519 identity: votes have it, consensuses don't.
    pub ed25519: Option<Ed25519Id>,
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Its onion-router port.
    pub or_port: u16,
    /// Its directory port; 0 is none.
    pub dir_port: u16,
    /// Its IPv6 address and OR port: the first such `a` line.
    pub ipv6: Option<SocketAddrV6>,
    /// The flags the authorities agreed on.
    pub flags: Flags,
    /// The text of its `v` line, such as `Tor 0.4.8.12`. Relays of one version share it.
    pub version: Option<Arc<str>>,
    /// The versions of protocols it supports (`pr`), as written: `Cons=1-2 FlowCtrl=1-2 …`. Relays
    /// of one version share it.
    pub protocols: Option<Arc<str>>,
    /// `w Bandwidth=`, in KB/s: the weight in a consensus, the relay's claim in a vote.
    pub bandwidth_kb_s: Option<u32>,
    /// `w Measured=`, in KB/s: the measurement of a vote's bandwidth authority.
    pub measured_kb_s: Option<u32>,
    /// `w Unmeasured=1`: the weight is based on fewer than three measurements.
    pub unmeasured: bool,
    /// SHA-1 of the signed part of its server descriptor; not in the microdesc flavour.
    pub descriptor_digest: Option<[u8; 20]>,
    /// SHA-256 of its microdescriptor, in the microdesc flavour and in votes.
    pub microdesc_digest: Option<[u8; 32]>,
}

impl Router {
    /// The version of tor it runs, such as `0.4.8.12`, if it runs tor.
    #[must_use]
    pub fn tor_version(&self) -> Option<&str> {
        self.version.as_deref()?.strip_prefix("Tor ")
    }

    /// Whether it should be measured: it is running, and is not an authority, since no path uses an
    /// authority's weight.
    #[must_use]
    pub fn is_measurable(&self) -> bool {
        self.flags.contains(Flag::Running) && !self.flags.contains(Flag::Authority)
    }

    /// Whether it supports this version of a protocol (tor-spec §9), such as 2 of `FlowCtrl`.
    #[must_use]
    pub fn supports(&self, protocol: &str, version: u32) -> bool {
        let entries = self.protocols.as_deref().unwrap_or_default().split(' ');
        let mut named = entries.filter_map(|entry| entry.strip_prefix(protocol)?.strip_prefix('='));
        named.next().is_some_and(|ranges| {
            ranges.split(',').any(|range| {
                let (low, high) = range.split_once('-').unwrap_or((range, range));
                let bounds = low.parse().ok().zip(high.parse().ok());
                bounds.is_some_and(|(low, high): (u32, u32)| (low..=high).contains(&version))
            })
        })
    }
}

/// A relay's entry in an archived consensus, reduced to identity, flags and weight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listed {
    /// The relay's RSA identity.
    pub fingerprint: RsaId,
    /// The flags the authorities agreed on.
    pub flags: Flags,
    /// `w Bandwidth=`, in KB/s: the weight.
    pub bandwidth_kb_s: Option<u32>,
    /// `w Unmeasured=1`: the weight is based on fewer than three measurements.
    pub unmeasured: bool,
}

/// The network's parameters (dir-spec.txt, section 3.3, `params`; param-spec.txt).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Params(BTreeMap<String, i32>);

impl Params {
    /// The parameter's value, if the consensus sets it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i32> {
        self.0.get(name).copied()
    }

    /// The value as tor uses it: `default` if it is not set, else the nearest within `min..=max`.
    ///
    /// With `min` above `max`, the result is `default`.
    #[must_use]
    pub fn get_clamped(&self, name: &str, default: i32, min: i32, max: i32) -> i32 {
        match self.get(name) {
            Some(value) if min <= max => value.clamp(min, max),
            _ => default,
        }
    }

    /// All parameters, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i32)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl<S: Into<String>> FromIterator<(S, i32)> for Params {
    fn from_iter<I: IntoIterator<Item = (S, i32)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

/// A consensus, or a vote in the same form. It borrows nothing from the parsed bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Consensus<R = Router> {
    /// The flavour.
    pub flavour: Flavour,
    /// When it becomes valid, in Unix seconds.
    pub valid_after: u64,
    /// When a newer one should exist, in Unix seconds.
    pub fresh_until: u64,
    /// When it expires, in Unix seconds.
    pub valid_until: u64,
    /// How long authorities wait for votes and for signatures, in seconds.
    pub voting_delay_s: Option<(u32, u32)>,
    /// The network's parameters.
    pub params: Params,
    /// The current shared random value, if the authorities agreed on one.
    pub shared_random: Option<SharedRandom>,
    /// The authorities that voted, as listed.
    pub authorities: Vec<Authority>,
    /// The weights of positions in a path (`Wgg` and so on), in units of 1/10,000; empty in a vote.
    pub bandwidth_weights: Params,
    /// The number of complete `directory-signature` items. None of them is verified here.
    pub signatures: usize,
    routers: Vec<R>,
}

impl Consensus<Listed> {
    /// Parses a consensus of any age, as archives have them: the footer may be missing (consensus methods before 9), keywords may
    /// follow `opt`, and relays may be in any order. If a relay has two entries, the first counts. Only the items that
    /// [`Listed`] keeps are parsed.
    ///
    /// # Errors
    /// As [`Consensus::parse`]. At least one complete signature must be present: a truncated consensus would silently shrink the
    /// network.
    pub fn parse_archived(bytes: &[u8]) -> Result<Self, ConsensusError> {
        parse::parse(bytes, parse::Kind::Archived)
    }
}

impl<R> Consensus<R> {
    /// The relays, in ascending order of fingerprint.
    #[must_use]
    pub fn routers(&self) -> &[R] {
        &self.routers
    }
}

impl Consensus {
    /// Parses a consensus, with or without `@` annotations before it.
    ///
    /// # Errors
    /// [`ConsensusError`] names the first malformed line, or where the text was truncated. The
    /// footer and at least one complete signature must be present, and relays must be in strictly
    /// ascending order, as in tor. [`ConsensusError::Vote`] for a vote.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConsensusError> {
        parse::parse(bytes, parse::Kind::Consensus)
    }

    /// Parses a vote of one authority, with or without `@` annotations before it.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and [`ConsensusError::Malformed`] for a consensus.
    pub fn parse_vote(bytes: &[u8]) -> Result<Self, ConsensusError> {
        parse::parse(bytes, parse::Kind::Vote)
    }

    /// The relay with this fingerprint.
    #[must_use]
    pub fn by_fingerprint(&self, fingerprint: &RsaId) -> Option<&Router> {
        let at = self.routers.binary_search_by_key(fingerprint, |r| r.fingerprint).ok()?;
        self.routers.get(at)
    }

    /// The only relay with this nickname, ignoring case.
    ///
    /// # Errors
    /// [`LookupError::NotFound`], or [`LookupError::Ambiguous`] if several relays share it.
    pub fn by_nickname(&self, nickname: &str) -> Result<&Router, LookupError> {
        let wanted = |r: &&Router| r.nickname.as_str().eq_ignore_ascii_case(nickname);
        let mut found = self.routers.iter().filter(wanted);
        let name = || nickname.to_owned();
        let first = found.next().ok_or_else(|| LookupError::NotFound { name: name() })?;
        let mut candidates: Vec<_> = found.map(|r| r.fingerprint).collect();
        if candidates.is_empty() {
            return Ok(first);
        }
        candidates.insert(0, first.fingerprint);
        Err(LookupError::Ambiguous { name: name(), candidates })
    }

    /// The relay with this fingerprint (40 hex digits, with or without `$`) or nickname.
    ///
    /// # Errors
    /// As [`Consensus::by_nickname`], and [`LookupError::BadName`] for any other text.
    pub fn find(&self, name: &str) -> Result<&Router, LookupError> {
        if name.len() <= Nickname::MAX && !name.starts_with('$') {
            let nickname: Nickname = name.parse()?;
            return self.by_nickname(nickname.as_str());
        }
        let fingerprint: RsaId = name.parse()?;
        self.by_fingerprint(&fingerprint)
            .ok_or_else(|| LookupError::NotFound { name: fingerprint.to_string() })
    }
}
