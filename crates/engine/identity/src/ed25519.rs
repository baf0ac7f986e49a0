use crate::error::{IdError, excerpt};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use core::fmt;
use core::str::FromStr;

/// Tor writes keys with or without padding; old documents have nonzero bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A relay's Ed25519 master identity key (dir-spec.txt, section 2.1.1, `master-key-ed25519`).
///
/// It is written in base64 without padding, and read with or without it.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ed25519Id(pub [u8; 32]);

impl Ed25519Id {
    /// Reads base64.
    ///
    /// # Errors
    /// [`IdError::NotEd25519`] unless the text is 32 bytes of base64.
    pub fn parse(text: &[u8]) -> Result<Self, IdError> {
        // `decode_slice` requires room for its estimate, which is a multiple of three.
        let mut room = [0; 33];
        let len = BASE64.decode_slice(text, &mut room).ok();
        len.and_then(|len| room.get(..len)?.try_into().ok())
            .map(Self)
            .ok_or_else(|| IdError::NotEd25519 { text: excerpt(text) })
    }
}

impl FromStr for Ed25519Id {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for Ed25519Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 43];
        let len = BASE64.encode_slice(self.0, &mut text).unwrap_or_default();
        f.pad(text.get(..len).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or_default())
    }
}

impl fmt::Debug for Ed25519Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:{self}")
    }
}
