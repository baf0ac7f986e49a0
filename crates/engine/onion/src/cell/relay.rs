//! Relay messages: the content of a relay cell without layers of encryption (tor-spec §6.1).

use super::BODY_LEN;
use super::reader::{Malformed, Reader};

mod format;

pub use format::{RelayFormat, TAG_LEN};

/// Bytes of a relay cell's header in [`RelayFormat::V0`]: command, recognized, stream ID, digest, length.
pub const HEADER_LEN: usize = 11;

/// Maximum data length of a relay cell, over all formats.
pub const MAX_DATA_LEN: usize = BODY_LEN - HEADER_LEN;

/// The offset of the "recognized" field: zero if no layer is left on the cell.
pub const RECOGNIZED: core::ops::Range<usize> = 1..3;

/// The offset of the running digest.
pub const DIGEST: core::ops::Range<usize> = 5..9;

/// Command of a relay message (§6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayCommand(pub u8);

#[allow(missing_docs, reason = "each is the command of that name in tor-spec §6.1")]
impl RelayCommand {
    pub const BEGIN: Self = Self(1);
    pub const DATA: Self = Self(2);
    pub const END: Self = Self(3);
    pub const CONNECTED: Self = Self(4);
    pub const SENDME: Self = Self(5);
    pub const TRUNCATE: Self = Self(8);
    pub const TRUNCATED: Self = Self(9);
    pub const DROP: Self = Self(10);
    pub const RESOLVE: Self = Self(11);
    pub const RESOLVED: Self = Self(12);
    pub const BEGIN_DIR: Self = Self(13);
    pub const EXTEND2: Self = Self(14);
    pub const EXTENDED2: Self = Self(15);
    pub const CONFLUX_LINK: Self = Self(19);
    pub const CONFLUX_LINKED: Self = Self(20);
    pub const CONFLUX_LINKED_ACK: Self = Self(21);
    pub const CONFLUX_SWITCH: Self = Self(22);
    pub const PADDING_NEGOTIATE: Self = Self(41);
    pub const PADDING_NEGOTIATED: Self = Self(42);
    pub const XOFF: Self = Self(43);
    pub const XON: Self = Self(44);
}

/// A relay message in the body of a decrypted cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayMessage<'a> {
    /// The command.
    pub command: RelayCommand,
    /// The stream ID, zero for the circuit itself.
    pub stream_id: u16,
    /// Its content.
    pub data: &'a [u8],
}

impl<'a> RelayMessage<'a> {
    /// Reads the body of a relay cell that has no layer left, in [`RelayFormat::V0`].
    ///
    /// # Errors
    /// If the stated length exceeds the cell.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("relay cell", body);
        let command = RelayCommand(reader.take_u8()?);
        let _recognized = reader.take_u16()?;
        let stream_id = reader.take_u16()?;
        let _digest = reader.take_u32()?;
        let len = usize::from(reader.take_u16()?);
        Ok(Self { command, stream_id, data: reader.take(len)? })
    }

    /// The body of a relay cell with this message in [`RelayFormat::V0`], without digest and encryption.
    ///
    /// # Errors
    /// If the data exceeds [`MAX_DATA_LEN`].
    pub fn to_body(&self) -> Result<[u8; BODY_LEN], Malformed> {
        let mut body = [0; BODY_LEN];
        self.write_into(&mut body)?;
        Ok(body)
    }

    /// Writes such a body into `body`.
    ///
    /// # Errors
    /// If the data exceeds [`MAX_DATA_LEN`].
    pub fn write_into(&self, body: &mut [u8; BODY_LEN]) -> Result<(), Malformed> {
        RelayFormat::V0.write(self, body)
    }
}

/// Writes the header of a message with this number of bytes of data, without digest.
pub(crate) fn write_header(header: &mut [u8], command: RelayCommand, stream_id: u16, len: usize) {
    header.fill(0);
    header[0] = command.0;
    header[3..5].copy_from_slice(&stream_id.to_be_bytes());
    let len = u16::try_from(len).unwrap_or(u16::MAX);
    header[9..11].copy_from_slice(&len.to_be_bytes());
}
