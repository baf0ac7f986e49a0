//! The ntor v3 handshake, both sides: ntor with a message in each direction (proposal 332, tor-spec §5.1.5).
//!
//! The messages hold [`extension`]s that negotiate more than keys. The client's message is encrypted to the
//! relay but not forward-secret; the relay's answer is as secret as the circuit.

pub mod extension;
mod hash;

use super::{HandshakeFailed, LayerKeys, MATERIAL_LEN_MAX};
use crate::cell::relay::RelayFormat;
use aes::Aes256;
use alloc::vec::Vec;
use core::fmt;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit, StreamCipher};
use hash::{Tweak, hash, key_stream};
use sha3::digest::XofReader;
use subtle::ConstantTimeEq;
use x25519_dalek::{PublicKey, StaticSecret};

/// The length of the client's part without its message: identity, onion key, ephemeral key, MAC.
const CLIENT_OVERHEAD_LEN: usize = 4 * 32;
/// The length of the relay's part without its message: ephemeral key, authenticator.
const SERVER_OVERHEAD_LEN: usize = 2 * 32;

/// The purpose that both sides must agree on: a circuit (tor-spec §5.1.5).
const VERIFICATION: &[u8] = b"circuit extend";

/// A client's knowledge of a relay that the handshake needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayKeys {
    /// Its Ed25519 identity.
    pub ed25519_id: [u8; 32],
    /// Its medium-term onion key.
    pub onion_key: [u8; 32],
}

/// The client's side of one handshake.
pub struct Client {
    relay: RelayKeys,
    verification: &'static [u8],
    secret: StaticSecret,
    public: PublicKey,
    /// The secret shared with the owner of the onion key.
    bx: [u8; 32],
    data: Vec<u8>,
}

impl Client {
    /// A handshake that carries `message`, from fresh random bytes for the ephemeral secret.
    ///
    /// # Errors
    /// If the relay's onion key is invalid.
    pub fn new(
        relay: RelayKeys,
        ephemeral_secret: [u8; 32],
        message: &[u8],
    ) -> Result<Self, HandshakeFailed> {
        Self::with_verification(relay, ephemeral_secret, message, VERIFICATION)
    }

    fn with_verification(
        relay: RelayKeys,
        ephemeral_secret: [u8; 32],
        message: &[u8],
        verification: &'static [u8],
    ) -> Result<Self, HandshakeFailed> {
        let secret = StaticSecret::from(ephemeral_secret);
        let public = PublicKey::from(&secret);
        let bx = shared(&secret, &PublicKey::from(relay.onion_key))?;
        let (cipher_key, mac_key) = first_keys(&bx, &relay, &public, verification);
        let mut data = Vec::with_capacity(CLIENT_OVERHEAD_LEN + message.len());
        data.extend_from_slice(&relay.ed25519_id);
        data.extend_from_slice(&relay.onion_key);
        data.extend_from_slice(public.as_bytes());
        data.extend_from_slice(message);
        apply_cipher(&cipher_key, &mut data[96..]);
        let mac = first_mac(&mac_key, &data);
        data.extend_from_slice(&mac);
        Ok(Self { relay, verification, secret, public, bx, data })
    }

    /// The client's ephemeral public key.
    #[must_use]
    pub fn public(&self) -> &[u8; 32] {
        self.public.as_bytes()
    }

    /// The data of the CREATE2 or EXTEND2.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Verifies the relay's answer. Returns its message, and the keys of a layer with this format.
    ///
    /// # Errors
    /// If the answer is truncated, has an invalid key, or does not prove the relay's identity.
    pub fn finish(
        &self,
        answer: &[u8],
        format: RelayFormat,
    ) -> Result<(Vec<u8>, LayerKeys), HandshakeFailed> {
        let mut material = [0; MATERIAL_LEN_MAX];
        let len = LayerKeys::material_len(format);
        let message = self.finish_with(answer, &mut material[..len])?;
        Ok((message, LayerKeys::from_material(format, &material)))
    }

    fn finish_with(&self, answer: &[u8], material: &mut [u8]) -> Result<Vec<u8>, HandshakeFailed> {
        let too_short = failed("answer too short");
        let (public, rest) = answer.split_first_chunk::<32>().ok_or(too_short)?;
        let (auth, sealed) = rest.split_first_chunk::<32>().ok_or(too_short)?;
        let server_public = PublicKey::from(*public);
        let yx = shared(&self.secret, &server_public)?;
        let secrets = Secrets {
            xy: &yx,
            xb: &self.bx,
            relay: &self.relay,
            client_public: &self.public,
            server_public: &server_public,
            verification: self.verification,
        };
        let (seed, verify) = secrets.seed_and_verify();
        let mac = &self.data[self.data.len() - 32..];
        if !bool::from(secrets.authenticator(&verify, mac, sealed).ct_eq(auth)) {
            return Err(failed("the answer does not prove the relay's identity"));
        }
        let mut message = Vec::from(sealed);
        apply_cipher(&last_keys(&seed, material), &mut message);
        Ok(message)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ntor_v3::Client(secret)")
    }
}

/// The client's ephemeral key in a handshake's data, unverified.
#[must_use]
pub fn client_public(data: &[u8]) -> Option<[u8; 32]> {
    data.get(64..96)?.try_into().ok()
}

/// The relay's side of one handshake, between the client's message and the answer.
pub struct Server {
    relay: RelayKeys,
    verification: &'static [u8],
    client_public: PublicKey,
    xb: [u8; 32],
    mac: [u8; 32],
    message: Vec<u8>,
}

impl Server {
    /// Opens the data of a CREATE2.
    ///
    /// # Errors
    /// If it is truncated, was altered, is for another relay or onion key, or has an invalid key.
    pub fn open(
        ed25519_id: &[u8; 32],
        onion_secret: &StaticSecret,
        data: &[u8],
    ) -> Result<Self, HandshakeFailed> {
        Self::with_verification(ed25519_id, onion_secret, data, VERIFICATION)
    }

    fn with_verification(
        ed25519_id: &[u8; 32],
        onion_secret: &StaticSecret,
        data: &[u8],
        verification: &'static [u8],
    ) -> Result<Self, HandshakeFailed> {
        let onion_key = *PublicKey::from(onion_secret).as_bytes();
        let relay = RelayKeys { ed25519_id: *ed25519_id, onion_key };
        let too_short = failed("message too short");
        let (sent, mac) = data.split_last_chunk::<32>().ok_or(too_short)?;
        let (head, sealed) = sent.split_first_chunk::<96>().ok_or(too_short)?;
        if head[..32] != relay.ed25519_id || head[32..64] != relay.onion_key {
            return Err(failed("message for another relay or onion key"));
        }
        let client_public = client_public(head).map(PublicKey::from).ok_or(too_short)?;
        let xb = shared(onion_secret, &client_public)?;
        let (cipher_key, mac_key) = first_keys(&xb, &relay, &client_public, verification);
        if !bool::from(first_mac(&mac_key, sent).ct_eq(mac)) {
            return Err(failed("message altered"));
        }
        let mut message = Vec::from(sealed);
        apply_cipher(&cipher_key, &mut message);
        Ok(Self { relay, verification, client_public, xb, mac: *mac, message })
    }

    /// The client's message.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The answer with `message`, and the keys of a layer with this format, from fresh random bytes for the
    /// ephemeral secret.
    ///
    /// # Errors
    /// If the client's key is invalid.
    pub fn respond(
        &self,
        ephemeral_secret: [u8; 32],
        message: &[u8],
        format: RelayFormat,
    ) -> Result<(Vec<u8>, LayerKeys), HandshakeFailed> {
        let mut material = [0; MATERIAL_LEN_MAX];
        let len = LayerKeys::material_len(format);
        let answer = self.respond_with(ephemeral_secret, message, &mut material[..len])?;
        Ok((answer, LayerKeys::from_material(format, &material)))
    }

    fn respond_with(
        &self,
        ephemeral_secret: [u8; 32],
        message: &[u8],
        material: &mut [u8],
    ) -> Result<Vec<u8>, HandshakeFailed> {
        let secret = StaticSecret::from(ephemeral_secret);
        let server_public = PublicKey::from(&secret);
        let xy = shared(&secret, &self.client_public)?;
        let secrets = Secrets {
            xy: &xy,
            xb: &self.xb,
            relay: &self.relay,
            client_public: &self.client_public,
            server_public: &server_public,
            verification: self.verification,
        };
        let (seed, verify) = secrets.seed_and_verify();
        let cipher_key = last_keys(&seed, material);
        let mut answer = Vec::with_capacity(SERVER_OVERHEAD_LEN + message.len());
        answer.extend_from_slice(server_public.as_bytes());
        answer.extend_from_slice(&[0; 32]);
        answer.extend_from_slice(message);
        apply_cipher(&cipher_key, &mut answer[SERVER_OVERHEAD_LEN..]);
        let auth = secrets.authenticator(&verify, &self.mac, &answer[SERVER_OVERHEAD_LEN..]);
        answer[32..SERVER_OVERHEAD_LEN].copy_from_slice(&auth);
        Ok(answer)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ntor_v3::Server(secret)")
    }
}

const fn failed(problem: &'static str) -> HandshakeFailed {
    HandshakeFailed { handshake: "ntor-v3", problem }
}

/// Diffie-Hellman; `None` if the result is a low-order point.
fn shared(secret: &StaticSecret, public: &PublicKey) -> Result<[u8; 32], HandshakeFailed> {
    let shared = secret.diffie_hellman(public);
    if shared.was_contributory() {
        Ok(*shared.as_bytes())
    } else {
        Err(failed("a public key of low order"))
    }
}

/// AES-256-CTR from counter zero, for one message.
fn apply_cipher(key: &[u8; 32], message: &mut [u8]) {
    Ctr128BE::<Aes256>::new(key.into(), &[0; 16].into()).apply_keystream(message);
}

/// The keys of the client's message: cipher and MAC.
fn first_keys(
    xb: &[u8; 32],
    relay: &RelayKeys,
    client_public: &PublicKey,
    verification: &[u8],
) -> ([u8; 32], [u8; 32]) {
    let mut stream = key_stream(Tweak::MessageKeys, |hash| {
        hash.add(xb);
        hash.add(&relay.ed25519_id);
        hash.add(client_public.as_bytes());
        hash.add(&relay.onion_key);
        hash.add(hash::PROTOCOL);
        hash.add_sized(verification);
    });
    let (mut cipher, mut mac) = ([0; 32], [0; 32]);
    stream.read(&mut cipher);
    stream.read(&mut mac);
    (cipher, mac)
}

/// The MAC over the preceding parts of the client's data.
fn first_mac(key: &[u8; 32], sent: &[u8]) -> [u8; 32] {
    hash(Tweak::MessageMac, |hash| {
        hash.add_sized(key);
        hash.add(sent);
    })
}

/// Fills in the circuit's key material; returns the key of the relay's message.
fn last_keys(seed: &[u8; 32], material: &mut [u8]) -> [u8; 32] {
    let mut stream = key_stream(Tweak::CircuitKeys, |hash| hash.add(seed));
    let mut cipher = [0; 32];
    stream.read(&mut cipher);
    stream.read(material);
    cipher
}

/// The final shared transcript.
struct Secrets<'a> {
    xy: &'a [u8; 32],
    xb: &'a [u8; 32],
    relay: &'a RelayKeys,
    client_public: &'a PublicKey,
    server_public: &'a PublicKey,
    verification: &'a [u8],
}

impl Secrets<'_> {
    fn seed_and_verify(&self) -> ([u8; 32], [u8; 32]) {
        let of = |tweak| {
            hash(tweak, |hash| {
                hash.add(self.xy);
                hash.add(self.xb);
                hash.add(&self.relay.ed25519_id);
                hash.add(&self.relay.onion_key);
                hash.add(self.client_public.as_bytes());
                hash.add(self.server_public.as_bytes());
                hash.add(hash::PROTOCOL);
                hash.add_sized(self.verification);
            })
        };
        (of(Tweak::Seed), of(Tweak::Verify))
    }

    /// Proves that the relay knows the transcript and has sent `sealed`.
    fn authenticator(&self, verify: &[u8; 32], mac: &[u8], sealed: &[u8]) -> [u8; 32] {
        hash(Tweak::Authenticator, |hash| {
            hash.add(verify);
            hash.add(&self.relay.ed25519_id);
            hash.add(&self.relay.onion_key);
            hash.add(self.server_public.as_bytes());
            hash.add(self.client_public.as_bytes());
            hash.add(mac);
            hash.add_sized(sealed);
            hash.add(hash::PROTOCOL);
            hash.add(b"Server");
        })
    }
}

#[cfg(test)]
mod tests;
