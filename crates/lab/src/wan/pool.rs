//! Room for the packets in the air.

/// Slots of one size, used over and over. Memory that was never used costs none.
pub(super) struct Pool {
    bytes: Vec<u8>,
    slot_len: usize,
    /// Of copies in the air, for each slot.
    copies: Vec<u8>,
    free: Vec<u32>,
}

impl Pool {
    pub(super) fn new(slots: u32, slot_len: usize) -> Self {
        let count = usize::try_from(slots).unwrap_or(usize::MAX);
        // Zeroes come from the system, which maps a page when it is first used.
        let bytes = vec![0; count.saturating_mul(slot_len)];
        // The first come from the front.
        Self { bytes, slot_len, copies: vec![0; count], free: (0..slots).rev().collect() }
    }

    /// A slot that nobody uses; it stays free until it is [taken](Self::take).
    pub(super) fn peek(&self) -> Option<u32> {
        self.free.last().copied()
    }

    pub(super) fn slot_mut(&mut self, slot: u32) -> &mut [u8] {
        let start = self.start(slot);
        &mut self.bytes[start..start + self.slot_len]
    }

    pub(super) fn packet(&self, slot: u32, len: u32) -> &[u8] {
        let start = self.start(slot);
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.slot_len);
        &self.bytes[start..start + len]
    }

    /// Takes the slot that [`peek`](Self::peek) has given.
    pub(super) fn take(&mut self) {
        self.free.pop();
    }

    /// So many copies of what a taken slot holds are in the air; with none it is free again.
    pub(super) fn keep(&mut self, slot: u32, copies: u8) {
        self.copies[index(slot)] = copies;
        if copies == 0 {
            self.free.push(slot);
        }
    }

    /// One copy less.
    pub(super) fn end_copy(&mut self, slot: u32) {
        let copies = &mut self.copies[index(slot)];
        debug_assert!(*copies > 0, "slot {slot} is free already");
        *copies = copies.saturating_sub(1);
        if *copies == 0 {
            self.free.push(slot);
        }
    }

    fn start(&self, slot: u32) -> usize {
        index(slot) * self.slot_len
    }
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
