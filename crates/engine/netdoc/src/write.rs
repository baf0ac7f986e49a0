//! Writes the parts that documents have in common (dir-spec.txt, section 1.2): dates and objects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

/// A time in Unix seconds as `YYYY-MM-DD HH:MM:SS` in UTC.
#[must_use]
pub fn date_time(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|s| Timestamp::from_second(s).ok());
    time.unwrap_or(Timestamp::UNIX_EPOCH).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Appends an object: `bytes` in base64 between `-----BEGIN KIND-----` and `-----END KIND-----`.
pub fn push_object(text: &mut String, kind: &str, bytes: &[u8]) {
    text.push_str("-----BEGIN ");
    text.push_str(kind);
    text.push_str("-----\n");
    push_base64_lines(text, bytes);
    text.push_str("-----END ");
    text.push_str(kind);
    text.push_str("-----\n");
}

/// Appends base64 in lines of 64 characters.
pub fn push_base64_lines(text: &mut String, bytes: &[u8]) {
    for line in bytes.chunks(48) {
        STANDARD.encode_string(line, text);
        text.push('\n');
    }
}
