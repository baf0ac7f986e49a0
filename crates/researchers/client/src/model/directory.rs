//! A signed model, as a performance directory publishes it.
//!
//! The first line is `flashflow-performance 1 KEY SIGNATURE`, with key and signature in base64; the
//! compressed model follows. The Ed25519 signature covers `flashflow performance directory 1`, a
//! zero byte, and the compressed model.

use super::{FileError, Model, file, strip};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

/// Domain separation: signed before the model.
const CONTEXT: &[u8] = b"flashflow performance directory 1\0";
/// The first word and the version.
const MAGIC: &str = "flashflow-performance 1";
/// The longest first line, in bytes.
const LINE_MAX: usize = 256;
/// The maximum age of a model.
pub const MODEL_AGE_MAX_S: u64 = 24 * 3600;
/// Tolerated difference between clocks.
pub(super) const SKEW_MAX_S: u64 = 600;

/// A model and its signer.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The directory's public key.
    pub key: [u8; 32],
    /// The model.
    pub model: Model,
}

/// Why a published model is rejected.
#[derive(Debug, thiserror::Error)]
pub enum SignedError {
    /// Unknown first line.
    #[error("the directory's answer is not a signed model: {0}")]
    Malformed(&'static str),
    /// Signed by another key.
    #[error("the model is not signed by the trusted key; ask the directory's operator for the key")]
    OtherKey,
    /// The signature is invalid.
    #[error(
        "the model's signature is wrong: it was changed on its way, or the directory's key is broken"
    )]
    Signature,
    /// Too old, or from the future.
    #[error(
        "the model is {age_s} s old (at most {MODEL_AGE_MAX_S}; negative is in the future); check both clocks"
    )]
    Stale {
        /// Its age in seconds.
        age_s: i64,
    },
    /// The signed bytes are not a model.
    #[error(transparent)]
    File(#[from] FileError),
}

fn message(packed: &[u8]) -> Vec<u8> {
    [CONTEXT, packed].concat()
}

/// The public key of a secret key.
#[must_use]
pub fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    SigningKey::from_bytes(secret).verifying_key().to_bytes()
}

/// Signs a model without its private values.
///
/// # Errors
/// As for [`file::write`].
pub fn sign(model: &Model, secret: &[u8; 32]) -> std::io::Result<Vec<u8>> {
    let packed = file::write(&strip(model))?;
    let key = SigningKey::from_bytes(secret);
    let signature = key.sign(&message(&packed)).to_bytes();
    let key = BASE64.encode(key.verifying_key().to_bytes());
    let line = format!("{MAGIC} {key} {}\n", BASE64.encode(signature));
    Ok([line.as_bytes(), &packed].concat())
}

/// Verifies and reads a published model. Rejects models by other keys and outdated ones. Drops
/// entry latencies, which only their owner can know.
///
/// # Errors
/// [`SignedError`] if the model is rejected.
pub fn verify(
    bytes: &[u8],
    trusted: &[u8; 32],
    unix_time_s: u64,
) -> Result<Published, SignedError> {
    let malformed = |what| SignedError::Malformed(what);
    let end = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
    let (line, rest) = bytes.split_at(end.ok_or(malformed("it has no first line"))?);
    let line = str::from_utf8(line).map_err(|_| malformed("its first line is not text"))?;
    let named = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' '));
    let fields = named.and_then(|rest| rest.split_once(' '));
    let (key, signature) = fields.ok_or(malformed("its first line has other words"))?;
    let bytes = |text: &str| BASE64.decode(text).map_err(|_| malformed("it is not base64"));
    let key: [u8; 32] = bytes(key)?.try_into().map_err(|_| malformed("the key is invalid"))?;
    if key != *trusted {
        return Err(SignedError::OtherKey);
    }
    let signature = bytes(signature)?;
    let signature =
        Signature::from_slice(&signature).map_err(|_| malformed("its signature is none"))?;
    let packed = &rest[1..];
    let verifying = VerifyingKey::from_bytes(&key).map_err(|_| SignedError::Signature)?;
    let checked = verifying.verify_strict(&message(packed), &signature);
    checked.map_err(|_| SignedError::Signature)?;
    let model = strip(&file::read(packed)?);
    let age_s = i64::try_from(unix_time_s).unwrap_or(i64::MAX)
        - i64::try_from(model.made_unix_s()).unwrap_or(i64::MAX);
    let may_be = -SKEW_MAX_S.cast_signed()..=MODEL_AGE_MAX_S.cast_signed();
    if !may_be.contains(&age_s) {
        return Err(SignedError::Stale { age_s });
    }
    Ok(Published { key, model })
}
