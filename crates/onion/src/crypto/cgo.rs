//! Counter Galois Onion: the layers of circuits whose ends agreed on `Relay=6` (proposal 359; Degabriele,
//! Melloni, Münch and Stam, ePrint 2025/583).
//!
//! Where a keystream lets whoever holds the guard and the exit mark a cell and know it again, this makes
//! noise of a cell that was altered, and of all cells after it: each is chained to the one before by its
//! tag. Keys go on with every cell that a hop originates or takes, so that a key that is stolen opens no
//! earlier cell. A cell is for a hop if its tag is the nonce that the hop has for the next one: there is
//! no digest to be kept.
//!
//! The relay always encrypts and the client always decrypts, in both directions: only encryption is not
//! malleable.

mod uiv;

use crate::cell::{BODY_LEN, Command};
use aes::cipher::KeyInit;
use aes::{Aes128Dec, Aes128Enc};
use alloc::boxed::Box;
use core::fmt;
use subtle::ConstantTimeEq;
use uiv::{BLOCK_LEN, Block, KEYS_LEN, KeySize, SEED_LEN, Tweak, Uiv};

/// Bytes of key material that a handshake yields for one hop.
pub(super) const MATERIAL_LEN: usize = 2 * SEED_LEN;

/// Bytes of a tag, by which a SENDME acknowledges a cell.
const TAG_LEN: usize = BLOCK_LEN;

/// What a handshake yields for one hop: keys and first nonce of both directions.
#[derive(Clone)]
pub struct CgoKeys {
    forward: [u8; SEED_LEN],
    backward: [u8; SEED_LEN],
}

impl CgoKeys {
    /// Cuts derived key material: what is for cells away from the client comes first.
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

/// One direction of a layer, without its ciphers.
#[derive(Clone)]
struct State {
    keys: [u8; KEYS_LEN],
    /// What the tag of the next cell for, or from, this hop will be: N of the proposal.
    nonce: Block,
    /// The tag of the last cell: T' of the proposal.
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

    /// A relay's part, for a cell that goes on: the layer comes off it away from the client, or is put on it
    /// towards the client.
    #[inline]
    fn encrypt(&mut self, uiv: &Uiv<Aes128Enc>, command: Command, body: &mut [u8; BODY_LEN]) {
        uiv.encrypt(self.tweak(command), body);
        self.chain = tag_of(body);
    }

    /// A relay's part, for a cell away from the client; true if it is for this relay.
    #[inline]
    fn recognize(
        &mut self,
        uiv: &mut Uiv<Aes128Enc>,
        command: Command,
        body: &mut [u8; BODY_LEN],
    ) -> bool {
        self.encrypt(uiv, command, body);
        let is_ours = self.nonce.ct_eq(&self.chain).into();
        if is_ours {
            self.update(uiv);
        }
        is_ours
    }

    /// A relay's part, for a cell that it says itself.
    fn originate(&mut self, uiv: &mut Uiv<Aes128Enc>, command: Command, body: &mut [u8; BODY_LEN]) {
        body[..TAG_LEN].copy_from_slice(&self.nonce);
        self.encrypt(uiv, command, body);
        self.nonce = self.chain;
        self.update(uiv);
    }

    /// The client's part, for a cell of another hop.
    #[inline]
    fn decrypt(&mut self, uiv: &Uiv<Aes128Dec>, command: Command, body: &mut [u8; BODY_LEN]) {
        let tag = tag_of(body);
        uiv.decrypt(self.tweak(command), body);
        self.chain = tag;
    }

    /// The client's part, for a cell that it says to this hop.
    fn seal(&mut self, uiv: &mut Uiv<Aes128Dec>, command: Command, body: &mut [u8; BODY_LEN]) {
        body[..TAG_LEN].copy_from_slice(&self.nonce);
        self.decrypt(uiv, command, body);
        self.update(uiv);
    }

    /// Goes on to the next keys, by the nonce: UPDATE_UIV of the proposal.
    fn update<C: KeyInit<KeySize = KeySize>>(&mut self, uiv: &mut Uiv<C>) {
        self.take_seed(&uiv.next_seed(&self.nonce));
        *uiv = Uiv::new(&self.keys);
    }
}

/// A relay's end of a layer.
///
/// As in [`RelayHop`](super::RelayHop), the expanded keys are most of it, and are given back while no cell
/// comes.
pub struct CgoRelayHop {
    forward: State,
    backward: State,
    sent_tag: [u8; TAG_LEN],
    received_tag: [u8; TAG_LEN],
    /// None while it rests.
    awake: Option<Box<Awake>>,
}

/// The ciphers, ready for cells.
struct Awake {
    forward: Uiv<Aes128Enc>,
    backward: Uiv<Aes128Enc>,
    /// A cell has passed since the last [`CgoRelayHop::rest`].
    is_used: bool,
}

impl CgoRelayHop {
    /// With the keys of a finished handshake.
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

    /// Takes the layer off a cell from the client; true if the cell is for this relay, else it goes on to
    /// the next hop.
    pub fn decrypt(&mut self, command: Command, body: &mut [u8; BODY_LEN]) -> bool {
        let tag = tag_of(body);
        let (state, _, awake) = self.ensure_awake();
        let is_ours = state.recognize(&mut awake.forward, command, body);
        if is_ours {
            self.received_tag = tag;
        }
        is_ours
    }

    /// Seals a cell from this relay to the client and puts the layer on.
    pub fn originate(&mut self, body: &mut [u8; BODY_LEN]) {
        let (_, state, awake) = self.ensure_awake();
        state.originate(&mut awake.backward, Command::RELAY, body);
        self.sent_tag = tag_of(body);
    }

    /// Puts the layer on a cell that passes from the next hop to the client.
    pub fn pass_back(&mut self, body: &mut [u8; BODY_LEN]) {
        let (_, state, awake) = self.ensure_awake();
        state.encrypt(&awake.backward, Command::RELAY, body);
    }

    /// The tag of the last cell that was originated here.
    #[must_use]
    pub const fn sent_tag(&self) -> &[u8; TAG_LEN] {
        &self.sent_tag
    }

    /// The tag of the last cell that was for this relay.
    #[must_use]
    pub const fn received_tag(&self) -> &[u8; TAG_LEN] {
        &self.received_tag
    }

    /// Call it from time to time: where no cell has passed since the last time, the expanded keys are
    /// given back. The next cell expands them again.
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

/// The client's end of its shared layer with one hop.
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
    /// With the keys of a finished handshake.
    #[must_use]
    pub fn new(keys: &CgoKeys) -> Self {
        Self {
            forward: ClientDirection::new(&keys.forward),
            backward: ClientDirection::new(&keys.backward),
            sent_tag: [0; TAG_LEN],
            received_tag: [0; TAG_LEN],
        }
    }

    /// Seals a cell for this hop and puts on its layer.
    pub fn encrypt(&mut self, command: Command, body: &mut [u8; BODY_LEN]) {
        let ClientDirection { state, uiv } = &mut self.forward;
        state.seal(uiv, command, body);
        self.sent_tag = tag_of(body);
    }

    /// Puts on this hop's layer, on a cell for a later one.
    pub fn pass(&mut self, command: Command, body: &mut [u8; BODY_LEN]) {
        self.forward.state.decrypt(&self.forward.uiv, command, body);
    }

    /// Takes off this hop's layer; true if the cell is from this hop.
    pub fn decrypt(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        let tag = tag_of(body);
        let ClientDirection { state, uiv } = &mut self.backward;
        state.decrypt(uiv, Command::RELAY, body);
        let is_from_it = state.nonce.ct_eq(&tag_of(body)).into();
        if is_from_it {
            state.nonce = tag;
            state.update(uiv);
            self.received_tag = tag;
        }
        is_from_it
    }

    /// The tag of the cell that was encrypted last.
    #[must_use]
    pub const fn sent_tag(&self) -> &[u8; TAG_LEN] {
        &self.sent_tag
    }

    /// The tag of the cell from this hop that was decrypted last.
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
