//! x
mod convert;
pub mod fuzzing;
pub mod keys;
pub mod messages;
mod refusal;
#[cfg(test)]
mod testing;
mod tls;

pub use convert::{MessageError, Told, told};
pub use refusal::RefusalCode;
