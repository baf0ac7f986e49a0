//! Circuits that pass through the relay, or end at it.

mod circuit;
mod create;
mod destroy;
mod extend;
mod queue;

pub use circuit::OnLink;
pub(super) use circuit::{
    Circuit, CircuitIndex, Circuits, End, Hop, Onward, RelayTunnel, TunnelIndex, Tunnels, Way,
};
pub(super) use queue::{CellQueue, Joined};
