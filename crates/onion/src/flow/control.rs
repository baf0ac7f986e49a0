//! Flow control of circuits: how many DATA cells an end may have under way (tor-spec §7.3, §7.4;
//! proposal 324).
//!
//! Each end of a circuit that packages DATA cells keeps one [`Flow`]: the rules of a window, behind
//! [`CircuitFlow`], and the tags of cells that wait for a SENDME, which counts only if it proves that the
//! peer has seen the cell that it acknowledges (proposal 289). Whose rules they are is up to a
//! [`FlowFactory`]; a new kind of flow control is one file and another factory.

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

/// What the sender of cells knows of its own way out. For [`Flow::handle_sendme`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// The circuit's cells wait for the link: its streams are not read. See [`BlockedMark`].
    pub is_link_blocked: bool,
    /// Cells of this circuit that wait in the queue to the link.
    pub queued_cells: u32,
}

/// Which end of a circuit somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitEnd {
    /// The one who built it.
    Origin,
    /// The relay where its streams leave the network.
    Exit,
}

/// The rules of one end's flow control of a circuit. Only DATA cells count.
///
/// Nobody but its [`Flow`] calls what changes it: there each SENDME meets the tag of its cell.
pub trait CircuitFlow: fmt::Debug + Send {
    /// DATA cells that may be packaged now.
    fn room_cells(&self) -> u32;

    /// A DATA cell was packaged. True if a SENDME will acknowledge it.
    fn handle_sent(&mut self, now: Instant) -> bool;

    /// An authentic SENDME has come.
    ///
    /// # Errors
    /// Where it acknowledges cells that were not sent.
    fn handle_sendme(&mut self, now: Instant, path: PathState) -> Result<(), FlowError>;

    /// A DATA cell has arrived. True if a SENDME with that cell's tag must be sent now.
    fn handle_received(&mut self) -> bool;

    /// Cells that one SENDME acknowledges.
    fn sendme_cells(&self) -> u32;

    /// The flow control of a new stream of the circuit, at this end of it.
    fn stream(&self, end: CircuitEnd) -> StreamFlow;

    /// What a scheduler of several circuits has to know.
    fn state(&self) -> FlowState {
        FlowState { window_cells: self.room_cells(), ..FlowState::default() }
    }
}

/// What flow control knows of a circuit. Without congestion control there is only room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowState {
    /// Cells that may be under way.
    pub window_cells: u32,
    /// Cells under way.
    pub in_flight_cells: u32,
    /// The average round trip.
    pub rtt: Option<Duration>,
    /// The last that was measured.
    pub last_rtt: Option<Duration>,
    /// The window still grows by each SENDME.
    pub is_in_slow_start: bool,
}

/// One end's flow control of a circuit: rules, and the tags of the cells that wait for a SENDME.
#[derive(Debug)]
pub struct Flow {
    rules: Box<dyn CircuitFlow>,
    tags: SendmeTags,
}

impl Flow {
    /// By these rules, with nothing under way.
    #[must_use]
    pub fn new(rules: Box<dyn CircuitFlow>) -> Self {
        Self { rules, tags: SendmeTags::new() }
    }

    /// The rules, to look at.
    #[must_use]
    pub fn rules(&self) -> &dyn CircuitFlow {
        &*self.rules
    }

    /// DATA cells that may be packaged now.
    #[must_use]
    pub fn room_cells(&self) -> u32 {
        self.rules.room_cells()
    }

    /// A DATA cell was packaged. Asks for its tag if a SENDME will acknowledge it; whether one will.
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

    /// A SENDME has come.
    ///
    /// # Errors
    /// Where no cell waits for it, or it does not prove that its cell was seen.
    pub fn handle_sendme(
        &mut self,
        now: Instant,
        sendme: &Sendme<'_>,
        path: PathState,
    ) -> Result<(), FlowError> {
        // Who proves nothing is nobody's client any more: tor has had tags since 0.4.1.
        self.tags.handle_sendme(sendme, false)?;
        self.rules.handle_sendme(now, path)
    }

    /// A DATA cell has arrived. True if a SENDME with that cell's tag must be sent now.
    #[inline]
    pub fn handle_received(&mut self) -> bool {
        self.rules.handle_received()
    }

    /// What a scheduler of several circuits has to know.
    #[must_use]
    pub fn state(&self) -> FlowState {
        self.rules.state()
    }

    /// SENDMEs that are expected.
    #[must_use]
    pub fn expected_sendmes(&self) -> usize {
        self.tags.len()
    }

    /// Cells that one SENDME acknowledges.
    #[must_use]
    pub fn sendme_cells(&self) -> u32 {
        self.rules.sendme_cells()
    }

    /// The flow control of a new stream of the circuit, at this end of it.
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
