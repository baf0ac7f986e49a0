use super::streams::Streams;
use crate::cell::{CircId, Command};
use crate::circuit::Builder;
use crate::flow::QUEUE_LIMIT_CELLS;
use crate::flow::control::Flow;
use crate::node::ConnId;
use crate::suite::{Body, Cell, Layers, Message, Suite};
use crate::time::{Duration, Instant};
use crate::tunnel::Leg;
use alloc::vec::Vec;

/// What goes by one [`CircuitNumber`](super::CircuitNumber): a tunnel of one leg, and its streams.
#[derive(Debug)]
pub(super) struct Passage<S: Suite> {
    pub(super) circuit: Circuit<S>,
    pub(super) streams: Streams,
}

/// A circuit, from before its first cell to its end.
#[derive(Debug)]
pub(super) struct Circuit<S: Suite> {
    pub(super) conn: ConnId,
    pub(super) circ_id: CircId,
    pub(super) stage: Stage<S>,
    /// When its first cell was sent.
    pub(super) began_at: Instant,
    /// How long after that each hop had answered.
    pub(super) hop_times: Vec<Duration>,
}

/// How far a circuit is.
#[derive(Debug)]
pub(super) enum Stage<S: Suite> {
    Building(Builder<S>),
    Up(Up<S>),
}

/// A finished circuit.
#[derive(Debug)]
pub(super) struct Up<S: Suite> {
    pub(super) layers: S::Layers,
    /// The place of the last hop.
    pub(super) last: usize,
    pub(super) leg: Leg,
}

impl<S: Suite> Circuit<S> {
    pub(super) const fn new(conn: ConnId, circ_id: CircId, builder: Builder<S>) -> Self {
        let stage = Stage::Building(builder);
        let hop_times = Vec::new();
        Self { conn, circ_id, stage, began_at: Instant::ORIGIN, hop_times }
    }

    /// What it consists of, if it stands.
    pub(super) const fn up(&mut self) -> Option<&mut Up<S>> {
        match &mut self.stage {
            Stage::Building(_) => None,
            Stage::Up(up) => Some(up),
        }
    }

    /// The cell of a message to a hop, by its place, or to the last. None unless the circuit stands, has that hop, and the message
    /// fits.
    pub(super) fn seal(
        &mut self,
        hop: Option<usize>,
        message: &Message<S::Stretch<'_>>,
    ) -> Option<S::Cell> {
        let circ_id = self.circ_id;
        let up = self.up()?;
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

impl<S: Suite> Up<S> {
    pub(super) fn new(layers: S::Layers, flow: Flow) -> Self {
        let last = layers.len().saturating_sub(1);
        let leg = Leg::new(flow, layers.format(last), QUEUE_LIMIT_CELLS);
        Self { layers, last, leg }
    }
}
