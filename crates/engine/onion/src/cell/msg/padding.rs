//! Padding negotiation (padding-spec §2.2 and §3).

use crate::cell::reader::{Malformed, Reader};
use alloc::vec::Vec;

/// Start or stop; the numbers are the same on links and circuits.
const STOP: u8 = 1;
const START: u8 = 2;

fn take_version(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    match reader.take_u8()? {
        0 => Ok(()),
        _ => Err(reader.malformed("unknown version")),
    }
}

fn take_is_start(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.take_u8()? {
        STOP => Ok(false),
        START => Ok(true),
        _ => Err(reader.malformed("neither start nor stop")),
    }
}

const fn command(is_start: bool) -> u8 {
    if is_start { START } else { STOP }
}

/// The body of a PADDING_NEGOTIATE cell: a client's request for padding by the relay (padding-spec §2.2).
/// Relays do not send it.
///
/// C tor obeys it only as a relay, and only if `low_ms` is not below the consensus parameter `nf_ito_low`. On a
/// link with padding, the relay sends a PADDING cell after a random time between `low_ms` and `high_ms` without
/// cells in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPadding {
    /// Whether to pad.
    pub is_wanted: bool,
    /// Minimum idle time before a PADDING cell, in milliseconds; zero for the consensus parameter.
    pub low_ms: u16,
    /// Maximum idle time, in milliseconds; zero for the consensus parameter.
    pub high_ms: u16,
}

impl LinkPadding {
    /// Reads the body of a PADDING_NEGOTIATE cell.
    ///
    /// # Errors
    /// If it is truncated, of another version than 0, or neither starts nor stops padding. It is to be ignored
    /// then.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("PADDING_NEGOTIATE", body);
        take_version(&mut reader)?;
        let is_wanted = take_is_start(&mut reader)?;
        Ok(Self { is_wanted, low_ms: reader.take_u16()?, high_ms: reader.take_u16()? })
    }

    /// Appends the body.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, command(self.is_wanted)]);
        out.extend_from_slice(&self.low_ms.to_be_bytes());
        out.extend_from_slice(&self.high_ms.to_be_bytes());
    }
}

/// The data of a PADDING_NEGOTIATE relay message: a client starts or stops a padding machine at a hop
/// (padding-spec §3.1). Only for relays that announce `Padding=2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPadding {
    /// Whether to start or to stop the machine.
    pub is_start: bool,
    /// The machine's type.
    pub machine: u8,
    /// Whether the machine should echo padding.
    pub wants_echo: bool,
    /// Distinguishes this instance of the machine from earlier ones on the circuit.
    pub counter: u32,
}

impl CircuitPadding {
    /// Reads the data of a PADDING_NEGOTIATE relay message.
    ///
    /// # Errors
    /// If it is truncated, or a field has an invalid value. C tor then drops the message and keeps the circuit.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("PADDING_NEGOTIATE", data);
        take_version(&mut reader)?;
        let is_start = take_is_start(&mut reader)?;
        let machine = reader.take_u8()?;
        let wants_echo = match reader.take_u8()? {
            0 => false,
            1 => true,
            _ => return Err(reader.malformed("the echo field is neither 0 nor 1")),
        };
        Ok(Self { is_start, machine, wants_echo, counter: reader.take_u32()? })
    }

    /// Appends the data.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[
            0,
            command(self.is_start),
            self.machine,
            u8::from(self.wants_echo),
        ]);
        out.extend_from_slice(&self.counter.to_be_bytes());
    }

    /// The answer of a relay without padding machines: an error to a start request. A stop request needs no
    /// answer.
    #[must_use]
    pub const fn refusal(self) -> Option<CircuitPaddingAnswer> {
        if !self.is_start {
            return None;
        }
        let Self { is_start, machine, counter, .. } = self;
        Some(CircuitPaddingAnswer { is_start, is_done: false, machine, counter })
    }
}

/// The data of a PADDING_NEGOTIATED relay message: the hop's answer to [`CircuitPadding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPaddingAnswer {
    /// The requested operation: start or stop.
    pub is_start: bool,
    /// Whether it succeeded.
    pub is_done: bool,
    /// Which machine.
    pub machine: u8,
    /// As in the request.
    pub counter: u32,
}

impl CircuitPaddingAnswer {
    const DONE: u8 = 1;
    const REFUSED: u8 = 2;

    /// Reads the data of a PADDING_NEGOTIATED relay message.
    ///
    /// # Errors
    /// If it is truncated, or a field has an invalid value.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("PADDING_NEGOTIATED", data);
        take_version(&mut reader)?;
        let is_start = take_is_start(&mut reader)?;
        let is_done = match reader.take_u8()? {
            Self::DONE => true,
            Self::REFUSED => false,
            _ => return Err(reader.malformed("neither done nor refused")),
        };
        Ok(Self { is_start, is_done, machine: reader.take_u8()?, counter: reader.take_u32()? })
    }

    /// Appends the data.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        let response = if self.is_done { Self::DONE } else { Self::REFUSED };
        out.extend_from_slice(&[0, command(self.is_start), response, self.machine]);
        out.extend_from_slice(&self.counter.to_be_bytes());
    }
}
