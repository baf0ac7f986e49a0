//! Framing: from a byte stream to cells, without copying.

use super::{BODY_LEN, Cell, CircId, Command};
use alloc::vec::Vec;
use core::fmt;

/// Maximum accepted length of a variable-length cell's body, in bytes.
///
/// A C tor relay's CERTS cell has about 2.5 KB. The wire format allows 65,535 bytes, which a peer could make
/// the relay buffer on every connection.
pub const MAX_VARIABLE_BODY_LEN: usize = 16_384;

/// The reason why a byte stream cannot be split into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A variable-length cell announces more bytes than [`MAX_VARIABLE_BODY_LEN`].
    Oversized {
        /// The cell's command.
        command: Command,
        /// The announced length.
        body_len: usize,
    },
    /// The first cell on a link must be VERSIONS (tor-spec §4).
    NotVersions(Command),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oversized { command, body_len } => {
                write!(f, "{command} cell of {body_len} bytes, over {MAX_VARIABLE_BODY_LEN}")
            }
            Self::NotVersions(command) => {
                write!(f, "first cell is {command}, not VERSIONS: the peer does not speak Tor")
            }
        }
    }
}

impl core::error::Error for FrameError {}

/// Splits a byte stream into cells.
///
/// Copies only cells that straddle two inputs, and does not allocate once its carry buffer has grown to the
/// longest such cell.
#[derive(Debug, Default)]
pub struct Framer {
    /// The beginning of an incomplete cell.
    carry: Vec<u8>,
    /// The cell in `carry` has been returned: the next call starts with an empty buffer.
    carry_is_spent: bool,
    /// Circuit IDs have four bytes: versions are negotiated.
    wide_circ_ids: bool,
}

/// The information in the first bytes of a cell.
struct Head {
    circ_id: CircId,
    command: Command,
    head_len: usize,
    total_len: usize,
}

impl Framer {
    /// A framer that expects a VERSIONS cell, whose circuit ID has two bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Switches to four-byte circuit IDs. To be called after VERSIONS was handled.
    pub const fn widen_circ_ids(&mut self) {
        self.wide_circ_ids = true;
    }

    /// Releases the buffer, unless it holds an incomplete cell.
    pub(crate) fn shrink(&mut self) {
        if self.carry_is_spent || self.carry.is_empty() {
            self.carry = Vec::new();
            self.carry_is_spent = false;
        }
    }

    /// Buffered bytes of an incomplete cell.
    #[must_use]
    pub fn carried_len(&self) -> usize {
        if self.carry_is_spent { 0 } else { self.carry.len() }
    }

    /// The next complete cell at the front of `input`; `None` when `input` is consumed.
    ///
    /// # Errors
    /// [`FrameError`]: the stream is unusable.
    #[inline]
    pub fn next_cell<'c, 'i: 'c>(
        &'c mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Cell<'c>>, FrameError> {
        if self.carry_is_spent {
            self.carry.clear();
            self.carry_is_spent = false;
        }
        if !self.carry.is_empty() {
            return self.finish_carried(input);
        }
        let Some(head) = self.head(input)? else {
            self.carry.extend_from_slice(input);
            *input = &[];
            return Ok(None);
        };
        let Some((cell, rest)) = input.split_at_checked(head.total_len) else {
            self.carry.extend_from_slice(input);
            *input = &[];
            return Ok(None);
        };
        *input = rest;
        Ok(Some(head.view(cell)))
    }

    /// Completes the cell of an earlier input.
    #[cold]
    fn finish_carried(&mut self, input: &mut &[u8]) -> Result<Option<Cell<'_>>, FrameError> {
        loop {
            let head = self.head(&self.carry)?;
            // While the length is unknown, one more byte may complete the header.
            let wanted = head.as_ref().map_or(self.carry.len() + 1, |head| head.total_len);
            let missing = wanted - self.carry.len();
            if missing == 0 {
                let Some(head) = head else { return Ok(None) };
                self.carry_is_spent = true;
                return Ok(Some(head.view(&self.carry)));
            }
            let (taken, rest) = input.split_at(missing.min(input.len()));
            self.carry.extend_from_slice(taken);
            *input = rest;
            if taken.len() < missing {
                return Ok(None);
            }
        }
    }

    /// Reads command and length of a cell, if they have arrived.
    #[inline]
    fn head(&self, bytes: &[u8]) -> Result<Option<Head>, FrameError> {
        let (circ_id, command, after) = if self.wide_circ_ids {
            let [a, b, c, d, command, after @ ..] = bytes else { return Ok(None) };
            (u32::from_be_bytes([*a, *b, *c, *d]), Command::new(*command), after)
        } else {
            let [a, b, command, after @ ..] = bytes else { return Ok(None) };
            (u32::from(u16::from_be_bytes([*a, *b])), Command::new(*command), after)
        };
        if !self.wide_circ_ids && command != Command::VERSIONS {
            return Err(FrameError::NotVersions(command));
        }
        let circ_id = CircId::new(circ_id);
        let until_command = bytes.len() - after.len();
        if !command.is_variable_length() {
            let total_len = until_command + BODY_LEN;
            return Ok(Some(Head { circ_id, command, head_len: until_command, total_len }));
        }
        let [high, low, ..] = after else { return Ok(None) };
        let body_len = usize::from(u16::from_be_bytes([*high, *low]));
        if body_len > MAX_VARIABLE_BODY_LEN {
            return Err(FrameError::Oversized { command, body_len });
        }
        let head_len = until_command + 2;
        Ok(Some(Head { circ_id, command, head_len, total_len: head_len + body_len }))
    }
}

impl Head {
    #[inline]
    fn view(self, bytes: &[u8]) -> Cell<'_> {
        Cell {
            circ_id: self.circ_id,
            command: self.command,
            body: &bytes[self.head_len..self.total_len],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn cells() -> impl Strategy<Value = Vec<(u32, u8, Vec<u8>)>> {
        let fixed = (any::<u32>(), prop::sample::select(vec![0u8, 3, 4, 5, 9, 10])).prop_flat_map(
            |(id, command)| (Just(id), Just(command), prop::collection::vec(any::<u8>(), BODY_LEN)),
        );
        let variable = (any::<u32>(), prop::sample::select(vec![128u8, 129, 200])).prop_flat_map(
            |(id, command)| (Just(id), Just(command), prop::collection::vec(any::<u8>(), 0..700)),
        );
        prop::collection::vec(prop_oneof![fixed, variable], 0..8)
    }

    fn all(framer: &mut Framer, mut input: &[u8]) -> Vec<(u32, u8, Vec<u8>)> {
        let mut found = vec![];
        while let Some(cell) = framer.next_cell(&mut input).expect("well-formed") {
            found.push((cell.circ_id.get(), cell.command.get(), cell.body.to_vec()));
        }
        assert!(input.is_empty());
        found
    }

    proptest! {
        #[test]
        fn cells_survive_any_fragmentation_of_the_stream(
            cells in cells(), cuts in prop::collection::vec(1usize..900, 0..30),
        ) {
            let mut stream = vec![];
            for (id, command, body) in &cells {
                let (circ_id, command) = (CircId::new(*id), Command::new(*command));
                Cell { circ_id, command, body }.encode_into(&mut stream);
            }
            let mut framer = Framer::new();
            framer.widen_circ_ids();
            let mut found = vec![];
            let mut rest = &stream[..];
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                found.extend(all(&mut framer, piece));
                rest = after;
            }
            found.extend(all(&mut framer, rest));
            prop_assert_eq!(found, cells);
            prop_assert_eq!(framer.carried_len(), 0);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let mut framer = Framer::new();
            framer.widen_circ_ids();
            let mut input = &bytes[..];
            while let Ok(Some(_)) = framer.next_cell(&mut input) {}
        }
    }

    #[test]
    fn a_first_cell_other_than_versions_is_rejected() {
        let mut http = &b"HTTP/1.1 400 Bad Request\r\n"[..];
        let error = Framer::new().next_cell(&mut http).map(|_| ());
        assert_eq!(error, Err(FrameError::NotVersions(Command::new(b'T'))));
    }

    #[test]
    fn an_oversized_cell_is_rejected_before_its_body_arrives() {
        let mut framer = Framer::new();
        framer.widen_circ_ids();
        let mut input = &[0, 0, 0, 0, 129, 0xff, 0xff][..];
        let error = framer.next_cell(&mut input).map(|_| ());
        let command = Command::CERTS;
        assert_eq!(error, Err(FrameError::Oversized { command, body_len: 65_535 }));
    }
}
