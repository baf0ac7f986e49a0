//! UIV+, the wide-block cipher of Counter Galois Onion (proposal 359 §"Cryptographic primitives").
//!
//! Keys and blocks have the proposal's names.

use crate::cell::BODY_LEN;
use aes::cipher::{BlockDecrypt, BlockEncrypt, InnerIvInit, KeyInit, KeySizeUser, StreamCipher};
use aes::{Aes128Dec, Aes128Enc};
use ctr::CtrCore;
use ctr::cipher::StreamCipherCoreWrapper;
use ctr::flavors::Ctr128BE;
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;

/// The length of a block of AES and POLYVAL, and of keys, nonces and tags.
pub(super) const BLOCK_LEN: usize = 16;
/// A block.
pub(super) type Block = [u8; BLOCK_LEN];
/// The left half of a body, the tag.
pub(super) const LEFT_LEN: usize = BLOCK_LEN;
/// The right half.
pub(super) const RIGHT_LEN: usize = BODY_LEN - LEFT_LEN;
/// Keys of [`Et`] or of [`Prf`]: for AES, then for POLYVAL.
const HALF_KEYS_LEN: usize = 2 * BLOCK_LEN;
/// Keys of a [`Uiv`]: those of [`Et`], then those of [`Prf`].
pub(super) const KEYS_LEN: usize = 2 * HALF_KEYS_LEN;
/// Keys of a [`Uiv`], and the nonce of its direction.
pub(super) const SEED_LEN: usize = KEYS_LEN + BLOCK_LEN;

/// The length of the hash input of [`Et`]: H, the command, the right half, and zeros up to a whole block.
const TWEAK_LEN: usize = (BLOCK_LEN + 1 + RIGHT_LEN).next_multiple_of(BLOCK_LEN);

/// The first block of each of a PRF's outputs: the second follows all of the first.
const SECOND_OUTPUT_AT: u8 = 31;

/// The tweak: chains a cell to the previous one, and contains its command.
#[derive(Clone, Copy)]
pub(super) struct Tweak<'a> {
    /// The tag of the last cell, T'.
    pub(super) chain: &'a Block,
    /// RELAY or RELAY_EARLY.
    pub(super) command: u8,
}

fn xor(block: &mut Block, with: &Block) {
    block.iter_mut().zip(with).for_each(|(to, from)| *to ^= from);
}

fn block(bytes: &[u8]) -> &Block {
    let Some(block) = bytes.first_chunk() else { unreachable!("keys are whole blocks") };
    block
}

/// The keys for AES and POLYVAL.
fn halves(keys: &[u8; HALF_KEYS_LEN]) -> (&Block, &Block) {
    (block(keys), block(&keys[BLOCK_LEN..]))
}

/// The AES-128 key.
pub(super) type KeySize = <Aes128Enc as KeySizeUser>::KeySize;

/// A tweakable block cipher, LRW2 of AES and POLYVAL: ET in the proposal. `C` is AES in the one required
/// direction: a relay encrypts, a client decrypts.
pub(super) struct Et<C> {
    kb: C,
    ku: Polyval,
}

impl<C: KeyInit<KeySize = KeySize>> Et<C> {
    pub(super) fn new(keys: &[u8; HALF_KEYS_LEN]) -> Self {
        let (kb, ku) = halves(keys);
        Self { kb: C::new(kb.into()), ku: Polyval::new(&(*ku).into()) }
    }

    /// UH(KU, H | command | right).
    #[inline]
    fn mask(&self, tweak: Tweak<'_>, right: &[u8; RIGHT_LEN]) -> Block {
        // In one call: the hash is fastest with many blocks at once.
        let mut bytes = [0; TWEAK_LEN];
        bytes[..BLOCK_LEN].copy_from_slice(tweak.chain);
        bytes[BLOCK_LEN] = tweak.command;
        bytes[BLOCK_LEN + 1..][..RIGHT_LEN].copy_from_slice(right);
        let mut hash = self.ku.clone();
        hash.update_padded(&bytes);
        hash.finalize().into()
    }
}

impl Et<Aes128Enc> {
    #[inline]
    pub(super) fn encrypt(&self, tweak: Tweak<'_>, right: &[u8; RIGHT_LEN], left: &mut Block) {
        let mask = self.mask(tweak, right);
        xor(left, &mask);
        self.kb.encrypt_block(left.into());
        xor(left, &mask);
    }
}

impl Et<Aes128Dec> {
    #[inline]
    pub(super) fn decrypt(&self, tweak: Tweak<'_>, right: &[u8; RIGHT_LEN], left: &mut Block) {
        let mask = self.mask(tweak, right);
        xor(left, &mask);
        self.kb.decrypt_block(left.into());
        xor(left, &mask);
    }
}

/// A pseudorandom function of a block with two outputs: PRF in the proposal.
pub(super) struct Prf {
    k: Aes128Enc,
    b: Polyval,
}

impl Prf {
    pub(super) fn new(keys: &[u8; HALF_KEYS_LEN]) -> Self {
        let (k, b) = halves(keys);
        Self { k: Aes128Enc::new(k.into()), b: Polyval::new(&(*b).into()) }
    }

    #[inline]
    fn xor_from(&self, input: &Block, from_block: u8, out: &mut [u8]) {
        let mut hash = self.b.clone();
        hash.update(&[(*input).into()]);
        let mut counter: Block = hash.finalize().into();
        // The counter has space for all blocks of both outputs without a carry.
        counter[BLOCK_LEN - 1] &= 0xc0;
        counter[BLOCK_LEN - 1] |= from_block;
        let core = CtrCore::<&Aes128Enc, Ctr128BE>::inner_iv_init(&self.k, (&counter).into());
        StreamCipherCoreWrapper::from_core(core).apply_keystream(out);
    }

    /// XORs the first output for `input` onto `out`.
    #[inline]
    pub(super) fn xor_first(&self, input: &Block, out: &mut [u8; RIGHT_LEN]) {
        self.xor_from(input, 0, out);
    }

    /// The second output for `input`.
    #[inline]
    pub(super) fn second<const N: usize>(&self, input: &Block) -> [u8; N] {
        let mut out = [0; N];
        self.xor_from(input, SECOND_OUTPUT_AT, &mut out);
        out
    }
}

/// A rugged pseudorandom permutation of whole bodies, with its key update: UIV+ in the proposal. Encryption
/// turns an altered body into noise; decryption does not.
pub(super) struct Uiv<C> {
    j: Et<C>,
    s: Prf,
}

fn split(body: &mut [u8; BODY_LEN]) -> (&mut Block, &mut [u8; RIGHT_LEN]) {
    let (left, right) = body.split_at_mut(LEFT_LEN);
    let (Some(left), Some(right)) = (left.first_chunk_mut(), right.first_chunk_mut()) else {
        unreachable!("a body is as long as its halves");
    };
    (left, right)
}

impl<C: KeyInit<KeySize = KeySize>> Uiv<C> {
    pub(super) fn new(keys: &[u8; KEYS_LEN]) -> Self {
        let (j, s) = keys.split_at(HALF_KEYS_LEN);
        let (Some(j), Some(s)) = (j.first_chunk(), s.first_chunk()) else {
            unreachable!("the keys are as long as their halves");
        };
        Self { j: Et::new(j), s: Prf::new(s) }
    }

    /// The next keys and nonce, derived with the current nonce. The derivation is one-way.
    #[inline]
    pub(super) fn next_seed(&self, nonce: &Block) -> [u8; SEED_LEN] {
        self.s.second(nonce)
    }
}

impl Uiv<Aes128Enc> {
    #[inline]
    pub(super) fn encrypt(&self, tweak: Tweak<'_>, body: &mut [u8; BODY_LEN]) {
        let (left, right) = split(body);
        self.j.encrypt(tweak, right, left);
        self.s.xor_first(left, right);
    }
}

impl Uiv<Aes128Dec> {
    #[inline]
    pub(super) fn decrypt(&self, tweak: Tweak<'_>, body: &mut [u8; BODY_LEN]) {
        let (left, right) = split(body);
        self.s.xor_first(left, right);
        self.j.decrypt(tweak, right, left);
    }
}
