//! The manifest of a dataset in object storage, and the plan of transfers that follows from two of them.

use super::super::digests::{Digests, FileLine};
use super::super::{PART, lines};
use crate::rows;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// The version of this layout of objects.
const FORMAT: u32 = 1;

/// The content of `dataset.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Root {
    format: u32,
    /// In hex.
    pub(super) manifest_sha256: String,
}

impl Root {
    pub(super) fn new(manifest: &Manifest) -> Self {
        Self { format: FORMAT, manifest_sha256: manifest.sha256() }
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let root: Self = serde_json::from_slice(text)
            .map_err(|error| format!("the object is damaged ({error})"))?;
        if root.format != FORMAT {
            return Err(format!(
                "format {}: this version reads format {FORMAT}; update flashflow-archive",
                root.format
            ));
        }
        if !is_digest(&root.manifest_sha256) {
            return Err("the object is damaged (its digest has not 64 digits)".to_owned());
        }
        Ok(root)
    }
}

/// A manifest.
#[derive(Clone, Debug, Default)]
pub(super) struct Manifest {
    pub(super) text: Vec<u8>,
    /// The current files of the dataset, in the order of their names.
    pub(super) files: Vec<FileLine>,
}

impl Manifest {
    /// Reads a manifest, whose names become paths.
    pub(super) fn parse(text: Vec<u8>) -> Result<Self, String> {
        let mut digests = Digests::default();
        lines(&text[..], |line| digests.add(line)).map_err(|error| error.to_string())?;
        let files: Vec<FileLine> = digests.last().cloned().collect();
        for FileLine { file, sha256, .. } in &files {
            if !is_part(file) || !is_digest(sha256) {
                return Err(format!(
                    "the manifest names a file that this version does not know: {file:?}; update flashflow-archive"
                ));
            }
        }
        Ok(Self { text, files })
    }

    pub(super) fn sha256(&self) -> String {
        hex::encode(Sha256::digest(&self.text))
    }

    /// The files whose content is not among these digests.
    pub(super) fn beyond<'a>(&'a self, known: &BTreeSet<String>) -> Vec<&'a FileLine> {
        self.files.iter().filter(|file| !known.contains(&file.sha256)).collect()
    }

    /// The digests of all files.
    pub(super) fn digests(&self) -> BTreeSet<String> {
        self.files.iter().map(|file| file.sha256.clone()).collect()
    }

    /// Whether this is `earlier`, or what became of it: a manifest is only appended to.
    pub(super) fn continues(&self, earlier: &Self) -> bool {
        self.text.starts_with(&earlier.text)
    }
}

/// Whether this is `TABLE/month=TIME/part.parquet` or `TABLE/day=TIME/part.parquet`. Anyone who can write to the bucket chooses the name; any
/// other one could be a file outside the copy.
fn is_part(file: &str) -> bool {
    let mut segments = file.split('/');
    let (Some(table), Some(time), Some(PART), None) =
        (segments.next(), segments.next(), segments.next(), segments.next())
    else {
        return false;
    };
    let is_time = |(span, time): (&str, &str)| {
        matches!(span, "month" | "day")
            && !time.is_empty()
            && time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    rows::tables().iter().any(|(name, ..)| *name == table)
        && time.split_once('=').is_some_and(is_time)
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
