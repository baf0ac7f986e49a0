//! Measuring a relay: what is sent, what is checked, what is counted.

mod check;
mod content;
pub mod protocol;
mod seconds;
pub mod transit;

pub use check::{CheckSampler, Mismatch, compare};
pub use content::Content;
pub use seconds::{Second, SecondCounter};
