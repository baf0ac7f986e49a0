//! A peer's proof of identity, separate from its link, so that signatures can be verified on any thread.

use super::ChannelError;
use super::proof::ToProve;
use crate::cell::msg::Certs;
use crate::identity::RelayIds;
use crate::link::certs::{PeerIdentity, verify_initiator_certs, verify_responder_certs};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// A peer's certificates and, for initiators, its proof, to be verified on any thread.
///
/// It takes 140 to 180 µs, as long as hundreds of cells: one RSA signature and two or three of Ed25519.
pub struct Verification {
    certs: Vec<u8>,
    unix_time_s: u64,
    of: Of,
}

enum Of {
    /// The expected peer, and its TLS certificate.
    Responder { expected: RelayIds, tls_cert_sha256: [u8; 32] },
    /// An initiator, with or without a proof that it has the keys of its certificates.
    Initiator(Option<Box<ToProve>>),
}

impl Verification {
    /// The body of a responder's CERTS.
    pub(super) const fn of_responder(
        certs: Vec<u8>,
        expected: RelayIds,
        tls_cert_sha256: [u8; 32],
        unix_time_s: u64,
    ) -> Self {
        Self { certs, unix_time_s, of: Of::Responder { expected, tls_cert_sha256 } }
    }

    /// The body of an initiator's CERTS, with its proof.
    pub(super) const fn of_initiator(
        certs: Vec<u8>,
        proof: Option<Box<ToProve>>,
        unix_time_s: u64,
    ) -> Self {
        Self { certs, unix_time_s, of: Of::Initiator(proof) }
    }

    /// Verifies it.
    #[must_use]
    pub fn run(self) -> Verified {
        Verified(self.peer())
    }

    fn peer(self) -> Result<Option<PeerIdentity>, ChannelError> {
        let certs = Certs::parse(&self.certs)?;
        match self.of {
            Of::Responder { expected, tls_cert_sha256 } => {
                let peer = verify_responder_certs(&certs, &tls_cert_sha256, self.unix_time_s)
                    .map_err(ChannelError::Certs)?;
                let other_ed25519 = expected.ed25519.is_some_and(|wanted| wanted != peer.ed25519);
                if expected.rsa != peer.ids.rsa || other_ed25519 {
                    return Err(ChannelError::WrongIdentity { expected, found: peer.ids });
                }
                Ok(Some(peer))
            }
            Of::Initiator(proof) => {
                let (peer, key) = verify_initiator_certs(&certs, self.unix_time_s)
                    .map_err(ChannelError::Certs)?;
                // Certificates without a proof are ignored: the peer is a client.
                let Some(proof) = proof else { return Ok(None) };
                proof.check(&peer, &key)?;
                Ok(Some(peer))
            }
        }
    }
}

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verification")
    }
}

/// The result of a [`Verification`].
#[derive(Debug)]
pub struct Verified(pub(super) Result<Option<PeerIdentity>, ChannelError>);
