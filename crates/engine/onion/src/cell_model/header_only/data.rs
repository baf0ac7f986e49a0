use super::HeaderOnly;
use crate::cell_model::{Buffer, PayloadSlice};
use alloc::collections::VecDeque;

/// A run of a stream's data: its offset in the stream modulo 2³², and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The offset of its first byte.
    pub at: u32,
    /// Its length in bytes.
    pub len: u32,
}

impl Run {
    /// The offset for this position in the stream.
    #[must_use]
    pub fn place(from: u64) -> u32 {
        u32::try_from(from & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// The offset after its last byte.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.at.wrapping_add(self.len)
    }
}

/// Data of a stream, or the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOnlyPayload<'a> {
    /// Data: only its length.
    Run(Run),
    /// A message.
    Bytes(&'a [u8]),
}

impl<'a> PayloadSlice<'a> for HeaderOnlyPayload<'a> {
    fn from_bytes(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }

    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Run(_) => &[],
            Self::Bytes(bytes) => bytes,
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Run(run) => run.len as usize,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::Run(Run { at: begin, len }) => {
                let first = Run { at: begin, len: u32::try_from(at).unwrap_or(len).min(len) };
                let rest = Run { at: first.end(), len: len - first.len };
                (Self::Run(first), Self::Run(rest))
            }
            Self::Bytes(bytes) => {
                let (first, rest) = bytes.split_at(at);
                (Self::Bytes(first), Self::Bytes(rest))
            }
        }
    }
}

/// Space for data of a stream, as one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunRoom {
    /// The free space in bytes.
    pub room_bytes: u32,
    /// The data written so far.
    pub run: Run,
}

impl RunRoom {
    /// Writes data from this position in the stream on, as much as fits and at most `most_bytes`; returns its
    /// length.
    pub fn put(&mut self, from: u64, most_bytes: u64) -> usize {
        let len = u32::try_from(most_bytes).unwrap_or(u32::MAX).min(self.room_bytes);
        self.run = Run { at: Run::place(from), len };
        len as usize
    }
}

/// Stream data that is queued for its destination: runs, merged if adjacent.
#[derive(Debug, Default)]
pub struct RunBuffer {
    runs: VecDeque<Run>,
    len: usize,
}

impl Buffer<HeaderOnly> for RunBuffer {
    fn len(&self) -> usize {
        self.len
    }

    fn held_bytes(&self) -> usize {
        self.runs.len() * size_of::<Run>()
    }

    fn push(&mut self, data: HeaderOnlyPayload<'_>) {
        let (at, len) = match data {
            HeaderOnlyPayload::Run(run) => (run.at, run.len),
            HeaderOnlyPayload::Bytes(bytes) => (0, u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        };
        self.len += len as usize;
        match self.runs.back_mut() {
            Some(last) if last.end() == at && last.len.checked_add(len).is_some() => {
                last.len += len;
            }
            _ if len > 0 => self.runs.push_back(Run { at, len }),
            _ => {}
        }
    }

    fn pop_into(&mut self, room: &mut RunRoom) -> usize {
        let Some(first) = self.runs.front_mut() else { return 0 };
        let len = first.len.min(room.room_bytes);
        room.run = Run { at: first.at, len };
        *first = Run { at: room.run.end(), len: first.len - len };
        if first.len == 0 {
            self.runs.pop_front();
        }
        self.len -= len as usize;
        len as usize
    }

    fn shrink(&mut self) {
        if self.runs.is_empty() {
            self.runs = VecDeque::new();
        }
    }
}
