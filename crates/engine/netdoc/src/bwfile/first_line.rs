//! Explains why the first line of a file is not a timestamp.

use crate::input::{describe, without_annotations};
use crate::text::{Lines, date_time, decimal, words};

/// Describes a first line that is not Unix seconds and a newline, with the remedy.
/// `None` if it is a valid timestamp, or unknown.
#[must_use]
pub fn first_line(bytes: &[u8]) -> Option<String> {
    let first = Lines::new(bytes).next()?;
    let line = first.bytes;
    let is_time = |text: &[u8]| decimal::<u64>(text).is_some();
    let trimmed = line.trim_ascii();
    if line.starts_with(b"@") {
        let name = String::from_utf8_lossy(&line[..line.len().min(60)]);
        let next = Lines::new(without_annotations(bytes)).next();
        let is_one = next.is_some_and(|next| is_time(next.bytes));
        let remedy = if is_one { "remove it" } else { "no time in seconds follows it, either" };
        return Some(format!(
            "the first line is the annotation `{}`, as in CollecTor's archives; {remedy}",
            name.trim_end()
        ));
    }
    if is_time(line) {
        return (!first.complete).then(|| "it ends after the time: the file was cut".to_owned());
    }
    let known = if line.ends_with(b"\r") && is_time(&line[..line.len() - 1]) {
        "the first line ends with a carriage return: convert CR LF line ends to LF, for example with dos2unix"
    } else if is_time(trimmed) {
        "the first line has blanks around the time: remove them"
    } else if let Some(what) = describe(bytes) {
        return Some(format!("it is {what}"));
    } else if line.contains(&0) {
        "the first line has a NUL byte"
    } else if date_time(trimmed).is_some()
        || date_time(trimmed.strip_suffix(b"Z").unwrap_or(trimmed)).is_some()
    {
        "the first line is a date: write the time as Unix seconds"
    } else if is_number(trimmed) {
        "the first line is not an integer number of seconds"
    } else if words(line).any(|word| word.starts_with(b"node_id=") || word.starts_with(b"bw=")) {
        "it begins with the line of a relay: the line with the time is missing"
    } else if trimmed == b"=====" || crate::text::key_value(line).is_some() {
        "it begins with a header line: the line with the time is missing"
    } else {
        return None;
    };
    Some(known.to_owned())
}

/// Whether a text is a number with a sign, a fraction, an exponent or too many digits.
fn is_number(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_digit)
        && text.iter().all(|byte| {
            byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b',' | b'e' | b'E')
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bwfile::{BandwidthFile, FileVerdict, check_as_tor};

    #[test]
    fn the_error_quotes_an_invalid_timestamp() {
        for (text, expected) in [
            (&b"@type bandwidth-file 1.0\n1700000000\n"[..], "`@type bandwidth-file 1.0`"),
            (b"1700000000\r\nversion=1.9.0\r\n", "carriage return"),
            (b"1700000000 \n", "blanks"),
            (b"1700000000", "cut"),
            (b"\xef\xbb\xbf1700000000\n", "byte-order mark"),
            (b"\x1f\x8b\x08\0\0", "gzip"),
            (b"version=1.9.0\n=====\n", "header line"),
            (b"=====\n", "header line"),
            (b"node_id=$AA bw=1\n", "line of a relay"),
            (b"2026-11-26T15:35:58\n", "a date"),
            (b"1700000000.5\n", "not an integer"),
            (b"<html>\n", "HTML"),
        ] {
            let found = first_line(text).unwrap_or_default();
            assert!(found.contains(expected), "{expected}: {found}");
            assert_eq!(check_as_tor(text, 0).verdict, FileVerdict::BadTimestamp, "{expected}");
            let error = BandwidthFile::parse(text);
            let is_annotated = text.starts_with(b"@");
            assert_eq!(error.is_ok(), is_annotated, "{expected}");
            if let Err(error) = error {
                assert!(error.to_string().contains(expected), "{error}");
            }
        }
        assert_eq!(first_line(b"1700000000\n"), None);
        assert_eq!(first_line(b""), None);
    }
}
