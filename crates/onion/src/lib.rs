//! The engine.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod rate;
mod time;

pub use rate::Rate;
pub use time::{Duration, Instant};
