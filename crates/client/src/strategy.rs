//! How relays are chosen: one trait, one file for each way.
//!
//! A strategy says how much a relay weighs at a position of a path, given those that are chosen already. Everything
//! else is not its business: who may be in a path together, which relays are guards, and the draw itself.

mod geography;
mod latency;
mod measured;
mod ranking;
mod throughput;
mod uniform;
mod weighted;

pub use geography::{GeoRule, Geography};
pub use latency::Latency;
pub use measured::Measured;
pub use ranking::{Claim, Claims, Ranking};
pub use throughput::Throughput;
pub use uniform::Uniform;
pub use weighted::Weighted;
pub(crate) use weighted::position_share;

use crate::path::NoPath;
use crate::view::{RelayInfo, View};
use netdoc::Fingerprint;
use std::fmt;

/// A position in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first hop, which knows the client.
    Guard,
    /// Between the others.
    Middle,
    /// The last hop, which knows the destination.
    Exit,
}

/// A way to choose relays.
pub trait Strategy: fmt::Debug + Send {
    /// Its name, as users give it.
    fn name(&self) -> &'static str;

    /// How much a relay weighs at this position, not below 0: it is chosen with a probability in proportion to that. `chosen` are
    /// the others of the path that are known already; exits are chosen first, then guards, then middles. For a middle they are the
    /// first hop, the exit, and the middles between them in their order. If all weigh nothing,
    /// all are equal.
    fn weight(
        &self,
        view: &View,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> f64;

    /// Whether a relay may be at this position at all. Unlike one that weighs nothing, one that may not is never taken, though there
    /// be no other; then there is no path.
    fn admits(
        &self,
        _view: &View,
        _relay: &RelayInfo,
        _position: Position,
        _chosen: &[&RelayInfo],
    ) -> bool {
        true
    }

    /// Whether the strategy can choose in this network at all. [`candidates`](crate::path::candidates) are all alike where all weigh
    /// nothing, as in tor; a strategy that knows none of the network's relays must not become a uniform choice unnoticed.
    ///
    /// # Errors
    /// [`NoPath`] says what the strategy lacks.
    fn check(&self, _view: &View) -> Result<(), NoPath> {
        Ok(())
    }

    /// A circuit through these relays has come to stand, or has not.
    fn handle_outcome(&mut self, _path: &[Fingerprint], _was_built: bool) {}
}

/// A weight between that of a choice by an index alone and that of a uniform one: *b·i* + (1 − *b*), for an index *i* and an influence *b*,
/// both from 0 to 1. So no relay is chosen more than 1/(1 − *b*) times as often as another, whatever the index says.
#[must_use]
pub fn blend(index: f64, influence: f64) -> f64 {
    let (index, influence) = (index.clamp(0.0, 1.0), influence.clamp(0.0, 1.0));
    influence * index + (1.0 - influence)
}

#[cfg(test)]
mod tests;
