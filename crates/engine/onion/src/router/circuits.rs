//! Circuits through this relay, and circuits that end at it.

mod circuit;
mod create;
mod destroy;
mod extend;
mod handshakes;
mod queue;

pub use circuit::OnLink;
pub(super) use circuit::{
    Circuit, CircuitIndex, Circuits, Direction, End, Hop, NextLink, QueueId, RelayTunnel,
    TunnelIndex, Tunnels,
};
pub use handshakes::{HandshakeDone, HandshakeJob};
pub(super) use handshakes::{Handshakes, Requester};
pub(super) use queue::{CellQueue, Enqueued};
