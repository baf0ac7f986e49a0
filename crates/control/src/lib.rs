//! x
mod convert;
pub mod fuzzing;
pub mod keys;
pub mod messages;
mod refusal;
mod say_once;
mod server;
#[cfg(test)]
mod testing;
mod tls;

/// What `build.rs` generates.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
mod rpc {
    include!(concat!(env!("OUT_DIR"), "/flashflow.control.v1.Measurer.rs"));
}

pub use convert::{MessageError, Told, told};
pub use refusal::RefusalCode;
pub use server::{MakeMember, MeasurerServer, ServerError, ServerOptions};
