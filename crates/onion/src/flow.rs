//! How much may be under way.

mod bucket;
pub mod control;
mod error;
pub mod hop;
pub mod stream;
mod window;

pub use bucket::TokenBucket;
pub use window::InFlightWindow;

/// Cells that may wait on one circuit in one direction, unless the consensus says otherwise (C tor:
/// `RELAY_CIRC_CELL_QUEUE_SIZE_DEFAULT`). A relay destroys a circuit with more.
pub const QUEUE_LIMIT_CELLS: u32 = 2500;
