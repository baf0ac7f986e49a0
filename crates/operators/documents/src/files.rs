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

/// Reads a consensus. Prints a note if it is not valid at `now_unix_s`.
///
/// # Errors
/// If it cannot be read or parsed.
pub fn consensus(path: &Path, now_unix_s: u64) -> Result<Consensus, Error> {
    let text = read(path, "read the consensus")?;
    let what = format!("the consensus in {}", path.display());
    let consensus = Consensus::parse(&text)
        .map_err(|source| Error::Consensus { what: what.clone(), source })?;
    note_validity(&what, &consensus, now_unix_s);
    Ok(consensus)
}

/// Prints a note if a consensus is not valid now. `what` names it.
pub(crate) fn note_validity(what: &str, consensus: &Consensus, now_unix_s: u64) {
    if let Some(problem) = validity_problem(consensus, now_unix_s) {
        note(format!("{what} {problem}"));
    }
}

/// Why a consensus is not valid at this time, in words that follow its name; `None` if it is valid. Clocks may differ by
/// [`CLOCK_TOLERANCE`](link::CLOCK_TOLERANCE).
#[must_use]
pub fn validity_problem(consensus: &Consensus, now_unix_s: u64) -> Option<String> {
    let tolerance_s = link::CLOCK_TOLERANCE.as_secs();
    let span = |seconds: u64| match seconds {
        0..60 => format!("{seconds} s"),
        60..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    let (begin, end) = (consensus.valid_after, consensus.valid_until);
    if let Some(early_s) = begin.checked_sub(now_unix_s).filter(|early_s| *early_s > tolerance_s) {
        return Some(format!("is not valid before {}, in {}", readable(begin), span(early_s)));
    }
    let late_s = now_unix_s.checked_sub(end).filter(|late_s| *late_s > tolerance_s)?;
    Some(format!("ended at {}, {} ago", readable(end), span(late_s)))
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
            .filter(|_| found.bad.first().is_none_or(|bad| bad.line == bad.first_line));
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

    const CONSENSUS: &[u8] = include_bytes!("../../../engine/netdoc/tests/data/consensus-ns");
    const DESCRIPTORS: &[u8] =
        include_bytes!("../../../engine/netdoc/tests/data/server-descriptors");

    #[test]
    fn a_consensus_that_has_ended_or_is_not_valid_yet_is_reported() {
        let consensus = Consensus::parse(CONSENSUS).expect("a consensus");
        let (begin, end) = (consensus.valid_after, consensus.valid_until);
        let problem = |now| validity_problem(&consensus, now).unwrap_or_default();
        for now in [begin - 30, begin, end, end + 30] {
            assert_eq!(problem(now), "");
        }
        assert_eq!(problem(end + 86_400 * 400), "ended at 2020-02-29 13:00:00 UTC, 400 days ago");
        assert_eq!(problem(end + 31), "ended at 2020-02-29 13:00:00 UTC, 31 s ago");
        assert_eq!(problem(end + 3600), "ended at 2020-02-29 13:00:00 UTC, 60 min ago");
        let early = problem(begin - 3 * 86_400);
        assert!(
            early.starts_with("is not valid before 2020-02-29") && early.ends_with(", in 3 days"),
            "{early}"
        );
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
