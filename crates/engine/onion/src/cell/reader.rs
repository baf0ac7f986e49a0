//! Reading big-endian fields.

use core::fmt;

/// A malformed message: which one, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The message, by its name in tor-spec.
    pub message: &'static str,
    /// The problem.
    pub problem: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed {}: {}", self.message, self.problem)
    }
}

impl core::error::Error for Malformed {}

/// Reads big-endian fields from the front of a message. It fails instead of reading past the end.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    message: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, a message of the name `message`.
    #[must_use]
    pub const fn new(message: &'static str, bytes: &'a [u8]) -> Self {
        Self { message, rest: bytes }
    }

    /// An error about this message.
    #[must_use]
    pub const fn malformed(&self, problem: &'static str) -> Malformed {
        Malformed { message: self.message, problem }
    }

    /// The bytes not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// If fewer bytes are left; likewise for the other `take_*` methods.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or(self.malformed("shorter than its fields"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// If fewer bytes are left.
    pub fn take_array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    ///
    /// # Errors
    /// If none is left.
    pub fn take_u8(&mut self) -> Result<u8, Malformed> {
        self.take_array().map(u8::from_be_bytes)
    }

    /// The next two bytes as a number.
    ///
    /// # Errors
    /// If fewer bytes are left.
    pub fn take_u16(&mut self) -> Result<u16, Malformed> {
        self.take_array().map(u16::from_be_bytes)
    }

    /// The next four bytes as a number.
    ///
    /// # Errors
    /// If fewer bytes are left.
    pub fn take_u32(&mut self) -> Result<u32, Malformed> {
        self.take_array().map(u32::from_be_bytes)
    }
}
