//! UIV+, the wide-block cipher of Counter Galois Onion (proposal 359 §"Cryptographic primitives").
//!
//! Keys and blocks have the proposal's names.

use crate::cell::BODY_LEN;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit, KeySizeUser};
use aes::{Aes128Dec, Aes128Enc};
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

/// The length of the parts in which [`Et`] hashes: POLYVAL is fastest with four blocks at a time.
const PART_LEN: usize = 4 * BLOCK_LEN;
/// The bytes of the right half in the first part, after H and the command.
const RIGHT_IN_FIRST_LEN: usize = PART_LEN - BLOCK_LEN - 1;
/// The bytes of the right half in the last part, before zeros.
const LAST_LEN: usize = (RIGHT_LEN - RIGHT_IN_FIRST_LEN) % PART_LEN;

/// The number of blocks of a [`Prf`]'s first output. The second output follows it.
const FIRST_OUTPUT_BLOCKS: u8 = 31;

/// `N` counters of a [`Prf`] from the number `first`, without the hash.
const fn counters<const N: usize>(first: u8) -> [Block; N] {
    let mut counters = [[0; BLOCK_LEN]; N];
    let mut number = first;
    while ((number - first) as usize) < N {
        counters[(number - first) as usize][BLOCK_LEN - 1] = number;
        number += 1;
    }
    counters
}

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
    fn mask(&mut self, tweak: Tweak<'_>, right: &[u8; RIGHT_LEN]) -> Block {
        // Only what has to be joined or padded is copied.
        let (right_in_first, right) = right.split_at(RIGHT_IN_FIRST_LEN);
        let (parts, rest) = right.as_chunks::<PART_LEN>();
        let mut last = [0; PART_LEN];
        last[..LAST_LEN].copy_from_slice(&rest[..LAST_LEN]);
        let mut first = [0; PART_LEN];
        first[..BLOCK_LEN].copy_from_slice(tweak.chain);
        first[BLOCK_LEN] = tweak.command;
        first[BLOCK_LEN + 1..].copy_from_slice(right_in_first);
        for part in [&first].into_iter().chain(parts).chain([&last]) {
            let (blocks, _) = polyval::Block::slice_as_chunks(part);
            self.ku.update(blocks);
        }
        self.ku.finalize_reset().into()
    }
}

impl Et<Aes128Enc> {
    #[inline]
    pub(super) fn encrypt(&mut self, tweak: Tweak<'_>, right: &[u8; RIGHT_LEN], left: &mut Block) {
        let mask = self.mask(tweak, right);
        xor(left, &mask);
        self.kb.encrypt_block(left.into());
        xor(left, &mask);
    }
}

impl Et<Aes128Dec> {
    #[inline]
    pub(super) fn decrypt(&mut self, tweak: Tweak<'_>, right: &[u8; RIGHT_LEN], left: &mut Block) {
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

    /// Turns the `counters` of an output into the output for `input`.
    #[inline]
    fn apply<const N: usize>(&mut self, input: &Block, counters: &mut [Block; N]) {
        self.b.update(&[(*input).into()]);
        let hash = u128::from_be_bytes(self.b.finalize_reset().into());
        // The other bits have space for all blocks of both outputs without a carry.
        encrypt_counters(&self.k, &(hash & !0x3f).to_be_bytes(), counters);
    }

    /// XORs the first output for `input` onto `out`.
    #[inline]
    pub(super) fn xor_first(&mut self, input: &Block, out: &mut [u8; RIGHT_LEN]) {
        // A whole number of the eight blocks that AES-NI encrypts at a time: others take longer.
        const COUNTERS: [Block; 32] = counters(0);
        let mut blocks = COUNTERS;
        self.apply(input, &mut blocks);
        out.iter_mut().zip(blocks.as_flattened()).for_each(|(to, from)| *to ^= from);
    }

    /// The second output for `input`.
    #[inline]
    pub(super) fn second(&mut self, input: &Block) -> [u8; SEED_LEN] {
        const COUNTERS: [Block; 8] = counters(FIRST_OUTPUT_BLOCKS);
        let mut blocks = COUNTERS;
        self.apply(input, &mut blocks);
        let Some(seed) = blocks.as_flattened().first_chunk() else {
            unreachable!("the output is longer than a seed")
        };
        *seed
    }
}

/// Counter mode: adds `base` to the counters and encrypts them. Where LLVM inlines this, it computes `base` anew for each
/// byte, which takes 40 ns a cell.
#[inline(never)]
fn encrypt_counters<const N: usize>(cipher: &Aes128Enc, base: &Block, counters: &mut [Block; N]) {
    counters.iter_mut().for_each(|counter| xor(counter, base));
    let (blocks, _) = InOutBuf::from(counters.as_flattened_mut()).into_chunks();
    cipher.encrypt_blocks_inout(blocks);
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
    pub(super) fn next_seed(&mut self, nonce: &Block) -> [u8; SEED_LEN] {
        self.s.second(nonce)
    }
}

impl Uiv<Aes128Enc> {
    #[inline]
    pub(super) fn encrypt(&mut self, tweak: Tweak<'_>, body: &mut [u8; BODY_LEN]) {
        let (left, right) = split(body);
        self.j.encrypt(tweak, right, left);
        self.s.xor_first(left, right);
    }
}

impl Uiv<Aes128Dec> {
    #[inline]
    pub(super) fn decrypt(&mut self, tweak: Tweak<'_>, body: &mut [u8; BODY_LEN]) {
        let (left, right) = split(body);
        self.s.xor_first(left, right);
        self.j.decrypt(tweak, right, left);
    }
}
