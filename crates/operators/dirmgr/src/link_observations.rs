//! Signed observations of a relay's links to other relays, for clients that choose paths by them
//! (Panchenko et al., §V-B). Relays write them only if the operator has configured it, and never in
//! the public network.
//!
//! An adversary that knows the load of a link at a given time can follow a client across it. The
//! observations are therefore coarse and late:
//!
//! - For each link, the maximum of ten seconds in each direction, without its time; once in an
//!   interval, which is at least an hour except in private networks.
//! - Nothing while fewer than [`CIRCUITS_MIN`] circuits use the link: the load of one circuit is lost
//!   among the others. An adversary that opens that many circuits learns their own load, and who else
//!   doubles it.
//! - Rounded down to a power of two in kB/s: a number changes only if the maximum of a whole interval
//!   doubles.
//! - Only links to relays in the consensus: links of clients and of measurements are not observed.
//!
//! The relay signs them with its Ed25519 identity. A client believes what both ends of a link report
//! (`client::model::of_links`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Verifier, VerifyingKey};
use netdoc::RsaId;
use onion::keys::Ed25519Key;
use serde::{Deserialize, Serialize};

/// Circuits that must use a link before it is observed.
pub const CIRCUITS_MIN: usize = 8;
/// Limit on the links of one relay: the public network has half as many relays.
pub const LINKS_MAX: usize = 20_000;
/// The longest document that is read, in bytes.
const LEN_MAX: usize = 4 << 20;
/// The longest first line, in bytes.
const LINE_MAX: usize = 256;
/// The first word, and the version.
const MAGIC: &str = "flashflow-links 1";
/// Domain separation: signed before the text.
const CONTEXT: &[u8] = b"flashflow link observations 1\0";

/// What a relay has observed of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedLink {
    /// The relay at the other end.
    pub relay: RsaId,
    /// The maximum sent in ten seconds, in kB/s, rounded down to a power of two or zero.
    pub sent_kb_s: u64,
    /// The maximum received, in the same unit.
    pub received_kb_s: u64,
}

/// What a relay has observed of its links in an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkObservations {
    /// The relay that has observed them.
    pub relay: RsaId,
    /// When the interval ended, in Unix seconds.
    pub until_unix_s: u64,
    /// One entry for each relay.
    pub links: Vec<ObservedLink>,
}

/// Why observations are rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObservationError {
    /// The document has another format.
    #[error("not a document of link observations: {0}")]
    Malformed(&'static str),
    /// The network has no such relay, or it has no Ed25519 identity.
    #[error("relay {0} is not in the consensus; fetch a later one")]
    Unknown(RsaId),
    /// The signature is invalid.
    #[error("relay {0} has not signed this document: it was changed, or another party made it")]
    Signature(RsaId),
}

impl LinkObservations {
    /// Signs it with the relay's Ed25519 identity.
    #[must_use]
    pub fn sign(&self, key: &Ed25519Key) -> Vec<u8> {
        // Fingerprints and integers always serialize.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let signature = BASE64.encode(key.sign(&[CONTEXT, &text].concat()));
        [format!("{MAGIC} {signature}\n").as_bytes(), &text].concat()
    }

    /// Verifies and parses a signed document. `find` returns a relay's Ed25519 identity.
    ///
    /// # Errors
    /// [`ObservationError`] if the document is malformed or its signature is invalid.
    pub fn verify(
        bytes: &[u8],
        find: impl FnOnce(&RsaId) -> Option<[u8; 32]>,
    ) -> Result<Self, ObservationError> {
        let malformed = ObservationError::Malformed;
        if bytes.len() > LEN_MAX {
            return Err(malformed("too long"));
        }
        let end = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.ok_or(malformed("no first line"))?);
        let text = &rest[1..];
        let line = str::from_utf8(line).map_err(|_| malformed("the first line is not text"))?;
        let signature = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' '));
        let signature =
            signature.and_then(|signature| BASE64.decode(signature).ok()?.try_into().ok());
        let signature: [u8; 64] = signature.ok_or(malformed("unknown first line"))?;
        let read: Self = serde_json::from_slice(text).map_err(|_| malformed("invalid JSON"))?;
        if read.links.len() > LINKS_MAX {
            return Err(malformed("too many links"));
        }
        let relay = read.relay;
        let key = find(&relay).ok_or(ObservationError::Unknown(relay))?;
        let unsigned = || ObservationError::Signature(relay);
        let key = VerifyingKey::from_bytes(&key).map_err(|_| unsigned())?;
        key.verify(&[CONTEXT, text].concat(), &Signature::from_bytes(&signature))
            .map_err(|_| unsigned())?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn only_the_relay_itself_can_sign_its_observations() {
        let mut rng = StdRng::from_seed([1; 32]);
        let [key, other] = [(); 2].map(|()| Ed25519Key::generate(&mut rng));
        let public = |key: &Ed25519Key| key.id().0;
        let [relay, peer] = [7, 1].map(|name| RsaId([name; 20]));
        let link = ObservedLink { relay: peer, sent_kb_s: 8, received_kb_s: 4 };
        let observed = LinkObservations { relay, until_unix_s: 9, links: vec![link] };
        let signed = observed.sign(&key);
        let verify = |bytes: &[u8], key: Option<[u8; 32]>| LinkObservations::verify(bytes, |_| key);
        assert_eq!(verify(&signed, Some(public(&key))), Ok(observed));
        let problem = verify(&signed, Some(public(&other)));
        assert_eq!(problem, Err(ObservationError::Signature(relay)));
        assert_eq!(verify(&signed, None), Err(ObservationError::Unknown(relay)));
        for place in 0..signed.len() {
            let mut changed = signed.clone();
            changed[place] ^= 1;
            assert!(verify(&changed, Some(public(&key))).is_err(), "byte {place}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), has_line: bool) {
            let line: &[u8] = if has_line { b"flashflow-links 1 AAAA\n" } else { b"" };
            let read = LinkObservations::verify(&[line, &bytes].concat(), |_| Some([1; 32]));
            prop_assert!(read.is_err());
        }
    }
}
