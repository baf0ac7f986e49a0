//! The responder's side of the link handshake.

use super::proof::ToProve;
use super::verification::Verification;
use super::{ChannelError, HandshakeCell, Opened, Progress, TlsSession, push_cell};
use crate::cell::msg::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, Certs, NetInfo, cert_type, encode_versions_cell,
};
use crate::cell::{CircId, Command, LinkProtocol, Malformed};
use crate::identity::OwnIdentity;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use sha2::{Digest, Sha256};

/// The responder's state until the initiator's last cell.
#[derive(Debug)]
pub(super) struct Responding {
    identity: Arc<OwnIdentity>,
    tls: Session,
    challenge: [u8; 32],
    unix_time_s: u64,
    /// The initiator's address.
    address: Option<IpAddr>,
    own_addresses: Vec<IpAddr>,
    /// The versions to offer.
    versions: &'static [u16],
    /// All bytes received before AUTHENTICATE.
    initiator_log: Sha256,
    /// All bytes sent up to AUTH_CHALLENGE.
    responder_log: Option<[u8; 32]>,
    /// The body of the initiator's CERTS: its claimed identity.
    certs: Option<Vec<u8>>,
    /// The body of its AUTHENTICATE, and [`initiator_log`](Self::initiator_log) before it.
    proof: Option<(Vec<u8>, [u8; 32])>,
}

/// The TLS session, for the duration of the handshake.
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
            versions: LinkProtocol::offer(false),
            initiator_log: Sha256::new(),
            responder_log: None,
            certs: None,
            proof: None,
        }
    }

    pub(super) fn claim_addresses(&mut self, addresses: &[IpAddr]) {
        self.own_addresses = Vec::from(addresses);
    }

    pub(super) const fn offer(&mut self, versions: &'static [u16]) {
        self.versions = versions;
    }

    /// Handles a cell. Signatures are gathered until the last cell has arrived.
    ///
    /// The accepted order of cells, and the ignored ones, are as in C tor.
    pub(super) fn handle(
        &mut self,
        cell: &HandshakeCell,
        out: &mut Vec<u8>,
    ) -> Result<Progress, ChannelError> {
        if cell.command != Command::AUTHENTICATE {
            self.initiator_log.update(&cell.encoded);
        }
        match cell.command {
            Command::VERSIONS => self.answer_versions(out),
            Command::CERTS if self.certs.is_none() => {
                if cell.circ_id != CircId::LINK {
                    let (message, problem) = ("CERTS", "it has a circuit ID");
                    return Err(Malformed { message, problem }.into());
                }
                Certs::parse(cell.body())?;
                self.certs = Some(Vec::from(cell.body()));
            }
            Command::AUTHENTICATE if self.proof.is_none() && self.certs.is_some() => {
                let initiator_log = self.initiator_log.clone().finalize().into();
                self.proof = Some((Vec::from(cell.body()), initiator_log));
            }
            Command::NETINFO => {
                let info = NetInfo::parse(cell.body())?;
                let is_canonical = self.address.is_some_and(|address| info.mine.contains(&address));
                return Ok(match self.certs.take() {
                    None => Progress::Opened(Opened { peer: None, is_canonical }),
                    Some(certs) => Progress::Verify(self.verification(certs)?, is_canonical),
                });
            }
            known @ (Command::CERTS
            | Command::AUTHENTICATE
            | Command::AUTH_CHALLENGE
            | Command::MEASURE
            | Command::FEEDBACK) => return Err(ChannelError::Unexpected(known)),
            other if other.is_variable_length() => {} // VPADDING, AUTHORIZE, and those to come
            other => return Err(ChannelError::Unexpected(other)),
        }
        Ok(Progress::GoesOn)
    }

    /// The signatures to verify.
    fn verification(&mut self, certs: Vec<u8>) -> Result<Verification, ChannelError> {
        let proof = match self.proof.take() {
            None => None,
            Some((body, initiator_log)) => {
                let tls = self.tls.0.take();
                Some(Box::new(ToProve {
                    body,
                    identity: Arc::clone(&self.identity),
                    tls: tls.ok_or(ChannelError::Tls("it is closed"))?,
                    responder_log: self.responder_log.unwrap_or_default(),
                    initiator_log,
                }))
            }
        };
        Ok(Verification::of_initiator(certs, proof, self.unix_time_s))
    }

    /// The responder's cells: VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO.
    fn answer_versions(&mut self, out: &mut Vec<u8>) {
        let identity = &self.identity;
        let start = out.len();
        out.extend(encode_versions_cell(self.versions));
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
        // Clients use this time to detect a wrong clock.
        NetInfo {
            timestamp: super::timestamp(self.unix_time_s),
            other: self.address,
            mine: core::mem::take(&mut self.own_addresses),
        }
        .encode_into(&mut body);
        push_cell(Command::NETINFO, &body, out);
    }
}
