//! Votes of directory authorities: what each measured.

use crate::error::Error;
use crate::gate::read_votes;
use netdoc::RsaId;
use std::collections::BTreeMap;
use std::path::Path;

/// The measurements in the vote of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The nickname of the authority.
    pub authority: String,
    /// When the consensus that it was for became valid, in Unix seconds.
    pub valid_after_unix_s: u64,
    /// `w Measured=` of each relay, in KB/s. Empty if the authority has no bandwidth file.
    pub measured_kb_s: BTreeMap<RsaId, u32>,
}

/// Reads the votes for one consensus: a file, or all files of a folder ([`read_votes`]). Of each authority, the newest vote is returned, in
/// the order of their nicknames.
///
/// # Errors
/// If a file cannot be read or is not a vote, if there is none, or if the votes are for different consensuses.
pub fn votes(path: &Path) -> Result<Vec<Vote>, Error> {
    let mut newest: BTreeMap<String, Vote> = BTreeMap::new();
    for parsed in read_votes(path)? {
        let invalid =
            |problem: &str| Error::Invalid { path: path.to_owned(), problem: problem.to_owned() };
        let authority = parsed.authorities.first();
        let authority =
            authority.ok_or_else(|| invalid("a vote without `dir-source`: fetch it again"))?;
        let measured = parsed
            .routers()
            .iter()
            .filter_map(|router| router.measured_kb_s.map(|kb_s| (router.fingerprint, kb_s)));
        let vote = Vote {
            authority: authority.nickname.to_string(),
            valid_after_unix_s: parsed.valid_after,
            measured_kb_s: measured.collect(),
        };
        let known = newest.entry(vote.authority.clone()).or_insert_with(|| vote.clone());
        if known.valid_after_unix_s < vote.valid_after_unix_s {
            *known = vote;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        assert!(problem().contains("there is no vote in it"), "{}", problem());
    }
}
