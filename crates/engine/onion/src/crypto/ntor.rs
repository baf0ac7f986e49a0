//! The ntor handshake, both sides (tor-spec §5.1.4).

use super::{HandshakeFailed, HopKeys};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use x25519_dalek::{PublicKey, StaticSecret};

/// The length of the client's message: identity digest, onion key, ephemeral key.
pub const CLIENT_LEN: usize = 84;
/// The length of the relay's message: ephemeral key and authenticator.
pub const SERVER_LEN: usize = 64;

const PROTO_ID: &[u8] = b"ntor-curve25519-sha256-1";
const T_MAC: &[u8] = b"ntor-curve25519-sha256-1:mac";
const T_KEY: &[u8] = b"ntor-curve25519-sha256-1:key_extract";
const T_VERIFY: &[u8] = b"ntor-curve25519-sha256-1:verify";
const M_EXPAND: &[u8] = b"ntor-curve25519-sha256-1:key_expand";

/// A client's knowledge of a relay that the handshake needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayKeys {
    /// SHA-1 of its RSA identity key.
    pub rsa_id: [u8; 20],
    /// Its medium-term onion key.
    pub onion_key: [u8; 32],
}

/// The client's side of one handshake.
pub struct Client {
    relay: RelayKeys,
    secret: StaticSecret,
    public: PublicKey,
}

impl Client {
    /// From fresh random bytes for the ephemeral secret.
    #[must_use]
    pub fn new(relay: RelayKeys, ephemeral_secret: [u8; 32]) -> Self {
        let secret = StaticSecret::from(ephemeral_secret);
        let public = PublicKey::from(&secret);
        Self { relay, secret, public }
    }

    /// The client's ephemeral public key.
    #[must_use]
    pub fn public(&self) -> &[u8; 32] {
        self.public.as_bytes()
    }

    /// The data of the CREATE2 or EXTEND2.
    #[must_use]
    pub fn message(&self) -> [u8; CLIENT_LEN] {
        let mut message = [0; CLIENT_LEN];
        message[..20].copy_from_slice(&self.relay.rsa_id);
        message[20..52].copy_from_slice(&self.relay.onion_key);
        message[52..].copy_from_slice(self.public.as_bytes());
        message
    }

    /// Verifies the relay's answer and derives the keys.
    ///
    /// # Errors
    /// If the answer has the wrong length or an invalid key, or does not prove the relay's identity.
    pub fn finish(&self, answer: &[u8]) -> Result<HopKeys, HandshakeFailed> {
        let answer: &[u8; SERVER_LEN] =
            answer.try_into().map_err(|_| failed("answer of the wrong length"))?;
        let (y, auth) = answer.split_at(32);
        let mut server_public = [0; 32];
        server_public.copy_from_slice(y);
        let server_public = PublicKey::from(server_public);
        let xy = self.secret.diffie_hellman(&server_public);
        let xb = self.secret.diffie_hellman(&PublicKey::from(self.relay.onion_key));
        if !xy.was_contributory() || !xb.was_contributory() {
            return Err(failed("a public key of low order"));
        }
        let (expected, keys) =
            derive(xy.as_bytes(), xb.as_bytes(), &self.relay, &self.public, &server_public);
        if !bool::from(expected.ct_eq(auth)) {
            return Err(failed("the answer does not prove the relay's identity"));
        }
        Ok(keys)
    }
}

/// The client's ephemeral key in a handshake's data, unverified.
#[must_use]
pub fn client_public(data: &[u8]) -> Option<[u8; 32]> {
    data.get(52..CLIENT_LEN)?.try_into().ok()
}

/// The relay's side: the answer to a client's message, and the keys.
///
/// # Errors
/// If the message has the wrong length, is for another relay or onion key, or has an invalid key.
pub fn respond(
    rsa_id: &[u8; 20],
    onion_secret: &StaticSecret,
    ephemeral_secret: [u8; 32],
    message: &[u8],
) -> Result<([u8; SERVER_LEN], HopKeys), HandshakeFailed> {
    if message.len() != CLIENT_LEN {
        return Err(failed("message of the wrong length"));
    }
    let relay = RelayKeys { rsa_id: *rsa_id, onion_key: *PublicKey::from(onion_secret).as_bytes() };
    if message[..20] != relay.rsa_id || message[20..52] != relay.onion_key {
        return Err(failed("message for another relay or onion key"));
    }
    let Some(client_public) = client_public(message).map(PublicKey::from) else {
        return Err(failed("message of the wrong length"));
    };
    let secret = StaticSecret::from(ephemeral_secret);
    let public = PublicKey::from(&secret);
    let xy = secret.diffie_hellman(&client_public);
    let xb = onion_secret.diffie_hellman(&client_public);
    if !xy.was_contributory() || !xb.was_contributory() {
        return Err(failed("a public key of low order"));
    }
    let (auth, keys) = derive(xy.as_bytes(), xb.as_bytes(), &relay, &client_public, &public);
    let mut answer = [0; SERVER_LEN];
    answer[..32].copy_from_slice(public.as_bytes());
    answer[32..].copy_from_slice(&auth);
    Ok((answer, keys))
}

const fn failed(problem: &'static str) -> HandshakeFailed {
    HandshakeFailed { handshake: "ntor", problem }
}

/// `HMAC_SHA256(message, tweak)`: the H of the specification, with the tweak as key.
fn tweaked_hash(parts: &[&[u8]], tweak: &[u8]) -> [u8; 32] {
    // HMAC accepts keys of any length; the error type exists for other MACs.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(tweak) else { return [0; 32] };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Authenticator and keys from the shared secrets `xy` and `xb`.
fn derive(
    xy: &[u8; 32],
    xb: &[u8; 32],
    relay: &RelayKeys,
    client_public: &PublicKey,
    server_public: &PublicKey,
) -> ([u8; 32], HopKeys) {
    let (x, y) = (client_public.as_bytes(), server_public.as_bytes());
    let (id, b) = (&relay.rsa_id, &relay.onion_key);
    let secret_input: [&[u8]; 7] = [xy, xb, id, b, x, y, PROTO_ID];
    let verify = tweaked_hash(&secret_input, T_VERIFY);
    let auth = tweaked_hash(&[&verify, id, b, y, x, PROTO_ID, b"Server"], T_MAC);
    // RFC 5869 with T_KEY as salt: the extract step is the tweaked hash of the secret input.
    let seed = tweaked_hash(&secret_input, T_KEY);
    let mut material = [0; 72];
    if let Ok(kdf) = Hkdf::<Sha256>::from_prk(&seed) {
        // Fails only beyond 255 hashes of output.
        let _ = kdf.expand(M_EXPAND, &mut material);
    }
    (auth, HopKeys::from_material(&material))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_sides_derive_the_same_keys(
            rsa_id: [u8; 20], onion: [u8; 32], client_secret: [u8; 32], server_secret: [u8; 32],
        ) {
            let onion = StaticSecret::from(onion);
            let onion_key = *PublicKey::from(&onion).as_bytes();
            let client = Client::new(RelayKeys { rsa_id, onion_key }, client_secret);
            let (answer, relay_keys) =
                respond(&rsa_id, &onion, server_secret, &client.message()).expect("honest");
            let client_keys = client.finish(&answer).expect("honest");
            prop_assert_eq!(client_keys.key_forward, relay_keys.key_forward);
            prop_assert_eq!(client_keys.digest_backward, relay_keys.digest_backward);

            let mut forged = answer;
            forged[40] ^= 1;
            prop_assert!(client.finish(&forged).is_err());
            prop_assert!(client.finish(&answer[..63]).is_err());
            prop_assert!(respond(&[0; 20], &onion, server_secret, &client.message()).is_err()
                || rsa_id == [0; 20]);
        }
    }

    #[test]
    fn a_key_of_low_order_is_rejected() {
        let relay = RelayKeys { rsa_id: [0; 20], onion_key: [9; 32] };
        let error = Client::new(relay, [7; 32]).finish(&[0; 64]).expect_err("all-zero key");
        assert_eq!(error.problem, "a public key of low order");
    }
}
