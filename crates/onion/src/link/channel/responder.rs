//! The side that was dialled.

use super::{ChannelError, HandshakeCell, push_cell};
use crate::cell::msg::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, Certs, NetInfo, cert_type, encode_versions_cell,
};
use crate::cell::{Command, LinkProtocol};
use crate::identity::OwnIdentity;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a responder keeps until the initiator has said everything.
#[derive(Debug)]
pub(super) struct Responding {
    identity: Arc<OwnIdentity>,
    challenge: [u8; 32],
    has_answered: bool,
    peer_presents_itself: bool,
}

impl Responding {
    pub(super) const fn new(identity: Arc<OwnIdentity>, challenge: [u8; 32]) -> Self {
        Self { identity, challenge, has_answered: false, peer_presents_itself: false }
    }

    pub(super) const fn peer_presents_itself(&self) -> bool {
        self.peer_presents_itself
    }

    /// Handles a cell; true if it was the last.
    pub(super) fn handle(
        &mut self,
        cell: &HandshakeCell,
        out: &mut Vec<u8>,
    ) -> Result<bool, ChannelError> {
        if !self.has_answered {
            self.has_answered = true;
            self.answer_versions(out);
            return Ok(false);
        }
        match cell.command {
            Command::AUTHENTICATE => self.peer_presents_itself = true,
            Command::PADDING | Command::VPADDING | Command::CERTS | Command::AUTHORIZE => {}
            Command::NETINFO => {
                NetInfo::parse(cell.body())?;
                return Ok(true);
            }
            other => return Err(ChannelError::Unexpected(other)),
        }
        Ok(false)
    }

    /// Our whole part: VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO.
    fn answer_versions(&self, out: &mut Vec<u8>) {
        let identity = &self.identity;
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
        body.clear();
        NetInfo { timestamp: 0, other: None, mine: Vec::new() }.encode_into(&mut body);
        push_cell(Command::NETINFO, &body, out);
    }
}
