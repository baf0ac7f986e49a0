//! Exit and directory streams, and what is to happen to them.
//!
//! A stream is a connection without TLS, or is to become one: its number is a [`ConnId`](crate::node::ConnId) from its first
//! moment on, and it stands in the table of all connections. What its circuit knows of it is in a
//! [`Tunnel`](crate::tunnel::Tunnel).

mod begin;
mod data;
mod end;
mod exit_policy;
mod known_relays;
mod lookup;
mod lookups;
mod pending;
mod ranking;
mod stream;

pub use begin::DIRECTORY_STREAMS_MAX;
pub use exit_policy::{Addresses, ExitConfig, ExitPolicy, ExitRule, RuleError, is_private};
pub use known_relays::KnownRelays;
pub(super) use pending::Streams;
pub(super) use stream::{Asked, State, Stream, StreamKind};
