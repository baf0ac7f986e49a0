//! The control plane: coordinators send orders, and measurers execute them. No other party has access.
//!
//! - [`keys`]: the one Ed25519 key of each party, in a file;
//! - [`MeasurerServer`]: the measurer's daemon. It accepts orders of the coordinators whose keys it knows, within its
//!   capacity and its own consent rule;
//! - [`Remotes`] and [`RemoteMeasurer`]: the coordinator's side, where a remote measurer is a [`measurer::Member`] like
//!   any other;
//! - [`messages`]: the messages of the protocol;
//! - [`opt_in`]: signed opt-in lists;
//! - [`Authorities`]: connections between the coordinators of several authorities.
//!
//! A session is a connection over TLS 1.3, in which both sides show a raw public key (RFC 7250) that the other one knows.
//! It carries [`messages`] for several rounds at once, each with a number. If it is lost, whatever the cause, its rounds stop
//! at the measurer, and the coordinator reports them as broken. All times are relative: clocks need not agree.

mod authorities;
mod capacity;
mod check;
mod frames;
pub mod fuzzing;
pub mod keys;
mod log_limiter;
pub mod messages;
pub mod opt_in;
mod refusal;
mod remote;
mod server;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tls;

pub use authorities::{Authorities, PeerState};
pub use capacity::{CapacityAnswer, CapacityOrder, CapacityStart};
pub use check::MessageError;
pub use refusal::RefusalCode;
pub use remote::{
    Abilities, CapacityPlan, CapacityResult, CapacityTestError, ConnectError, RemoteError,
    RemoteMeasurer, RemoteMember, Remotes,
};
pub use server::{
    HandedList, MakeMember, MeasurerServer, MeasurerStatus, MeasurerTotals, ROUNDS_MAX, Rules,
    ServerError, ServerOptions, StatusReader,
};
