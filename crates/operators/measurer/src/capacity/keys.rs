use super::packet::{FRAME_BODY_LEN, HELLO_BODY_LEN, Nonce, TAG_LEN, Tag};
use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use rand::Rng;
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq;

const HELLO_LABEL: &[u8] = b"flashflow capacity test 1: hello";
const FRAME_LABEL: &[u8] = b"flashflow capacity test 1: frame";

/// The common secret of the members of one capacity test: the coordinator draws it for each test.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Token([u8; 32]);

impl Token {
    /// The token with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A new random token.
    pub fn generate(rng: &mut impl Rng) -> Self {
        let mut bytes = [0; 32];
        rng.fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// The secret bytes, to send to the members.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// `N` bytes that are used for this purpose only.
    fn derive<const N: usize>(&self, info: &[&[u8]]) -> [u8; N] {
        let mut key = [0; N];
        let expanded = Hkdf::<Sha256>::new(None, &self.0).expand_multi_info(info, &mut key);
        debug_assert!(expanded.is_ok(), "HKDF provides up to 8,160 bytes");
        key
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// From one measurer to another, by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Direction {
    pub(super) from: u16,
    pub(super) to: u16,
}

impl Direction {
    pub(super) const fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

/// Authenticates the hellos of a direction: HMAC-SHA-256, cut to 16 bytes.
pub(super) struct HelloKey([u8; 32]);

impl HelloKey {
    pub(super) fn new(token: &Token, it: Direction) -> Self {
        Self(token.derive(&[HELLO_LABEL, &it.from.to_be_bytes(), &it.to.to_be_bytes()]))
    }

    pub(super) fn tag(&self, body: &[u8; HELLO_BODY_LEN]) -> Tag {
        let mut tag = [0; TAG_LEN];
        // HMAC takes keys of any length; the error type exists for other MACs.
        if let Ok(mac) = <Hmac<Sha256> as Mac>::new_from_slice(&self.0) {
            let whole = mac.chain_update(body).finalize().into_bytes();
            tag.copy_from_slice(&whole[..TAG_LEN]);
        }
        tag
    }
}

/// Authenticates the frames of a direction, cheaply, since there are a million in a second.
///
/// The header is one block, so its encryption under AES-128 is a MAC: CBC-MAC for messages of one fixed length. Both
/// nonces are in the key. So frames of an earlier test are invalid even if a coordinator used a token twice, and a
/// valid frame proves that its sender received ours.
pub(super) struct FrameKey(Aes128);

impl FrameKey {
    /// `nonces` are the sender's and the addressee's.
    pub(super) fn new(token: &Token, it: Direction, nonces: [&Nonce; 2]) -> Self {
        let (from, to) = (it.from.to_be_bytes(), it.to.to_be_bytes());
        let key: [u8; 16] = token.derive(&[FRAME_LABEL, &from, &to, nonces[0], nonces[1]]);
        Self(Aes128::new(&key.into()))
    }

    pub(super) fn tag(&self, body: &[u8; FRAME_BODY_LEN]) -> Tag {
        let mut block = (*body).into();
        self.0.encrypt_block(&mut block);
        block.into()
    }
}

/// Compares tags in constant time.
pub(super) fn is_same(one: &Tag, other: &Tag) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token([7; 32]);
    const THERE: Direction = Direction { from: 0, to: 1 };

    #[test]
    fn each_direction_test_and_run_has_separate_keys() {
        let other = Token([8; 32]);
        let hello = |token: &Token, it| HelloKey::new(token, it).tag(&[1; HELLO_BODY_LEN]);
        let hellos = [
            hello(&TOKEN, THERE),
            hello(&TOKEN, THERE.reversed()),
            hello(&TOKEN, Direction { from: 0, to: 2 }),
            hello(&other, THERE),
        ];
        let (one, two) = ([1; 16], [2; 16]);
        let frame = |token: &Token, it, nonces| FrameKey::new(token, it, nonces).tag(&[1; 16]);
        let frames = [
            frame(&TOKEN, THERE, [&one, &two]),
            frame(&TOKEN, THERE.reversed(), [&one, &two]),
            frame(&TOKEN, THERE, [&two, &one]),
            frame(&TOKEN, THERE, [&one, &one]),
            frame(&other, THERE, [&one, &two]),
        ];
        let all: Vec<Tag> = hellos.into_iter().chain(frames).collect();
        for (place, tag) in all.iter().enumerate() {
            assert!(!is_same(tag, &[0; TAG_LEN]));
            assert!(all[..place].iter().all(|before| !is_same(before, tag)), "{place}");
        }
        assert!(is_same(&hellos[0], &hello(&TOKEN, THERE)));
    }

    #[test]
    fn a_token_is_not_printed() {
        assert!(!format!("{TOKEN:?}").contains('7'));
    }
}
