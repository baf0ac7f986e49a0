//! Events of a run, read from bytes: for fuzzing, and for random runs.

/// A source of bytes that choose events; zeros after its end.
pub(crate) struct Script<'a>(pub(crate) &'a [u8]);

impl Script<'_> {
    pub(crate) fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.next()) % count.max(1)
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes([self.next(), self.next(), self.next(), self.next()])
    }
}
