use super::HeaderOnly;
use crate::cell::Command;
use crate::cell::msg::{Create2, HANDSHAKE_NTOR, HANDSHAKE_NTOR_V3, parse_created2};
use crate::cell::relay::RelayFormat;
use crate::cell_model::{Finished, Handshake};
use crate::circuit::{CircuitError, NextHop};
use crate::crypto::HandshakeFailed;
use crate::crypto::ntor_v3::extension::{Request, Response};
use crate::flow::control::Agreed;
use alloc::vec::Vec;

/// A handshake that requests what the real one requests, and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullHandshake {
    /// Replaces CREATE_FAST.
    Fast,
    /// Replaces ntor.
    Ntor,
    /// Replaces ntor v3.
    NtorV3 {
        /// The request.
        request: Request,
    },
}

impl Handshake<HeaderOnly> for NullHandshake {
    fn fast(_x: [u8; 20]) -> Self {
        Self::Fast
    }

    fn ntor(_relay: &NextHop, _ephemeral_secret: [u8; 32]) -> Self {
        Self::Ntor
    }

    fn ntor_v3(
        relay: &NextHop,
        _ephemeral_secret: [u8; 32],
        request: Request,
    ) -> Result<Self, HandshakeFailed> {
        let unknown =
            HandshakeFailed { handshake: "ntor-v3", problem: "no Ed25519 identity is known" };
        relay.ids.ed25519.map(|_| Self::NtorV3 { request }).ok_or(unknown)
    }

    fn public(&self) -> Option<&[u8; 32]> {
        None
    }

    fn create_cell(&self) -> (Command, Vec<u8>) {
        if *self == Self::Fast {
            return (Command::CREATE_FAST, Vec::new());
        }
        let mut body = Vec::new();
        self.create2(&self.message()).encode_into(&mut body);
        (Command::CREATE2, body)
    }

    fn message(&self) -> Vec<u8> {
        match *self {
            Self::Fast | Self::Ntor => Vec::new(),
            Self::NtorV3 { request } => request.encode(),
        }
    }

    fn create2<'a>(&self, message: &'a [u8]) -> Create2<'a> {
        let handshake_type = match self {
            Self::Fast | Self::Ntor => HANDSHAKE_NTOR,
            Self::NtorV3 { .. } => HANDSHAKE_NTOR_V3,
        };
        Create2 { handshake_type, data: message }
    }

    fn finish_created(
        &self,
        command: Command,
        body: &[u8],
    ) -> Result<Finished<HeaderOnly>, CircuitError> {
        match (self, command) {
            (Self::Fast, Command::CREATED_FAST) => {
                Ok(Finished { keys: RelayFormat::V0, agreed: Agreed::default() })
            }
            (Self::Ntor | Self::NtorV3 { .. }, Command::CREATED2) => self.finish_extended(body),
            (_, other) => Err(CircuitError::Unexpected(other)),
        }
    }

    fn finish_extended(&self, data: &[u8]) -> Result<Finished<HeaderOnly>, CircuitError> {
        let answer = parse_created2(data).map_err(CircuitError::Malformed)?;
        let (agreed, keys) = match self {
            Self::Fast => return Err(CircuitError::Unexpected(Command::CREATED2)),
            Self::Ntor => (Agreed::default(), RelayFormat::V0),
            Self::NtorV3 { request } => {
                let response = Response::parse(answer).map_err(CircuitError::Malformed)?;
                let congestion_sendme_cells = response.congestion_sendme_cells;
                (Agreed { congestion_sendme_cells }, request.format())
            }
        };
        Ok(Finished { keys, agreed })
    }
}
