//! The formats of tor's key files. Pure. Texts of secret keys are wiped when they are dropped.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use onion::keys::{Ed25519Key, KeyProblem, RsaKey};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

const RSA_BEGIN: &str = "-----BEGIN RSA PRIVATE KEY-----";
const RSA_END: &str = "-----END RSA PRIVATE KEY-----";
/// Length to which tor pads the header of its binary key files.
const HEADER_LEN: usize = 32;
const ED25519_HEADER: &[u8] = b"== ed25519v1-secret: type0 ==";
const ED25519_PUBLIC_HEADER: &[u8] = b"== ed25519v1-public: type0 ==";
const FAMILY_HEADER: &[u8] = b"== ed25519v1-secret: fmly-id ==";
const ONION_HEADER: &[u8] = b"== c25519v1: onion ==";

/// A file of tor's binary format.
fn tagged(header: &[u8], content: &[u8]) -> Vec<u8> {
    let mut file = header.to_vec();
    file.resize(HEADER_LEN, 0);
    file.extend_from_slice(content);
    file
}

/// The key bytes of such a file.
fn untagged<const N: usize>(header: &[u8], file: &[u8]) -> Result<[u8; N], &'static str> {
    let (found, content) = file.split_at_checked(HEADER_LEN).ok_or("it is too short")?;
    let (begin, zeros) = found.split_at(header.len());
    if begin != header || zeros.iter().any(|byte| *byte != 0) {
        return Err("it does not begin like a key of this kind");
    }
    content.try_into().map_err(|_| "it does not have the length of a key")
}

/// An RSA key in PKCS #1, as text.
pub(super) fn rsa(key: &RsaKey) -> Result<Zeroizing<String>, KeyProblem> {
    let der = key.to_der()?;
    // With room for all, it does not grow, which would leave a copy.
    let mut text = Zeroizing::new(String::with_capacity(2 * der.as_bytes().len() + 100));
    text.push_str(RSA_BEGIN);
    text.push('\n');
    netdoc::write::push_base64_lines(&mut text, der.as_bytes());
    text.push_str(RSA_END);
    text.push('\n');
    Ok(text)
}

pub(super) fn read_rsa(file: &[u8]) -> Result<RsaKey, &'static str> {
    let text = std::str::from_utf8(file).map_err(|_| "it is not text")?;
    // Tor appends a zero.
    let text = text.trim_end_matches('\0').trim();
    let body = text.strip_prefix(RSA_BEGIN).ok_or("it does not begin like an RSA key")?;
    let body = body.strip_suffix(RSA_END).ok_or("it does not end like an RSA key")?;
    let mut base64 = Zeroizing::new(String::with_capacity(body.len()));
    base64.extend(body.split_ascii_whitespace());
    let der = Zeroizing::new(STANDARD.decode(&*base64).map_err(|_| "it is not base64")?);
    RsaKey::from_der(&der).map_err(KeyProblem::reason)
}

/// An Ed25519 secret key, expanded as in tor.
pub(super) fn ed25519(key: &Ed25519Key) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(tagged(ED25519_HEADER, &*Zeroizing::new(key.secret_bytes())))
}

pub(super) fn read_ed25519(file: &[u8]) -> Result<Ed25519Key, &'static str> {
    untagged(ED25519_HEADER, file).map(secret)
}

/// A family key, as tor stores it.
pub(super) fn read_family(file: &[u8]) -> Result<Ed25519Key, &'static str> {
    untagged(FAMILY_HEADER, file).map(secret)
}

fn secret(bytes: [u8; 64]) -> Ed25519Key {
    Ed25519Key::from_secret_bytes(&Zeroizing::new(bytes))
}

pub(super) fn ed25519_public(key: &Ed25519Key) -> Vec<u8> {
    tagged(ED25519_PUBLIC_HEADER, key.public().as_bytes())
}

pub(super) fn read_ed25519_public(file: &[u8]) -> Result<[u8; 32], &'static str> {
    untagged(ED25519_PUBLIC_HEADER, file)
}

/// An ntor onion key: secret and public key.
pub(super) fn onion(secret: &[u8; 32]) -> Zeroizing<Vec<u8>> {
    let secret = StaticSecret::from(*secret);
    let public = PublicKey::from(&secret);
    let both = Zeroizing::new([secret.to_bytes(), public.to_bytes()].concat());
    Zeroizing::new(tagged(ONION_HEADER, &both))
}

pub(super) fn read_onion(file: &[u8]) -> Result<[u8; 32], &'static str> {
    let both: Zeroizing<[u8; 64]> = Zeroizing::new(untagged(ONION_HEADER, file)?);
    let mut secret = [0; 32];
    secret.copy_from_slice(&both[..32]);
    let public = PublicKey::from(&StaticSecret::from(secret));
    if public.as_bytes() != &both[32..] {
        return Err("its public key does not belong to the secret key");
    }
    Ok(secret)
}
