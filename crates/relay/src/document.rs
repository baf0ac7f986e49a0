//! What documents of our own have in common (dir-spec.txt, section 1.2): dates, objects, signatures.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use jiff::Timestamp;
use link::{Certified, LongTermKeys};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fmt;

/// What is signed with Ed25519 begins with this.
const SIGNATURE_PREFIX: &[u8] = b"Tor router descriptor signature v1";

/// A descriptor could not be made: our own mistake, since what goes into it has been checked.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a server descriptor ({what}): {problem}; this is a mistake of ours")]
pub struct DescriptorError {
    what: &'static str,
    problem: String,
}

pub(crate) fn failed<E: fmt::Display>(what: &'static str) -> impl FnOnce(E) -> DescriptorError {
    move |problem| DescriptorError { what, problem: problem.to_string() }
}

impl From<fmt::Error> for DescriptorError {
    fn from(error: fmt::Error) -> Self {
        failed("text")(error)
    }
}

/// Appends both signatures, which a descriptor and an extra-info document have in common. Gives the
/// digest that the RSA signature is of.
pub(crate) fn sign(
    text: &mut String,
    keys: &LongTermKeys,
    certified: &Certified,
) -> Result<[u8; 20], DescriptorError> {
    text.push_str("router-sig-ed25519 ");
    let digest = Sha256::new().chain_update(SIGNATURE_PREFIX).chain_update(&text).finalize();
    let signature = certified.signing_key.sign(&digest);
    text.push_str(&STANDARD_NO_PAD.encode(signature.to_bytes()));
    text.push_str("\nrouter-signature\n");
    let digest = Sha1::digest(&text);
    let signature = keys.rsa.sign(&digest).map_err(failed("RSA signature"))?;
    push_object(text, "SIGNATURE", &signature);
    Ok(digest.into())
}

/// `YYYY-MM-DD HH:MM:SS` in UTC.
pub(crate) fn date_time(unix: u64) -> String {
    let time = i64::try_from(unix).ok().and_then(|s| Timestamp::from_second(s).ok());
    time.unwrap_or(Timestamp::UNIX_EPOCH).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

pub(crate) fn push_object(text: &mut String, kind: &str, bytes: &[u8]) {
    text.push_str("-----BEGIN ");
    text.push_str(kind);
    text.push_str("-----\n");
    push_base64_lines(text, bytes);
    text.push_str("-----END ");
    text.push_str(kind);
    text.push_str("-----\n");
}

/// Base64 in lines of 64 characters.
pub(crate) fn push_base64_lines(text: &mut String, bytes: &[u8]) {
    for line in bytes.chunks(48) {
        STANDARD.encode_string(line, text);
        text.push('\n');
    }
}
