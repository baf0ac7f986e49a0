//! The one key of each party: an Ed25519 key in a file.
//!
//! The file is PEM with a PKCS #8 key (RFC 8410), as `openssl genpkey -algorithm ed25519` makes it. A secret key is wiped
//! from memory when it is dropped, as are the texts that it is read from and written to.
//! Public keys are written as 64 hexadecimal digits everywhere: in configurations, in messages, and in
//! a relay's list of the coordinators that it allows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use zeroize::Zeroizing;

/// The prefix of the 32 bytes of a private key in PKCS #8 (RFC 8410 §7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The prefix of the 32 bytes of a public key in a SubjectPublicKeyInfo (RFC 8410 §4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// A key file has some 120 bytes; comments may come before the key.
const FILE_MAX: u64 = 8192;
/// Room for the largest file, and for noticing its end.
const FILE_ROOM: usize = 8192 + 32;

/// A key file that cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file exists. A key is never overwritten: parties that pinned it would refuse its owner from then on.
    #[error(
        "{} exists, and a key is never overwritten; choose another name, or move the file away",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} the key file {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The secret is readable by others.
    #[error(
        "the key file {} can be read by others (mode {mode:03o}); run: chmod 600 {}",
        path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file has other content.
    #[error(
        "{} is not an Ed25519 key in PEM (\"{PEM_BEGIN}\"); make one with: flashflow keys --out FILE",
        path.display()
    )]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// No random bytes.
    #[error("the operating system provides no random bytes: {0}")]
    Random(rand::rngs::SysError),
}

/// A party's secret Ed25519 key.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

/// A party's public Ed25519 key, which identifies it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A text that is not a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a public key: {problem}; it is the text of 64 digits that `flashflow keys` prints")]
pub struct PublicKeyError {
    problem: &'static str,
}

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// [`KeyFileError::Random`].
    pub fn generate() -> Result<Self, KeyFileError> {
        let mut seed = Zeroizing::new([0; 32]);
        SysRng.try_fill_bytes(&mut *seed).map_err(KeyFileError::Random)?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// The key of this seed (RFC 8032 §5.1.5).
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// The seed, from which the key is derived.
    #[must_use]
    pub fn seed(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs a text with Ed25519 (RFC 8032).
    pub(crate) fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.0.sign(text).to_bytes()
    }

    /// Writes the key to a new file that only its owner can read.
    ///
    /// # Errors
    /// If the file exists already, or cannot be written. No file is left behind.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyFileError> {
        let io = |action| move |source| KeyFileError::Io { action, path: path.to_owned(), source };
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = made.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
            _ => io("make")(source),
        })?;
        let written = file.write_all(self.to_pem().as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|source| {
            // A partial file would block the next attempt.
            let _ = fs::remove_file(path);
            io("write")(source)
        })
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// If it cannot be read, can be read by others, or holds no key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let io = |source| KeyFileError::Io { action: "read", path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let mode = metadata.permissions().mode() & 0o777;
        if metadata.is_file() && mode & 0o077 != 0 {
            return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
        }
        // With room for all, it does not grow, which would leave a copy.
        let mut content = Zeroizing::new(Vec::with_capacity(FILE_ROOM));
        file.take(FILE_MAX).read_to_end(&mut content).map_err(io)?;
        let key = std::str::from_utf8(&content).ok().and_then(Self::from_pem);
        key.ok_or_else(|| KeyFileError::NotAKey { path: path.to_owned() })
    }

    fn to_pem(&self) -> Zeroizing<String> {
        let body = Zeroizing::new(BASE64.encode(&*self.to_pkcs8()));
        Zeroizing::new([PEM_BEGIN, "\n", &body, "\n", PEM_END, "\n"].concat())
    }

    fn from_pem(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once(PEM_BEGIN)?;
        let (body, _) = rest.split_once(PEM_END)?;
        let mut base64 = Zeroizing::new(String::with_capacity(body.len()));
        base64.extend(body.split_whitespace());
        let der = Zeroizing::new(BASE64.decode(&*base64).ok()?);
        let seed = der.strip_prefix(&PKCS8_PREFIX)?;
        Some(Self(SigningKey::from_bytes(seed.try_into().ok()?)))
    }

    /// The key as PKCS #8, in DER.
    pub(crate) fn to_pkcs8(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([&PKCS8_PREFIX[..], self.0.as_bytes()].concat())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public())
    }
}

impl PublicKey {
    /// The key as SubjectPublicKeyInfo, in DER: what TLS carries instead of a certificate.
    pub(crate) fn to_spki(self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }

    /// Whether this is a valid signature by the key. Signatures by keys of small order, which anyone could forge, are
    /// invalid.
    pub(crate) fn has_signed(&self, text: &[u8], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(text, &signature).is_ok())
    }

    pub(crate) fn from_spki(der: &[u8]) -> Option<Self> {
        Some(Self(der.strip_prefix(&SPKI_PREFIX)?.try_into().ok()?))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let mut key = [0; 32];
        hex::decode_to_slice(text, &mut key)
            .map_err(|_| PublicKeyError { problem: "these are not 64 hexadecimal digits" })?;
        // Otherwise no signature could be valid.
        VerifyingKey::from_bytes(&key)
            .map_err(|_| PublicKeyError { problem: "these 32 bytes are no point on the curve" })?;
        Ok(Self(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("temporary folder")
    }

    #[test]
    fn a_key_survives_its_file_which_others_cannot_read() {
        let dir = folder();
        let path = dir.path().join("key");
        let key = SecretKey::generate().expect("random bytes");
        key.write_new(&path).expect("written");
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(SecretKey::read(&path).expect("a key").seed(), key.seed());
    }

    #[test]
    fn a_key_is_never_overwritten() {
        let dir = folder();
        let path = dir.path().join("key");
        SecretKey::from_seed([1; 32]).write_new(&path).expect("written");
        let error = SecretKey::from_seed([2; 32]).write_new(&path).expect_err("exists");
        assert!(error.to_string().contains("never overwritten"), "{error}");
        assert_eq!(SecretKey::read(&path).expect("the first").seed(), [1; 32]);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_remedy() {
        let dir = folder();
        let path = dir.path().join("key");
        SecretKey::from_seed([1; 32]).write_new(&path).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = SecretKey::read(&path).expect_err("exposed").to_string();
        assert!(error.contains("mode 640") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_file_without_a_key_is_refused() {
        let dir = folder();
        let path = dir.path().join("key");
        let cut = SecretKey::from_seed([1; 32]).to_pem().replace("MC4CAQAw", "MC4CAQ");
        for content in ["", "hello", "\0\u{ff}", &cut, PEM_BEGIN] {
            let _ = fs::remove_file(&path);
            let mut file = OpenOptions::new();
            let mut file = file.write(true).create(true).mode(0o600).open(&path).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            let error = SecretKey::read(&path).expect_err(content).to_string();
            assert!(error.contains("flashflow keys --out"), "{error}");
        }
        let error = SecretKey::read(&dir.path().join("none")).expect_err("absent").to_string();
        assert!(error.contains("cannot read the key file"), "{error}");
    }

    /// The compiler checks it: these values are wiped when they are dropped.
    #[test]
    fn secrets_are_wiped() {
        fn is_wiped(_: impl zeroize::ZeroizeOnDrop) {}
        let key = SecretKey::from_seed([1; 32]);
        is_wiped(key.to_pkcs8());
        is_wiped(key.to_pem());
        is_wiped(key.0);
    }

    /// Made by: openssl genpkey -algorithm ed25519; openssl pkey -pubout -outform DER | tail -c 32
    #[test]
    fn the_file_is_what_openssl_writes() {
        let pem = "-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
            -----END PRIVATE KEY-----\n";
        let key = SecretKey::from_pem(pem).expect("a key");
        assert_eq!(*key.to_pem(), pem);
        // RFC 8410 §10.3 has this private key, and §10.1 its public key.
        assert_eq!(
            key.public().to_string(),
            "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1"
        );
    }

    #[test]
    fn a_public_key_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "not 64"),
            ("hello!", "not 64"),
            (&"é".repeat(32), "not 64"),
            (&"0".repeat(63), "not 64"),
            (&"g".repeat(64), "not 64"),
            (&format!("02{}", "0".repeat(62)), "curve"),
        ] {
            let error = text.parse::<PublicKey>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn text_and_der_give_a_public_key_back(seed: [u8; 32]) {
            let key = SecretKey::from_seed(seed).public();
            prop_assert_eq!(key.to_string().parse(), Ok(key));
            prop_assert_eq!(key.to_string().to_uppercase().parse(), Ok(key));
            prop_assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = text.parse::<PublicKey>();
            let _ = SecretKey::from_pem(&text);
        }
    }
}
