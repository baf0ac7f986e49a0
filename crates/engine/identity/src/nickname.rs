use crate::error::{IdError, excerpt};
use core::fmt;
use core::str::FromStr;

/// A relay's nickname: 1 to 19 ASCII letters and digits (dir-spec.txt, section 1.2).
///
/// Anybody may take any nickname, so it identifies nothing. It is stored in place: a consensus of
/// 10,000 relays needs no allocation for them.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
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
            _ => Err(IdError::NotANickname { text: excerpt(text) }),
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
        core::str::from_utf8(bytes).unwrap_or_default()
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
