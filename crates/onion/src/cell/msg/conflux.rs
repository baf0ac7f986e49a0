//! Messages of Conflux: circuits that are linked into one tunnel (proposal 329 §2.2, §2.6).

use crate::cell::reader::{Malformed, Reader};
use alloc::vec::Vec;
use core::fmt;

/// The only version of the handshake that there is.
const VERSION: u8 = 1;

/// The byte behind a LINK or LINKED of a sender that can send again; the leg's number follows. An own extension.
const RESUMES: u8 = 2;

/// The first byte of a [`ConfluxNote`].
const GONE: u8 = 1;
const CAME: u8 = 2;

/// What circuits of one set have in common, and nobody else knows: who has it can put data into its streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfluxNonce(pub [u8; 32]);

/// Never in a log.
impl fmt::Debug for ConfluxNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfluxNonce(..)")
    }
}

/// How the sender of a LINK or LINKED wants data sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum DesiredUx {
    /// As the other end likes.
    #[default]
    NoOpinion = 0,
    /// As soon as can be.
    MinLatency = 1,
    /// The same, with little that waits for what comes before it.
    LowMemLatency = 2,
    /// As much as can be.
    HighThroughput = 3,
    /// The same, with little that waits for what comes before it.
    LowMemThroughput = 4,
}

impl DesiredUx {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::NoOpinion,
        Self::MinLatency,
        Self::LowMemLatency,
        Self::HighThroughput,
        Self::LowMemThroughput,
    ];

    fn new(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The data of CONFLUX_LINK, and of CONFLUX_LINKED, which answers it. That of CONFLUX_LINKED_ACK is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfluxLink {
    /// The set that the circuit is to be a leg of.
    pub nonce: ConfluxNonce,
    /// Messages that its sender has sent in the set: zero when the set begins.
    pub last_sent: u64,
    /// Messages that have come to its sender in order.
    pub last_received: u64,
    /// How its sender wants data sent to it.
    pub desired: DesiredUx,
    /// Its sender keeps what is not acknowledged, and can send it again on another leg (proposal 329 §2.7). The proposal has no
    /// sign for it: it is a byte behind the message, where others see padding.
    pub resumes: bool,
    /// If it can: the client's number for the leg, by which it says later that it is gone; else zero. LINKED repeats it.
    pub leg: u8,
}

impl ConfluxLink {
    /// Reads the data of a LINK or LINKED. Bytes after the message are padding.
    ///
    /// # Errors
    /// Where it is cut off, or says what version 1 does not know.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("CONFLUX_LINK", data);
        if reader.take_u8()? != VERSION {
            return Err(reader.malformed("unknown version"));
        }
        let nonce = ConfluxNonce(reader.take_array()?);
        let last_sent = u64::from_be_bytes(reader.take_array()?);
        let last_received = u64::from_be_bytes(reader.take_array()?);
        let desired = DesiredUx::new(reader.take_u8()?);
        let desired = desired.ok_or(reader.malformed("unknown action"))?;
        let (resumes, leg) = match *reader.rest() {
            [RESUMES, leg, ..] => (true, leg),
            _ => (false, 0),
        };
        Ok(Self { nonce, last_sent, last_received, desired, resumes, leg })
    }

    /// Appends the data.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.nonce.0);
        out.extend_from_slice(&self.last_sent.to_be_bytes());
        out.extend_from_slice(&self.last_received.to_be_bytes());
        out.push(self.desired as u8);
        if self.resumes {
            out.extend_from_slice(&[RESUMES, self.leg]);
        }
    }
}

/// The data of CONFLUX_SWITCH: what follows on this leg comes after messages that other legs carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfluxSwitch {
    /// How many, since the last message on this leg. Between ends that send again, a number in two's complement: what is sent
    /// again may come before what the leg has carried.
    pub skipped: u32,
}

impl ConfluxSwitch {
    /// Reads the data of a SWITCH. C tor fills the cell with zeros, which belong to the data.
    ///
    /// # Errors
    /// Where it is cut off.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("CONFLUX_SWITCH", data);
        Ok(Self { skipped: reader.take_u32()? })
    }

    /// Appends the data.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.skipped.to_be_bytes());
    }
}

/// What ends that send again tell each other: the data of a CONFLUX_LINKED_ACK, which is empty where it acknowledges LINKED. An own
/// extension: no stock relay gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfluxNote<'a> {
    /// The client has lost these legs, by the numbers in their LINKs: the exit does not wait until it hears of it from the
    /// relay before it, which may not know. From the exit: it waits for what these legs have, and they bring nothing.
    Gone(&'a [u8]),
    /// So many messages of streams have come on the leg that this comes on, since it was linked. It acknowledges those that no
    /// SENDME does.
    Came(u64),
}

impl<'a> ConfluxNote<'a> {
    /// Reads the data.
    ///
    /// # Errors
    /// Where it is cut off, or of another kind.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("CONFLUX_LINKED_ACK", data);
        match reader.take_u8()? {
            GONE => Ok(Self::Gone(reader.rest())),
            CAME => Ok(Self::Came(u64::from_be_bytes(reader.take_array()?))),
            _ => Err(reader.malformed("unknown kind of note")),
        }
    }

    /// Appends the data.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        match self {
            Self::Gone(legs) => {
                out.push(GONE);
                out.extend_from_slice(legs);
            }
            Self::Came(count) => {
                out.push(CAME);
                out.extend_from_slice(&count.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests;
