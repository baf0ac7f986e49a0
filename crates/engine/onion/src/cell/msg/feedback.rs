//! FEEDBACK: reports of forwarded cells. FlashFlow's extension (`docs/protocol.md`).

use crate::cell::CircId;
use crate::cell::reader::Malformed;
use alloc::vec::Vec;

/// The length of an entry: circuit ID and number of cells.
const ENTRY_LEN: usize = 6;

/// The cells of one circuit that the sender has forwarded since its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackEntry {
    /// The circuit ID on the link.
    pub circ_id: CircId,
    /// The number of cells, at least one.
    pub cells: u16,
}

impl FeedbackEntry {
    /// Maximum number of entries of a cell.
    pub const PER_CELL_MAX: usize = 512;

    /// Reads the body of a FEEDBACK cell.
    ///
    /// # Errors
    /// If it is empty, too long or truncated, or an entry has no cells.
    pub fn parse(body: &[u8]) -> Result<impl Iterator<Item = Self> + '_, Malformed> {
        let malformed = |problem| Malformed { message: "FEEDBACK", problem };
        let (entries, rest) = body.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            return Err(malformed("shorter than its entries"));
        }
        if entries.is_empty() || entries.len() > Self::PER_CELL_MAX {
            return Err(malformed("it has no entries or more than 512"));
        }
        if entries.iter().any(|[.., high, low]| (*high, *low) == (0, 0)) {
            return Err(malformed("an entry has no cells"));
        }
        Ok(entries.iter().map(|[a, b, c, d, high, low]| Self {
            circ_id: CircId::new(u32::from_be_bytes([*a, *b, *c, *d])),
            cells: u16::from_be_bytes([*high, *low]),
        }))
    }

    /// Builds the body of a FEEDBACK cell from as many of `unreported` as fit; `entry` takes the report of each,
    /// and zero cells are no report. The others stay. `None` if there is nothing to report.
    pub(crate) fn encode_cell<T>(
        unreported: &mut Vec<T>,
        mut entry: impl FnMut(T) -> Option<Self>,
    ) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        while body.len() < Self::PER_CELL_MAX * ENTRY_LEN
            && let Some(next) = unreported.pop()
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
        fn feedback_survives_a_round_trip(
            entries in prop::collection::vec((any::<u32>(), 1..=u16::MAX), 1..=FeedbackEntry::PER_CELL_MAX),
        ) {
            let sent: Vec<FeedbackEntry> = entries
                .into_iter()
                .map(|(id, cells)| FeedbackEntry { circ_id: CircId::new(id), cells })
                .collect();
            let mut body = Vec::new();
            sent.iter().for_each(|entry| entry.encode_into(&mut body));
            let received: Vec<FeedbackEntry> = FeedbackEntry::parse(&body).expect("well-formed").collect();
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn arbitrary_bytes_never_panic_or_parse_as_an_empty_entry(
            body in prop::collection::vec(any::<u8>(), 0..4000),
        ) {
            if let Ok(entries) = FeedbackEntry::parse(&body) {
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
    fn entries_beyond_one_cell_remain_and_zero_counts_are_omitted() {
        let entry = |id: u32| {
            let cells = u16::from(!id.is_multiple_of(3));
            (id != 1).then_some(FeedbackEntry { circ_id: CircId::new(id), cells })
        };
        let mut unreported: Vec<u32> = (0..1_000).collect();
        let mut counts = Vec::new();
        while let Some(body) = FeedbackEntry::encode_cell(&mut unreported, entry) {
            counts.push(FeedbackEntry::parse(&body).expect("well-formed").count());
        }
        // Not divisible by three, and not the first.
        assert_eq!(counts, [512, 665 - 512]);
        assert_eq!(FeedbackEntry::encode_cell(&mut alloc::vec![3, 1, 0], entry), None);
    }

    #[test]
    fn an_empty_or_oversized_cell_is_malformed() {
        let bodies = [0, 5, 7, ENTRY_LEN * (FeedbackEntry::PER_CELL_MAX + 1)];
        for len in bodies {
            assert!(FeedbackEntry::parse(&alloc::vec![1; len]).is_err(), "{len} bytes");
        }
        assert!(FeedbackEntry::parse(&[1, 1, 1, 1, 0, 0]).is_err(), "no cell");
        assert!(FeedbackEntry::parse(&[1; ENTRY_LEN * FeedbackEntry::PER_CELL_MAX]).is_ok());
    }
}
