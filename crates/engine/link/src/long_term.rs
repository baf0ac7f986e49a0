use crate::issue_error::{IssueError, failed};
use onion::keys::{Ed25519Key, RsaKey};
use rand::CryptoRng;

/// The keys that identify a relay across restarts.
pub struct LongTermKeys {
    /// The RSA identity, of 1024 bits; its SHA-1 is the fingerprint.
    pub rsa: RsaKey,
    /// The Ed25519 identity, expanded as tor keeps it.
    pub ed25519: Ed25519Key,
    /// The secret half of the ntor onion key.
    pub onion_secret: [u8; 32],
    /// The previous one, while clients may still use it.
    pub previous_onion_secret: Option<[u8; 32]>,
}

impl LongTermKeys {
    /// Generates new keys. Takes about a tenth of a second, for the RSA key.
    ///
    /// # Errors
    /// [`IssueError`](crate::IssueError) if the RSA key cannot be generated: a bug or a broken
    /// random source.
    pub fn generate(rng: &mut impl CryptoRng) -> Result<Self, IssueError> {
        let rsa = RsaKey::generate(rng).map_err(failed("RSA key"))?;
        let ed25519 = Ed25519Key::generate(rng);
        let mut onion_secret = [0; 32];
        rng.fill_bytes(&mut onion_secret);
        Ok(Self { rsa, ed25519, onion_secret, previous_onion_secret: None })
    }
}
