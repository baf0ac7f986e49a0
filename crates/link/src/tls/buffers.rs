/// Room for received records; the longest has 16 KiB and some.
pub(crate) const INCOMING_LEN: usize = 128 * 1024;

/// Below this much free room, what is left moves to the front before the next read.
const READ_SPACE_MIN: usize = 32 * 1024;

/// Buffers for what waits to be written that are kept for the next one who needs one.
const SPARE_MAX: usize = 128;

/// The large buffers of one thread. Its connections use them in turn: one at rest holds none.
#[derive(Debug, Default)]
pub struct Buffers {
    incoming: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl Buffers {
    /// Room for one read, for those who need nothing kept after it.
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

/// What has been received and not processed.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    /// What waits to be processed.
    pub(super) fn filled(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// `len` bytes of it have been used up.
    pub(super) const fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Room for more behind it.
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

    /// `len` bytes were put into the room.
    pub(super) fn commit(&mut self, len: usize) {
        self.end = (self.end + len).min(self.buffer.len());
    }

    /// Goes on in the large buffer.
    pub(super) fn borrow(&mut self, buffers: &mut Buffers) {
        if self.buffer.len() < INCOMING_LEN {
            let mut buffer = buffers.take_incoming();
            let len = self.end - self.start;
            buffer[..len].copy_from_slice(&self.buffer[self.start..self.end]);
            *self = Self { buffer, start: 0, end: len };
        }
    }

    /// Gives the large buffer back. What waits in it, a part of a record, is kept apart.
    pub(super) fn give_back(&mut self, buffers: &mut Buffers) {
        if self.buffer.len() == INCOMING_LEN {
            let rest = self.filled().to_vec();
            let end = rest.len();
            buffers.incoming = std::mem::replace(self, Self { buffer: rest, start: 0, end }).buffer;
        }
    }
}

/// What waits for the socket. While in use the buffer only grows: clearing what is to be overwritten
/// would cost as much as copying it.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    /// What waits.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Bytes of memory that it takes while something waits in it. An empty buffer is given back.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.start == self.end { 0 } else { self.buffer.len() }
    }

    /// `len` bytes of it have been written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }

    /// Room for `len` bytes behind what is pending; tell how much was used with
    /// [`commit`](Self::commit).
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.buffer.len() - self.end < len {
            // A socket that is never quite drained must not make the buffer grow for ever.
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < len {
            self.buffer.resize(self.end + len, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// `len` bytes were put into the room.
    pub(crate) fn commit(&mut self, len: usize) {
        self.end = (self.end + len).min(self.buffer.len());
    }

    /// Takes a buffer that others have used before, if it has none.
    pub(crate) fn borrow(&mut self, buffers: &mut Buffers) {
        if self.buffer.is_empty()
            && let Some(buffer) = buffers.spare.pop()
        {
            self.buffer = buffer;
        }
    }

    /// Gives the buffer back if nothing waits in it.
    pub(crate) fn give_back(&mut self, buffers: &mut Buffers) {
        if self.start == self.end && !self.buffer.is_empty() {
            let buffer = std::mem::take(self).buffer;
            if buffers.spare.len() < SPARE_MAX {
                buffers.spare.push(buffer);
            }
        }
    }

    /// Forgets what waits.
    pub(crate) const fn clear(&mut self) {
        self.start = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_record_survives_its_way_out_of_the_large_buffer_and_back() {
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
    fn a_buffer_is_given_back_only_when_all_of_it_is_written() {
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
