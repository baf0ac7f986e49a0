//! Bytes on a set of links.

/// Plaintext that went over a set of links, and the number of TLS records that carried it. Without TLS, a record is
/// what one system call read or wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Traffic {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Records sent.
    pub sent_records: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Records received.
    pub received_records: u64,
}

impl Traffic {
    /// Adds a record of `len` bytes that was sent; an empty one does not count.
    pub const fn note_sent(&mut self, len: usize) {
        self.sent_bytes += len as u64;
        self.sent_records += (len > 0) as u64;
    }

    /// Adds a record of `len` bytes that was received.
    pub const fn note_received(&mut self, len: usize) {
        self.received_bytes += len as u64;
        self.received_records += 1;
    }
}

impl core::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            sent_records: self.sent_records + other.sent_records,
            received_bytes: self.received_bytes + other.received_bytes,
            received_records: self.received_records + other.received_records,
        }
    }
}

impl core::ops::Sub for Traffic {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes - other.sent_bytes,
            sent_records: self.sent_records - other.sent_records,
            received_bytes: self.received_bytes - other.received_bytes,
            received_records: self.received_records - other.received_records,
        }
    }
}
