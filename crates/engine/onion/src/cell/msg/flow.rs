//! Flow control messages (tor-spec §7.3; proposal 324 §4).

use crate::cell::reader::{Malformed, Reader};
use alloc::vec::Vec;

/// The data of a circuit-level SENDME. That of a stream-level SENDME is always empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sendme<'a> {
    /// Version 0: without authentication.
    Bare,
    /// Version 1: with the tag of the last cell that it acknowledges.
    Tagged(&'a [u8]),
    /// An unknown version.
    Unknown(u8),
}

impl<'a> Sendme<'a> {
    /// Reads the data of a SENDME. Bytes after the message are padding.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("SENDME", data);
        if data.is_empty() {
            return Ok(Self::Bare);
        }
        let version = reader.take_u8()?;
        let len = usize::from(reader.take_u16()?);
        let content = reader.take(len)?;
        Ok(match version {
            0 => Self::Bare,
            1 => Self::Tagged(content),
            other => Self::Unknown(other),
        })
    }

    /// Appends the data. A message of unknown version is written without content.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let (version, content) = match self {
            Self::Bare => return,
            Self::Tagged(tag) => (1, *tag),
            Self::Unknown(version) => (*version, &[][..]),
        };
        out.push(version);
        super::push_len_u16(out, content.len());
        out.extend_from_slice(content);
    }
}

/// XOFF: asks the peer to stop sending on a stream until XON (proposal 324 §4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xoff;

impl Xoff {
    /// Reads the data of an XOFF.
    ///
    /// # Errors
    /// If it is empty, or its version is not 0.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("XOFF", data);
        match reader.take_u8()? {
            0 => Ok(Self),
            _ => Err(reader.malformed("unknown version")),
        }
    }

    /// Appends the data.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        out.push(0);
    }
}

/// XON: asks the peer to resume sending on a stream, or changes the rate (proposal 324 §4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xon {
    /// The rate at which the receiver reads the stream, in kB/s; zero for no limit.
    pub advised_kbyte_per_s: u32,
}

impl Xon {
    /// Reads the data of an XON.
    ///
    /// # Errors
    /// If it is truncated, or its version is not 0.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("XON", data);
        match reader.take_u8()? {
            0 => Ok(Self { advised_kbyte_per_s: reader.take_u32()? }),
            _ => Err(reader.malformed("unknown version")),
        }
    }

    /// Appends the data.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        out.push(0);
        out.extend_from_slice(&self.advised_kbyte_per_s.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
