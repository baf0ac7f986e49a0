//! Conflux messages: linking circuits into one tunnel (proposal 329 §2.2, §2.6).

use crate::cell::reader::{Malformed, Reader};
use alloc::vec::Vec;
use core::fmt;

/// The only version of the handshake.
const VERSION: u8 = 1;

/// FlashFlow's extension: the byte after a LINK or LINKED of a sender that retransmits. The numbers of the leg
/// and of the first leg follow.
const RESUMES: u8 = 3;

/// The first byte of a [`ConfluxNote`].
const LOST_LEGS: u8 = 1;
const ARRIVED: u8 = 2;

/// The secret that the circuits of one set share. Anyone who knows it can inject data into the set's streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfluxNonce(pub [u8; 32]);

/// It must not be logged.
impl fmt::Debug for ConfluxNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfluxNonce(..)")
    }
}

/// The scheduling that the sender of a LINK or LINKED requests from its peer (proposal 329 §2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum DesiredUx {
    /// No preference.
    #[default]
    NoOpinion = 0,
    /// Minimal latency.
    MinLatency = 1,
    /// Minimal latency, with a small reordering buffer.
    LowMemLatency = 2,
    /// Maximal throughput.
    HighThroughput = 3,
    /// Maximal throughput, with a small reordering buffer.
    LowMemThroughput = 4,
}

impl DesiredUx {
    /// All values, in the order of their numbers.
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

/// The data of CONFLUX_LINK and of its answer, CONFLUX_LINKED. That of CONFLUX_LINKED_ACK is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfluxLink {
    /// The nonce of the set.
    pub nonce: ConfluxNonce,
    /// Messages that the sender has sent in the set: zero when the set begins.
    pub last_sent: u64,
    /// Messages that the sender has received in order.
    pub last_received: u64,
    /// The scheduling that the sender requests.
    pub desired: DesiredUx,
    /// Whether the sender keeps unacknowledged messages and can retransmit them on another leg (proposal 329
    /// §2.7). The proposal has no field for it: it is a byte after the message, which other implementations
    /// treat as padding.
    pub resumes: bool,
    /// With retransmission: the client's number for the leg, by which a note names it when it is lost;
    /// otherwise zero. LINKED repeats it.
    pub leg: u8,
    /// With retransmission, in LINKED: the number of the leg with which the relay's set began. A relay that has
    /// lost all legs of a set forgets the set, and counts from zero when the next LINK arrives. The client detects
    /// this by the number. In LINK it has no meaning.
    pub first_leg: u8,
}

impl ConfluxLink {
    /// Reads the data of a LINK or LINKED. Bytes after the message are padding.
    ///
    /// # Errors
    /// If it is truncated, or has values that version 1 does not define.
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
        let (resumes, leg, first_leg) = match *reader.rest() {
            [RESUMES, leg, first_leg, ..] => (true, leg, first_leg),
            _ => (false, 0, 0),
        };
        Ok(Self { nonce, last_sent, last_received, desired, resumes, leg, first_leg })
    }

    /// Appends the data.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.nonce.0);
        out.extend_from_slice(&self.last_sent.to_be_bytes());
        out.extend_from_slice(&self.last_received.to_be_bytes());
        out.push(self.desired as u8);
        if self.resumes {
            out.extend_from_slice(&[RESUMES, self.leg, self.first_leg]);
        }
    }
}

/// The data of CONFLUX_SWITCH: other legs carry messages that precede the next one on this leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfluxSwitch {
    /// The number of these messages since the last message on this leg. With retransmission it is in two's
    /// complement: a retransmitted message may precede the leg's last one.
    pub skipped: u32,
}

impl ConfluxSwitch {
    /// Reads the data of a SWITCH. C tor fills the cell with zeros, which are part of the data.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("CONFLUX_SWITCH", data);
        Ok(Self { skipped: reader.take_u32()? })
    }

    /// Appends the data.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.skipped.to_be_bytes());
    }
}

/// Messages between ends that retransmit: the data of a CONFLUX_LINKED_ACK, which is empty if it acknowledges
/// LINKED. FlashFlow's extension: unmodified relays never get one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfluxNote<'a> {
    /// From the client: these legs are lost, by the numbers in their LINKs. The exit's previous hop may not
    /// know it yet, so the exit does not wait for a DESTROY. From the exit: it waits for messages of these
    /// legs, which deliver nothing.
    LostLegs(&'a [u8]),
    /// The number of stream messages that have arrived on this leg since it was linked. It acknowledges
    /// messages that no SENDME covers.
    Arrived(u64),
}

impl<'a> ConfluxNote<'a> {
    /// Reads the data.
    ///
    /// # Errors
    /// If it is truncated, or of another type.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("CONFLUX_LINKED_ACK", data);
        match reader.take_u8()? {
            LOST_LEGS => Ok(Self::LostLegs(reader.rest())),
            ARRIVED => Ok(Self::Arrived(u64::from_be_bytes(reader.take_array()?))),
            _ => Err(reader.malformed("unknown kind of note")),
        }
    }

    /// Appends the data.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        match self {
            Self::LostLegs(legs) => {
                out.push(LOST_LEGS);
                out.extend_from_slice(legs);
            }
            Self::Arrived(count) => {
                out.push(ARRIVED);
                out.extend_from_slice(&count.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests;
