use super::set::LinkedSet;
use super::streams::Streams;
use crate::cell::{CircId, Command};
use crate::cell_model::{Body, Cell, CellModel, Layers, Message};
use crate::circuit::Builder;
use crate::flow::QUEUE_LIMIT_CELLS;
use crate::flow::control::Flow;
use crate::flow::hop::HopAccount;
use crate::node::ConnId;
use crate::time::{Duration, Instant};
use crate::tunnel::Leg;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A tunnel and its streams, named by one [`CircuitNumber`](super::CircuitNumber).
#[derive(Debug)]
pub(super) struct Passage<S: CellModel> {
    /// One circuit, or those of a set.
    pub(super) legs: Vec<Circuit<S>>,
    pub(super) streams: Streams,
    /// The state shared by the circuits of a set. `None` for a single circuit.
    pub(super) set: Option<Box<LinkedSet<S>>>,
}

impl<S: CellModel> Passage<S> {
    /// The circuit with this ID on this link.
    pub(super) fn place(&self, conn: ConnId, circ_id: CircId) -> Option<usize> {
        self.legs.iter().position(|leg| leg.is(conn, circ_id))
    }

    /// Whether streams may begin.
    pub(super) fn is_ready(&self) -> bool {
        match &self.set {
            None => self.legs.iter().any(|leg| matches!(leg.stage, Stage::Up(_))),
            Some(set) => set.is_usable,
        }
    }
}

/// A circuit, from before its first cell to its end.
#[derive(Debug)]
pub(super) struct Circuit<S: CellModel> {
    pub(super) conn: ConnId,
    pub(super) circ_id: CircId,
    /// Its number in its set.
    pub(super) leg: u8,
    pub(super) stage: Stage<S>,
    /// When its first cell was sent.
    pub(super) began_at: Instant,
    /// The time from then to each hop's answer.
    pub(super) hop_times: Vec<Duration>,
    /// The state of its hop-by-hop window, if its link has one.
    pub(super) account: Option<Box<HopAccount>>,
}

/// The state of a circuit.
#[derive(Debug)]
pub(super) enum Stage<S: CellModel> {
    Building(Builder<S>),
    Up(Up<S>),
}

/// A finished circuit.
#[derive(Debug)]
pub(super) struct Up<S: CellModel> {
    pub(super) layers: S::Layers,
    /// The index of the last hop.
    pub(super) last: usize,
    pub(super) leg: Leg,
}

impl<S: CellModel> Circuit<S> {
    pub(super) const fn new(conn: ConnId, circ_id: CircId, leg: u8, builder: Builder<S>) -> Self {
        let stage = Stage::Building(builder);
        let hop_times = Vec::new();
        let began_at = Instant::ORIGIN;
        Self { conn, circ_id, leg, stage, began_at, hop_times, account: None }
    }

    /// The finished circuit, if it is open.
    pub(super) const fn up(&self) -> Option<&Up<S>> {
        match &self.stage {
            Stage::Building(_) => None,
            Stage::Up(up) => Some(up),
        }
    }

    /// The finished circuit, mutably.
    pub(super) const fn up_mut(&mut self) -> Option<&mut Up<S>> {
        match &mut self.stage {
            Stage::Building(_) => None,
            Stage::Up(up) => Some(up),
        }
    }

    /// Whether it has this ID on this link.
    pub(super) fn is(&self, conn: ConnId, circ_id: CircId) -> bool {
        self.circ_id == circ_id && self.conn == conn
    }

    /// Cells that the hop-by-hop window allows to send.
    pub(super) fn room_cells(&self, now: Instant) -> usize {
        self.account.as_ref().map_or(usize::MAX, |account| account.room_cells(now))
    }

    /// Cells of the circuit are sent to the first hop.
    pub(super) fn handle_left(&mut self, now: Instant, cells: u32) {
        if let Some(account) = &mut self.account {
            account.handle_left(now, cells);
        }
    }

    /// The cell of a message to the hop at this index, or to the last hop. `None` if the circuit is not open,
    /// has no such hop, or the message does not fit.
    pub(super) fn seal(
        &mut self,
        hop: Option<usize>,
        message: &Message<S::PayloadSlice<'_>>,
    ) -> Option<S::Cell> {
        let circ_id = self.circ_id;
        let up = self.up_mut()?;
        let hop = hop.unwrap_or(up.last);
        if hop > up.last {
            return None;
        }
        let format = up.layers.format(hop);
        let mut cell = S::Cell::EMPTY;
        let body = cell.begin(circ_id, Command::RELAY);
        body.write(format, message).ok()?;
        up.layers.seal(hop, Command::RELAY, body);
        Some(cell)
    }
}

impl<S: CellModel> Up<S> {
    pub(super) fn new(layers: S::Layers, flow: Flow) -> Self {
        let last = layers.len().saturating_sub(1);
        let leg = Leg::new(flow, layers.format(last), QUEUE_LIMIT_CELLS);
        Self { layers, last, leg }
    }
}
