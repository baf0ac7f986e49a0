//! Strategies for selecting relays: one trait, one file for each implementation.
//!
//! A strategy weighs relays for a position of a path, given those already selected. It does not
//! know which relays may share a path, which are guards, or how relays are drawn.

mod geography;
mod latency;
mod measured;
mod ranking;
mod throughput;
mod uniform;
mod weighted;
mod weighted_2007;

pub use crate::netdir::Position;
pub use geography::{GeoRule, Geography};
pub use latency::Latency;
pub use measured::Measured;
pub use ranking::{Claim, Claims, Ranking};
pub use throughput::Throughput;
pub use uniform::Uniform;
pub use weighted::Weighted;
pub use weighted_2007::Weighted2007;

use crate::netdir::{NetDir, RelayInfo};
use netdoc::RsaId;
use std::fmt;

/// Why no path can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPath {
    /// No exit permits the stream.
    #[error("no exit of the network permits such a stream")]
    Exit,
    /// No guard may be used with that exit.
    #[error("no guard can be used now with any such exit")]
    Guard,
    /// No relay may be used between guard and exit.
    #[error("no relay is left for the middle of a path")]
    Middle,
    /// The strategy depends on measurements, but has none for the relays of this network.
    #[error(
        "no relay of the consensus has a measurement in the bandwidth file: the file is of another network or another time"
    )]
    Unmeasured,
}

/// Weighs relays.
pub trait Strategy: fmt::Debug + Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The weight of a relay at this position, not negative. Relays are drawn with probability in
    /// proportion to it; if all weights are zero, uniformly. `chosen` are the relays selected
    /// before: exits are selected first, then guards, then middles. For a middle they are the first
    /// hop, the exit, and earlier middles in order.
    fn weight(
        &self,
        netdir: &NetDir,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> f64;

    /// Whether a relay may be used at this position. Unlike a relay of weight zero, a relay that is
    /// not admitted is never used, even if no path is left.
    fn admits(
        &self,
        _view: &NetDir,
        _relay: &RelayInfo,
        _position: Position,
        _chosen: &[&RelayInfo],
    ) -> bool {
        true
    }

    /// Whether the strategy can be used in this network. As in tor,
    /// [`candidates`](crate::path::candidates) of weight zero are drawn uniformly; a strategy
    /// without data for the network must fail instead.
    ///
    /// # Errors
    /// [`NoPath`] if the strategy lacks data.
    fn check(&self, _view: &NetDir) -> Result<(), NoPath> {
        Ok(())
    }

    /// Called when a circuit through these relays was built or has failed.
    fn handle_outcome(&mut self, _path: &[RsaId], _was_built: bool) {}
}

/// Blends an index with a uniform weight: *b·i* + (1 − *b*), for an index *i* and an influence *b*,
/// both from 0 to 1. No relay is drawn more than 1/(1 − *b*) times as often as another, whatever
/// its index.
#[must_use]
pub fn blend(index: f64, influence: f64) -> f64 {
    let (index, influence) = (index.clamp(0.0, 1.0), influence.clamp(0.0, 1.0));
    influence * index + (1.0 - influence)
}

#[cfg(test)]
mod tests;
