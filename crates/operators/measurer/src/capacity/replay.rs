/// The number of sequence numbers in a window; older ones count as seen. At 10 Gbit/s those of 70 ms.
const WINDOW_LEN: u64 = 1 << 16;
const WORD_BITS: u64 = u64::BITS as u64;

/// The sequence numbers that have been seen: each passes once.
pub(super) struct ReplayWindow {
    /// One more than the highest number seen.
    end: u64,
    /// A bit for each of the last [`WINDOW_LEN`] numbers, in a ring.
    words: Box<[u64]>,
}

impl ReplayWindow {
    pub(super) fn new() -> Self {
        let words = usize::try_from(WINDOW_LEN / WORD_BITS).unwrap_or(1);
        Self { end: 0, words: vec![0; words].into() }
    }

    /// Whether `number` is new, and not too old to decide.
    pub(super) fn accept(&mut self, number: u64) -> bool {
        let Some(end) = number.checked_add(1) else { return false };
        if end > self.end {
            self.advance_to(end);
        } else if self.end - number > WINDOW_LEN {
            return false;
        }
        let (word, bit) = self.place(number);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Moves the window; numbers that enter it are unseen.
    fn advance_to(&mut self, end: u64) {
        if end - self.end >= WINDOW_LEN {
            self.words.fill(0);
        } else {
            let mut number = self.end;
            while number < end {
                let (word, bit) = self.place(number);
                if number.is_multiple_of(WORD_BITS) && end - number >= WORD_BITS {
                    *word = 0;
                    number += WORD_BITS;
                } else {
                    *word &= !bit;
                    number += 1;
                }
            }
        }
        self.end = end;
    }

    fn place(&mut self, number: u64) -> (&mut u64, u64) {
        let in_ring = number % WINDOW_LEN;
        // The ring's length fits any address space.
        let word = usize::try_from(in_ring / WORD_BITS).unwrap_or(0);
        (&mut self.words[word], 1 << (in_ring % WORD_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_number_is_accepted_once_unless_it_is_too_old(
            steps in prop::collection::vec((0u64..6, 0u64..70_000), 1..300),
        ) {
            let mut window = ReplayWindow::new();
            let mut seen = BTreeSet::new();
            let mut end = 0u64;
            for (kind, step) in steps {
                let number = match kind {
                    0 => end.saturating_sub(step),          // far back
                    1 => end.saturating_sub(step % 70),     // just back
                    2 => end + step,                        // a leap
                    3 => end + step % 70,                   // a small leap
                    4 => end + step % 2 * 200_000,          // out of the window
                    _ => end,
                };
                let expected = !seen.contains(&number) && end.saturating_sub(number) <= WINDOW_LEN;
                prop_assert_eq!(window.accept(number), expected, "{} at {}", number, end);
                if expected {
                    seen.insert(number);
                    end = end.max(number + 1);
                }
            }
        }
    }

    #[test]
    fn the_largest_number_is_refused_without_effect() {
        let mut window = ReplayWindow::new();
        assert!(!window.accept(u64::MAX));
        assert!(window.accept(u64::MAX - 1));
        assert!(!window.accept(0), "too old");
    }
}
