//! The side that dialled.

use super::{ChannelError, HandshakeCell, TlsSession, push_cell};
use crate::cell::msg::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, Certs, NetInfo, cert_type, encode_versions_cell,
};
use crate::cell::{Command, LinkProtocol};
use crate::identity::{OwnIdentity, RelayIds};
use crate::link::certs::{PeerIdentity, verify_responder_certs};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use sha2::{Digest, Sha256};

/// Whom an initiator wants at the other end.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedPeer {
    /// The identities that its certificates must prove.
    pub ids: RelayIds,
    /// The address we dialled, which NETINFO tells it.
    pub address: IpAddr,
}

/// Whether an initiator proves an identity of its own.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// As clients do: none.
    Anonymous,
    /// As relays do: with this identity (tor-spec §4.4.2).
    AsRelay(Arc<OwnIdentity>),
}

/// What an initiator keeps until the responder has said everything.
#[derive(Debug)]
pub(super) struct Initiating {
    expected: ExpectedPeer,
    authentication: Authentication,
    tls_cert_sha256: [u8; 32],
    /// Exported for the authentication, if there is to be one.
    tls_secret: [u8; 32],
    random: [u8; 24],
    unix_time_s: u64,
    peer: Option<PeerIdentity>,
    challenge: Option<AuthChallenge>,
    /// All bytes from the responder up to AUTH_CHALLENGE.
    responder_log: Sha256,
    /// All bytes we sent before AUTHENTICATE.
    initiator_log: Sha256,
}

impl Initiating {
    /// Says VERSIONS.
    pub(super) fn begin(
        expected: ExpectedPeer,
        authentication: Authentication,
        tls: &dyn TlsSession,
        random: [u8; 24],
        unix_time_s: u64,
        out: &mut Vec<u8>,
    ) -> Result<Self, ChannelError> {
        let certificate =
            tls.peer_certificate().ok_or(ChannelError::Tls("the peer showed no certificate"))?;
        let tls_cert_sha256 = Sha256::digest(certificate).into();
        let tls_secret = match &authentication {
            Authentication::Anonymous => [0; 32],
            Authentication::AsRelay(identity) => {
                let label = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
                // The context is CID, not the Ed25519 identity that older specifications name.
                tls.export_keying_material(label, &identity.rsa_sha256)
                    .ok_or(ChannelError::Tls("it cannot export keying material"))?
            }
        };
        let versions = encode_versions_cell(&LinkProtocol::SUPPORTED);
        out.extend_from_slice(&versions);
        Ok(Self {
            expected,
            authentication,
            tls_cert_sha256,
            tls_secret,
            random,
            unix_time_s,
            peer: None,
            challenge: None,
            responder_log: Sha256::new(),
            initiator_log: Sha256::new_with_prefix(&versions),
        })
    }

    /// Handles a cell; who the responder is, once all is said.
    pub(super) fn handle(
        &mut self,
        cell: &HandshakeCell,
        out: &mut Vec<u8>,
    ) -> Result<Option<PeerIdentity>, ChannelError> {
        if self.challenge.is_none() {
            self.responder_log.update(&cell.encoded);
        }
        match cell.command {
            Command::VERSIONS | Command::PADDING | Command::VPADDING => {}
            Command::CERTS if self.peer.is_none() => self.check_certs(cell.body())?,
            Command::AUTH_CHALLENGE if self.challenge.is_none() => {
                self.challenge = Some(AuthChallenge::parse(cell.body())?);
            }
            Command::NETINFO => {
                NetInfo::parse(cell.body())?;
                return self.finish(out).map(Some);
            }
            other => return Err(ChannelError::Unexpected(other)),
        }
        Ok(None)
    }

    /// Verifies the responder's certificates and compares them with whom we wanted.
    fn check_certs(&mut self, body: &[u8]) -> Result<(), ChannelError> {
        let certs = Certs::parse(body)?;
        let peer = verify_responder_certs(&certs, &self.tls_cert_sha256, self.unix_time_s)
            .map_err(ChannelError::Certs)?;
        let expected = self.expected.ids;
        let other_ed25519 = expected.ed25519.is_some_and(|wanted| wanted != peer.ed25519);
        if expected.rsa != peer.ids.rsa || other_ed25519 {
            return Err(ChannelError::WrongIdentity { expected, found: peer.ids });
        }
        self.peer = Some(peer);
        Ok(())
    }

    /// All is said: our certificates and proof, if any, and NETINFO.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<PeerIdentity, ChannelError> {
        let peer = self.peer.ok_or(ChannelError::Unexpected(Command::NETINFO))?;
        if let Authentication::AsRelay(identity) = &self.authentication {
            let identity = Arc::clone(identity);
            self.authenticate(&identity, &peer, out)?;
        }
        let mut body = Vec::new();
        let other = Some(self.expected.address);
        // As a client: no time, no address of our own.
        NetInfo { timestamp: 0, other, mine: Vec::new() }.encode_into(&mut body);
        push_cell(Command::NETINFO, &body, out);
        Ok(peer)
    }

    /// CERTS and AUTHENTICATE of an initiator that is a relay (tor-spec §4.4.2).
    fn authenticate(
        &mut self,
        identity: &OwnIdentity,
        peer: &PeerIdentity,
        out: &mut Vec<u8>,
    ) -> Result<(), ChannelError> {
        let offers = self.challenge.as_ref().map(|challenge| &challenge.methods[..]);
        if !offers.unwrap_or_default().contains(&AUTH_ED25519_SHA256_RFC5705) {
            return Err(ChannelError::CannotAuthenticate);
        }
        let certs: [(u8, &[u8]); 4] = [
            (cert_type::RSA_IDENTITY, &identity.rsa_identity_cert),
            (cert_type::ED25519_SIGNING, &identity.signing_cert),
            (cert_type::ED25519_AUTHENTICATE, &identity.authenticate_cert),
            (cert_type::RSA_CROSS, &identity.rsa_cross_cert),
        ];
        let mut body = Vec::new();
        Certs::encode_into(&certs, &mut body);
        let before = out.len();
        push_cell(Command::CERTS, &body, out);
        self.initiator_log.update(&out[before..]);

        let mut proof = Vec::from(*b"AUTH0003");
        proof.extend_from_slice(&identity.rsa_sha256);
        proof.extend_from_slice(&peer.rsa_sha256);
        proof.extend_from_slice(&identity.ed25519.0);
        proof.extend_from_slice(&peer.ed25519.0);
        proof.extend_from_slice(&self.responder_log.clone().finalize());
        proof.extend_from_slice(&self.initiator_log.clone().finalize());
        proof.extend_from_slice(&self.tls_cert_sha256);
        proof.extend_from_slice(&self.tls_secret);
        proof.extend_from_slice(&self.random);
        let signature = identity.sign_authentication(&proof);
        proof.extend_from_slice(&signature);

        body.clear();
        body.extend_from_slice(&AUTH_ED25519_SHA256_RFC5705.to_be_bytes());
        body.extend_from_slice(&u16::try_from(proof.len()).unwrap_or(0).to_be_bytes());
        body.extend_from_slice(&proof);
        push_cell(Command::AUTHENTICATE, &body, out);
        Ok(())
    }
}
