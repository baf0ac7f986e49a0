use crate::error::{IdError, excerpt};
use core::fmt;
use core::str::FromStr;

/// A relay's RSA identity: the SHA-1 digest of its identity key (dir-spec.txt, section 1.2), called its fingerprint.
///
/// It is read with or without a leading `$`, in any case, and written as 40 upper-case digits.
///
/// ```
/// # use flashflow_identity::RsaId;
/// let relay: RsaId = "$0011bdcbc261e7b9b45cf515bf5a8d7a2dbcd8b0".parse()?;
/// assert_eq!(relay.to_string(), "0011BDCBC261E7B9B45CF515BF5A8D7A2DBCD8B0");
/// # Ok::<(), flashflow_identity::IdError>(())
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RsaId(pub [u8; 20]);

impl RsaId {
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
        let text = excerpt(text);
        Err(match digits.get(40) {
            Some(b'~' | b'=') => IdError::HasNickname { text },
            _ => IdError::NotAFingerprint { text },
        })
    }
}

impl FromStr for RsaId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for RsaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let mut text = [0; 40];
        for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(self.0) {
            *pair = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
        }
        f.pad(core::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for RsaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${self}")
    }
}
