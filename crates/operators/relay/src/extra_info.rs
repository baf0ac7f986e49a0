//! The relay's own extra-info document (dir-spec.txt, section 2.1.2), which is published with its
//! descriptor and not fetched by clients.

use crate::document::{DescriptorError, sign};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use link::{Certified, LongTermKeys};
use netdoc::Nickname;
use netdoc::write::{date_time, push_object};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// An extra-info document and its digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraInfo {
    text: String,
    /// SHA-1 of the part that its RSA signature covers.
    sha1: [u8; 20],
}

impl ExtraInfo {
    /// Writes and signs a document. `lines` are those about bandwidth and overload:
    /// `write-history`, `read-history`, `overload-…`. `published`, in Unix seconds, must be the
    /// descriptor's date.
    ///
    /// # Errors
    /// [`DescriptorError`] if a signature fails.
    pub fn new(
        nickname: Nickname,
        published: u64,
        lines: &str,
        keys: &LongTermKeys,
        certified: &Certified,
    ) -> Result<Self, DescriptorError> {
        let mut text = String::new();
        writeln!(text, "extra-info {nickname} {}", certified.identity.rsa)?;
        text.push_str("identity-ed25519\n");
        push_object(&mut text, "ED25519 CERT", &certified.identity.signing_cert);
        writeln!(text, "published {}", date_time(published))?;
        text.push_str(lines);
        let sha1 = sign(&mut text, keys, certified)?;
        Ok(Self { text, sha1 })
    }

    /// The document.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value of the descriptor's line `extra-info-digest`.
    #[must_use]
    pub fn digests(&self) -> String {
        let sha256 = STANDARD_NO_PAD.encode(Sha256::digest(&self.text));
        format!("{} {sha256}", hex::encode_upper(self.sha1))
    }

    /// SHA-1 of the signed part, by which directories name it.
    #[must_use]
    pub const fn sha1(&self) -> [u8; 20] {
        self.sha1
    }
}
