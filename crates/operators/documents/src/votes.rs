//! Votes of directory authorities: what each measured.

use crate::error::Error;
use crate::files::read;
use netdoc::Fingerprint;
use netdoc::consensus::Consensus;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The first line of each vote (dir-spec.txt, section 3.4.1).
const FIRST_LINE: &[u8] = b"network-status-version 3";

/// The measurements in the vote of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The nickname of the authority.
    pub authority: String,
    /// When the consensus that it was for became valid, in Unix seconds.
    pub valid_after_unix_s: u64,
    /// `w Measured=` of each relay, in KB/s. Empty if the authority has no bandwidth file.
    pub measured_kb_s: BTreeMap<Fingerprint, u32>,
}

/// Reads votes: a file, or all files of a folder. A file may have several, like `v3-status-votes` in the data folder of an authority. Of
/// each authority, the vote for the newest consensus is returned, in the order of their nicknames.
///
/// # Errors
/// If a file cannot be read or is not a vote, if there is none, or if the votes are for different consensuses.
pub fn votes(path: &Path) -> Result<Vec<Vote>, Error> {
    let mut newest: BTreeMap<String, Vote> = BTreeMap::new();
    for file in files(path)? {
        let text = read(&file, "read the vote")?;
        for document in documents(&text) {
            let what = format!("the vote in {}", file.display());
            let parsed = Consensus::parse_vote(document);
            let parsed = parsed.map_err(|source| Error::Consensus { what, source })?;
            let authority = parsed.authorities.first().map(|it| it.nickname.to_string());
            let Some(authority) = authority else {
                let problem = "a vote without `dir-source`: fetch it again".to_owned();
                return Err(Error::Invalid { path: file, problem });
            };
            let measured = parsed
                .routers()
                .iter()
                .filter_map(|router| router.measured_kb_s.map(|kb_s| (router.fingerprint, kb_s)));
            let vote = Vote {
                valid_after_unix_s: parsed.valid_after,
                measured_kb_s: measured.collect(),
                authority: authority.clone(),
            };
            let known = newest.entry(authority).or_insert_with(|| vote.clone());
            if known.valid_after_unix_s < vote.valid_after_unix_s {
                *known = vote;
            }
        }
    }
    let votes: Vec<Vote> = newest.into_values().collect();
    let times = || votes.iter().map(|vote| vote.valid_after_unix_s);
    let problem = match (times().min(), times().max()) {
        (Some(first), Some(last)) if first == last => return Ok(votes),
        (Some(_), Some(_)) => "votes for different consensuses: fetch those of one hour",
        _ => "there is no vote in it",
    };
    Err(Error::Invalid { path: path.to_owned(), problem: problem.to_owned() })
}

/// The file, or the files of a folder, in the order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::File { what: "read", path: path.to_owned(), source };
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// The votes of a file.
fn documents(text: &[u8]) -> Vec<&[u8]> {
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(FIRST_LINE) {
            starts.push(at);
        }
        at += line.len();
    }
    // Annotations before the first vote are part of it; so is a text without any first line, which the parser describes.
    let begins = [0].into_iter().chain(starts.iter().skip(1).copied());
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    begins.zip(ends).map(|(begin, end)| &text[begin..end]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vote with a relay for each weight.
    fn vote(authority: &str, hour: u32, weights: &[Option<u32>]) -> String {
        use std::fmt::Write as _;
        let id = "0123456789012345678901234567890123456789";
        let mut text = format!(
            "network-status-version 3\nvote-status vote\nconsensus-methods 28\npublished 2026-11-26 {hour:02}:50:00\n\
             valid-after 2026-11-26 {hour:02}:00:00\nfresh-until 2026-11-26 {hour:02}:30:00\nvalid-until 2026-11-26 {hour:02}:59:00\n\
             voting-delay 300 300\nknown-flags Running Valid\nflag-thresholds stable-uptime=1\n\
             dir-source {authority} {id} 127.0.0.1 127.0.0.1 80 9001\ncontact nobody\ndir-key-certificate-version 3\n"
        );
        for (number, weight) in (1u8..).zip(weights) {
            let name = "A".repeat(25) + char::from(b'A' + number).to_string().as_str() + "A";
            let measured = weight.map(|kb_s| format!(" Measured={kb_s}")).unwrap_or_default();
            let _ = write!(
                text,
                "r relay{number} {name} {name} 2026-11-26 00:00:00 127.0.0.{number} 9001 0\ns Running Valid\nv Tor 0.4.9.1\n\
                 w Bandwidth=100{measured}\np reject 1-65535\n"
            );
        }
        text + "directory-footer\ndirectory-signature 0123456789012345678901234567890123456789 \
                0123456789012345678901234567890123456789\n-----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n"
    }

    #[test]
    fn the_newest_vote_of_each_authority_is_read_from_files_with_one_or_several() {
        let folder = tempfile::tempdir().expect("a folder");
        let [old, a, b] = [
            vote("moria", 9, &[Some(1)]),
            vote("moria", 10, &[Some(7), None]),
            vote("gabel", 10, &[Some(9), Some(3)]),
        ];
        fs::write(folder.path().join("1"), format!("@type network-status-vote-3 1.0\n{old}{a}"))
            .expect("room");
        fs::write(folder.path().join("2"), &b).expect("room");
        let found = votes(folder.path()).expect("two");
        let rows: Vec<(&str, Vec<u32>)> = found
            .iter()
            .map(|vote| (vote.authority.as_str(), vote.measured_kb_s.values().copied().collect()))
            .collect();
        assert_eq!(rows, [("gabel", vec![9, 3]), ("moria", vec![7])]);
    }

    #[test]
    fn what_is_no_vote_or_of_another_hour_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let problem = || votes(folder.path()).expect_err("no votes").to_string();
        assert!(problem().contains("no vote in it"), "{}", problem());
        fs::write(folder.path().join("1"), vote("moria", 9, &[])).expect("room");
        fs::write(folder.path().join("2"), vote("gabel", 10, &[])).expect("room");
        assert!(problem().contains("different consensuses"), "{}", problem());
        fs::write(folder.path().join("2"), "<html>\n").expect("room");
        assert!(problem().contains("network-status-version"), "{}", problem());
    }
}
