//! Cells of link protocols 4 and 5 (tor-spec §3).
//!
//! A [`Cell`] is a view over bytes stored elsewhere: in the driver's receive buffer, or in the [`Framer`]'s
//! carry buffer if the cell straddles two receive buffers. [`msg`] and [`relay`] define the bodies.

mod framer;
pub mod msg;
mod reader;
pub mod relay;

pub use framer::{FrameError, Framer, MAX_VARIABLE_BODY_LEN};
pub use reader::{Malformed, Reader};

use alloc::vec::Vec;
use core::fmt;

/// Bytes in the body of a fixed-length cell (tor-spec §3, `PAYLOAD_LEN`).
pub const BODY_LEN: usize = 509;

/// Bytes of a fixed-length cell on the wire: circuit ID (4), command (1), body.
pub const CELL_LEN: usize = 5 + BODY_LEN;

/// The number of whole cells that fit into one TLS record (at most 16,384 bytes of plaintext).
pub const CELLS_PER_RECORD: usize = 31;

/// The negotiated version of the link protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkProtocol {
    /// Version 4: circuit IDs of four bytes.
    V4,
    /// Version 5: as 4, with link padding negotiation.
    V5,
    /// FlashFlow's extension: version 5, and each side reports forwarded cells by FEEDBACK
    /// (`docs/protocol.md`).
    V5WithFeedback,
}

impl LinkProtocol {
    /// The versions offered in a VERSIONS cell.
    pub const SUPPORTED: [u16; 2] = [4, 5];

    /// The versions offered with hop-by-hop windows. A peer that does not know the last number ignores it, like
    /// any unknown version (tor-spec, "Negotiating and initializing channels"); Tor numbers its own versions
    /// from 1.
    pub const SUPPORTED_WITH_FEEDBACK: [u16; 3] = [4, 5, 0x4646];

    /// The versions to offer, with or without hop-by-hop windows.
    #[must_use]
    pub const fn offer(has_feedback: bool) -> &'static [u16] {
        if has_feedback { &Self::SUPPORTED_WITH_FEEDBACK } else { &Self::SUPPORTED }
    }

    /// The highest version that the peer offers and we support.
    #[must_use]
    pub fn negotiate(offered: impl Iterator<Item = u16>) -> Option<Self> {
        Self::highest(&Self::SUPPORTED, offered)
    }

    /// The highest version that both sides have offered.
    #[must_use]
    pub fn highest(ours: &[u16], theirs: impl Iterator<Item = u16>) -> Option<Self> {
        let both = theirs.filter(|version| ours.contains(version));
        both.filter_map(|version| match version {
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            0x4646 => Some(Self::V5WithFeedback),
            _ => None,
        })
        .max()
    }
}

/// A circuit ID on one connection; zero for cells that concern the connection itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircId(u32);

impl CircId {
    /// "This connection" instead of a circuit.
    pub const LINK: Self = Self(0);

    /// The ID with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The `n`th ID that the initiator of a connection may choose: top bit set (tor-spec §5.1.1).
    #[must_use]
    pub const fn of_initiator(n: u32) -> Self {
        Self((n & 0x7fff_ffff) | 0x8000_0000)
    }

    /// The `n`th ID that the other side may choose: top bit clear. [`LINK`](Self::LINK) for multiples
    /// of 2³¹.
    #[must_use]
    pub const fn of_responder(n: u32) -> Self {
        Self(n & 0x7fff_ffff)
    }

    /// Whether the initiator of a connection may choose this ID.
    #[must_use]
    pub const fn is_of_initiator(self) -> bool {
        self.0 >= 0x8000_0000
    }

    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for CircId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// The command of a cell (tor-spec §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Command(u8);

#[allow(missing_docs, reason = "each is the command of that name in tor-spec §3")]
impl Command {
    pub const PADDING: Self = Self(0);
    pub const CREATE: Self = Self(1);
    pub const RELAY: Self = Self(3);
    pub const DESTROY: Self = Self(4);
    pub const CREATE_FAST: Self = Self(5);
    pub const CREATED_FAST: Self = Self(6);
    pub const VERSIONS: Self = Self(7);
    pub const NETINFO: Self = Self(8);
    pub const RELAY_EARLY: Self = Self(9);
    pub const CREATE2: Self = Self(10);
    pub const CREATED2: Self = Self(11);
    pub const PADDING_NEGOTIATE: Self = Self(12);
    pub const VPADDING: Self = Self(128);
    pub const CERTS: Self = Self(129);
    pub const AUTH_CHALLENGE: Self = Self(130);
    pub const AUTHENTICATE: Self = Self(131);
    pub const AUTHORIZE: Self = Self(132);
    /// FlashFlow's extension (`docs/protocol.md`). Relays that do not know it ignore it.
    pub const MEASURE: Self = Self(160);
    /// FlashFlow's extension: reports of forwarded cells. Only on links of [`LinkProtocol::V5WithFeedback`].
    pub const FEEDBACK: Self = Self(161);

    /// The command with this number on the wire, known or not.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether cells with this command have a length field (VERSIONS, and 128 and above).
    #[must_use]
    pub const fn is_variable_length(self) -> bool {
        self.0 >= 128 || self.0 == Self::VERSIONS.0
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::PADDING => "PADDING",
            Self::CREATE => "CREATE",
            Self::RELAY => "RELAY",
            Self::DESTROY => "DESTROY",
            Self::CREATE_FAST => "CREATE_FAST",
            Self::CREATED_FAST => "CREATED_FAST",
            Self::VERSIONS => "VERSIONS",
            Self::NETINFO => "NETINFO",
            Self::RELAY_EARLY => "RELAY_EARLY",
            Self::CREATE2 => "CREATE2",
            Self::CREATED2 => "CREATED2",
            Self::PADDING_NEGOTIATE => "PADDING_NEGOTIATE",
            Self::VPADDING => "VPADDING",
            Self::CERTS => "CERTS",
            Self::AUTH_CHALLENGE => "AUTH_CHALLENGE",
            Self::AUTHENTICATE => "AUTHENTICATE",
            Self::AUTHORIZE => "AUTHORIZE",
            Self::MEASURE => "MEASURE",
            Self::FEEDBACK => "FEEDBACK",
            Self(other) => return write!(f, "command {other}"),
        };
        f.write_str(name)
    }
}

/// One cell, borrowed from the buffer that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    /// The circuit it belongs to.
    pub circ_id: CircId,
    /// The command.
    pub command: Command,
    /// The body: 509 bytes for a fixed-length command, otherwise of the length that the cell states.
    pub body: &'a [u8],
}

impl Cell<'_> {
    /// Appends the encoded cell for link protocol 4 or 5, padded with zeros to full length.
    ///
    /// # Panics
    /// Never for cells from a [`Framer`]. A body that is too long for its command is truncated.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.circ_id.get().to_be_bytes());
        out.push(self.command.get());
        if self.command.is_variable_length() {
            let len = u16::try_from(self.body.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&self.body[..usize::from(len)]);
        } else {
            let body = &self.body[..self.body.len().min(BODY_LEN)];
            out.extend_from_slice(body);
            out.resize(out.len() + BODY_LEN - body.len(), 0);
        }
    }
}

/// Writes the five header bytes of a fixed-length cell and returns its body to be filled.
///
/// For the hot path, which writes cells directly into a transmit buffer.
#[inline]
pub fn begin_fixed(
    slot: &mut [u8; CELL_LEN],
    circ_id: CircId,
    command: Command,
) -> &mut [u8; BODY_LEN] {
    debug_assert!(!command.is_variable_length());
    slot[..4].copy_from_slice(&circ_id.get().to_be_bytes());
    slot[4] = command.get();
    let Some(body) = slot.last_chunk_mut() else { unreachable!("a cell is longer than its body") };
    body
}
