//! What an unmodified authority made of a bandwidth file, compared with `netdoc::check_as_tor`; and
//! a file format for such results.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use netdoc::bwfile::{FileVerdict, Report};
use netdoc::{Fingerprint, check_as_tor};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Result, Write as _};
use std::path::Path;

/// A file, and the vote by it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Said {
    pub(crate) name: String,
    /// When the authority got the file, in Unix seconds.
    pub(crate) now_unix_s: u64,
    pub(crate) file: String,
    /// The relays that the vote lists.
    pub(crate) listed: Vec<String>,
    /// By relay, in KB/s, as 32 bits.
    pub(crate) measured: BTreeMap<String, u32>,
    pub(crate) headers: Option<String>,
    pub(crate) digest: Option<String>,
}

impl Said {
    pub(crate) fn report(&self) -> Report {
        check_as_tor(self.file.as_bytes(), self.now_unix_s)
    }

    /// What differs between what the check foretells and the vote.
    pub(crate) fn differences(&self) -> Vec<String> {
        let Self { name, file, .. } = self;
        let report = self.report();
        let mut found = Vec::new();
        for relay in &self.listed {
            let id: Fingerprint = relay.parse().expect("a fingerprint");
            let (ours, tors) = (report.relays.get(&id), self.measured.get(relay));
            if ours != tors {
                let of_it = file.lines().filter(|line| line.to_uppercase().contains(relay));
                let lines: Vec<String> =
                    of_it.map(|line| line.chars().take(120).collect()).collect();
                found.push(format!("{name}: foretold {ours:?}, voted {tors:?}: {lines:#?}"));
            }
        }
        // A vote says nothing of a file that is refused, and of a header that is too long.
        let is_told = report.verdict == FileVerdict::Read && !report.headers.too_long;
        let headers = if is_told { report.headers.lines.join(" ") } else { String::new() };
        if self.headers.as_deref().unwrap_or_default() != headers {
            found.push(format!("{name}: header foretold {headers:?}, voted {:?}", self.headers));
        }
        // Where a file has these, tor's digest is of something else.
        let is_plain = !file.bytes().any(|byte| matches!(byte, b'\0' | b'\r'));
        if let Some(digest) = &self.digest
            && is_plain
            && *digest != STANDARD_NO_PAD.encode(Sha256::digest(file))
        {
            found.push(format!("{name}: the vote is by another file"));
        }
        found
    }
}

/// Writes sayings, a line each.
pub(crate) fn write(path: &Path, all: &[Said]) -> Result<()> {
    let mut file = GzEncoder::new(File::create(path)?, Compression::best());
    for said in all {
        serde_json::to_writer(&mut file, said)?;
        file.write_all(b"\n")?;
    }
    file.finish()?.sync_all()
}

/// Reads them again.
pub(crate) fn read(path: &Path) -> Result<Vec<Said>> {
    let lines = BufReader::new(GzDecoder::new(File::open(path)?)).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}
