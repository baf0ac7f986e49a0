//! The side that was dialled.

use super::proof::{Proof, SIGNATURE_LEN};
use super::{ChannelError, HandshakeCell, Opened, TlsSession, push_cell};
use crate::cell::msg::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, Certs, NetInfo, cert_type, encode_versions_cell,
};
use crate::cell::{CircId, Command, LinkProtocol, Malformed, Reader};
use crate::identity::OwnIdentity;
use crate::link::certs::{PeerIdentity, verify_initiator_certs};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use sha2::{Digest, Sha256};

/// What a responder keeps until the initiator has said everything.
#[derive(Debug)]
pub(super) struct Responding {
    identity: Arc<OwnIdentity>,
    tls: Session,
    challenge: [u8; 32],
    unix_time_s: u64,
    /// Where the initiator comes from.
    address: Option<IpAddr>,
    own_addresses: Vec<IpAddr>,
    /// All bytes from the initiator before AUTHENTICATE.
    initiator_log: Sha256,
    /// All bytes that we sent up to AUTH_CHALLENGE, once they are sent.
    responder_log: Option<[u8; 32]>,
    /// Who the initiator claims to be, and the key that has to sign its proof.
    claim: Option<(PeerIdentity, [u8; 32])>,
    is_proven: bool,
}

/// The TLS session, as long as the handshake lasts.
struct Session(Option<Box<dyn TlsSession + Send>>);

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Session" } else { "no session" })
    }
}

impl Responding {
    pub(super) fn new(
        identity: Arc<OwnIdentity>,
        tls: &dyn TlsSession,
        challenge: [u8; 32],
        unix_time_s: u64,
    ) -> Self {
        Self {
            identity,
            tls: Session(tls.detached()),
            challenge,
            unix_time_s,
            address: tls.peer_address(),
            own_addresses: Vec::new(),
            initiator_log: Sha256::new(),
            responder_log: None,
            claim: None,
            is_proven: false,
        }
    }

    pub(super) fn claim_addresses(&mut self, addresses: &[IpAddr]) {
        self.own_addresses = Vec::from(addresses);
    }

    /// Handles a cell; what has come of the handshake, if it was the last.
    ///
    /// What may come when, and what is ignored, is as in C tor.
    pub(super) fn handle(
        &mut self,
        cell: &HandshakeCell,
        out: &mut Vec<u8>,
    ) -> Result<Option<Opened>, ChannelError> {
        if cell.command != Command::AUTHENTICATE {
            self.initiator_log.update(&cell.encoded);
        }
        match cell.command {
            Command::VERSIONS => self.answer_versions(out),
            Command::CERTS if self.claim.is_none() => {
                if cell.circ_id != CircId::LINK {
                    let (message, problem) = ("CERTS", "it is on a circuit");
                    return Err(Malformed { message, problem }.into());
                }
                let certs = Certs::parse(cell.body())?;
                let claim = verify_initiator_certs(&certs, self.unix_time_s);
                self.claim = Some(claim.map_err(ChannelError::Certs)?);
            }
            Command::AUTHENTICATE if !self.is_proven => {
                let claim = self.claim.ok_or(ChannelError::Unexpected(cell.command))?;
                self.check_proof(claim, cell.body())?;
                self.is_proven = true;
            }
            Command::NETINFO => {
                let info = NetInfo::parse(cell.body())?;
                // Certificates alone prove nothing: whoever shows no more is a client.
                let peer = self.claim.filter(|_| self.is_proven).map(|(peer, _)| peer);
                let is_canonical = self.address.is_some_and(|address| info.mine.contains(&address));
                return Ok(Some(Opened { peer, is_canonical }));
            }
            known @ (Command::CERTS
            | Command::AUTHENTICATE
            | Command::AUTH_CHALLENGE
            | Command::MEASURE) => return Err(ChannelError::Unexpected(known)),
            other if other.is_variable_length() => {} // VPADDING, AUTHORIZE, and those to come
            other => return Err(ChannelError::Unexpected(other)),
        }
        Ok(None)
    }

    /// Our whole part: VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO.
    fn answer_versions(&mut self, out: &mut Vec<u8>) {
        let identity = &self.identity;
        let start = out.len();
        out.extend(encode_versions_cell(&LinkProtocol::SUPPORTED));
        let certs: [(u8, &[u8]); 4] = [
            (cert_type::RSA_IDENTITY, &identity.rsa_identity_cert),
            (cert_type::ED25519_SIGNING, &identity.signing_cert),
            (cert_type::ED25519_TLS_LINK, &identity.tls_link_cert),
            (cert_type::RSA_CROSS, &identity.rsa_cross_cert),
        ];
        let mut body = Vec::new();
        Certs::encode_into(&certs, &mut body);
        push_cell(Command::CERTS, &body, out);
        body.clear();
        let methods = Vec::from([AUTH_ED25519_SHA256_RFC5705]);
        AuthChallenge { challenge: self.challenge, methods }.encode_into(&mut body);
        push_cell(Command::AUTH_CHALLENGE, &body, out);
        self.responder_log = Some(Sha256::digest(&out[start..]).into());
        body.clear();
        // Clients take our word for how wrong their clock is.
        NetInfo {
            timestamp: super::timestamp(self.unix_time_s),
            other: self.address,
            mine: core::mem::take(&mut self.own_addresses),
        }
        .encode_into(&mut body);
        push_cell(Command::NETINFO, &body, out);
    }

    /// Checks an AUTHENTICATE (tor-spec §4.4.2) against what we saw and said.
    fn check_proof(
        &self,
        (peer, key): (PeerIdentity, [u8; 32]),
        body: &[u8],
    ) -> Result<(), ChannelError> {
        let mut reader = Reader::new("AUTHENTICATE", body);
        let method = reader.take_u16()?;
        let len = usize::from(reader.take_u16()?);
        let proof = reader.take(len)?; // as C tor, whatever is behind it
        let not_proven = |problem| ChannelError::NotProven { claimed: peer.ids, problem };
        if method != AUTH_ED25519_SHA256_RFC5705 {
            return Err(not_proven("its way to authenticate is not the one that we offer"));
        }
        if len != Proof::LEN + SIGNATURE_LEN {
            return Err(not_proven("its length is not that of a proof of type 3"));
        }
        let tls = self.tls.0.as_deref().ok_or(ChannelError::Tls("it is not known any more"))?;
        let tls_cert_sha256 = self.identity.tls_certificate_sha256();
        let expected = Proof {
            initiator_rsa_sha256: &peer.rsa_sha256,
            responder_rsa_sha256: &self.identity.rsa_sha256,
            initiator_ed25519: &peer.ed25519.0,
            responder_ed25519: &self.identity.ed25519.0,
            responder_log: &self.responder_log.unwrap_or_default(),
            initiator_log: &self.initiator_log.clone().finalize().into(),
            tls_cert_sha256: &tls_cert_sha256
                .ok_or(ChannelError::Tls("our certificate for it cannot be read"))?,
            tls_secret: &Proof::export(tls, &peer.rsa_sha256)?,
        };
        expected.check(proof, &key).map_err(not_proven)
    }
}
