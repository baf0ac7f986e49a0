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

    /// The body of a FEEDBACK cell for as many of those that are `to_tell` as it has room for, by what `entry` takes of each; no cell is nothing.
    /// The others stay. `None` if there is nothing.
    pub(crate) fn tell<T>(
        to_tell: &mut Vec<T>,
        mut entry: impl FnMut(T) -> Option<Self>,
    ) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        while body.len() < Self::PER_CELL_MAX * ENTRY_LEN
            && let Some(next) = to_tell.pop()
        {
            if let Some(entry) = entry(next).filter(|entry| entry.cells > 0) {
                entry.encode_into(&mut body);
            }
        }
        (!body.is_empty()).then_some(body)
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
    fn what_one_cell_has_no_room_for_stays_and_nothing_is_said_of_no_cell() {
        let entry = |id: u32| {
            let cells = u16::from(!id.is_multiple_of(3));
            (id != 1).then_some(PassedOn { circ_id: CircId::new(id), cells })
        };
        let mut to_tell: Vec<u32> = (0..1_000).collect();
        let mut told = Vec::new();
        while let Some(body) = PassedOn::tell(&mut to_tell, entry) {
            told.push(PassedOn::parse(&body).expect("well-formed").count());
        }
        // Those that three does not divide, but for the first.
        assert_eq!(told, [512, 665 - 512]);
        assert_eq!(PassedOn::tell(&mut alloc::vec![3, 1, 0], entry), None);
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
