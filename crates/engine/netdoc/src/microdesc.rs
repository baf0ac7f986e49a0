//! Microdescriptors: what clients need to know about a relay in addition to its entry in the consensus
//! (dir-spec.txt, section 3.3).
//!
//! A microdescriptor has no signature: it is authentic if its SHA-256 is listed in the consensus.
//! The caller verifies that; [`pieces::microdescs`](crate::pieces::microdescs) splits a file or an
//! answer.

use crate::family::Family;
use crate::policy::PortPolicy;
use crate::text::{self, Line, Lines, base64_array, words};
use identity::Ed25519Id;
use std::net::SocketAddrV6;

/// The longest microdescriptor that is read: authorities publish none nearly as long.
pub const LEN_MAX: usize = 20_000;
/// Limit on families by key: with 51 bytes for each, no document has more.
const FAMILY_IDS_MAX: usize = 500;

/// Why a text is not a usable microdescriptor.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MicrodescError {
    /// It is longer than [`LEN_MAX`].
    #[error("{len} bytes are longer than any microdescriptor; ask another directory")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// It does not begin with `onion-key`, or is truncated.
    #[error("line {line}: {what}; ask another directory")]
    Malformed {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A mandatory item is missing.
    #[error("it has no `{item}`; the relay cannot be used")]
    Missing {
        /// The keyword.
        item: &'static str,
    },
}

/// The properties of a relay that a client needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Microdesc {
    /// The public key of its ntor handshake.
    pub ntor_onion_key: [u8; 32],
    /// Its Ed25519 identity.
    pub ed25519: Option<Ed25519Id>,
    /// Relays that it declares to be of its family (`family`).
    pub family: Family,
    /// Families that it has proved to belong to (`family-ids`), ascending. Relays with a common one
    /// are a family.
    pub family_ids: Vec<String>,
    /// Its exit policy for IPv4.
    pub policy: PortPolicy,
    /// Its exit policy for IPv6.
    pub policy_ipv6: PortPolicy,
    /// Its IPv6 address and OR port: the first such `a` line.
    pub ipv6: Option<SocketAddrV6>,
}

impl Microdesc {
    /// Parses one microdescriptor, starting at `onion-key`. Unknown lines are ignored, as the
    /// specification requires.
    ///
    /// # Errors
    /// [`MicrodescError`] if it is too long, truncated, or lacks the ntor onion key.
    pub fn parse(bytes: &[u8]) -> Result<Self, MicrodescError> {
        if bytes.len() > LEN_MAX {
            return Err(MicrodescError::TooLong { len: bytes.len() });
        }
        let mut lines = Lines::new(bytes);
        if lines.peek().is_none_or(|line| line.keyword().0 != b"onion-key") {
            return Err(malformed(1, "expected `onion-key`"));
        }
        let mut draft = Draft::default();
        while let Some(line) = lines.next() {
            if line.has_nul() {
                return Err(malformed(line.number, text::NUL));
            }
            if !line.complete {
                return Err(malformed(line.number, "the line is cut"));
            }
            if line.bytes.starts_with(b"-----BEGIN ") {
                skip_object(line, &mut lines)?;
            } else {
                draft.item(line)?;
            }
        }
        draft.finish()
    }
}

fn malformed(line: usize, what: &str) -> MicrodescError {
    MicrodescError::Malformed { line, what: what.to_owned() }
}

/// The items read so far.
#[derive(Default)]
struct Draft {
    ntor_onion_key: Option<[u8; 32]>,
    ed25519: Option<Ed25519Id>,
    family: Family,
    family_ids: Vec<String>,
    policy: Option<PortPolicy>,
    policy_ipv6: Option<PortPolicy>,
    ipv6: Option<SocketAddrV6>,
}

impl Draft {
    fn item(&mut self, line: Line<'_>) -> Result<(), MicrodescError> {
        let bad = |what: &str| {
            let found = text::excerpt(line.bytes);
            Err(malformed(line.number, &format!("expected {what}, found {found:?}")))
        };
        let (keyword, rest) = line.keyword();
        match keyword {
            b"ntor-onion-key" if self.ntor_onion_key.is_none() => {
                let Some(key) = words(rest).next().and_then(base64_array) else {
                    return bad("an ntor key in base64");
                };
                self.ntor_onion_key = Some(key);
            }
            b"ntor-onion-key" => return bad("one ntor key only"),
            b"id" if words(rest).next() == Some(b"ed25519") => {
                let Some(Ok(id)) = words(rest).nth(1).map(Ed25519Id::parse) else {
                    return bad("an Ed25519 identity in base64");
                };
                self.ed25519 = Some(id);
            }
            b"family" => self.family = Family::parse(rest),
            b"family-ids" => {
                let ids = words(rest).filter_map(text::utf8).take(FAMILY_IDS_MAX);
                self.family_ids = ids.map(str::to_owned).collect();
                self.family_ids.sort_unstable();
                self.family_ids.dedup();
            }
            // A summary that cannot be parsed permits nothing; the relay is still usable in other
            // positions.
            b"p" => self.policy = PortPolicy::parse(rest),
            b"p6" => self.policy_ipv6 = PortPolicy::parse(rest),
            b"a" if self.ipv6.is_none() => {
                self.ipv6 = text::utf8(rest).and_then(|text| text.trim().parse().ok());
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Microdesc, MicrodescError> {
        let missing = MicrodescError::Missing { item: "ntor-onion-key" };
        Ok(Microdesc {
            ntor_onion_key: self.ntor_onion_key.ok_or(missing)?,
            ed25519: self.ed25519,
            family: self.family,
            family_ids: self.family_ids,
            policy: self.policy.unwrap_or(PortPolicy::REJECT_ALL),
            policy_ipv6: self.policy_ipv6.unwrap_or(PortPolicy::REJECT_ALL),
            ipv6: self.ipv6,
        })
    }
}

/// Consumes the rest of an object, through its `END` line.
fn skip_object(begin: Line<'_>, lines: &mut Lines<'_>) -> Result<(), MicrodescError> {
    for line in lines.by_ref() {
        if line.complete && line.bytes.starts_with(b"-----END ") {
            return Ok(());
        }
    }
    Err(malformed(begin.number, "a key is cut"))
}

#[cfg(test)]
mod tests;
