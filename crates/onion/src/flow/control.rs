//! Flow control of circuits: how many DATA cells an end may have under way (tor-spec §7.3, §7.4;
//! proposal 324).
//!
//! Each end of a circuit that packages DATA cells keeps one [`Flow`]. It also keeps [`SendmeTags`]: a
//! SENDME counts only if it proves that the peer has seen the cell that it acknowledges
//! (proposal 289).

mod blocked;
mod fixed;
mod params;
mod tags;
mod vegas;

pub use blocked::BlockedMark;
pub use fixed::FixedWindow;
pub use params::{CongestionParams, PathKind, QueueLimits};
pub use tags::{SENDME_TAG_LEN, SendmeTags};
pub use vegas::Vegas;

use super::stream::{StreamFlow, StreamWindow, XonXoff};
use crate::time::Instant;
use alloc::boxed::Box;
use core::fmt;

/// What the sender of cells knows of its own way out. For [`CircuitFlow::handle_sendme`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// The circuit's cells wait for the link: its streams are not read. See [`BlockedMark`].
    pub is_link_blocked: bool,
    /// Cells of this circuit that wait in the queue to the link.
    pub queued_cells: u32,
}

/// Why a message of flow control is refused. The circuit must be closed, with the reason
/// "protocol violation".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowError {
    /// A SENDME when no cell waits for one.
    UnexpectedSendme,
    /// The SENDME's tag is not that of the cell that it acknowledges.
    WrongTag,
    /// A version of SENDME that proves nothing, or that nobody knows.
    SendmeVersion(u8),
    /// Stream SENDMEs on a circuit with congestion control, or XON and XOFF on one without.
    WrongKind,
    /// A second XOFF without XON between them.
    RepeatedXoff,
    /// More cells have come than the window allows.
    WindowExceeded,
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnexpectedSendme => f.write_str("SENDME though no cell waits for one"),
            Self::WrongTag => f.write_str("SENDME does not prove that its cells have come"),
            Self::SendmeVersion(version) => write!(f, "SENDME of version {version}"),
            Self::WrongKind => f.write_str("flow control that was not agreed on for the circuit"),
            Self::RepeatedXoff => f.write_str("XOFF on a stream that is stopped already"),
            Self::WindowExceeded => f.write_str("more cells than the window allows"),
        }
    }
}

impl core::error::Error for FlowError {}

/// One end's flow control of a circuit. Only DATA cells count.
pub trait CircuitFlow {
    /// DATA cells that may be packaged now.
    fn room_cells(&self) -> u32;

    /// A DATA cell was packaged. True if a SENDME will acknowledge it: keep its tag in
    /// [`SendmeTags`].
    fn handle_sent(&mut self, now: Instant) -> bool;

    /// An authentic SENDME has come: [`SendmeTags::handle_sendme`] has accepted it.
    ///
    /// # Errors
    /// Where it acknowledges cells that were not sent.
    fn handle_sendme(&mut self, now: Instant, path: PathState) -> Result<(), FlowError>;

    /// A DATA cell has arrived. True if a SENDME with that cell's tag must be sent now.
    fn handle_received(&mut self) -> bool;
}

/// The flow control that the ends of a circuit have agreed on.
///
/// Small, since most circuits at a relay only pass through: Vegas is on the heap.
#[derive(Clone, Debug)]
pub enum Flow {
    /// Windows of fixed size; streams have windows, too.
    Fixed(FixedWindow),
    /// Congestion control; streams have XON and XOFF.
    Vegas(Box<Vegas>),
}

impl Default for Flow {
    fn default() -> Self {
        Self::Fixed(FixedWindow::default())
    }
}

impl Flow {
    /// Whether streams have XON and XOFF, and not windows.
    #[must_use]
    pub const fn has_congestion_control(&self) -> bool {
        matches!(self, Self::Vegas(_))
    }

    /// The flow control of a new stream of this circuit, at the edge of a relay.
    #[must_use]
    pub fn exit_stream(&self) -> StreamFlow {
        match self {
            Self::Fixed(_) => StreamFlow::Windowed(StreamWindow::default()),
            Self::Vegas(vegas) => StreamFlow::Rated(XonXoff::new(vegas.params().exit_streams)),
        }
    }

    /// The flow control of a new stream of this circuit, at the edge of a client.
    #[must_use]
    pub fn client_stream(&self) -> StreamFlow {
        match self {
            Self::Fixed(_) => StreamFlow::Windowed(StreamWindow::default()),
            Self::Vegas(vegas) => StreamFlow::Rated(XonXoff::new(vegas.params().client_streams)),
        }
    }
}

impl CircuitFlow for Flow {
    fn room_cells(&self) -> u32 {
        match self {
            Self::Fixed(window) => window.room_cells(),
            Self::Vegas(vegas) => vegas.room_cells(),
        }
    }

    fn handle_sent(&mut self, now: Instant) -> bool {
        match self {
            Self::Fixed(window) => window.handle_sent(now),
            Self::Vegas(vegas) => vegas.handle_sent(now),
        }
    }

    fn handle_sendme(&mut self, now: Instant, path: PathState) -> Result<(), FlowError> {
        match self {
            Self::Fixed(window) => window.handle_sendme(now, path),
            Self::Vegas(vegas) => vegas.handle_sendme(now, path),
        }
    }

    fn handle_received(&mut self) -> bool {
        match self {
            Self::Fixed(window) => window.handle_received(),
            Self::Vegas(vegas) => vegas.handle_received(),
        }
    }
}

#[cfg(test)]
mod tests;
