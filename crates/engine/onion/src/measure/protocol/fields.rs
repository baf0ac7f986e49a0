//! Fields of type, length and value.

use crate::cell::{Malformed, Reader};
use alloc::vec::Vec;

/// Appends a field. Our own values are short: a longer one is a bug, and is cut.
pub(super) fn push(out: &mut Vec<u8>, field_type: u16, value: &[u8]) {
    debug_assert!(value.len() <= usize::from(u16::MAX), "a field of {} bytes", value.len());
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&field_type.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&value[..usize::from(len)]);
}

/// Hands each field to `take` until the bytes are used up.
pub(super) fn each<'a>(
    mut reader: Reader<'a>,
    mut take: impl FnMut(u16, Field<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !reader.rest().is_empty() {
        let field_type = reader.take_u16()?;
        let len = usize::from(reader.take_u16()?);
        let value = reader.take(len)?;
        take(field_type, Field { reader: reader.clone(), value })?;
    }
    Ok(())
}

/// One field's value.
pub(super) struct Field<'a> {
    reader: Reader<'a>,
    pub(super) value: &'a [u8],
}

impl Field<'_> {
    /// Puts a value of fixed length into its place, once.
    pub(super) fn set<const N: usize, T>(
        &self,
        place: &mut Option<T>,
        from: impl FnOnce([u8; N]) -> T,
    ) -> Result<(), Malformed> {
        let Ok(array) = <[u8; N]>::try_from(self.value) else {
            return Err(self.reader.malformed("a field has the wrong length"));
        };
        self.set_bytes(place, |_| from(array))
    }

    /// Puts a value of any length into its place, once.
    pub(super) fn set_bytes<T>(
        &self,
        place: &mut Option<T>,
        from: impl FnOnce(&[u8]) -> T,
    ) -> Result<(), Malformed> {
        if place.replace(from(self.value)).is_some() {
            return Err(self.reader.malformed("a field appears twice"));
        }
        Ok(())
    }
}
