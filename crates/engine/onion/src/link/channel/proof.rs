//! The proof of an initiator's identity: the body of AUTHENTICATE type 3 (tor-spec §4.4.2,
//! Ed25519-SHA256-RFC5705).

use super::{ChannelError, TlsSession};
use crate::cell::Reader;
use crate::cell::msg::AUTH_ED25519_SHA256_RFC5705;
use crate::identity::OwnIdentity;
use crate::link::certs::PeerIdentity;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ed25519_dalek::{Signature, VerifyingKey};
use subtle::ConstantTimeEq;

/// The length of the signature after the proof.
const SIGNATURE_LEN: usize = 64;

/// Random bytes between the fields and the signature, which make each proof unique.
const RANDOM_LEN: usize = 24;

const TYPE: &[u8; 8] = b"AUTH0003";

/// The transcript that both sides must agree on. Each field binds the proof to something that a machine in the
/// middle would have to change.
pub(super) struct Proof<'a> {
    /// CID: SHA-256 of the initiator's RSA identity key.
    pub(super) initiator_rsa_sha256: &'a [u8; 32],
    /// SID: SHA-256 of the responder's RSA identity key.
    pub(super) responder_rsa_sha256: &'a [u8; 32],
    /// CID_ED.
    pub(super) initiator_ed25519: &'a [u8; 32],
    /// SID_ED.
    pub(super) responder_ed25519: &'a [u8; 32],
    /// SLOG: SHA-256 of everything that the responder has sent, up to AUTH_CHALLENGE.
    pub(super) responder_log: &'a [u8; 32],
    /// CLOG: SHA-256 of everything that the initiator has sent before.
    pub(super) initiator_log: &'a [u8; 32],
    /// SCERT: SHA-256 of the responder's TLS certificate.
    pub(super) tls_cert_sha256: &'a [u8; 32],
    /// TLSSECRETS: the exported keying material.
    pub(super) tls_secret: &'a [u8; 32],
}

impl Proof<'_> {
    /// The length of the signed bytes.
    pub(super) const LEN: usize = TYPE.len() + 8 * 32 + RANDOM_LEN;

    /// Keying material of the session for the proof of the initiator with this CID.
    pub(super) fn export(tls: &dyn TlsSession, cid: &[u8; 32]) -> Result<[u8; 32], ChannelError> {
        let label = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
        // The context is CID, not the Ed25519 identity that older specifications name.
        tls.export_keying_material(label, cid)
            .ok_or(ChannelError::Tls("it cannot export keying material"))
    }

    const fn fields(&self) -> [(&[u8; 32], &'static str); 8] {
        [
            (self.initiator_rsa_sha256, "it is another relay's, by its RSA identity"),
            (self.responder_rsa_sha256, "it is for another relay, by its RSA identity"),
            (self.initiator_ed25519, "it is another relay's, by its Ed25519 identity"),
            (self.responder_ed25519, "it is for another relay, by its Ed25519 identity"),
            (self.responder_log, "it has received other cells than we sent"),
            (self.initiator_log, "it has sent other cells than we received"),
            (self.tls_cert_sha256, "it has seen another TLS certificate"),
            (self.tls_secret, "it is bound to another TLS session"),
        ]
    }

    /// The bytes to sign.
    pub(super) fn encode(&self, random: &[u8; RANDOM_LEN]) -> Vec<u8> {
        let mut bytes = Vec::from(*TYPE);
        self.fields().iter().for_each(|(field, _)| bytes.extend_from_slice(*field));
        bytes.extend_from_slice(random);
        bytes
    }

    /// Verifies that `signed`, a proof with its signature, has this content and is signed with `key`; otherwise
    /// returns the failed check.
    pub(super) fn check(&self, signed: &[u8], key: &[u8; 32]) -> Result<(), &'static str> {
        const SHORT: &str = "it is too short";
        let (proof, signature) = signed.split_at_checked(Self::LEN).ok_or(SHORT)?;
        let (proof_type, mut rest) = proof.split_at_checked(TYPE.len()).ok_or(SHORT)?;
        if proof_type != TYPE {
            return Err("it is of another type");
        }
        for (expected, problem) in self.fields() {
            let (field, behind) = rest.split_at_checked(expected.len()).ok_or(SHORT)?;
            if !bool::from(field.ct_eq(expected)) {
                return Err(problem);
            }
            rest = behind;
        }
        let signature = Signature::from_slice(signature).map_err(|_| "its signature is cut off")?;
        VerifyingKey::from_bytes(key)
            .and_then(|key| key.verify_strict(proof, &signature))
            .map_err(|_| "its signature does not verify")
    }
}

/// An initiator's AUTHENTICATE, with the transcript against which it is verified.
pub(super) struct ToProve {
    /// The body of the cell.
    pub(super) body: Vec<u8>,
    pub(super) identity: Arc<OwnIdentity>,
    pub(super) tls: Box<dyn TlsSession + Send>,
    /// SLOG.
    pub(super) responder_log: [u8; 32],
    /// CLOG.
    pub(super) initiator_log: [u8; 32],
}

impl ToProve {
    /// Verifies it (tor-spec §4.4.2) for a peer with these certificates and this authentication key.
    pub(super) fn check(&self, peer: &PeerIdentity, key: &[u8; 32]) -> Result<(), ChannelError> {
        let mut reader = Reader::new("AUTHENTICATE", &self.body);
        let method = reader.take_u16()?;
        let len = usize::from(reader.take_u16()?);
        let proof = reader.take(len)?; // as C tor, whatever is behind it
        let not_proven = |problem| ChannelError::NotProven { claimed: peer.ids, problem };
        if method != AUTH_ED25519_SHA256_RFC5705 {
            return Err(not_proven("its authentication method is not the offered one"));
        }
        if len != Proof::LEN + SIGNATURE_LEN {
            return Err(not_proven("its length is not that of a proof of type 3"));
        }
        let tls_cert_sha256 = self.identity.tls_certificate_sha256();
        let expected = Proof {
            initiator_rsa_sha256: &peer.rsa_sha256,
            responder_rsa_sha256: &self.identity.rsa_sha256,
            initiator_ed25519: &peer.ed25519.0,
            responder_ed25519: &self.identity.ed25519.0,
            responder_log: &self.responder_log,
            initiator_log: &self.initiator_log,
            tls_cert_sha256: &tls_cert_sha256
                .ok_or(ChannelError::Tls("our certificate for it cannot be read"))?,
            tls_secret: &Proof::export(&*self.tls, &peer.rsa_sha256)?,
        };
        expected.check(proof, key).map_err(not_proven)
    }
}
