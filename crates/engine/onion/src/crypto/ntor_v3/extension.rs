//! Extensions in the messages of the handshake (tor-spec §5.1.5; proposals 324 §10.3 and 346).
//!
//! Unknown ones are ignored, and so are repeated ones of a type.

use crate::cell::relay::RelayFormat;
use crate::cell::{Malformed, Reader};
use crate::flow::control::Agreed;
use alloc::vec::Vec;

/// The client requests congestion control. No content.
const CONGESTION_REQUEST: u8 = 1;
/// The relay grants it. The content is the number of cells for each SENDME.
const CONGESTION_RESPONSE: u8 = 2;
/// The client requests protocols that need a request (proposal 346): the number and version of each.
const PROTOCOL_REQUEST: u8 = 3;
/// `Relay=6`.
const CGO: [u8; 2] = [2, 6];

/// Calls `handle` with type and content of the first extension of each type.
fn read<'a>(
    name: &'static str,
    message: &'a [u8],
    mut handle: impl FnMut(u8, &'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut reader = Reader::new(name, message);
    let mut is_known = [false; 256];
    for _ in 0..reader.take_u8()? {
        let extension_type = reader.take_u8()?;
        let len = usize::from(reader.take_u8()?);
        let content = reader.take(len)?;
        if !core::mem::replace(&mut is_known[usize::from(extension_type)], true) {
            handle(extension_type, content)?;
        }
    }
    Ok(())
}

/// A client's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Congestion control, with XON and XOFF.
    pub wants_congestion_control: bool,
    /// Counter Galois Onion: `Relay=6`. Only with congestion control, since its format has no stream-level
    /// SENDME.
    pub wants_cgo: bool,
    /// A request for protocols that cannot be requested: the circuit must be refused, since the client relies
    /// on them.
    pub wants_other_protocols: bool,
}

impl Request {
    /// Reads the client's message.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut request = Self::default();
        read("ntor-v3 request", message, |extension_type, content| {
            match extension_type {
                // Its content has no meaning yet.
                CONGESTION_REQUEST => request.wants_congestion_control = true,
                PROTOCOL_REQUEST => request.read_protocols(content),
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Reads pairs of protocol and version, which must be unique and in order. Anything else is an impossible
    /// request.
    fn read_protocols(&mut self, content: &[u8]) {
        let (pairs, rest) = content.as_chunks::<2>();
        self.wants_cgo = pairs.contains(&CGO);
        self.wants_other_protocols = !rest.is_empty() || !matches!(pairs, [] | [CGO]);
    }

    /// The answer of a relay that grants at most `offered`; `None` if it must refuse.
    pub(crate) fn agree(&self, offered: Agreed) -> Option<Agreed> {
        let agreed = if self.wants_congestion_control { offered } else { Agreed::default() };
        let has_cgo_alone = self.wants_cgo && agreed.congestion_sendme_cells.is_none();
        (!self.wants_other_protocols && !has_cgo_alone).then_some(agreed)
    }

    /// The format of the requested layer.
    #[must_use]
    pub const fn format(&self) -> RelayFormat {
        if self.wants_cgo { RelayFormat::V1 } else { RelayFormat::V0 }
    }

    /// The client's message. It never requests other protocols.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut message = Vec::from([0]);
        if self.wants_congestion_control {
            message[0] += 1;
            message.extend([CONGESTION_REQUEST, 0]);
        }
        if self.wants_cgo {
            message[0] += 1;
            message.extend([PROTOCOL_REQUEST, 2]);
            message.extend(CGO);
        }
        message
    }
}

/// A relay's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Congestion control, and the number of cells that one SENDME acknowledges.
    pub congestion_sendme_cells: Option<u8>,
}

impl Response {
    /// Reads the relay's message.
    ///
    /// # Errors
    /// If it is truncated, or has a SENDME for zero cells.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        read("ntor-v3 response", message, |extension_type, content| {
            if extension_type == CONGESTION_RESPONSE {
                let mut reader = Reader::new("congestion control response", content);
                let sendme_cells = reader.take_u8()?;
                if sendme_cells == 0 {
                    return Err(reader.malformed("a SENDME for no cells"));
                }
                response.congestion_sendme_cells = Some(sendme_cells);
            }
            Ok(())
        })?;
        Ok(response)
    }

    /// The relay's message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self.congestion_sendme_cells {
            Some(sendme_cells) => Vec::from([1, CONGESTION_RESPONSE, 1, sendme_cells]),
            None => Vec::from([0]),
        }
    }
}
