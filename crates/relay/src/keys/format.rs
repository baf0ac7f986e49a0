//! The formats of tor's key files. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rsa::pkcs1::EncodeRsaPrivateKey;
use tor_llcrypto::pk::{curve25519, ed25519, rsa as tor_rsa};

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
        return Err("it does not begin as a key of this kind does");
    }
    content.try_into().map_err(|_| "it has not the length of a key")
}

/// An RSA key in PKCS #1, as text.
pub(super) fn rsa(key: &tor_rsa::KeyPair) -> Result<String, rsa::pkcs1::Error> {
    let der = key.as_key().to_pkcs1_der()?;
    let mut text = format!("{RSA_BEGIN}\n");
    netdoc::write::push_base64_lines(&mut text, der.as_bytes());
    text.push_str(RSA_END);
    text.push('\n');
    Ok(text)
}

pub(super) fn read_rsa(file: &[u8]) -> Result<tor_rsa::KeyPair, &'static str> {
    let text = std::str::from_utf8(file).map_err(|_| "it is no text")?;
    // Tor appends a zero.
    let text = text.trim_end_matches('\0').trim();
    let body = text.strip_prefix(RSA_BEGIN).ok_or("it does not begin as an RSA key does")?;
    let body = body.strip_suffix(RSA_END).ok_or("it does not end as an RSA key does")?;
    let body: String = body.split_ascii_whitespace().collect();
    let der = STANDARD.decode(body).map_err(|_| "it is not base64")?;
    let key = tor_rsa::KeyPair::from_der(&der).ok_or("it is no RSA key")?;
    // Tor's key size and exponent, which its certificates require.
    let public = key.to_public_key();
    if public.bits() != 1024 || !public.exponent_is(65_537) {
        return Err("it is no RSA key of 1024 bits and exponent 65537");
    }
    key.as_key().validate().map_err(|_| "its numbers do not fit together")?;
    Ok(key)
}

/// An Ed25519 secret key, expanded as in tor.
pub(super) fn ed25519(key: &ed25519::ExpandedKeypair) -> Vec<u8> {
    tagged(ED25519_HEADER, &key.to_secret_key_bytes())
}

pub(super) fn read_ed25519(file: &[u8]) -> Result<ed25519::ExpandedKeypair, &'static str> {
    let bytes = untagged(ED25519_HEADER, file)?;
    ed25519::ExpandedKeypair::from_secret_key_bytes(bytes).ok_or("it is no Ed25519 key")
}

/// A family key, as tor stores it.
pub(super) fn read_family(file: &[u8]) -> Result<ed25519::ExpandedKeypair, &'static str> {
    let bytes = untagged(FAMILY_HEADER, file)?;
    ed25519::ExpandedKeypair::from_secret_key_bytes(bytes).ok_or("it is no Ed25519 key")
}

pub(super) fn ed25519_public(key: &ed25519::ExpandedKeypair) -> Vec<u8> {
    tagged(ED25519_PUBLIC_HEADER, key.public().as_bytes())
}

pub(super) fn read_ed25519_public(file: &[u8]) -> Result<[u8; 32], &'static str> {
    untagged(ED25519_PUBLIC_HEADER, file)
}

/// An ntor onion key: secret and public key.
pub(super) fn onion(secret: &[u8; 32]) -> Vec<u8> {
    let secret = curve25519::StaticSecret::from(*secret);
    let public = curve25519::PublicKey::from(&secret);
    tagged(ONION_HEADER, &[secret.to_bytes(), public.to_bytes()].concat())
}

pub(super) fn read_onion(file: &[u8]) -> Result<[u8; 32], &'static str> {
    let both: [u8; 64] = untagged(ONION_HEADER, file)?;
    let mut secret = [0; 32];
    secret.copy_from_slice(&both[..32]);
    let public = curve25519::PublicKey::from(&curve25519::StaticSecret::from(secret));
    if public.as_bytes() != &both[32..] {
        return Err("its public half does not belong to the secret one");
    }
    Ok(secret)
}
