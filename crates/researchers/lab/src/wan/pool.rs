//! Memory for the packets in flight.

/// Slots of one size, reused. Memory that was never used costs nothing.
pub(super) struct Pool {
    bytes: Vec<u8>,
    slot_len: usize,
    /// Copies in flight, for each slot.
    copies: Vec<u8>,
    free: Vec<u32>,
}

impl Pool {
    pub(super) fn new(slots: u32, slot_len: usize) -> Self {
        let count = usize::try_from(slots).unwrap_or(usize::MAX);
        // Zeroes come from the system, which maps a page at its first use.
        let bytes = vec![0; count.saturating_mul(slot_len)];
        // The first slots come from the front.
        Self { bytes, slot_len, copies: vec![0; count], free: (0..slots).rev().collect() }
    }

    /// A free slot; it stays free until it is [taken](Self::take).
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

    /// Takes the slot that [`peek`](Self::peek) has returned.
    pub(super) fn take(&mut self) {
        self.free.pop();
    }

    /// Sets the number of copies in flight of a taken slot; with zero it is free again.
    pub(super) fn keep(&mut self, slot: u32, copies: u8) {
        self.copies[index(slot)] = copies;
        if copies == 0 {
            self.free.push(slot);
        }
    }

    /// One copy fewer.
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
