//! How much may be under way.

mod bucket;
pub mod control;
pub mod stream;
mod window;

pub use bucket::TokenBucket;
pub use window::InFlightWindow;
