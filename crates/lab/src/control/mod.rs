//! A small client of tor's control port.
//!
//! None of the published crates does what a private network needs: those that speak the protocol
//! demand an asynchronous runtime or start tor themselves, drop replies of several lines, or know
//! no bandwidth events. What we need is little: cookie authentication, requests with their
//! replies, and events with the time at which they arrived.
//!
//! [`parse`] understands the protocol and does no input or output; [`Control`] is the connection.

mod bandwidth;
mod client;
mod event;
pub mod parse;

pub use bandwidth::{BwEvent, BwSample, BwWatch};
pub use client::{Control, ControlError};
pub use event::Event;
