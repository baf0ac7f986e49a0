//! Flow control of circuits: how many DATA cells an end may have in flight (tor-spec §7.3, §7.4; proposal 324).
//!
//! Each end of a circuit that packages DATA cells has one [`Flow`]: the rules of a window, behind
//! [`CircuitFlow`], and the tags of cells that wait for a SENDME. A SENDME must prove that the peer has
//! received the cell that it acknowledges (proposal 289). A [`FlowFactory`] provides the rules; a new kind of
//! flow control is one file and another factory.
//!
//! A [`Flow`] owns its rules *and* the tags, so that no caller can pair them wrongly.

mod blocked;
mod factory;
mod fixed;
mod params;
mod tags;
mod vegas;

pub use blocked::BlockedMark;
pub use factory::{Agreed, FlowFactory, TorFlows};
pub use fixed::FixedWindow;
pub use params::{CongestionParams, PathKind, QueueLimits};
pub use tags::{SendmeTag, SendmeTags};
pub use vegas::Vegas;

pub use super::error::FlowError;

use super::stream::StreamFlow;
use crate::cell::msg::Sendme;
use crate::time::{Duration, Instant};
use alloc::boxed::Box;
use core::fmt;

/// The sender's view of its queue, for [`Flow::handle_sendme`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Whether the circuit's queue is too long for its streams to be read. See [`BlockedMark`].
    pub is_link_blocked: bool,
    /// Cells of this circuit in the queue to the link.
    pub queued_cells: u32,
}

/// An end of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitEnd {
    /// The origin.
    Origin,
    /// The relay where its streams leave the network.
    Exit,
}

/// The rules of flow control at one end of a circuit. Only DATA cells count.
///
/// Only its [`Flow`] calls the mutating methods: it matches each SENDME with the tag of its cell.
pub trait CircuitFlow: fmt::Debug + Send {
    /// DATA cells that may be packaged now.
    fn room_cells(&self) -> u32;

    /// A DATA cell was packaged. Returns true if a SENDME will acknowledge it.
    fn handle_sent(&mut self, now: Instant) -> bool;

    /// An authenticated SENDME has arrived.
    ///
    /// # Errors
    /// If it acknowledges cells that were not sent.
    fn handle_sendme(&mut self, now: Instant, path: PathState) -> Result<(), FlowError>;

    /// A DATA cell has arrived. Returns true if a SENDME with that cell's tag must be sent now.
    fn handle_received(&mut self) -> bool;

    /// The number of cells that one SENDME acknowledges.
    fn sendme_cells(&self) -> u32;

    /// The flow control of a new stream at this end of the circuit.
    fn stream(&self, end: CircuitEnd) -> StreamFlow;

    /// The state for a scheduler of several circuits.
    fn state(&self) -> FlowState {
        FlowState { window_cells: self.room_cells(), ..FlowState::default() }
    }
}

/// The state of a circuit's flow control. Without congestion control only the space is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowState {
    /// The congestion window, in cells.
    pub window_cells: u32,
    /// Cells in flight.
    pub in_flight_cells: u32,
    /// The average round-trip time.
    pub rtt: Option<Duration>,
    /// The last measured round-trip time.
    pub last_rtt: Option<Duration>,
    /// Whether it is in slow start.
    pub is_in_slow_start: bool,
}

/// Flow control at one end of a circuit: its rules, and the tags of cells that wait for a SENDME.
#[derive(Debug)]
pub struct Flow {
    rules: Box<dyn CircuitFlow>,
    tags: SendmeTags,
}

impl Flow {
    /// With these rules and no cells in flight.
    #[must_use]
    pub fn new(rules: Box<dyn CircuitFlow>) -> Self {
        Self { rules, tags: SendmeTags::new() }
    }

    /// The rules, for inspection.
    #[must_use]
    pub fn rules(&self) -> &dyn CircuitFlow {
        &*self.rules
    }

    /// DATA cells that may be packaged now.
    #[must_use]
    pub fn room_cells(&self) -> u32 {
        self.rules.room_cells()
    }

    /// A DATA cell was packaged. Calls `tag` if a SENDME will acknowledge the cell; returns whether one will.
    #[inline]
    pub fn handle_sent<T: Into<SendmeTag>>(
        &mut self,
        now: Instant,
        tag: impl FnOnce() -> T,
    ) -> bool {
        let is_marked = self.rules.handle_sent(now);
        if is_marked {
            self.tags.expect(tag());
        }
        is_marked
    }

    /// A SENDME has arrived.
    ///
    /// # Errors
    /// If no cell waits for it, or it does not prove that its cell was received.
    pub fn handle_sendme(
        &mut self,
        now: Instant,
        sendme: &Sendme<'_>,
        path: PathState,
    ) -> Result<(), FlowError> {
        // SENDMEs without tag are refused: tor has had tags since 0.4.1.
        self.tags.handle_sendme(sendme, false)?;
        self.rules.handle_sendme(now, path)
    }

    /// A DATA cell has arrived. Returns true if a SENDME with that cell's tag must be sent now.
    #[inline]
    pub fn handle_received(&mut self) -> bool {
        self.rules.handle_received()
    }

    /// The state for a scheduler of several circuits.
    #[must_use]
    pub fn state(&self) -> FlowState {
        self.rules.state()
    }

    /// The number of expected SENDMEs.
    #[must_use]
    pub fn expected_sendmes(&self) -> usize {
        self.tags.len()
    }

    /// The number of cells that one SENDME acknowledges.
    #[must_use]
    pub fn sendme_cells(&self) -> u32 {
        self.rules.sendme_cells()
    }

    /// The flow control of a new stream at this end of the circuit.
    #[must_use]
    pub fn stream(&self, end: CircuitEnd) -> StreamFlow {
        self.rules.stream(end)
    }
}

impl Default for Flow {
    /// Fixed windows.
    fn default() -> Self {
        Self::new(Box::new(FixedWindow::default()))
    }
}

#[cfg(test)]
mod tests;
