//! How relays are chosen: one trait, one file for each way.
//!
//! A strategy says how much a relay weighs at a position of a path, given those that are chosen already. Everything
//! else is not its business: who may be in a path together, which relays are guards, and the draw itself.

mod uniform;
mod weighted;

pub use uniform::Uniform;
pub use weighted::Weighted;

use crate::view::{RelayInfo, View};
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
    /// the others of the path that are known already; exits are chosen first, then guards, then middles. If all weigh nothing,
    /// all are equal.
    fn weight(
        &self,
        view: &View,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> f64;
}

/// The names of all strategies.
pub const NAMES: [&str; 2] = ["weighted", "uniform"];

/// The strategy of this name, if there is one.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Strategy>> {
    match name {
        "weighted" => Some(Box::new(Weighted)),
        "uniform" => Some(Box::new(Uniform)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
