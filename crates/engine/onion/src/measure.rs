//! Measuring a relay: content, checks and per-second counts.

mod check;
mod content;
pub mod load;
pub mod order;
pub mod protocol;
mod seconds;
pub mod target;
mod traffic;

pub use check::{CheckSampler, Mismatch, compare};
pub use content::Content;
pub use seconds::{Second, SecondCounter};
pub use traffic::Traffic;
