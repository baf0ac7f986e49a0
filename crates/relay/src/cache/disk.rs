//! The documents on disk, so that a relay that starts again has something to serve. The names are
//! tor's. Each file is replaced whole or not at all.

use super::{Documents, Kept, Listing, Wanted};
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
/// No file is longer.
const LEN_MAX: u64 = 256 << 20;

/// Which files are out of date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) listings: bool,
    pub(crate) certificates: bool,
    pub(crate) documents: bool,
}

/// Reads what is there. What cannot be read or used is left out: it can be fetched again. Signatures
/// were verified before it was written.
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
        let listing = read(&folder.join(name)).map(|text| Listing::read(text, flavour));
        if let Some(Ok(listing)) = listing {
            documents.put_listing(now, listing);
        }
    }
    documents
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path).ok()?.take(LEN_MAX).read_to_end(&mut content).ok()?;
    Some(content)
}

/// Writes what has changed; makes the folder if it is not there, in one that is.
///
/// # Errors
/// The system's answer to what could not be written.
pub(crate) fn save(folder: &Path, documents: &Documents, changed: Changed) -> io::Result<()> {
    if changed == Changed::default() {
        return Ok(());
    }
    // Not those above it: who has removed the relay's folder does not want it back.
    if !folder.is_dir() {
        fs::create_dir(folder)?;
    }
    let texts = |kept: &mut dyn Iterator<Item = &Kept>| {
        kept.fold(Vec::new(), |mut all, kept| {
            all.extend_from_slice(&kept.text);
            all
        })
    };
    if changed.certificates {
        let all: Vec<_> = documents.certificates.values().map(|cert| &cert.text[..]).collect();
        files::replace(&folder.join(CERTIFICATES), &all.concat(), Access::Owner)?;
    }
    if changed.documents {
        files::replace(&folder.join(MICRO), &texts(&mut documents.micro.values()), Access::Owner)?;
        files::replace(
            &folder.join(DESCRIPTORS),
            &texts(&mut documents.descriptors.values()),
            Access::Owner,
        )?;
    }
    if changed.listings {
        for (name, listing) in [(NS, &documents.ns), (MICRODESC, &documents.microdesc)] {
            if let Some(listing) = listing {
                files::replace(&folder.join(name), &listing.text, Access::Owner)?;
            }
        }
    }
    Ok(())
}
