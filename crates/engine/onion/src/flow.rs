//! Flow control: windows and rate limits.

mod bucket;
pub mod control;
mod error;
pub mod hop;
pub mod stream;
mod window;

pub use bucket::TokenBucket;
pub use window::InFlightWindow;

/// Default maximum number of queued cells of a circuit in one direction (C tor:
/// `RELAY_CIRC_CELL_QUEUE_SIZE_DEFAULT`). A relay destroys a circuit with more.
pub const QUEUE_LIMIT_CELLS: u32 = 2500;
