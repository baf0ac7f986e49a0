//! Signs the relay's own documents (dir-spec.txt, section 2.1).

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ed25519_dalek::Signer;
use link::{Certified, LongTermKeys};
use netdoc::write::push_object;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fmt;

/// Domain separation of Ed25519 signatures.
const SIGNATURE_PREFIX: &[u8] = b"Tor router descriptor signature v1";

/// A descriptor could not be made. This is a bug, since its content has been checked.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a server descriptor ({what}): {problem}; this is a bug")]
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

/// Appends the Ed25519 and the RSA signature of a descriptor or an extra-info document. Returns the
/// digest that the RSA signature covers.
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
