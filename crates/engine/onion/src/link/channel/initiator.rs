//! The initiator's side of the link handshake.

use super::proof::Proof;
use super::verification::Verification;
use super::{ChannelError, HandshakeCell, Progress, TlsSession, push_cell};
use crate::cell::msg::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, Certs, NetInfo, cert_type, encode_versions_cell,
};
use crate::cell::{Command, LinkProtocol};
use crate::identity::{OwnIdentity, RelayIds};
use crate::link::certs::PeerIdentity;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use sha2::{Digest, Sha256};

/// The peer that an initiator expects.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedPeer {
    /// The identities that its certificates must prove.
    pub ids: RelayIds,
    /// The dialled address, which is sent in NETINFO.
    pub address: IpAddr,
}

/// Whether an initiator authenticates.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// Not, like clients.
    Anonymous,
    /// With this identity, like relays (tor-spec §4.4.2).
    AsRelay(Arc<OwnIdentity>),
}

/// The initiator's state until the responder's last cell.
#[derive(Debug)]
pub(super) struct Initiating {
    expected: ExpectedPeer,
    authentication: Authentication,
    tls_cert_sha256: [u8; 32],
    /// Keying material for the authentication, if there is to be one.
    tls_secret: [u8; 32],
    random: [u8; 24],
    unix_time_s: u64,
    own_addresses: Vec<IpAddr>,
    /// The body of the responder's CERTS.
    certs: Option<Vec<u8>>,
    challenge: Option<AuthChallenge>,
    /// All bytes received up to AUTH_CHALLENGE.
    responder_log: Sha256,
    /// All bytes sent before AUTHENTICATE.
    initiator_log: Sha256,
}

impl Initiating {
    /// Sends VERSIONS.
    pub(super) fn begin(
        expected: ExpectedPeer,
        authentication: Authentication,
        tls: &dyn TlsSession,
        random: [u8; 24],
        unix_time_s: u64,
        out: &mut Vec<u8>,
    ) -> Result<Self, ChannelError> {
        let certificate =
            tls.peer_certificate().ok_or(ChannelError::Tls("the peer presented no certificate"))?;
        let tls_cert_sha256 = Sha256::digest(certificate).into();
        let tls_secret = match &authentication {
            Authentication::Anonymous => [0; 32],
            Authentication::AsRelay(identity) => Proof::export(tls, &identity.rsa_sha256)?,
        };
        let mut initiating = Self {
            expected,
            authentication,
            tls_cert_sha256,
            tls_secret,
            random,
            unix_time_s,
            own_addresses: Vec::new(),
            certs: None,
            challenge: None,
            responder_log: Sha256::new(),
            initiator_log: Sha256::new(),
        };
        initiating.offer(LinkProtocol::offer(false), out);
        Ok(initiating)
    }

    /// Sends these VERSIONS first.
    pub(super) fn offer(&mut self, versions: &[u16], out: &mut Vec<u8>) {
        let cell = encode_versions_cell(versions);
        self.initiator_log = Sha256::new_with_prefix(&cell);
        *out = cell;
    }

    pub(super) fn claim_addresses(&mut self, addresses: &[IpAddr]) {
        self.own_addresses = Vec::from(addresses);
    }

    /// Handles a cell. Signatures are gathered until the last cell has arrived.
    pub(super) fn handle(&mut self, cell: &HandshakeCell) -> Result<Progress, ChannelError> {
        if self.challenge.is_none() {
            self.responder_log.update(&cell.encoded);
        }
        match cell.command {
            Command::VERSIONS | Command::PADDING | Command::VPADDING => {}
            Command::CERTS if self.certs.is_none() => {
                Certs::parse(cell.body())?;
                self.certs = Some(Vec::from(cell.body()));
            }
            Command::AUTH_CHALLENGE if self.challenge.is_none() => {
                self.challenge = Some(AuthChallenge::parse(cell.body())?);
            }
            Command::NETINFO => {
                let info = NetInfo::parse(cell.body())?;
                let is_canonical = info.mine.contains(&self.expected.address);
                let certs = self.certs.take().ok_or(ChannelError::Unexpected(cell.command))?;
                let verification = Verification::of_responder(
                    certs,
                    self.expected.ids,
                    self.tls_cert_sha256,
                    self.unix_time_s,
                );
                return Ok(Progress::Verify(verification, is_canonical));
            }
            other => return Err(ChannelError::Unexpected(other)),
        }
        Ok(Progress::GoesOn)
    }

    /// The responder is the expected peer: sends certificates and proof, if any, and NETINFO.
    pub(super) fn finish(
        &mut self,
        peer: &PeerIdentity,
        out: &mut Vec<u8>,
    ) -> Result<(), ChannelError> {
        let mut body = Vec::new();
        let other = Some(self.expected.address);
        let mut info = NetInfo { timestamp: 0, other, mine: Vec::new() };
        if let Authentication::AsRelay(identity) = &self.authentication {
            let identity = Arc::clone(identity);
            self.authenticate(&identity, peer, out)?;
            // Clients send neither time nor addresses: both would reveal their identity.
            info.timestamp = super::timestamp(self.unix_time_s);
            info.mine = core::mem::take(&mut self.own_addresses);
        }
        info.encode_into(&mut body);
        push_cell(Command::NETINFO, &body, out);
        Ok(())
    }

    /// The CERTS and AUTHENTICATE of an initiator that is a relay (tor-spec §4.4.2).
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

        let mut proof = Proof {
            initiator_rsa_sha256: &identity.rsa_sha256,
            responder_rsa_sha256: &peer.rsa_sha256,
            initiator_ed25519: &identity.ed25519.0,
            responder_ed25519: &peer.ed25519.0,
            responder_log: &self.responder_log.clone().finalize().into(),
            initiator_log: &self.initiator_log.clone().finalize().into(),
            tls_cert_sha256: &self.tls_cert_sha256,
            tls_secret: &self.tls_secret,
        }
        .encode(&self.random);
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
