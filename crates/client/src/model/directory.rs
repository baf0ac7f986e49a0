//! What a performance directory publishes: a model, signed.
//!
//! One line `flashflow-performance 1 KEY SIGNATURE`, key and signature in base64, and behind it the packed model. The signature
//! (Ed25519) is over `flashflow performance directory 1`, a zero byte, and the packed model.

use super::{FileError, Model, file, strip};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

/// What a signature is over, besides the model.
const CONTEXT: &[u8] = b"flashflow performance directory 1\0";
/// The first word and the version.
const MAGIC: &str = "flashflow-performance 1";
/// The first line is no longer.
const LINE_MAX: usize = 256;
/// A model older than this is of a network that was.
pub const MODEL_AGE_MAX_S: u64 = 24 * 3600;
/// Clocks differ by so much.
pub(super) const SKEW_MAX_S: u64 = 600;

/// A model, and who vouches for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The directory's public key.
    pub key: [u8; 32],
    /// What it says.
    pub model: Model,
}

/// Why a published model is not believed.
#[derive(Debug, thiserror::Error)]
pub enum SignedError {
    /// It does not begin as one.
    #[error("the directory's answer is no signed model: {0}")]
    Malformed(&'static str),
    /// Somebody else signed it.
    #[error(
        "the model is signed by another key than that which is trusted; ask the directory's operator for the key"
    )]
    OtherKey,
    /// The signature does not fit.
    #[error(
        "the model's signature is wrong: it was changed on its way, or the directory's key is broken"
    )]
    Signature,
    /// It is of long ago, or of times to come.
    #[error(
        "the model is {age_s} s old (at most {MODEL_AGE_MAX_S}; below 0 is in times to come); check both clocks"
    )]
    Stale {
        /// Its age in seconds.
        age_s: i64,
    },
    /// What was signed is no model.
    #[error(transparent)]
    File(#[from] FileError),
}

fn message(packed: &[u8]) -> Vec<u8> {
    [CONTEXT, packed].concat()
}

/// The public key of a secret one.
#[must_use]
pub fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    SigningKey::from_bytes(secret).verifying_key().to_bytes()
}

/// Signs a model, without what is nobody else's business.
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

/// Reads what a directory published, if this key signed it and it is of today. What it says of the way into the network is left out:
/// nobody else knows it.
///
/// # Errors
/// [`SignedError`] says why it is not believed.
pub fn verify(
    bytes: &[u8],
    trusted: &[u8; 32],
    unix_time_s: u64,
) -> Result<Published, SignedError> {
    let malformed = |what| SignedError::Malformed(what);
    let end = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
    let (line, rest) = bytes.split_at(end.ok_or(malformed("it has no first line"))?);
    let line = str::from_utf8(line).map_err(|_| malformed("its first line is no text"))?;
    let named = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' '));
    let fields = named.and_then(|rest| rest.split_once(' '));
    let (key, signature) = fields.ok_or(malformed("its first line has other words"))?;
    let bytes = |text: &str| BASE64.decode(text).map_err(|_| malformed("it is not base64"));
    let key: [u8; 32] = bytes(key)?.try_into().map_err(|_| malformed("its key is no key"))?;
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
