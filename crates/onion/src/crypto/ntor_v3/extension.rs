//! The extensions in the messages of the handshake (tor-spec §5.1.5; proposals 324 §10.3 and 346).
//!
//! Those that one does not know are skipped, and so is a second one of a type.

use crate::cell::relay::RelayFormat;
use crate::cell::{Malformed, Reader};
use crate::flow::control::Agreed;
use alloc::vec::Vec;

/// The client asks for congestion control. Without content.
const CONGESTION_REQUEST: u8 = 1;
/// The relay agrees to it. With the number of cells for each SENDME.
const CONGESTION_RESPONSE: u8 = 2;
/// The client asks for protocols that are not used otherwise (proposal 346). With the number of each
/// protocol, and its version.
const PROTOCOL_REQUEST: u8 = 3;
/// `Relay=6`.
const CGO: [u8; 2] = [2, 6];

/// Calls `handle` with type and content of each first extension of its type.
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

/// What a client asks of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Congestion control, with XON and XOFF.
    pub wants_congestion_control: bool,
    /// Counter Galois Onion: `Relay=6`. Only together with congestion control, since its cells cannot say
    /// SENDME of a stream.
    pub wants_cgo: bool,
    /// Protocols that nobody can ask us for: refuse the circuit, for the client counts on them.
    pub wants_other_protocols: bool,
}

impl Request {
    /// Reads the client's message.
    ///
    /// # Errors
    /// Where it is cut off.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut request = Self::default();
        read("ntor-v3 request", message, |extension_type, content| {
            match extension_type {
                // What is in it has no meaning yet.
                CONGESTION_REQUEST => request.wants_congestion_control = true,
                PROTOCOL_REQUEST => request.read_protocols(content),
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Reads pairs of protocol and version, each once and in order. What is not so asks for nothing that
    /// could be had.
    fn read_protocols(&mut self, content: &[u8]) {
        let (pairs, rest) = content.as_chunks::<2>();
        self.wants_cgo = pairs.contains(&CGO);
        self.wants_other_protocols = !rest.is_empty() || !matches!(pairs, [] | [CGO]);
    }

    /// What a relay agrees to that offers this much; `None` if it must refuse.
    pub(crate) fn agree(&self, offered: Agreed) -> Option<Agreed> {
        let agreed = if self.wants_congestion_control { offered } else { Agreed::default() };
        let has_cgo_alone = self.wants_cgo && agreed.congestion_sendme_cells.is_none();
        (!self.wants_other_protocols && !has_cgo_alone).then_some(agreed)
    }

    /// The cells of the layer that it asks for.
    #[must_use]
    pub const fn format(&self) -> RelayFormat {
        if self.wants_cgo { RelayFormat::V1 } else { RelayFormat::V0 }
    }

    /// The client's message. Never asks for other protocols.
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

/// What the relay agrees to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Congestion control, and the cells that one SENDME acknowledges on this circuit.
    pub congestion_sendme_cells: Option<u8>,
}

impl Response {
    /// Reads the relay's message.
    ///
    /// # Errors
    /// Where it is cut off, or has a SENDME for no cells.
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
