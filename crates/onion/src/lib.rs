//! The engine.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cell;
pub mod circuit;
pub mod crypto;
pub mod flow;
pub mod identity;
pub mod link;
pub mod measure;
pub mod node;
mod rate;
mod time;
pub mod wire;

pub use rate::Rate;
pub use time::{Duration, Instant};
