//! AES-CTR layers of relay cells, and the running digest that identifies the recipient (tor-spec §5.5, §6.1;
//! "tor1").

mod layers;

pub use layers::{Layers, RelayLayer};

use super::HopKeys;
use crate::cell::BODY_LEN;
use crate::cell::relay::{DIGEST, RECOGNIZED};
use aes::Aes128Enc;
use alloc::boxed::Box;
use core::fmt;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use sha1::{Digest, Sha1};

/// AES-128-CTR from counter zero: one direction of one hop, or a source of cell content.
///
/// It can seek: cell `n` can be processed again without the cells before it.
#[derive(Clone)]
pub struct Keystream(Ctr128BE<Aes128Enc>);

impl Keystream {
    /// The keystream of `key`, at its beginning.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        Self(Ctr128BE::new(key.into(), &[0; 16].into()))
    }

    /// XORs the next bytes of the keystream onto `bytes`.
    #[inline]
    pub fn apply(&mut self, bytes: &mut [u8]) {
        self.0.apply_keystream(bytes);
    }

    /// The position in the keystream, in bytes.
    fn position(&self) -> u64 {
        self.0.current_pos()
    }

    /// Seeks to `offset`.
    pub fn seek(&mut self, offset: u64) {
        self.0.seek(offset);
    }
}

impl fmt::Debug for Keystream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keystream(secret)")
    }
}

/// A cell that is not for this end, or was altered in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptError;

impl fmt::Display for CryptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("relay cell fails its digest: altered, or not sent by this hop")
    }
}

impl core::error::Error for CryptError {}

/// The running digest of one direction.
///
/// The last hop of a circuit that is built in advance has no cells of its own until a stream begins. The state of
/// SHA-1, five times as long as the seed, is created with the first of them.
#[derive(Clone)]
enum RunningDigest {
    /// The seed: no cell yet.
    Seed([u8; 20]),
    /// The digest of the seed and all cells so far.
    Running(Box<Sha1>),
}

impl RunningDigest {
    const fn new(seed: &[u8; 20]) -> Self {
        Self::Seed(*seed)
    }

    /// The digest after one more cell.
    fn after(&self, body: &[u8; BODY_LEN]) -> Sha1 {
        self.state().chain_update(body)
    }

    fn state(&self) -> Sha1 {
        match self {
            Self::Seed(seed) => Sha1::new_with_prefix(seed),
            Self::Running(state) => Sha1::clone(state),
        }
    }

    /// Counts the cell after which the digest is `state`.
    fn advance(&mut self, state: Sha1) {
        match self {
            Self::Seed(_) => *self = Self::Running(Box::new(state)),
            Self::Running(current) => **current = state,
        }
    }

    /// Writes the digest into a cell that this end originates.
    fn seal(&mut self, body: &mut [u8; BODY_LEN]) {
        body[RECOGNIZED].fill(0);
        body[DIGEST].fill(0);
        let advanced = self.after(body);
        let digest = advanced.clone().finalize();
        body[DIGEST].copy_from_slice(&digest[..4]);
        self.advance(advanced);
    }

    /// The full digest of the cells so far.
    fn tag(&self) -> [u8; 20] {
        self.state().finalize().into()
    }

    /// Whether a decrypted cell is for this end; only then is the digest updated.
    #[inline]
    fn recognizes(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        body[RECOGNIZED] == [0, 0] && self.matches(body)
    }

    fn matches(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        let mut claimed = [0; 4];
        claimed.copy_from_slice(&body[DIGEST]);
        body[DIGEST].fill(0);
        let advanced = self.after(body);
        body[DIGEST].copy_from_slice(&claimed);
        if advanced.clone().finalize()[..4] != claimed {
            return false;
        }
        self.advance(advanced);
        true
    }
}

/// Keystream and digest of one direction.
#[derive(Clone)]
struct CryptState {
    keystream: Keystream,
    digest: RunningDigest,
}

impl CryptState {
    fn new(key: &[u8; 16], digest_seed: &[u8; 20]) -> Self {
        Self { keystream: Keystream::new(key), digest: RunningDigest::new(digest_seed) }
    }
}

/// The client's side of the layer of one hop.
pub struct ClientHop {
    forward: CryptState,
    backward: CryptState,
}

impl ClientHop {
    /// From the keys of a handshake.
    #[must_use]
    pub fn new(keys: &HopKeys) -> Self {
        Self {
            forward: CryptState::new(&keys.key_forward, &keys.digest_forward),
            backward: CryptState::new(&keys.key_backward, &keys.digest_backward),
        }
    }

    /// Seals and encrypts a cell for this hop.
    pub fn encrypt(&mut self, body: &mut [u8; BODY_LEN]) {
        self.forward.digest.seal(body);
        self.forward.keystream.apply(body);
    }

    /// Decrypts a cell on a circuit whose last hop is this one.
    ///
    /// # Errors
    /// If the cell is not from this hop.
    pub fn decrypt(&mut self, body: &mut [u8; BODY_LEN]) -> Result<(), CryptError> {
        self.backward.keystream.apply(body);
        if self.backward.digest.recognizes(body) { Ok(()) } else { Err(CryptError) }
    }

    /// The tag of the last encrypted cell: a SENDME for it contains it (proposal 289).
    #[must_use]
    pub fn sent_tag(&self) -> [u8; 20] {
        self.forward.digest.tag()
    }

    /// The tag of the last decrypted cell.
    #[must_use]
    pub fn received_tag(&self) -> [u8; 20] {
        self.backward.digest.tag()
    }
}

impl fmt::Debug for ClientHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientHop(secret)")
    }
}

/// A relay's side of the layer that it shares with a client.
///
/// The expanded keys take most of the memory, and most circuits are idle at any time: the keys are released
/// meanwhile, see [`rest`](Self::rest).
pub struct RelayHop {
    forward: RunningDigest,
    backward: RunningDigest,
    asleep: Asleep,
    /// `None` while the keys are released.
    awake: Option<Box<Awake>>,
}

/// The state from which the ciphers are expanded: keys and positions.
struct Asleep {
    key_forward: [u8; 16],
    key_backward: [u8; 16],
    passed_forward: u64,
    passed_backward: u64,
}

/// The expanded ciphers.
struct Awake {
    forward: Keystream,
    backward: Keystream,
    /// Whether a cell has passed since the last [`RelayHop::rest`].
    is_used: bool,
}

impl Asleep {
    #[cold]
    fn wake(&self) -> Box<Awake> {
        let mut forward = Keystream::new(&self.key_forward);
        let mut backward = Keystream::new(&self.key_backward);
        forward.seek(self.passed_forward);
        backward.seek(self.passed_backward);
        Box::new(Awake { forward, backward, is_used: true })
    }
}

impl RelayHop {
    /// From the keys of a handshake.
    #[must_use]
    pub fn new(keys: &HopKeys) -> Self {
        Self {
            forward: RunningDigest::new(&keys.digest_forward),
            backward: RunningDigest::new(&keys.digest_backward),
            asleep: Asleep {
                key_forward: keys.key_forward,
                key_backward: keys.key_backward,
                passed_forward: 0,
                passed_backward: 0,
            },
            awake: None,
        }
    }

    #[inline]
    fn awake(&mut self) -> &mut Awake {
        let asleep = &self.asleep;
        let awake = self.awake.get_or_insert_with(|| asleep.wake());
        awake.is_used = true;
        awake
    }

    /// Decrypts a forward cell; returns true if the cell is for this relay. Otherwise the result is the cell
    /// for the next hop.
    pub fn decrypt(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        self.awake().forward.apply(body);
        self.forward.recognizes(body)
    }

    /// Seals and encrypts a cell of this relay.
    pub fn originate(&mut self, body: &mut [u8; BODY_LEN]) {
        self.backward.seal(body);
        self.awake().backward.apply(body);
    }

    /// The tag of the last cell that this relay originated: a SENDME for it contains it (proposal 289).
    #[must_use]
    pub fn sent_tag(&self) -> [u8; 20] {
        self.backward.tag()
    }

    /// The tag of the last cell for this relay.
    #[must_use]
    pub fn received_tag(&self) -> [u8; 20] {
        self.forward.tag()
    }

    /// Encrypts a cell of the next hop.
    pub fn pass_back(&mut self, body: &mut [u8; BODY_LEN]) {
        self.awake().backward.apply(body);
    }

    /// To be called periodically: releases the expanded keys (1.5 KB) if no cell has passed since the last
    /// call. The next cell expands them again.
    pub fn rest(&mut self) {
        let Some(awake) = &mut self.awake else { return };
        if core::mem::take(&mut awake.is_used) {
            return;
        }
        self.asleep.passed_forward = awake.forward.position();
        self.asleep.passed_backward = awake.backward.position();
        self.awake = None;
    }
}

impl fmt::Debug for RelayHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RelayHop(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::relay::{RelayCommand, RelayMessage};
    use crate::crypto::fast;
    use alloc::vec;
    use proptest::prelude::*;

    impl RelayHop {
        fn backward_passed(&self) -> u64 {
            let resting = self.asleep.passed_backward;
            self.awake.as_ref().map_or(resting, |awake| awake.backward.position())
        }
    }

    fn pair() -> (ClientHop, RelayHop) {
        let (created, relay_keys) = fast::respond(&[1; 20], [2; 20]);
        let client_keys = fast::Client::new([1; 20]).finish(&created).expect("honest");
        (ClientHop::new(&client_keys), RelayHop::new(&relay_keys))
    }

    proptest! {
        #[test]
        fn cells_for_the_hop_are_recognized_and_others_pass(
            cells in prop::collection::vec((any::<bool>(), 0..4), 1..30),
        ) {
            let (mut client, mut relay) = pair();
            for (for_hop, rests) in cells {
                // However often the keys are released, and whatever is left of a block.
                (0..rests).for_each(|_| relay.rest());
                prop_assert_eq!(relay.awake.is_some(), rests < 2 && relay.backward_passed() > 0);
                let data = vec![7; 100];
                let command = RelayCommand::DROP;
                let plain = RelayMessage { command, stream_id: 3, data: &data };
                let mut body = plain.to_body().expect("fits");
                if for_hop {
                    client.encrypt(&mut body);
                } else {
                    body[1] = 0xff; // as a cell with a further layer on
                    client.forward.keystream.apply(&mut body);
                }
                prop_assert_eq!(relay.decrypt(&mut body), for_hop);
                prop_assert_eq!(relay.received_tag(), client.sent_tag());
                prop_assert_eq!(&body[11..111], &data[..]);

                relay.originate(&mut body);
                prop_assert_eq!(client.decrypt(&mut body), Ok(()));
                prop_assert_eq!(client.received_tag(), relay.sent_tag());
            }
        }

        #[test]
        fn a_layer_that_only_forwards_is_small_at_rest(cells in 0usize..30) {
            let (_, mut relay) = pair();
            for _ in 0..cells {
                let mut body = [0xff; BODY_LEN];
                relay.pass_back(&mut body);
                // Decrypted it is all zeros, like a cell for this relay but for its digest.
                let mut body = [0; BODY_LEN];
                relay.awake().forward.clone().apply(&mut body);
                prop_assert!(!relay.decrypt(&mut body));
            }
            (0..2).for_each(|_| relay.rest());
            prop_assert!(relay.awake.is_none());
            let digests = [&relay.forward, &relay.backward];
            prop_assert!(digests.iter().all(|digest| matches!(digest, RunningDigest::Seed(_))));
            prop_assert!(size_of::<RelayHop>() <= 104);
        }

        #[test]
        fn an_altered_cell_is_not_recognized(at in 0usize..BODY_LEN, bit in 0u8..8) {
            let (mut client, mut relay) = pair();
            let mut body = [0x55; BODY_LEN];
            relay.originate(&mut body);
            body[at] ^= 1 << bit;
            prop_assert_eq!(client.decrypt(&mut body), Err(CryptError));
        }

        #[test]
        fn seeking_gives_the_same_keystream_as_reading(cell in 0u64..5000) {
            let mut straight = Keystream::new(&[3; 16]);
            let mut sought = straight.clone();
            let mut expected = [0; BODY_LEN];
            for _ in 0..=cell.min(60) {
                expected.fill(0);
                straight.apply(&mut expected);
            }
            let mut found = [0; BODY_LEN];
            sought.seek(cell.min(60) * BODY_LEN as u64);
            sought.apply(&mut found);
            prop_assert_eq!(found, expected);
        }
    }
}
