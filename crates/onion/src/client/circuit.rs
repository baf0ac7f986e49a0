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

/// What goes by one [`CircuitNumber`](super::CircuitNumber): a tunnel, and its streams.
#[derive(Debug)]
pub(super) struct Passage<S: CellModel> {
    /// One circuit, or those of a set.
    pub(super) legs: Vec<Circuit<S>>,
    pub(super) streams: Streams,
    /// What the circuits of a set have in common. Without it there is one circuit.
    pub(super) set: Option<Box<LinkedSet<S>>>,
}

impl<S: CellModel> Passage<S> {
    /// The circuit of this number on this link.
    pub(super) fn place(&self, conn: ConnId, circ_id: CircId) -> Option<usize> {
        self.legs.iter().position(|it| it.is(conn, circ_id))
    }

    /// Whether streams may begin.
    pub(super) fn is_ready(&self) -> bool {
        match &self.set {
            None => self.legs.iter().any(|it| matches!(it.stage, Stage::Up(_))),
            Some(set) => set.is_usable,
        }
    }
}

/// A circuit, from before its first cell to its end.
#[derive(Debug)]
pub(super) struct Circuit<S: CellModel> {
    pub(super) conn: ConnId,
    pub(super) circ_id: CircId,
    /// Which leg of its set it is.
    pub(super) leg: u8,
    pub(super) stage: Stage<S>,
    /// When its first cell was sent.
    pub(super) began_at: Instant,
    /// How long after that each hop had answered.
    pub(super) hop_times: Vec<Duration>,
    /// What is under way to the first hop, and what has come from there, if its link has windows from hop to hop.
    pub(super) account: Option<Box<HopAccount>>,
}

/// How far a circuit is.
#[derive(Debug)]
pub(super) enum Stage<S: CellModel> {
    Building(Builder<S>),
    Up(Up<S>),
}

/// A finished circuit.
#[derive(Debug)]
pub(super) struct Up<S: CellModel> {
    pub(super) layers: S::Layers,
    /// The place of the last hop.
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

    /// What it consists of, if it stands.
    pub(super) const fn up(&self) -> Option<&Up<S>> {
        match &self.stage {
            Stage::Building(_) => None,
            Stage::Up(up) => Some(up),
        }
    }

    /// The same, to change it.
    pub(super) const fn up_mut(&mut self) -> Option<&mut Up<S>> {
        match &mut self.stage {
            Stage::Building(_) => None,
            Stage::Up(up) => Some(up),
        }
    }

    /// Whether it is that of this number on this link.
    pub(super) fn is(&self, conn: ConnId, circ_id: CircId) -> bool {
        self.circ_id == circ_id && self.conn == conn
    }

    /// Cells that the first hop takes now.
    pub(super) fn room_cells(&self, now: Instant) -> usize {
        self.account.as_ref().map_or(usize::MAX, |account| account.room_cells(now))
    }

    /// So many cells of it leave for the first hop.
    pub(super) fn handle_left(&mut self, now: Instant, cells: u32) {
        if let Some(account) = &mut self.account {
            account.handle_left(now, cells);
        }
    }

    /// The cell of a message to a hop, by its place, or to the last. None unless the circuit stands, has that hop, and the message
    /// fits.
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
