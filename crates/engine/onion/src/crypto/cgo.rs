//! Counter Galois Onion: the layers of circuits with `Relay=6` (proposal 359; Degabriele, Melloni, Münch and
//! Stam, ePrint 2025/583).
//!
//! With a keystream, an adversary at the guard and the exit can tag a cell and recognize it. With Counter
//! Galois Onion, an altered cell and all cells after it become noise: each cell is chained to the previous one
//! by its tag. Keys are updated with every cell that a hop originates or receives, so a stolen key does not
//! decrypt earlier cells. A cell is for a hop if its tag is the hop's next nonce; there is no running digest.
//!
//! The relay always encrypts and the client always decrypts, in both directions, since only encryption is
//! non-malleable.

mod uiv;

use crate::cell::{BODY_LEN, Command};
use aes::cipher::KeyInit;
use aes::{Aes128Dec, Aes128Enc};
use alloc::boxed::Box;
use core::fmt;
use subtle::ConstantTimeEq;
use uiv::{BLOCK_LEN, Block, KEYS_LEN, KeySize, SEED_LEN, Tweak, Uiv};

/// The length of key material for one hop.
pub(super) const MATERIAL_LEN: usize = 2 * SEED_LEN;

/// The length of a tag, by which a SENDME acknowledges a cell.
const TAG_LEN: usize = BLOCK_LEN;

/// The keys and first nonces of both directions of one hop.
#[derive(Clone)]
pub struct CgoKeys {
    forward: [u8; SEED_LEN],
    backward: [u8; SEED_LEN],
}

impl CgoKeys {
    /// Splits derived key material: the forward direction comes first.
    #[must_use]
    pub fn from_material(material: &[u8; 2 * SEED_LEN]) -> Self {
        let (forward, backward) = material.split_at(SEED_LEN);
        let (Some(forward), Some(backward)) = (forward.first_chunk(), backward.first_chunk())
        else {
            unreachable!("the material is as long as its halves");
        };
        Self { forward: *forward, backward: *backward }
    }
}

impl fmt::Debug for CgoKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CgoKeys(secret)")
    }
}

fn tag_of(body: &[u8; BODY_LEN]) -> Block {
    let Some(tag) = body.first_chunk() else { unreachable!("a body is longer than its tag") };
    *tag
}

/// Compares blocks in constant time.
fn is_same(one: &Block, other: &Block) -> bool {
    u128::from_ne_bytes(*one).ct_eq(&u128::from_ne_bytes(*other)).into()
}

/// One direction of a layer, without its ciphers.
#[derive(Clone)]
struct State {
    keys: [u8; KEYS_LEN],
    /// The tag of the next cell for or from this hop: N in the proposal.
    nonce: Block,
    /// The tag of the last cell: T' in the proposal.
    chain: Block,
}

impl State {
    fn new(seed: &[u8; SEED_LEN]) -> Self {
        let mut state = Self { keys: [0; KEYS_LEN], nonce: [0; BLOCK_LEN], chain: [0; BLOCK_LEN] };
        state.take_seed(seed);
        state
    }

    fn take_seed(&mut self, seed: &[u8; SEED_LEN]) {
        let (keys, nonce) = seed.split_at(KEYS_LEN);
        self.keys.copy_from_slice(keys);
        self.nonce.copy_from_slice(nonce);
    }

    const fn tweak(&self, command: Command) -> Tweak<'_> {
        Tweak { chain: &self.chain, command: command.get() }
    }

    /// The relay's operation for a cell that it forwards: removes the layer in the forward direction, or adds
    /// it in the backward direction.
    #[inline]
    fn encrypt(&mut self, uiv: &mut Uiv<Aes128Enc>, command: Command, body: &mut [u8; BODY_LEN]) {
        uiv.encrypt(self.tweak(command), body);
        self.chain = tag_of(body);
    }

    /// The relay's operation for a forward cell; returns true if the cell is for this relay.
    #[inline]
    fn recognize(
        &mut self,
        uiv: &mut Uiv<Aes128Enc>,
        command: Command,
        body: &mut [u8; BODY_LEN],
    ) -> bool {
        self.encrypt(uiv, command, body);
        let is_ours = is_same(&self.nonce, &self.chain);
        if is_ours {
            self.update(uiv);
        }
        is_ours
    }

    /// The relay's operation for a cell that it originates.
    fn originate(&mut self, uiv: &mut Uiv<Aes128Enc>, command: Command, body: &mut [u8; BODY_LEN]) {
        body[..TAG_LEN].copy_from_slice(&self.nonce);
        self.encrypt(uiv, command, body);
        self.nonce = self.chain;
        self.update(uiv);
    }

    /// The client's operation for a cell of another hop.
    #[inline]
    fn decrypt(&mut self, uiv: &mut Uiv<Aes128Dec>, command: Command, body: &mut [u8; BODY_LEN]) {
        let tag = tag_of(body);
        uiv.decrypt(self.tweak(command), body);
        self.chain = tag;
    }

    /// The client's operation for a cell that it originates for this hop.
    fn seal(&mut self, uiv: &mut Uiv<Aes128Dec>, command: Command, body: &mut [u8; BODY_LEN]) {
        body[..TAG_LEN].copy_from_slice(&self.nonce);
        self.decrypt(uiv, command, body);
        self.update(uiv);
    }

    /// Updates the keys by the nonce: UPDATE_UIV in the proposal.
    fn update<C: KeyInit<KeySize = KeySize>>(&mut self, uiv: &mut Uiv<C>) {
        self.take_seed(&uiv.next_seed(&self.nonce));
        *uiv = Uiv::new(&self.keys);
    }
}

/// The relay's side of a layer.
///
/// As in [`RelayHop`](super::RelayHop), the expanded keys take most of the memory and are released while no
/// cells pass.
pub struct CgoRelayHop {
    forward: State,
    backward: State,
    sent_tag: [u8; TAG_LEN],
    received_tag: [u8; TAG_LEN],
    /// `None` while the keys are released.
    awake: Option<Box<Awake>>,
}

/// The expanded ciphers.
struct Awake {
    forward: Uiv<Aes128Enc>,
    backward: Uiv<Aes128Enc>,
    /// Whether a cell has passed since the last [`CgoRelayHop::rest`].
    is_used: bool,
}

impl CgoRelayHop {
    /// From the keys of a handshake.
    #[must_use]
    pub fn new(keys: &CgoKeys) -> Self {
        Self {
            forward: State::new(&keys.forward),
            backward: State::new(&keys.backward),
            sent_tag: [0; TAG_LEN],
            received_tag: [0; TAG_LEN],
            awake: None,
        }
    }

    #[cold]
    fn wake(&self) -> Box<Awake> {
        let (forward, backward) = (Uiv::new(&self.forward.keys), Uiv::new(&self.backward.keys));
        Box::new(Awake { forward, backward, is_used: true })
    }

    #[inline]
    fn ensure_awake(&mut self) -> (&mut State, &mut State, &mut Awake) {
        if self.awake.is_none() {
            self.awake = Some(self.wake());
        }
        let Some(awake) = &mut self.awake else { unreachable!("it has just been woken") };
        awake.is_used = true;
        (&mut self.forward, &mut self.backward, awake)
    }

    /// Decrypts a forward cell; returns true if the cell is for this relay. Otherwise the result is the cell
    /// for the next hop.
    pub fn decrypt(&mut self, command: Command, body: &mut [u8; BODY_LEN]) -> bool {
        let tag = tag_of(body);
        let (state, _, awake) = self.ensure_awake();
        let is_ours = state.recognize(&mut awake.forward, command, body);
        if is_ours {
            self.received_tag = tag;
        }
        is_ours
    }

    /// Seals and encrypts a cell of this relay.
    pub fn originate(&mut self, body: &mut [u8; BODY_LEN]) {
        let (_, state, awake) = self.ensure_awake();
        state.originate(&mut awake.backward, Command::RELAY, body);
        self.sent_tag = tag_of(body);
    }

    /// Encrypts a cell of the next hop.
    pub fn pass_back(&mut self, body: &mut [u8; BODY_LEN]) {
        let (_, state, awake) = self.ensure_awake();
        state.encrypt(&mut awake.backward, Command::RELAY, body);
    }

    /// The tag of the last cell that this relay originated.
    #[must_use]
    pub const fn sent_tag(&self) -> &[u8; TAG_LEN] {
        &self.sent_tag
    }

    /// The tag of the last cell for this relay.
    #[must_use]
    pub const fn received_tag(&self) -> &[u8; TAG_LEN] {
        &self.received_tag
    }

    /// To be called periodically: releases the expanded keys if no cell has passed since the last call. The
    /// next cell expands them again.
    pub fn rest(&mut self) {
        if let Some(awake) = &mut self.awake
            && !core::mem::take(&mut awake.is_used)
        {
            self.awake = None;
        }
    }
}

impl fmt::Debug for CgoRelayHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CgoRelayHop(secret)")
    }
}

/// The client's side of the layer of one hop.
pub struct CgoClientHop {
    forward: ClientDirection,
    backward: ClientDirection,
    sent_tag: [u8; TAG_LEN],
    received_tag: [u8; TAG_LEN],
}

struct ClientDirection {
    state: State,
    uiv: Uiv<Aes128Dec>,
}

impl ClientDirection {
    fn new(seed: &[u8; SEED_LEN]) -> Self {
        let state = State::new(seed);
        Self { uiv: Uiv::new(&state.keys), state }
    }
}

impl CgoClientHop {
    /// From the keys of a handshake.
    #[must_use]
    pub fn new(keys: &CgoKeys) -> Self {
        Self {
            forward: ClientDirection::new(&keys.forward),
            backward: ClientDirection::new(&keys.backward),
            sent_tag: [0; TAG_LEN],
            received_tag: [0; TAG_LEN],
        }
    }

    /// Seals and encrypts a cell for this hop.
    pub fn encrypt(&mut self, command: Command, body: &mut [u8; BODY_LEN]) {
        let ClientDirection { state, uiv } = &mut self.forward;
        state.seal(uiv, command, body);
        self.sent_tag = tag_of(body);
    }

    /// Encrypts a cell for a later hop.
    pub fn pass(&mut self, command: Command, body: &mut [u8; BODY_LEN]) {
        let ClientDirection { state, uiv } = &mut self.forward;
        state.decrypt(uiv, command, body);
    }

    /// Decrypts a cell; returns true if this hop has sent it.
    pub fn decrypt(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        let tag = tag_of(body);
        let ClientDirection { state, uiv } = &mut self.backward;
        state.decrypt(uiv, Command::RELAY, body);
        let is_from_it = is_same(&state.nonce, &tag_of(body));
        if is_from_it {
            state.nonce = tag;
            state.update(uiv);
            self.received_tag = tag;
        }
        is_from_it
    }

    /// The tag of the last encrypted cell.
    #[must_use]
    pub const fn sent_tag(&self) -> &[u8; TAG_LEN] {
        &self.sent_tag
    }

    /// The tag of the last cell from this hop.
    #[must_use]
    pub const fn received_tag(&self) -> &[u8; TAG_LEN] {
        &self.received_tag
    }
}

impl fmt::Debug for CgoClientHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CgoClientHop(secret)")
    }
}

#[cfg(test)]
mod tests;
