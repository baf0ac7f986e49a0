//! How much may be under way.

mod bucket;
mod window;

pub use bucket::TokenBucket;
pub use window::InFlightWindow;
