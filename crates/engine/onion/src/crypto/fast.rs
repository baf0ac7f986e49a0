//! CREATE_FAST: a first hop without public-key cryptography, which TLS provides (tor-spec §5.1.5).

use super::{HandshakeFailed, HopKeys};
use crate::cell::msg::CreatedFast;
use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;

/// The client's side; it is the body of a CREATE_FAST cell.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The client's key material.
    pub x: [u8; 20],
}

impl Client {
    /// From fresh random bytes.
    #[must_use]
    pub const fn new(x: [u8; 20]) -> Self {
        Self { x }
    }

    /// Verifies the relay's answer and derives the keys.
    ///
    /// # Errors
    /// If the answer does not prove knowledge of the client's key material.
    pub fn finish(self, created: &CreatedFast) -> Result<HopKeys, HandshakeFailed> {
        let (key_hash, keys) = derive(&self.x, &created.y);
        if !bool::from(key_hash.ct_eq(&created.key_hash)) {
            return Err(HandshakeFailed { handshake: "CREATE_FAST", problem: "wrong key hash" });
        }
        Ok(keys)
    }
}

/// The relay's side: the answer to a client's `x`, and the keys.
#[must_use]
pub fn respond(x: &[u8; 20], y: [u8; 20]) -> (CreatedFast, HopKeys) {
    let (key_hash, keys) = derive(x, &y);
    (CreatedFast { y, key_hash }, keys)
}

/// KDF-TOR (tor-spec §5.2.1): SHA-1 over secret and counter.
fn derive(x: &[u8; 20], y: &[u8; 20]) -> ([u8; 20], HopKeys) {
    const BLOCKS: usize = 5; // 20 bytes of proof and 72 of keys, rounded up to whole hashes
    let mut stream = [0; 20 * BLOCKS];
    for (counter, block) in (0u8..).zip(stream.chunks_exact_mut(20)) {
        let hash = Sha1::new().chain_update(x).chain_update(y).chain_update([counter]).finalize();
        block.copy_from_slice(&hash);
    }
    let mut key_hash = [0; 20];
    let mut material = [0; 72];
    key_hash.copy_from_slice(&stream[..20]);
    material.copy_from_slice(&stream[20..92]);
    (key_hash, HopKeys::from_material(&material))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_derive_the_same_keys() {
        let client = Client::new([1; 20]);
        let (created, relay_keys) = respond(&client.x, [2; 20]);
        let client_keys = client.finish(&created).expect("honest");
        assert_eq!(client_keys.key_forward, relay_keys.key_forward);
        assert_eq!(client_keys.digest_backward, relay_keys.digest_backward);
        assert_ne!(client_keys.key_forward, client_keys.key_backward);
    }

    #[test]
    fn a_relay_without_the_clients_half_is_rejected() {
        let (created, _) = respond(&[9; 20], [2; 20]);
        assert!(Client::new([1; 20]).finish(&created).is_err());
    }
}
