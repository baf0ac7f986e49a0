//! Names of relays: RSA fingerprints, Ed25519 identities and nicknames.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text;

/// Why a text is not a valid identity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IdError {
    /// The text is `$FINGERPRINT~nickname` or `$FINGERPRINT=nickname`.
    #[error(
        "{text:?} ends with a nickname; nicknames prove nothing, give the 40 hex digits before it"
    )]
    HasNickname {
        /// The rejected text, shortened.
        text: String,
    },
    /// The text isn't 40 hexadecimal digits.
    #[error("{text:?} isn't a relay fingerprint: expected 40 hex digits, with or without a `$`")]
    NotAFingerprint {
        /// The rejected text, shortened.
        text: String,
    },
    /// The text isn't 32 bytes of base64.
    #[error("{text:?} isn't an Ed25519 identity: expected 43 base64 characters (32 bytes)")]
    NotEd25519 {
        /// The rejected text, shortened.
        text: String,
    },
    /// The text isn't 1 to 19 letters and digits.
    #[error("{text:?} isn't a nickname: expected 1 to 19 ASCII letters and digits")]
    NotANickname {
        /// The rejected text, shortened.
        text: String,
    },
}

/// A relay's RSA identity: the SHA-1 digest of its identity key (dir-spec.txt, section 1.2).
///
/// It is read with or without a leading `$`, in any case, and written as 40 upper-case digits.
///
/// ```
/// # use flashflow_netdoc::Fingerprint;
/// let f: Fingerprint = "$0011bdcbc261e7b9b45cf515bf5a8d7a2dbcd8b0".parse()?;
/// assert_eq!(f.to_string(), "0011BDCBC261E7B9B45CF515BF5A8D7A2DBCD8B0");
/// # Ok::<(), flashflow_netdoc::IdError>(())
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 20]);

impl Fingerprint {
    /// The fingerprint with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// The 20 bytes of the digest.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// Reads 40 hex digits, with or without `$` before them.
    ///
    /// # Errors
    /// [`IdError::HasNickname`] for tor's verbose form, else [`IdError::NotAFingerprint`].
    pub fn parse(text: &[u8]) -> Result<Self, IdError> {
        let digits = text.strip_prefix(b"$").unwrap_or(text);
        let mut bytes = [0; 20];
        if hex::decode_to_slice(digits, &mut bytes).is_ok() {
            return Ok(Self(bytes));
        }
        let text = text::excerpt(text);
        Err(match digits.get(40) {
            Some(b'~' | b'=') => IdError::HasNickname { text },
            _ => IdError::NotAFingerprint { text },
        })
    }
}

impl FromStr for Fingerprint {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex::encode_upper(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${self}")
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(id: Fingerprint) -> Self {
        id.to_string()
    }
}

/// A relay's Ed25519 master identity key (dir-spec.txt, section 2.1.1, `master-key-ed25519`).
///
/// It is written in base64 without padding, and read with or without it.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ed25519Identity([u8; 32]);

impl Ed25519Identity {
    /// The identity with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the public key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads base64.
    ///
    /// # Errors
    /// [`IdError::NotEd25519`] unless the text is 32 bytes of base64.
    pub fn parse(text: &[u8]) -> Result<Self, IdError> {
        text::base64_array(text)
            .map(Self)
            .ok_or_else(|| IdError::NotEd25519 { text: text::excerpt(text) })
    }
}

impl FromStr for Ed25519Identity {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for Ed25519Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&text::base64(&self.0))
    }
}

impl fmt::Debug for Ed25519Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:{self}")
    }
}

impl TryFrom<String> for Ed25519Identity {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<Ed25519Identity> for String {
    fn from(id: Ed25519Identity) -> Self {
        id.to_string()
    }
}

/// A relay's nickname: 1 to 19 ASCII letters and digits (dir-spec.txt, section 1.2).
///
/// Anybody may take any nickname, so it identifies nothing. It is stored in place: a consensus of
/// 10,000 relays needs no allocation for them.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nickname {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl Nickname {
    /// The longest nickname, in characters.
    pub const MAX: usize = 19;

    /// Reads a nickname.
    ///
    /// # Errors
    /// [`IdError::NotANickname`] if it is empty, too long, or has any other character.
    pub fn parse(text: &[u8]) -> Result<Self, IdError> {
        let mut bytes = [0; Self::MAX];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(room), Ok(len)) if len > 0 && text.iter().all(u8::is_ascii_alphanumeric) => {
                room.copy_from_slice(text);
                Ok(Self { bytes, len })
            }
            _ => Err(IdError::NotANickname { text: text::excerpt(text) }),
        }
    }

    /// The nickname in lower case, to compare it as tor does.
    #[must_use]
    pub fn to_lowercase(self) -> Self {
        Self { bytes: self.bytes.map(|byte| byte.to_ascii_lowercase()), ..self }
    }

    /// The nickname's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Both fallbacks are unreachable: only `parse` makes a nickname, of ASCII that fits.
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl FromStr for Nickname {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for Nickname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Nickname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl TryFrom<String> for Nickname {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<Nickname> for String {
    fn from(name: Nickname) -> Self {
        name.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests;
