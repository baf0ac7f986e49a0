use alloc::string::String;

/// Why a text is not a valid name of a relay.
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

/// The beginning of a rejected text. Invalid UTF-8 becomes `\u{fffd}`.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const MAX: usize = 60;
    let mut text = String::from_utf8_lossy(bytes.get(..MAX).unwrap_or(bytes)).into_owned();
    if bytes.len() > MAX {
        text.push('…');
    }
    text
}
