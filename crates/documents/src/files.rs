//! Documents in files and on standard input: reads and decompresses them.

use crate::error::Error;
use netdoc::consensus::Consensus;
use netdoc::descriptor::{self, Newest};
use netdoc::input;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use terminal::note;
use terminal::times::readable;

/// Clients accept a consensus for this time after its end (dir-spec, section 5.1).
const CONSENSUS_AGE_S: u64 = 24 * 3600;

/// The file name of standard input.
const STDIN: &str = "-";

/// Whether standard input has been read, which is possible once.
static IS_STDIN_TAKEN: AtomicBool = AtomicBool::new(false);

/// Reads a file, or standard input by the name `-`. `what` follows "cannot" in errors, such as "read the consensus".
///
/// # Errors
/// If it cannot be read, or standard input has been read already.
pub fn read_raw(path: &Path, what: &'static str) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::File { what, path: path.to_owned(), source };
    if path != Path::new(STDIN) {
        return fs::read(path).map_err(failed);
    }
    if IS_STDIN_TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Error::StdinTaken);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Reads a document as [`read_raw`] does, and decompresses it.
///
/// # Errors
/// If it cannot be read or decompressed.
pub fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, Error> {
    input::plain(read_raw(path, what)?)
        .map_err(|problem| Error::Invalid { path: path.to_owned(), problem: problem.to_string() })
}

/// Reads a consensus. Prints a note if it ended more than a day before `now_unix_s`.
///
/// # Errors
/// If it cannot be read or parsed.
pub fn consensus(path: &Path, now_unix_s: u64) -> Result<Consensus, Error> {
    let text = read(path, "read the consensus")?;
    let what = format!("the consensus in {}", path.display());
    let consensus = Consensus::parse(&text)
        .map_err(|source| Error::Consensus { what: what.clone(), source })?;
    if let Some(age) = age(&consensus, now_unix_s) {
        note(format!("{what} {age}"));
    }
    Ok(consensus)
}

/// A description of the age of an expired consensus; `None` if it was valid within the last day.
fn age(consensus: &Consensus, now_unix_s: u64) -> Option<String> {
    let since_s = now_unix_s.checked_sub(consensus.valid_until)?;
    let ended = readable(consensus.valid_until);
    (since_s > CONSENSUS_AGE_S).then(|| format!("ended at {ended}, {} days ago", since_s / 86_400))
}

/// The newest server descriptor of each relay in `text`, which was read from this file. Prints a note with the number of
/// invalid ones, and of documents of other kinds.
///
/// # Errors
/// If there is no descriptor, with a description of the file.
pub fn newest<'t>(path: &Path, text: &'t [u8]) -> Result<Newest<'t>, Error> {
    let found = descriptor::newest(text);
    if found.descriptors.is_empty() {
        let what = input::describe(text)
            .filter(|_| found.bad.first().is_none_or(|it| it.line == it.first_line));
        let problem = match (what, found.dropped()) {
            (Some(what), _) => format!("no server descriptors: it is {what}"),
            (None, Some(dropped)) => format!("no server descriptor can be read: {dropped}"),
            (None, None) => "there is no server descriptor in it".to_owned(),
        };
        return Err(Error::Invalid { path: path.to_owned(), problem });
    }
    for told in [found.dropped(), found.left_out()].into_iter().flatten() {
        note(format!("{}: {told}", path.display()));
    }
    Ok(found)
}

/// The error for a network whose relays all have the weight 0, where relays are planned or sampled by weight.
#[must_use]
pub fn no_weights(what: &str) -> Error {
    Error::Unusable(format!(
        "{what} has no bandwidths: every relay that is up has the weight 0. Use a consensus of a network with bandwidth \
         authorities"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSENSUS: &[u8] = include_bytes!("../../netdoc/tests/data/consensus-ns");
    const DESCRIPTORS: &[u8] = include_bytes!("../../netdoc/tests/data/server-descriptors");

    #[test]
    fn a_consensus_that_ended_long_ago_is_reported() {
        let consensus = Consensus::parse(CONSENSUS).expect("a consensus");
        let end = consensus.valid_until;
        assert_eq!((age(&consensus, end + 80_000), age(&consensus, 0)), (None, None));
        let old = age(&consensus, end + 86_400 * 400).expect("old");
        assert_eq!(old, "ended at 2020-02-29 13:00:00 UTC, 400 days ago");
    }

    #[test]
    fn a_file_without_server_descriptors_is_refused_with_what_it_is() {
        let path = Path::new("it");
        assert_eq!(newest(path, DESCRIPTORS).expect("three").descriptors.len(), 3);
        for (text, expected) in [
            (&b""[..], "empty"),
            (b"@downloaded-at 2026-11-26 10:00:00\n", "no server descriptor"),
            (b"<!DOCTYPE html>\n<html>\n", "HTML"),
            (b"\x89PNG\r\n\x1a\n\0\0", "PNG"),
            (b"@type microdescriptor 1.0\nonion-key\n", "microdescriptors"),
            (b"extra-info a BB\npublished 2026-11-26 10:00:00\n", "extra-info"),
            (CONSENSUS, "a consensus"),
            (&DESCRIPTORS[..600], "cut"),
        ] {
            let error = newest(path, text).map(drop).expect_err(expected).to_string();
            assert!(error.contains(expected) && error.starts_with("it: "), "{expected}: {error}");
        }
    }
}
