use super::Tor;
use crate::cell::Command;
use crate::cell::msg::{Create2, CreatedFast, HANDSHAKE_NTOR, HANDSHAKE_NTOR_V3, parse_created2};
use crate::cell::relay::RelayFormat;
use crate::cell_model::{self, Finished};
use crate::circuit::{CircuitError, NextHop};
use crate::crypto::ntor_v3::extension::{Request, Response};
use crate::crypto::{HandshakeFailed, HopKeys, fast, ntor, ntor_v3};
use crate::flow::control::Agreed;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The client's side of the handshake with one hop.
pub struct Handshake(Kind);

enum Kind {
    /// For a first hop only: without public keys, since TLS has authenticated the relay.
    Fast(fast::Client),
    Ntor(Box<ntor::Client>),
    /// With the requested format of cells.
    NtorV3(Box<ntor_v3::Client>, RelayFormat),
}

/// Without negotiated extensions.
fn by_keys(keys: HopKeys) -> Finished<Tor> {
    Finished { keys: keys.into(), agreed: Agreed::default() }
}

impl cell_model::Handshake<Tor> for Handshake {
    fn fast(x: [u8; 20]) -> Self {
        Self(Kind::Fast(fast::Client::new(x)))
    }

    fn ntor(relay: &NextHop, ephemeral_secret: [u8; 32]) -> Self {
        let relay = ntor::RelayKeys { rsa_id: relay.ids.rsa.0, onion_key: relay.onion_key };
        Self(Kind::Ntor(Box::new(ntor::Client::new(relay, ephemeral_secret))))
    }

    fn ntor_v3(
        relay: &NextHop,
        ephemeral_secret: [u8; 32],
        request: Request,
    ) -> Result<Self, HandshakeFailed> {
        let unknown =
            HandshakeFailed { handshake: "ntor-v3", problem: "no Ed25519 identity is known" };
        let ed25519_id = relay.ids.ed25519.ok_or(unknown)?.0;
        let relay = ntor_v3::RelayKeys { ed25519_id, onion_key: relay.onion_key };
        let client = ntor_v3::Client::new(relay, ephemeral_secret, &request.encode())?;
        Ok(Self(Kind::NtorV3(Box::new(client), request.format())))
    }

    fn public(&self) -> Option<&[u8; 32]> {
        match &self.0 {
            Kind::Fast(_) => None,
            Kind::Ntor(client) => Some(client.public()),
            Kind::NtorV3(client, _) => Some(client.public()),
        }
    }

    fn message(&self) -> Vec<u8> {
        match &self.0 {
            Kind::Fast(client) => client.x.to_vec(),
            Kind::Ntor(client) => client.message().to_vec(),
            Kind::NtorV3(client, _) => client.data().to_vec(),
        }
    }

    fn create2<'a>(&self, message: &'a [u8]) -> Create2<'a> {
        let handshake_type = match &self.0 {
            Kind::Fast(_) | Kind::Ntor(_) => HANDSHAKE_NTOR,
            Kind::NtorV3(..) => HANDSHAKE_NTOR_V3,
        };
        Create2 { handshake_type, data: message }
    }

    fn create_cell(&self) -> (Command, Vec<u8>) {
        let message = self.message();
        match &self.0 {
            Kind::Fast(_) => (Command::CREATE_FAST, message),
            Kind::Ntor(_) | Kind::NtorV3(..) => {
                let mut body = Vec::new();
                self.create2(&message).encode_into(&mut body);
                (Command::CREATE2, body)
            }
        }
    }

    fn finish_created(&self, command: Command, body: &[u8]) -> Result<Finished<Tor>, CircuitError> {
        match (&self.0, command) {
            (Kind::Fast(client), Command::CREATED_FAST) => {
                let created = CreatedFast::parse(body).map_err(CircuitError::Malformed)?;
                client.finish(&created).map(by_keys).map_err(CircuitError::Handshake)
            }
            (Kind::Ntor(_) | Kind::NtorV3(..), Command::CREATED2) => self.finish_extended(body),
            (_, other) => Err(CircuitError::Unexpected(other)),
        }
    }

    fn finish_extended(&self, data: &[u8]) -> Result<Finished<Tor>, CircuitError> {
        let answer = parse_created2(data).map_err(CircuitError::Malformed)?;
        match &self.0 {
            Kind::Fast(_) => Err(CircuitError::Unexpected(Command::CREATED2)),
            Kind::Ntor(client) => {
                client.finish(answer).map(by_keys).map_err(CircuitError::Handshake)
            }
            Kind::NtorV3(client, format) => {
                let (message, keys) =
                    client.finish(answer, *format).map_err(CircuitError::Handshake)?;
                let response = Response::parse(&message).map_err(CircuitError::Malformed)?;
                let congestion_sendme_cells = response.congestion_sendme_cells;
                Ok(Finished { keys, agreed: Agreed { congestion_sendme_cells } })
            }
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Fast(_) => "Handshake(CREATE_FAST)",
            Kind::Ntor(_) => "Handshake(ntor)",
            Kind::NtorV3(..) => "Handshake(ntor-v3)",
        })
    }
}
