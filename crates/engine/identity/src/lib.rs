//! Names of relays: RSA identities, Ed25519 identities and nicknames.
//!
//! The crate owns their text forms: how they are parsed, printed and, with the feature `serde`, stored. It has no keys and
//! verifies no signatures.
//!
//! ```
//! use flashflow_identity::{Ed25519Id, RsaId};
//!
//! let rsa: RsaId = "$0011bdcbc261e7b9b45cf515bf5a8d7a2dbcd8b0".parse()?;
//! assert_eq!(rsa.to_string(), "0011BDCBC261E7B9B45CF515BF5A8D7A2DBCD8B0");
//! let ed25519 = Ed25519Id([0; 32]);
//! assert_eq!(ed25519.to_string(), "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
//! # Ok::<(), flashflow_identity::IdError>(())
//! ```

#![no_std]

extern crate alloc;

mod ed25519;
mod error;
mod nickname;
mod rsa;
#[cfg(feature = "serde")]
mod serialized;

pub use ed25519::Ed25519Id;
pub use error::IdError;
pub use nickname::Nickname;
pub use rsa::RsaId;

#[cfg(test)]
mod tests;
