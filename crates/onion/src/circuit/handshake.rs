use super::{CircuitError, NextHop};
use crate::cell::Command;
use crate::cell::msg::{Create2, CreatedFast, HANDSHAKE_NTOR, parse_created2};
use crate::crypto::{HopKeys, fast, ntor};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Our half of the handshake with one hop.
pub struct Handshake(Kind);

enum Kind {
    /// For a first hop only: without public keys, since its link has them.
    Fast(fast::Client),
    Ntor(Box<ntor::Client>),
}

impl Handshake {
    /// CREATE_FAST, for a first hop. `x` is fresh random bytes.
    #[must_use]
    pub const fn fast(x: [u8; 20]) -> Self {
        Self(Kind::Fast(fast::Client::new(x)))
    }

    /// ntor with this relay. `ephemeral_secret` is fresh random bytes.
    #[must_use]
    pub fn ntor(relay: &NextHop, ephemeral_secret: [u8; 32]) -> Self {
        let relay = ntor::RelayKeys { rsa_id: relay.ids.rsa.0, onion_key: relay.onion_key };
        Self(Kind::Ntor(Box::new(ntor::Client::new(relay, ephemeral_secret))))
    }

    /// Our ephemeral public key.
    pub(super) fn public(&self) -> Option<&[u8; 32]> {
        match &self.0 {
            Kind::Fast(_) => None,
            Kind::Ntor(client) => Some(client.public()),
        }
    }

    /// What it says.
    pub(super) fn message(&self) -> Vec<u8> {
        match &self.0 {
            Kind::Fast(client) => client.x.to_vec(),
            Kind::Ntor(client) => client.message().to_vec(),
        }
    }

    /// The same in a CREATE2 or an EXTEND2. CREATE_FAST has no place there: no relay answers it.
    pub(super) const fn create2<'a>(&self, message: &'a [u8]) -> Create2<'a> {
        Create2 { handshake_type: HANDSHAKE_NTOR, data: message }
    }

    /// The cell that opens a circuit with it.
    pub(super) fn create_cell(&self) -> (Command, Vec<u8>) {
        let message = self.message();
        match &self.0 {
            Kind::Fast(_) => (Command::CREATE_FAST, message),
            Kind::Ntor(_) => {
                let mut body = Vec::new();
                self.create2(&message).encode_into(&mut body);
                (Command::CREATE2, body)
            }
        }
    }

    /// The relay's answer to that cell.
    pub(super) fn finish_created(
        &self,
        command: Command,
        body: &[u8],
    ) -> Result<HopKeys, CircuitError> {
        match (&self.0, command) {
            (Kind::Fast(client), Command::CREATED_FAST) => {
                let created = CreatedFast::parse(body).map_err(CircuitError::Malformed)?;
                client.finish(&created).map_err(CircuitError::Handshake)
            }
            (Kind::Ntor(_), Command::CREATED2) => self.finish_extended(body),
            (_, other) => Err(CircuitError::Unexpected(other)),
        }
    }

    /// The relay's answer, as it stands in CREATED2 and EXTENDED2.
    pub(super) fn finish_extended(&self, data: &[u8]) -> Result<HopKeys, CircuitError> {
        let answer = parse_created2(data).map_err(CircuitError::Malformed)?;
        match &self.0 {
            Kind::Fast(_) => Err(CircuitError::Unexpected(Command::CREATED2)),
            Kind::Ntor(client) => client.finish(answer).map_err(CircuitError::Handshake),
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Fast(_) => "Handshake(CREATE_FAST)",
            Kind::Ntor(_) => "Handshake(ntor)",
        })
    }
}
