//! Exit and directory streams.
//!
//! A stream is a connection without TLS, or will become one: its number is a [`ConnId`](crate::node::ConnId)
//! from the beginning, in the table of all connections. A [`Tunnel`](crate::tunnel::Tunnel) has the circuit's
//! view of it.

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
pub(super) use stream::{BeginRequest, State, Stream, StreamKind};
