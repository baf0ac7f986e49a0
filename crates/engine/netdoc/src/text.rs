//! Helpers of the parsers: lines, words, numbers, dates and base64, all over bytes.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// One line of a document.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Line<'a> {
    /// The line's number, from 1.
    pub(crate) number: usize,
    /// The line without its newline.
    pub(crate) bytes: &'a [u8],
    /// Whether a newline follows: only the last line of a truncated document has none.
    pub(crate) complete: bool,
}

/// Why a line with a NUL byte is refused, as tor refuses the document ("internal NUL character"). A
/// file that was not written to the disk before a power failure has them.
pub(crate) const NUL: &str = "a NUL byte, which no document has: the file is damaged";

impl<'a> Line<'a> {
    /// Whether it has a NUL byte.
    pub(crate) fn has_nul(&self) -> bool {
        memchr::memchr(0, self.bytes).is_some()
    }

    /// The first word, and the rest after the separator.
    pub(crate) fn keyword(&self) -> (&'a [u8], &'a [u8]) {
        let end = self.bytes.iter().position(|b| is_space(*b)).unwrap_or(self.bytes.len());
        let (keyword, rest) = self.bytes.split_at(end);
        (keyword, rest.get(1..).unwrap_or_default())
    }
}

/// The lines of a document, in order.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, number: 0 }
    }

    /// The next line, without consuming it.
    pub(crate) fn peek(&self) -> Option<Line<'a>> {
        self.clone().next()
    }

    /// The offset of the next line in `whole`, the bytes that contain these lines.
    pub(crate) fn position(&self, whole: &[u8]) -> usize {
        whole.len() - self.rest.len()
    }

    /// The number of consumed lines.
    pub(crate) fn taken(&self) -> usize {
        self.number
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let (bytes, complete) = match memchr::memchr(b'\n', self.rest) {
            Some(at) => {
                let (bytes, rest) = self.rest.split_at(at);
                self.rest = rest.get(1..).unwrap_or_default();
                (bytes, true)
            }
            None => (std::mem::take(&mut self.rest), false),
        };
        Some(Line { number: self.number, bytes, complete })
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The words of a line, separated by spaces and tabs.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| is_space(*b)).filter(|word| !word.is_empty())
}

/// Splits `key=value` at the first `=`, if there is one and the key is not empty.
pub(crate) fn key_value(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|b| *b == b'=').filter(|at| *at > 0)?;
    Some((&word[..at], &word[at + 1..]))
}

/// UTF-8 text; `None` if it is invalid.
pub(crate) fn utf8(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A number of decimal digits without a sign, if it fits.
pub(crate) fn decimal<T: TryFrom<u64>>(bytes: &[u8]) -> Option<T> {
    if bytes.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for byte in bytes {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    T::try_from(value).ok()
}

/// Unix seconds of a UTC date `YYYY-MM-DD` and time `HH:MM:SS`, separated by any one byte. The second
/// may be 60, in any minute, as tor reads it (`parse_iso_time`): Unix time does not count leap
/// seconds, so it is the first second of the next minute.
pub(crate) fn date_time(bytes: &[u8]) -> Option<u64> {
    let bytes: &[u8; 19] = bytes.try_into().ok()?;
    let well_formed =
        bytes[4] == b'-' && bytes[7] == b'-' && bytes[13] == b':' && bytes[16] == b':';
    if !well_formed {
        return None;
    }
    let two = |at: usize| decimal::<i8>(&bytes[at..at + 2]);
    let leap = i8::from(bytes[17..] == *b"60");
    let (date, second) = ((decimal(&bytes[..4])?, two(5)?, two(8)?), two(17)? - leap);
    let civil = DateTime::new(date.0, date.1, date.2, two(11)?, two(14)?, second, 0).ok()?;
    let timestamp = Offset::UTC.to_timestamp(civil).ok()?;
    u64::try_from(timestamp.as_second() + i64::from(leap)).ok()
}

/// The UTC date and time of Unix seconds; the epoch for a time after the year 9999.
pub(crate) fn civil(unix: u64) -> DateTime {
    let timestamp = i64::try_from(unix).ok().and_then(|s| Timestamp::from_second(s).ok());
    Offset::UTC.to_datetime(timestamp.unwrap_or(Timestamp::UNIX_EPOCH))
}

/// `YYYY-MM-DDTHH:MM:SS` in UTC.
pub(crate) fn iso(unix: u64) -> String {
    civil(unix).to_string()
}

/// Tor writes most digests without padding and `ntor-onion-key` with it; old documents have nonzero
/// bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Exactly `N` bytes of base64.
pub(crate) fn base64_array<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // The slice API requires room for its estimate, which may exceed `N`.
    let mut room = [0; 72];
    if text.len() > 88 {
        return None;
    }
    let len = BASE64.decode_slice(text, &mut room).ok()?;
    bytes.copy_from_slice(room.get(..len).filter(|got| got.len() == N)?);
    Some(bytes)
}

/// Decodes base64 into `room`, and returns the filled part.
pub(crate) fn base64_into<'a>(text: &[u8], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let len = BASE64.decode_slice(text, room).ok()?;
    room.get(..len)
}

/// Base64 without padding.
#[cfg(test)]
pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The beginning of a text, for an error message. Invalid UTF-8 becomes `\u{fffd}`.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const MAX: usize = 60;
    let mut text = String::from_utf8_lossy(bytes.get(..MAX).unwrap_or(bytes)).into_owned();
    if bytes.len() > MAX {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
