/// Buffer for received records; the longest has 16 KiB and some overhead.
pub(crate) const INCOMING_LEN: usize = 128 * 1024;

/// With less free space than this, the content moves to the front before the next read.
const READ_SPACE_MIN: usize = 32 * 1024;

/// Unused output buffers kept for reuse.
const SPARE_MAX: usize = 128;

/// The large buffers of one thread, lent to its connections. An idle connection holds none.
#[derive(Debug, Default)]
pub struct Buffers {
    incoming: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl Buffers {
    /// A buffer for one read whose content is not kept.
    pub(crate) fn scratch(&mut self) -> &mut [u8] {
        self.incoming.resize(INCOMING_LEN, 0);
        &mut self.incoming
    }

    fn take_incoming(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.incoming);
        buffer.resize(INCOMING_LEN, 0);
        buffer
    }
}

/// Received data that is not processed.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    /// The unprocessed data.
    pub(super) fn filled(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Removes `len` processed bytes.
    pub(super) const fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Free space after the content.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.buffer.len() < INCOMING_LEN {
            self.buffer.resize(INCOMING_LEN, 0);
        }
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.buffer.len() - self.end < READ_SPACE_MIN {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }

    /// Adds `len` bytes written to the free space.
    pub(super) fn commit(&mut self, len: usize) {
        self.end = (self.end + len).min(self.buffer.len());
    }

    /// Continues in the large buffer.
    pub(super) fn borrow(&mut self, buffers: &mut Buffers) {
        if self.buffer.len() < INCOMING_LEN {
            let mut buffer = buffers.take_incoming();
            let len = self.end - self.start;
            buffer[..len].copy_from_slice(&self.buffer[self.start..self.end]);
            *self = Self { buffer, start: 0, end: len };
        }
    }

    /// Returns the large buffer. An incomplete record in it is copied out.
    pub(super) fn give_back(&mut self, buffers: &mut Buffers) {
        if self.buffer.len() == INCOMING_LEN {
            let rest = self.filled().to_vec();
            let end = rest.len();
            buffers.incoming = std::mem::replace(self, Self { buffer: rest, start: 0, end }).buffer;
        }
    }
}

/// Data to be written to the socket. While in use the buffer only grows: clearing it would cost as
/// much as copying.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    /// The pending data.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Memory in use while data is pending. An empty buffer is returned.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.start == self.end { 0 } else { self.buffer.len() }
    }

    /// Removes `len` bytes that were written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }

    /// Free space of `len` bytes after the pending data. Report the used part with
    /// [`commit`](Self::commit).
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.buffer.len() - self.end < len {
            // A socket that is never fully drained must not make the buffer grow without limit.
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < len {
            self.buffer.resize(self.end + len, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Adds `len` bytes written to the free space.
    pub(crate) fn commit(&mut self, len: usize) {
        self.end = (self.end + len).min(self.buffer.len());
    }

    /// Takes an unused buffer if it has none.
    pub(crate) fn borrow(&mut self, buffers: &mut Buffers) {
        if self.buffer.is_empty()
            && let Some(buffer) = buffers.spare.pop()
        {
            self.buffer = buffer;
        }
    }

    /// Returns the buffer if nothing is pending.
    pub(crate) fn give_back(&mut self, buffers: &mut Buffers) {
        if self.start == self.end && !self.buffer.is_empty() {
            let buffer = std::mem::take(self).buffer;
            if buffers.spare.len() < SPARE_MAX {
                buffers.spare.push(buffer);
            }
        }
    }

    /// Discards the pending data.
    pub(crate) const fn clear(&mut self) {
        self.start = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_record_survives_leaving_the_large_buffer() {
        let mut buffers = Buffers::default();
        let mut incoming = Incoming::default();
        incoming.borrow(&mut buffers);
        incoming.space()[..6].copy_from_slice(b"whole-");
        incoming.commit(6);
        incoming.consume(4);
        incoming.give_back(&mut buffers);
        assert_eq!(incoming.filled(), b"e-");
        assert_eq!(incoming.buffer.capacity(), 2);
        incoming.borrow(&mut buffers);
        assert!(buffers.incoming.is_empty(), "it is lent");
        incoming.space()[..4].copy_from_slice(b"part");
        incoming.commit(4);
        assert_eq!(incoming.filled(), b"e-part");
        incoming.consume(6);
        incoming.give_back(&mut buffers);
        assert_eq!(incoming.buffer.capacity(), 0);
    }

    #[test]
    fn a_buffer_is_returned_only_once_fully_written() {
        let mut buffers = Buffers::default();
        let mut outgoing = Outgoing::default();
        outgoing.room(10)[..5].copy_from_slice(b"hello");
        outgoing.commit(5);
        outgoing.advance(4);
        outgoing.give_back(&mut buffers);
        assert_eq!(outgoing.pending(), b"o");
        outgoing.advance(1);
        outgoing.give_back(&mut buffers);
        assert_eq!((outgoing.buffer.len(), buffers.spare.len()), (0, 1));
        outgoing.borrow(&mut buffers);
        assert_eq!((outgoing.buffer.len(), buffers.spare.len()), (10, 0));
    }
}
