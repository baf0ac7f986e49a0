//! Votes of C tor authorities by bandwidth files, compared with `netdoc::check_as_tor`, and their file format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use netdoc::bwfile::{FileVerdict, Report};
use netdoc::{RsaId, check_as_tor};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Result, Write as _};
use std::path::Path;

/// A bandwidth file and the resulting vote.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedVote {
    pub(crate) name: String,
    /// The time at which the authority got the file, in Unix seconds.
    pub(crate) now_unix_s: u64,
    pub(crate) file: String,
    /// The relays that the vote lists.
    pub(crate) listed: Vec<String>,
    /// `Measured=` of each relay, in KB/s, as 32 bits.
    pub(crate) measured: BTreeMap<String, u32>,
    pub(crate) headers: Option<String>,
    pub(crate) digest: Option<String>,
}

impl RecordedVote {
    pub(crate) fn report(&self) -> Report {
        check_as_tor(self.file.as_bytes(), self.now_unix_s)
    }

    /// Differences between the prediction of the check and the vote.
    pub(crate) fn differences(&self) -> Vec<String> {
        let Self { name, file, .. } = self;
        let report = self.report();
        let mut found = Vec::new();
        for relay in &self.listed {
            let id: RsaId = relay.parse().expect("a fingerprint");
            let (ours, tors) = (report.relays.get(&id), self.measured.get(relay));
            if ours != tors {
                let of_it = file.lines().filter(|line| line.to_uppercase().contains(relay));
                let lines: Vec<String> =
                    of_it.map(|line| line.chars().take(120).collect()).collect();
                found.push(format!("{name}: predicted {ours:?}, voted {tors:?}: {lines:#?}"));
            }
        }
        // A vote does not mention a file that is refused, or a header that is too long.
        let is_voted = report.verdict == FileVerdict::Read && !report.headers.too_long;
        let headers = if is_voted { report.headers.lines.join(" ") } else { String::new() };
        if self.headers.as_deref().unwrap_or_default() != headers {
            found.push(format!("{name}: predicted header {headers:?}, voted {:?}", self.headers));
        }
        // Tor's digest of a file with these bytes is of other content.
        let is_plain = !file.bytes().any(|byte| matches!(byte, b'\0' | b'\r'));
        if let Some(digest) = &self.digest
            && is_plain
            && *digest != STANDARD_NO_PAD.encode(Sha256::digest(file))
        {
            found.push(format!("{name}: the digest in the vote is of another file"));
        }
        found
    }
}

/// Writes votes as JSON lines.
pub(crate) fn write(path: &Path, all: &[RecordedVote]) -> Result<()> {
    let mut file = GzEncoder::new(File::create(path)?, Compression::best());
    for vote in all {
        serde_json::to_writer(&mut file, vote)?;
        file.write_all(b"\n")?;
    }
    file.finish()?.sync_all()
}

/// Reads votes from JSON lines.
pub(crate) fn read(path: &Path) -> Result<Vec<RecordedVote>> {
    let lines = BufReader::new(GzDecoder::new(File::open(path)?)).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}
