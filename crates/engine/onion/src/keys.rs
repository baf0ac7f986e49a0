//! Long-term keys of relays in the formats of C tor: RSA of 1024 bits, and expanded Ed25519.

use crate::identity::{Ed25519Id, RsaId};
use alloc::vec::Vec;
use curve25519_dalek::Scalar;
use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use rand_core::CryptoRng;
use rsa::pkcs1::{
    DecodeRsaPrivateKey, DecodeRsaPublicKey, EncodeRsaPrivateKey, EncodeRsaPublicKey,
};
use rsa::pkcs8::SecretDocument;
use rsa::traits::PublicKeyParts;
use rsa::{BigUint, Pkcs1v15Sign, RsaPrivateKey, RsaPublicKey};
use sha1::Sha1;
use sha2::{Digest, Sha512};

/// The length of RSA identity keys and TAP onion keys (tor-spec §0.3).
pub const RSA_BITS: usize = 1024;

/// Public exponent of RSA keys.
const RSA_EXPONENT: u32 = 65_537;

/// Why a key cannot be generated, used or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyProblem(&'static str);

impl KeyProblem {
    /// The reason, as a sentence about the key.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        self.0
    }
}

impl core::fmt::Display for KeyProblem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for KeyProblem {}

/// An RSA key with its secret.
pub struct RsaKey {
    secret: RsaPrivateKey,
    public_der: Vec<u8>,
}

impl RsaKey {
    /// Generates a key of [`RSA_BITS`]. Takes about a tenth of a second.
    ///
    /// # Errors
    /// [`KeyProblem`] if the random source is broken.
    pub fn generate(rng: &mut impl CryptoRng) -> Result<Self, KeyProblem> {
        Self::generate_bits(rng, RSA_BITS)
    }

    /// Generates a key of another length, in bits.
    ///
    /// # Errors
    /// [`KeyProblem`] if the length is too small, or the random source is broken.
    pub fn generate_bits(rng: &mut impl CryptoRng, bits: usize) -> Result<Self, KeyProblem> {
        let key = RsaPrivateKey::new(&mut OldRng(rng), bits);
        Self::new(key.map_err(|_| KeyProblem("no RSA key can be generated"))?)
    }

    /// Reads an identity key from PKCS #1 in DER.
    ///
    /// # Errors
    /// [`KeyProblem`] unless it is an RSA key of [`RSA_BITS`] with the exponent 65537, which tor requires, and its
    /// numbers fit together.
    pub fn from_der(der: &[u8]) -> Result<Self, KeyProblem> {
        let problem = KeyProblem("it is not an RSA key of 1024 bits and exponent 65537");
        Self::from_der_of(der, |bits| bits == RSA_BITS, problem)
    }

    /// Reads a directory authority's signing key from PKCS #1 in DER.
    ///
    /// # Errors
    /// As for [`from_der`](Self::from_der), but for keys of 1,024 to 8,192 bits: tor-gencert makes keys of 2,048 bits.
    pub fn signing_from_der(der: &[u8]) -> Result<Self, KeyProblem> {
        let problem = KeyProblem("it is not an RSA key of 1024 to 8192 bits and exponent 65537");
        Self::from_der_of(der, |bits| (RSA_BITS..=8192).contains(&bits), problem)
    }

    fn from_der_of(
        der: &[u8],
        has_length: impl Fn(usize) -> bool,
        problem: KeyProblem,
    ) -> Result<Self, KeyProblem> {
        let key =
            RsaPrivateKey::from_pkcs1_der(der).map_err(|_| KeyProblem("it is not an RSA key"))?;
        if !has_length(key.n().bits()) || *key.e() != BigUint::from(RSA_EXPONENT) {
            return Err(problem);
        }
        key.validate().map_err(|_| KeyProblem("its numbers are inconsistent"))?;
        Self::new(key)
    }

    fn new(secret: RsaPrivateKey) -> Result<Self, KeyProblem> {
        let der = secret.to_public_key().to_pkcs1_der();
        let der = der.map_err(|_| KeyProblem("an RSA key cannot be encoded"))?;
        Ok(Self { secret, public_der: der.into_vec() })
    }

    /// The secret key as PKCS #1 in DER.
    ///
    /// # Errors
    /// [`KeyProblem`] if it cannot be encoded, which is a bug.
    pub fn to_der(&self) -> Result<SecretDocument, KeyProblem> {
        self.secret.to_pkcs1_der().map_err(|_| KeyProblem("an RSA key cannot be encoded"))
    }

    /// The public key as PKCS #1 in DER.
    #[must_use]
    pub fn public_der(&self) -> &[u8] {
        &self.public_der
    }

    /// SHA-1 of the public key: the fingerprint.
    #[must_use]
    pub fn id(&self) -> RsaId {
        rsa_id(&self.public_der)
    }

    /// Signs a digest by PKCS #1 v1.5 without algorithm identifier, as tor does (dir-spec §1.3).
    ///
    /// # Errors
    /// [`KeyProblem`] if the digest is longer than the key allows.
    pub fn sign(&self, digest: &[u8]) -> Result<Vec<u8>, KeyProblem> {
        let signature = self.secret.sign(Pkcs1v15Sign::new_unprefixed(), digest);
        signature.map_err(|_| KeyProblem("the digest is too long to be signed"))
    }

    /// The key for other uses than tor's own formats, such as X.509.
    #[must_use]
    pub const fn secret(&self) -> &RsaPrivateKey {
        &self.secret
    }
}

/// SHA-1 of a public key (PKCS #1 in DER): its fingerprint.
#[must_use]
pub fn rsa_id(public_der: &[u8]) -> RsaId {
    RsaId(Sha1::digest(public_der).into())
}

/// Whether this key (PKCS #1 in DER) has signed the digest, as [`RsaKey::sign`] does. `false` if it is not a key.
#[must_use]
pub fn verify_rsa(public_der: &[u8], digest: &[u8], signature: &[u8]) -> bool {
    let key = RsaPublicKey::from_pkcs1_der(public_der);
    key.is_ok_and(|key| key.verify(Pkcs1v15Sign::new_unprefixed(), digest, signature).is_ok())
}

/// An Ed25519 key with an expanded secret (RFC 8032 §5.1.5): a scalar, and the prefix that signatures hash. C tor stores
/// identity and family keys in this form.
pub struct Ed25519Key {
    secret: ExpandedSecretKey,
    public: VerifyingKey,
}

impl Ed25519Key {
    /// Generates a key.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        Self::from_seed(&seed)
    }

    /// Derives the key from a seed (RFC 8032 §5.1.5).
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::from_secret(ExpandedSecretKey::from(seed))
    }

    /// The key of a scalar and a prefix, as [`secret_bytes`](Self::secret_bytes) returns them.
    #[must_use]
    pub fn from_secret_bytes(bytes: &[u8; 64]) -> Self {
        let mut scalar = [0; 32];
        let mut hash_prefix = [0; 32];
        scalar.copy_from_slice(&bytes[..32]);
        hash_prefix.copy_from_slice(&bytes[32..]);
        // Not clamped: a stored scalar may be reduced already.
        let scalar = Scalar::from_bytes_mod_order(scalar);
        Self::from_secret(ExpandedSecretKey { scalar, hash_prefix })
    }

    /// The key by which an ntor onion key cross-certifies an identity, and the sign of its public key (tor-spec §8.3.1,
    /// proposal 228).
    #[must_use]
    pub fn from_onion_secret(secret: &[u8; 32]) -> (Self, u8) {
        let prefix = Sha512::new()
            .chain_update(secret)
            .chain_update(b"Derive high part of ed25519 key from curve25519 key\0")
            .finalize();
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(secret);
        bytes[32..].copy_from_slice(&prefix[..32]);
        // Clamped, as X25519 clamps the secret.
        let key = Self::from_secret(ExpandedSecretKey::from_bytes(&bytes));
        let sign = key.public.as_bytes()[31] >> 7;
        (key, sign)
    }

    fn from_secret(secret: ExpandedSecretKey) -> Self {
        let public = VerifyingKey::from(&secret);
        Self { secret, public }
    }

    /// The scalar and the prefix.
    #[must_use]
    pub fn secret_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(self.secret.scalar.as_bytes());
        bytes[32..].copy_from_slice(&self.secret.hash_prefix);
        bytes
    }

    /// The public key.
    #[must_use]
    pub const fn public(&self) -> &VerifyingKey {
        &self.public
    }

    /// The public key as an identity.
    #[must_use]
    pub fn id(&self) -> Ed25519Id {
        Ed25519Id(self.public.to_bytes())
    }

    /// Signs a message.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        raw_sign::<Sha512>(&self.secret, message, &self.public).to_bytes()
    }
}

impl Clone for Ed25519Key {
    fn clone(&self) -> Self {
        let ExpandedSecretKey { scalar, hash_prefix } = &self.secret;
        let secret = ExpandedSecretKey { scalar: *scalar, hash_prefix: *hash_prefix };
        Self { secret, public: self.public }
    }
}

/// Adapts a random generator to the older version of `rand_core` that the crate `rsa` requires.
struct OldRng<'a, R>(&'a mut R);

impl<R: CryptoRng> rsa::rand_core::CryptoRng for OldRng<'_, R> {}

impl<R: CryptoRng> rsa::rand_core::RngCore for OldRng<'_, R> {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rsa::rand_core::Error> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use curve25519_dalek::montgomery::MontgomeryPoint;
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn an_rsa_key_survives_a_round_trip_and_signs() {
        let key = RsaKey::generate(&mut ChaCha8Rng::seed_from_u64(1)).expect("a key");
        let found = RsaKey::from_der(key.to_der().expect("encoded").as_bytes()).expect("a key");
        assert_eq!(key.id(), found.id());
        let public = key.public_der();
        assert_eq!(key.id(), rsa_id(public));
        let signature = found.sign(&[7; 20]).expect("short");
        assert!(verify_rsa(public, &[7; 20], &signature));
        assert!(!verify_rsa(public, &[8; 20], &signature));
        assert!(!verify_rsa(&public[1..], &[7; 20], &signature));
        assert!(key.sign(&[0; 128]).is_err());
    }

    /// By features of their crates, which are easily lost.
    #[test]
    fn secrets_are_wiped_when_they_are_dropped() {
        const fn is_wiped<T: x509_cert::der::zeroize::ZeroizeOnDrop>() {}
        // This version implements `Drop` by its derive, and has no marker.
        const fn can_be_wiped<T: x509_cert::der::zeroize::Zeroize>() {}
        is_wiped::<ExpandedSecretKey>();
        is_wiped::<ed25519_dalek::SigningKey>();
        can_be_wiped::<x25519_dalek::StaticSecret>();
        is_wiped::<RsaPrivateKey>();
    }

    #[test]
    fn an_rsa_key_of_another_length_is_rejected() {
        let long = RsaKey::generate_bits(&mut ChaCha8Rng::seed_from_u64(2), 512).expect("a key");
        let refused = RsaKey::from_der(long.to_der().expect("encoded").as_bytes()).err();
        assert_eq!(
            refused,
            Some(KeyProblem("it is not an RSA key of 1024 bits and exponent 65537"))
        );
    }

    proptest! {
        /// `ed25519-dalek`, which signs from the seed, makes the same signature.
        #[test]
        fn an_expanded_key_signs_like_its_seed(seed: [u8; 32], message: Vec<u8>) {
            use ed25519_dalek::{Signer, SigningKey};
            let key = Ed25519Key::from_seed(&seed);
            let expected = SigningKey::from_bytes(&seed).sign(&message).to_bytes();
            prop_assert_eq!(key.sign(&message), expected);
            let found = Ed25519Key::from_secret_bytes(&key.secret_bytes());
            prop_assert_eq!(found.sign(&message), expected);
        }

        /// The public Ed25519 key follows from the public X25519 key and the sign.
        #[test]
        fn an_onion_key_has_an_ed25519_counterpart(secret: [u8; 32]) {
            let public = x25519_dalek::PublicKey::from(&x25519_dalek::StaticSecret::from(secret));
            let (key, sign) = Ed25519Key::from_onion_secret(&secret);
            let expected = MontgomeryPoint(*public.as_bytes()).to_edwards(sign).expect("a point");
            prop_assert_eq!(key.public().to_bytes(), expected.compress().to_bytes());
            let signature = ed25519_dalek::Signature::from_bytes(&key.sign(b"signed"));
            prop_assert!(key.public().verify_strict(b"signed", &signature).is_ok());
        }
    }
}
