use alloc::collections::VecDeque;

/// Room that an idle buffer may keep.
const IDLE_MAX: usize = 2048;

/// Bytes that wait for a destination.
#[derive(Debug, Default)]
pub(in crate::router) struct Buffer {
    bytes: VecDeque<u8>,
    /// Something has come since it was last looked at.
    is_used: bool,
}

impl Buffer {
    pub(in crate::router) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(in crate::router) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(in crate::router) fn push(&mut self, data: &[u8]) {
        self.bytes.extend(data);
        self.is_used = true;
    }

    /// Moves bytes into `out` until either has no more; returns how many.
    pub(in crate::router) fn pop_into(&mut self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.bytes.len());
        let (first, second) = self.bytes.as_slices();
        let until_end = first.len().min(count);
        out[..until_end].copy_from_slice(&first[..until_end]);
        out[until_end..count].copy_from_slice(&second[..count - until_end]);
        self.bytes.drain(..count);
        count
    }

    /// Gives back room that was not used since the last time.
    pub(in crate::router) fn shrink(&mut self) {
        let is_used = core::mem::take(&mut self.is_used);
        if !is_used && self.bytes.capacity() > IDLE_MAX.max(2 * self.bytes.len()) {
            self.bytes.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn an_idle_buffer_gives_its_room_back() {
        let mut buffer = Buffer::default();
        buffer.push(&[1; 100_000]);
        assert_eq!(buffer.pop_into(&mut [0; 100_000]), 100_000);
        buffer.shrink();
        assert!(buffer.bytes.capacity() >= 100_000, "it was in use");
        buffer.shrink();
        assert_eq!(buffer.bytes.capacity(), 0);
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(steps in prop::collection::vec((0usize..600, 0usize..900), 0..100)) {
            let mut buffer = Buffer::default();
            let (mut pushed, mut popped) = (Vec::new(), Vec::new());
            for (push, pop) in steps {
                let data: Vec<u8> = (0..push).map(|byte| (pushed.len() + byte).to_le_bytes()[0]).collect();
                buffer.push(&data);
                pushed.extend(data);
                let mut out = [0; 900];
                let count = buffer.pop_into(&mut out[..pop]);
                popped.extend_from_slice(&out[..count]);
                prop_assert_eq!(buffer.len(), pushed.len() - popped.len());
                prop_assert!(count == pop || buffer.is_empty());
                buffer.shrink();
            }
            prop_assert_eq!(&pushed[..popped.len()], &popped[..]);
        }
    }
}
