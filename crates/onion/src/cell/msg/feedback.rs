//! FEEDBACK: which cells a relay has passed on. FlashFlow's own (`docs/protocol.md`).

use crate::cell::CircId;
use crate::cell::reader::Malformed;
use alloc::vec::Vec;

/// Bytes of an entry: circuit ID, number of cells.
const ENTRY_LEN: usize = 6;

/// Cells of one circuit that its sender has passed on since it last said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedOn {
    /// The circuit, by its number on the link.
    pub circ_id: CircId,
    /// How many, at least one.
    pub cells: u16,
}

impl PassedOn {
    /// Circuits that one cell tells of, at most.
    pub const PER_CELL_MAX: usize = 512;

    /// Reads the body of a FEEDBACK cell.
    ///
    /// # Errors
    /// Where it says nothing, or too much, or breaks off, or an entry is of no cell.
    pub fn parse(body: &[u8]) -> Result<impl Iterator<Item = Self> + '_, Malformed> {
        let malformed = |problem| Malformed { message: "FEEDBACK", problem };
        let (entries, rest) = body.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            return Err(malformed("shorter than its entries"));
        }
        if entries.is_empty() || entries.len() > Self::PER_CELL_MAX {
            return Err(malformed("it has none or more than 512 entries"));
        }
        if entries.iter().any(|[.., high, low]| (*high, *low) == (0, 0)) {
            return Err(malformed("an entry is of no cell"));
        }
        Ok(entries.iter().map(|[a, b, c, d, high, low]| Self {
            circ_id: CircId::new(u32::from_be_bytes([*a, *b, *c, *d])),
            cells: u16::from_be_bytes([*high, *low]),
        }))
    }

    /// Appends the entry to a body.
    pub fn encode_into(self, body: &mut Vec<u8>) {
        body.extend_from_slice(&self.circ_id.get().to_be_bytes());
        body.extend_from_slice(&self.cells.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decode_after_encode_gives_it_back(
            entries in prop::collection::vec((any::<u32>(), 1..=u16::MAX), 1..=PassedOn::PER_CELL_MAX),
        ) {
            let said: Vec<PassedOn> = entries
                .into_iter()
                .map(|(id, cells)| PassedOn { circ_id: CircId::new(id), cells })
                .collect();
            let mut body = Vec::new();
            said.iter().for_each(|entry| entry.encode_into(&mut body));
            let heard: Vec<PassedOn> = PassedOn::parse(&body).expect("well-formed").collect();
            prop_assert_eq!(heard, said);
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_no_entry_is_of_no_cell(
            body in prop::collection::vec(any::<u8>(), 0..4000),
        ) {
            if let Ok(entries) = PassedOn::parse(&body) {
                let mut again = Vec::new();
                for entry in entries {
                    prop_assert!(entry.cells > 0);
                    entry.encode_into(&mut again);
                }
                prop_assert_eq!(&again, &body);
            }
        }
    }

    #[test]
    fn a_cell_that_says_nothing_or_too_much_is_malformed() {
        let bodies = [0, 5, 7, ENTRY_LEN * (PassedOn::PER_CELL_MAX + 1)];
        for len in bodies {
            assert!(PassedOn::parse(&alloc::vec![1; len]).is_err(), "{len} bytes");
        }
        assert!(PassedOn::parse(&[1, 1, 1, 1, 0, 0]).is_err(), "no cell");
        assert!(PassedOn::parse(&[1; ENTRY_LEN * PassedOn::PER_CELL_MAX]).is_ok());
    }
}
