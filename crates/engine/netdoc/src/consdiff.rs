//! Consensus diffs (dir-spec.txt, section "Consensus diff"; proposal 140). A client with an earlier
//! consensus fetches only the changes, a tenth of its length.
//!
//! A diff is an *ed script*, applied from the end to the beginning, after a header with the digests
//! of the source and the result. It first removes the signatures, so that copies of one consensus
//! with different signatures are equal sources.
//!
//! Only the digests are checked here. The caller verifies the signatures of the result.

use crate::signed::consensus_signatures;
use imara_diff::{Algorithm, Diff, Hunk, InternedInput, sources};
use sha3::{Digest, Sha3_256};

/// The first line of a diff.
const VERSION: &[u8] = b"network-status-diff-version 1";
/// The keyword of the line with the digests.
const HASH: &[u8] = b"hash ";
/// The end of added lines.
const END: &[u8] = b".";
/// The first word not covered by the signed digest; the space after it is covered.
const SIGNATURE: &[u8] = b"directory-signature ";

/// SHA3-256 of a consensus, or of its signed part.
pub type ConsensusDigest = [u8; 32];

/// Why a diff cannot be made or applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// A text is not a consensus, as far as diffs need it.
    #[error("the {which} consensus has {problem}; request a complete one")]
    Consensus {
        /// Which text: source or target.
        which: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// The diff would be as long as the target.
    #[error("the diff is as long as the consensus")]
    Useless,
    /// The diff has another source.
    #[error("the diff has another source than the present consensus; request a complete one")]
    OtherBase,
    /// A malformed line.
    #[error("line {line} of the diff {problem}; request a complete consensus")]
    Malformed {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The result exceeds the limit.
    #[error("the consensus that the diff produces is longer than {most_bytes} bytes")]
    TooLong {
        /// The limit.
        most_bytes: usize,
    },
    /// The result does not have the announced digest.
    #[error("the diff does not produce the announced consensus; request a complete one")]
    WrongResult,
}

/// The digest of the signed part of a consensus, by which diffs from it are requested. `None` if
/// nothing is signed.
#[must_use]
pub fn digest_as_signed(consensus: &[u8]) -> Option<ConsensusDigest> {
    consensus_signatures(consensus).map(|(signed, _)| Sha3_256::digest(signed).into())
}

/// The digest of a whole consensus, including signatures.
#[must_use]
pub fn digest_of_all(consensus: &[u8]) -> ConsensusDigest {
    Sha3_256::digest(consensus).into()
}

/// Whether a text is a diff rather than a consensus.
#[must_use]
pub fn is_diff(text: &[u8]) -> bool {
    text.starts_with(b"network-status-diff-version")
}

/// The text up to its first signature. An error unless the whole text consists of complete lines.
fn unsigned_part<'a>(which: &'static str, consensus: &'a [u8]) -> Result<&'a [u8], DiffError> {
    let wrong = |problem| DiffError::Consensus { which, problem };
    let (signed, _) = consensus_signatures(consensus).ok_or(wrong("no signature"))?;
    if !consensus.starts_with(signed) {
        return Err(wrong("lines before its first"));
    }
    if !consensus.ends_with(b"\n") {
        return Err(wrong("no end"));
    }
    Ok(&signed[..signed.len() - SIGNATURE.len()])
}

fn count_lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Computes the diff from one consensus to another.
///
/// Takes time in proportion to their lengths and to the size of the changes: a tenth of a second
/// for the public network.
///
/// # Errors
/// [`DiffError`] if one of them is not a consensus, or the diff would save nothing.
pub fn make(from: &[u8], to: &[u8]) -> Result<Vec<u8>, DiffError> {
    let kept = unsigned_part("old", from)?;
    unsigned_part("new", to)?;
    let to_lines: Vec<&[u8]> = to.split(|byte| *byte == b'\n').collect();
    let kept_lines = count_lines(kept);
    // C tor accepts a range only if it has several lines.
    if kept_lines + 1 >= count_lines(from) {
        return Err(DiffError::Consensus { which: "old", problem: "too short a signature" });
    }
    let from_digest = digest_as_signed(from).unwrap_or_default();
    let mut out = VERSION.to_vec();
    let digests = [from_digest, digest_of_all(to)].map(hex::encode_upper);
    out.extend_from_slice(format!("\nhash {} {}\n", digests[0], digests[1]).as_bytes());
    out.extend_from_slice(format!("{},$d\n", kept_lines + 1).as_bytes());

    let input = InternedInput::new(sources::byte_lines(kept), sources::byte_lines(to));
    let diff = Diff::compute(Algorithm::Histogram, &input);
    let hunks: Vec<Hunk> = diff.hunks().collect();
    for Hunk { before, after } in hunks.into_iter().rev() {
        let action = match (before.is_empty(), after.is_empty()) {
            (true, _) => 'a',
            (false, true) => 'd',
            (false, false) => 'c',
        };
        // Lines are numbered from 1; text is appended after the line with this number.
        let command = match before.end - before.start {
            0 => format!("{}{action}\n", before.start),
            1 => format!("{}{action}\n", before.end),
            _ => format!("{},{}{action}\n", before.start + 1, before.end),
        };
        out.extend_from_slice(command.as_bytes());
        if !after.is_empty() {
            for line in &to_lines[after.start as usize..after.end as usize] {
                if *line == END {
                    let problem = "a line that is a dot alone";
                    return Err(DiffError::Consensus { which: "new", problem });
                }
                out.extend_from_slice(line);
                out.push(b'\n');
            }
            out.extend_from_slice(b".\n");
        }
        if out.len() >= to.len() {
            return Err(DiffError::Useless);
        }
    }
    Ok(out)
}

/// Applies a diff to a consensus. The result has at most `most_bytes` bytes.
///
/// Allocates only the result, for any number of commands and lines: the diff comes from
/// an unverified directory. The time is proportional to the lengths of both texts.
///
/// # Errors
/// [`DiffError`] if the diff has another source, is malformed, or does not produce the announced
/// result.
pub fn apply(from: &[u8], diff: &[u8], most_bytes: usize) -> Result<Vec<u8>, DiffError> {
    unsigned_part("old", from)?;
    let mut script = Script::new(diff)?;
    let (from_digest, to_digest) = script.header()?;
    if digest_as_signed(from) != Some(from_digest) {
        return Err(DiffError::OtherBase);
    }
    // The commands are in reverse order. The first pass computes the length, the second writes from
    // the end.
    let mut len = 0_usize;
    script.clone().run(from, |part| {
        len = len.saturating_add(part.len());
        if len > most_bytes { Err(DiffError::TooLong { most_bytes }) } else { Ok(()) }
    })?;
    let mut out = vec![0; len];
    let mut left = len;
    script.run(from, |part| {
        let end = left;
        left -= part.len();
        out[left..end].copy_from_slice(part);
        Ok(())
    })?;
    if digest_of_all(&out) == to_digest { Ok(out) } else { Err(DiffError::WrongResult) }
}

/// The lines of the source that no command has reached yet.
struct OldLines<'a> {
    text: &'a [u8],
    count: usize,
}

impl<'a> OldLines<'a> {
    /// Removes and returns all lines after the first `count`.
    fn split_off(&mut self, count: usize) -> &'a [u8] {
        let mut end = self.text.len();
        while self.count > count {
            let before = &self.text[..end - 1];
            end = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.count -= 1;
        }
        let (rest, tail) = self.text.split_at(end);
        self.text = rest;
        tail
    }
}

/// A command of a script.
struct Command<'a> {
    /// The number of source lines left for later commands.
    first_kept: usize,
    /// The last source line that the command affects; later lines are unchanged.
    last: usize,
    /// The lines that replace those between, with their newlines.
    added: &'a [u8],
}

/// The unread lines of a diff.
#[derive(Clone)]
struct Script<'a> {
    rest: &'a [u8],
    /// The number of lines that have been read.
    number: usize,
}

impl<'a> Script<'a> {
    const fn new(diff: &'a [u8]) -> Result<Self, DiffError> {
        if !matches!(diff.last(), Some(b'\n')) {
            return Err(DiffError::Malformed { line: 1, problem: "or a later one is cut off" });
        }
        Ok(Self { rest: diff, number: 0 })
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        self.number += 1;
        let end = self.rest.iter().position(|byte| *byte == b'\n')?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Some(line)
    }

    const fn malformed(&self, problem: &'static str) -> DiffError {
        DiffError::Malformed { line: self.number, problem }
    }

    /// The digests of the source and of the result.
    fn header(&mut self) -> Result<(ConsensusDigest, ConsensusDigest), DiffError> {
        if self.next() != Some(VERSION) {
            return Err(self.malformed("is not of a version that we know"));
        }
        let words = self.next().and_then(|line| line.strip_prefix(HASH)).unwrap_or_default();
        let mut digests = words.split(|byte| *byte == b' ').map(|word| {
            let mut digest = [0; 32];
            hex::decode_to_slice(word, &mut digest).ok().map(|()| digest)
        });
        match (digests.next().flatten(), digests.next().flatten(), digests.next()) {
            (Some(from), Some(to), None) => Ok((from, to)),
            _ => Err(self.malformed("has no two digests")),
        }
    }

    /// Executes the commands on the source `from`, and passes the parts of the result to `put` in
    /// reverse order.
    fn run(
        mut self,
        from: &'a [u8],
        mut put: impl FnMut(&'a [u8]) -> Result<(), DiffError>,
    ) -> Result<(), DiffError> {
        let all = count_lines(from);
        let mut old = OldLines { text: from, count: all };
        while let Some(command) = self.next_command(all)? {
            if command.last > old.count {
                return Err(self.malformed("is out of order"));
            }
            put(old.split_off(command.last))?;
            old.split_off(command.first_kept);
            put(command.added)?;
        }
        put(old.text)
    }

    /// The next command on a text of `all` lines; `None` after the last. As strict as C tor.
    fn next_command(&mut self, all: usize) -> Result<Option<Command<'a>>, DiffError> {
        let Some(line) = self.next() else { return Ok(None) };
        let Some((action, range)) = line.split_last() else {
            return Err(self.malformed("is empty"));
        };
        let text = std::str::from_utf8(range).unwrap_or_default();
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<usize>().ok().filter(|_| is_plain)
        };
        let (first, last) = match text.split_once(',') {
            None => (number(text), number(text)),
            Some((first, "$")) if *action == b'd' => (number(first), Some(all)),
            Some((first, last)) => (number(first), number(last)),
        };
        let (Some(first), Some(last)) = (first, last) else {
            return Err(self.malformed("has no range of lines"));
        };
        let is_range = text.contains(',');
        if last > all || (is_range && last <= first) {
            return Err(self.malformed("has a range beyond the text"));
        }
        let first_kept = match action {
            b'a' if !is_range => last,
            b'c' | b'd' if first > 0 => first - 1,
            _ => return Err(self.malformed("is no command")),
        };
        let added = if *action == b'd' { &[] } else { self.added()? };
        Ok(Some(Command { first_kept, last, added }))
    }

    /// The lines before the next one that is a single dot.
    fn added(&mut self) -> Result<&'a [u8], DiffError> {
        let text = self.rest;
        let mut len = 0;
        loop {
            match self.next() {
                Some(END) if len == 0 => return Err(self.malformed("ends what adds nothing")),
                Some(END) => return Ok(&text[..len]),
                Some(line) => len += line.len() + 1,
                None => return Err(self.malformed("is missing: what is added has no end")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
