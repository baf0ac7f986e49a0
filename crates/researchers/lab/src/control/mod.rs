//! A minimal client of tor's control port.
//!
//! No published crate fits a private network: those that speak the protocol need an asynchronous runtime or
//! start tor themselves, drop multi-line replies, or do not know bandwidth events. Little is needed: cookie
//! authentication, requests with their replies, and events with their arrival times.
//!
//! [`parse`] implements the protocol without I/O; [`Control`] is the connection.

mod bandwidth;
mod client;
mod event;
pub mod parse;

pub use bandwidth::{BwEvent, BwSample, BwWatch};
pub use client::{Control, ControlError};
pub use event::Event;
