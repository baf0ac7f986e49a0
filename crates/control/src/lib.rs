//! The control plane: coordinators order, measurers obey, and nobody else has a say.
//!
//! - [`keys`]: the one Ed25519 key of each party, in a file;
//! - [`MeasurerServer`]: the measurer's daemon. It obeys the coordinators whose keys it knows, within
//!   its capacity and its own consent rule;
//! - [`Remotes`] and [`RemoteMeasurer`]: the coordinator's side, where a measurer elsewhere is a
//!   [`measurer::Member`] like any other;
//! - [`messages`]: what they tell each other;
//! - [`Authorities`]: coordinators of several authorities among themselves.
//!
//! A session is one bidirectional stream of gRPC over TLS 1.3, in which both sides show a raw public
//! key (RFC 7250) that the other one knows. It may carry several rounds at once, each with a number.
//! If it is lost, whatever the cause, its rounds stop at the measurer, and are reported as broken at
//! the coordinator. All times are relative: clocks need not agree.

mod authorities;
mod capacity;
mod convert;
pub mod fuzzing;
pub mod keys;
pub mod messages;
mod refusal;
mod remote;
mod say_once;
mod server;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tls;

/// What `build.rs` generates.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
mod rpc {
    include!(concat!(env!("OUT_DIR"), "/flashflow.control.v1.Measurer.rs"));
    include!(concat!(env!("OUT_DIR"), "/flashflow.control.v1.Authority.rs"));
}

pub use authorities::{Authorities, Heard};
pub use convert::{MessageError, Told, told};
pub use refusal::RefusalCode;
pub use remote::{
    Abilities, CapacityPlan, CapacityResult, CapacityTestError, ConnectError, RemoteError,
    RemoteMeasurer, RemoteMember, Remotes,
};
pub use server::{MakeMember, MeasurerServer, ROUNDS_MAX, ServerError, ServerOptions};
