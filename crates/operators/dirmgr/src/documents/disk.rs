//! Documents on disk, so that a relay that restarts has something to serve. The file names are
//! tor's. Each file is replaced atomically.

use super::{CachedConsensus, CachedDocument, Documents, Wanted};
use files::Access;
use netdoc::consensus::Flavour;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

const NS: &str = "cached-consensus";
const MICRODESC: &str = "cached-microdesc-consensus";
const MICRO: &str = "cached-microdescs";
const DESCRIPTORS: &str = "cached-descriptors";
const CERTIFICATES: &str = "cached-certs";
/// The longest file that is read, in bytes.
const LEN_MAX: u64 = 256 << 20;

/// Which files are out of date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaleFiles {
    pub(crate) consensuses: bool,
    pub(crate) certificates: bool,
    pub(crate) documents: bool,
}

/// Reads all files. Unreadable or malformed content is skipped: it can be fetched again. Signatures
/// of consensuses were verified before they were written.
pub(crate) fn load(folder: &Path, now: u64) -> Documents {
    let mut documents = Documents::default();
    if let Some(text) = read(&folder.join(CERTIFICATES)) {
        documents.put_certificates(now, &text, Wanted::All);
    }
    if let Some(text) = read(&folder.join(MICRO)) {
        documents.put_micro(now, &text, Wanted::All);
    }
    if let Some(text) = read(&folder.join(DESCRIPTORS)) {
        documents.put_descriptors(now, &text, Wanted::All);
    }
    for (name, flavour) in [(NS, Flavour::Ns), (MICRODESC, Flavour::Microdesc)] {
        let text = read(&folder.join(name));
        if let Some(consensus) = text.and_then(|text| CachedConsensus::parse(text, flavour)) {
            documents.put_consensus(now, consensus);
        }
    }
    documents
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path).ok()?.take(LEN_MAX).read_to_end(&mut content).ok()?;
    Some(content)
}

/// Writes the stale files. Creates the folder, but not its parents.
///
/// # Errors
/// The first I/O error.
pub(crate) fn save(folder: &Path, documents: &Documents, stale: StaleFiles) -> io::Result<()> {
    if stale == StaleFiles::default() {
        return Ok(());
    }
    // Not its parents: an operator who has removed the relay's folder does not want it back.
    if !folder.is_dir() {
        fs::create_dir(folder)?;
    }
    let replace = |name: &str, text: &[u8]| files::replace(&folder.join(name), text, Access::Owner);
    let texts = |documents: &mut dyn Iterator<Item = &CachedDocument>| {
        documents.fold(Vec::new(), |mut all, document| {
            all.extend_from_slice(&document.text);
            all
        })
    };
    if stale.certificates {
        let all: Vec<_> = documents.certificates.values().map(|cert| &cert.text[..]).collect();
        replace(CERTIFICATES, &all.concat())?;
    }
    if stale.documents {
        replace(MICRO, &texts(&mut documents.micro.values()))?;
        replace(DESCRIPTORS, &texts(&mut documents.descriptors.values()))?;
    }
    if stale.consensuses {
        for (name, consensus) in [(NS, &documents.ns), (MICRODESC, &documents.microdesc)] {
            if let Some(consensus) = consensus {
                replace(name, &consensus.text)?;
            }
        }
    }
    Ok(())
}
