use crate::cell::BODY_LEN;
use crate::crypto::Keystream;

/// Bytes of the content's keystream per cell: whole AES blocks, three bytes more than a body.
const STRIDE: usize = 512;

/// The unpredictable bodies of one circuit's cells.
///
/// They are a keystream whose key the target does not know. So no body can be predicted, and each can be
/// computed again for its check: nothing is stored.
#[derive(Clone, Debug)]
pub struct Content {
    sending: Keystream,
    redoing: Keystream,
}

impl Content {
    /// Content from fresh random bytes.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        Self { sending: Keystream::new(key), redoing: Keystream::new(key) }
    }

    /// Fills in the next body to be sent.
    #[inline]
    pub fn write_next(&mut self, body: &mut [u8]) {
        let mut block = [0; STRIDE];
        self.sending.apply(&mut block);
        body[..BODY_LEN].copy_from_slice(&block[..BODY_LEN]);
    }

    /// The body of cell `index`, computed again.
    #[must_use]
    pub fn body(&mut self, index: u64) -> [u8; BODY_LEN] {
        let mut body = [0; BODY_LEN];
        self.redoing.seek(index * STRIDE as u64);
        self.redoing.apply(&mut body);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_reproducible() {
        let mut content = Content::new(&[8; 16]);
        for index in 0..50 {
            let mut sent = [0; BODY_LEN];
            content.write_next(&mut sent);
            assert_eq!(content.body(index), sent);
        }
        assert_ne!(content.body(0), content.body(1));
    }
}
