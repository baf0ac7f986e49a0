//! Messages of flow control (tor-spec §7.3; proposal 324 §4).

use crate::cell::reader::{Malformed, Reader};
use alloc::vec::Vec;

/// The data of a SENDME on a circuit. Those of streams are always empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sendme<'a> {
    /// Version 0: proves nothing.
    Bare,
    /// Version 1: with the tag of the last cell that it acknowledges.
    Tagged(&'a [u8]),
    /// A version that we do not know.
    Unknown(u8),
}

impl<'a> Sendme<'a> {
    /// Reads the data of a SENDME. Bytes after the message are padding.
    ///
    /// # Errors
    /// Where it is cut off.
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

    /// Appends the data. A message of an unknown version is written without content.
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

/// Asks to send nothing more on a stream, until XON (proposal 324 §4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xoff;

impl Xoff {
    /// Reads the data of an XOFF.
    ///
    /// # Errors
    /// Where it is empty, or of another version than 0.
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

/// Asks to send on a stream again, or at another rate (proposal 324 §4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xon {
    /// Thousands of bytes per second that the stream's reader takes; zero: no limit.
    pub advised_kbyte_per_s: u32,
}

impl Xon {
    /// Reads the data of an XON.
    ///
    /// # Errors
    /// Where it is cut off, or of another version than 0.
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
