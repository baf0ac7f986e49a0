//! The extensions in the messages of the handshake (tor-spec §5.1.5; proposals 324 §10.3 and 346).
//!
//! Those that one does not know are skipped, and so is a second one of a type.

use crate::cell::{Malformed, Reader};
use crate::flow::control::Agreed;
use alloc::vec::Vec;

/// The client asks for congestion control. Without content.
const CONGESTION_REQUEST: u8 = 1;
/// The relay agrees to it. With the number of cells for each SENDME.
const CONGESTION_RESPONSE: u8 = 2;
/// The client asks for protocols that are not used otherwise (proposal 346).
const PROTOCOL_REQUEST: u8 = 3;

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
    /// Protocols that only a relay that announces `Relay=5` may be asked for. No such relay: refuse
    /// the circuit, for the client counts on them.
    pub wants_protocols: bool,
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
                PROTOCOL_REQUEST => request.wants_protocols = !content.is_empty(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// What a relay agrees to that offers this much; `None` if it must refuse.
    pub(crate) fn agree(&self, offered: Agreed) -> Option<Agreed> {
        let agreed = if self.wants_congestion_control { offered } else { Agreed::default() };
        (!self.wants_protocols).then_some(agreed)
    }

    /// The client's message. Never asks for protocols.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        if self.wants_congestion_control {
            Vec::from([1, CONGESTION_REQUEST, 0])
        } else {
            Vec::from([0])
        }
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
