//! The messages of coordinator, measurers and target on their links (`docs/protocol.md`).
//!
//! Messages travel in cells of variable length with [`Command::MEASURE`](crate::cell::Command) and
//! circuit ID 0, on ordinary Tor links: a relay that does not know them ignores such cells. A body is
//! a kind and then fields of type, length and value; fields of unknown types are skipped, so that
//! the protocol can grow. It follows proposal 316, §3.1, with what that leaves open filled in: keys
//! instead of addresses, and signatures bound to the TLS session.

mod code;
mod fields;
mod message;
mod order;
#[cfg(test)]
mod tests;

pub use code::ErrorCode;
pub use message::{ClientSecond, Message, SentBack, TEXT_LEN_MAX};
pub use order::{
    ClientShare, CoordinatorKey, MEASURERS_MAX, MeasurerKey, Nonce, Order, Proof, SignatureInvalid,
    SignedOrder,
};

/// Label of the keying material that binds signatures to a TLS session (RFC 5705, RFC 8446 §7.5).
///
/// The context is empty. A signature that was seen on one session is worth nothing on another.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER FlashFlow measurement";

/// Most bytes of a message: an order for [`MEASURERS_MAX`] measurers has far fewer.
pub const MESSAGE_LEN_MAX: usize = 4096;
