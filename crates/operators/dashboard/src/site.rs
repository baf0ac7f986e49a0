//! The relays of a store as static pages, for everybody who asks why a relay has its weight.
//!
//! A page and a JSON file for each relay; a list for each two first digits of a fingerprint, for readers without scripts; and a page of the
//! network, with a search. Any web server can serve them, and browsers open them as files. They contain neither addresses nor contacts.
//! Memory holds one relay at a time for each thread.

mod decided;
mod pages;

use crate::site::decided::Decision;
use crate::site::pages::{Pages, RelayPage, without_addresses};
use documents::Vote;
use netdoc::bwfile::BandwidthFile;
use onion::identity::RsaId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use store::{Audience, Explainer, Line, Reader, RelayQuery, RelayRow, State, StoreError};

/// A folder with this file is a site, and may be replaced.
const MARK: &str = "flashflow-site.txt";
/// Measurements of a relay that are explained and drawn: some months of daily ones.
const MEASUREMENTS: usize = 120;

/// What a site is made from.
pub struct SiteOptions<'a> {
    /// The coordinator's store.
    pub store: &'a Path,
    /// Its newest bandwidth file, if there is one.
    pub file: Option<&'a Path>,
    /// The votes of the authorities for one consensus; none if they are not known.
    pub votes: &'a [Vote],
    /// The folder, which is created, or replaced if it is a site.
    pub out: &'a Path,
    /// The current Unix time.
    pub now_unix_s: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The number of relays.
    pub relays: usize,
    /// The number of files.
    pub files: usize,
    /// Their size.
    pub bytes: u64,
}

/// Why there is no site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bandwidth file cannot be used.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Its error.
        problem: String,
    },
    /// A folder that is not ours.
    #[error(
        "{} exists and is not a site, so it is not replaced; name another folder, or remove it", path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A bug.
    #[error("a page cannot be made: {0}; please report it")]
    Page(#[from] askama::Error),
}

/// Files that are written, and their number and size.
struct Folder<'a> {
    path: &'a Path,
    files: AtomicUsize,
    bytes: AtomicUsize,
}

impl Folder<'_> {
    fn create(&self, name: &str) -> Result<(), SiteError> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).map_err(|source| SiteError::Write { path, source })
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), SiteError> {
        let path = self.path.join(name);
        fs::write(&path, content).map_err(|source| SiteError::Write { path, source })?;
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(content.len(), Ordering::Relaxed);
        Ok(())
    }
}

/// A row of the list that the search reads: fingerprint, nickname, Mbit/s.
#[derive(Serialize)]
struct Found<'a>(String, &'a str, Option<f64>);

/// Writes the site. It is complete in a folder of its own before it replaces an earlier one; between two renames there is none.
///
/// # Errors
/// [`SiteError`]. Then an earlier site is in its place.
pub fn write_site(options: &SiteOptions<'_>) -> Result<Site, SiteError> {
    let out = options.out;
    let failed = |source| SiteError::Write { path: out.to_owned(), source };
    let replaces = out.exists();
    let is_empty = || fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none());
    if replaces && !out.join(MARK).is_file() && !is_empty() {
        return Err(SiteError::Foreign { path: out.to_owned() });
    }
    let parent = files::folder_of(out);
    fs::create_dir_all(parent).map_err(failed)?;
    // Removed with everything in it if anything fails.
    let partial = tempfile::Builder::new().prefix(".site-").tempdir_in(parent).map_err(failed)?;
    let made = partial.path().join("site");
    let site = fill(options, &made)?;
    let before = partial.path().join("before");
    if replaces {
        fs::rename(out, &before).map_err(failed)?;
    }
    fs::rename(&made, out).map_err(|source| {
        if replaces {
            // The first error is the one to report.
            let _ = fs::rename(&before, out);
        }
        failed(source)
    })?;
    Ok(site)
}

fn fill(options: &SiteOptions<'_>, out: &Path) -> Result<Site, SiteError> {
    let reader = Reader::open(options.store)?;
    let lines = options.file.map_or_else(|| Ok(None), |path| lines(path).map(Some))?;
    let all = RelayQuery { most: usize::MAX >> 1, ..RelayQuery::default() };
    let relays = reader.relays(&all)?.relays;
    let folder = Folder { path: out, files: AtomicUsize::new(0), bytes: AtomicUsize::new(0) };
    let pages = Pages::new(options.now_unix_s);

    let mut by_prefix: BTreeMap<String, Vec<&RelayRow>> = BTreeMap::new();
    for relay in &relays {
        by_prefix.entry(prefix(relay.rsa)).or_default().push(relay);
    }
    for (prefix, relays) in &by_prefix {
        folder.create(&format!("relays/{prefix}"))?;
        folder.write(
            &format!("relays/{prefix}/index.html"),
            pages.list(prefix, relays)?.as_bytes(),
        )?;
    }
    let site = Relays { options, lines: lines.as_ref(), pages: &pages, folder: &folder };
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, |count| count.get());
    thread::scope(|scope| {
        let worker = || site.write(&relays, &next);
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        running.into_iter().try_for_each(|worker| match worker.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;

    let found = relays.iter().map(|relay| {
        let mbit = relay.capacity.map(|rate| (rate.as_mbit_per_s() * 100.0).round() / 100.0);
        Found(relay.rsa.to_string(), &relay.nickname, mbit)
    });
    let found = serde_json::to_string(&found.collect::<Vec<_>>()).unwrap_or_default();
    folder.write("relays.js", format!("window.relays = {found};\n").as_bytes())?;
    folder.write(MARK, b"Written by `flashflow site`, which replaces this folder as a whole.\n")?;
    folder.write("site.js", include_bytes!("assets/site.js"))?;
    let style = [include_str!("assets/style.css"), report::experiment::PAGE_STYLE].concat();
    folder.write("style.css", style.as_bytes())?;
    let prefixes = by_prefix.keys().map(String::as_str).collect();
    let index = pages.index(&reader, options.votes, relays.len(), prefixes)?;
    folder.write("index.html", index.as_bytes())?;
    Ok(Site {
        relays: relays.len(),
        files: folder.files.into_inner(),
        bytes: folder.bytes.into_inner() as u64,
    })
}

/// The lines of a bandwidth file.
fn lines(path: &Path) -> Result<BTreeMap<RsaId, Line>, SiteError> {
    let failed = |problem| SiteError::File { path: path.to_owned(), problem };
    let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
    let parsed = BandwidthFile::parse(&bytes).map_err(|error| failed(error.to_string()))?;
    // Of several lines of a relay the first counts: a later entry of a map replaces an earlier one.
    let mut lines: Vec<_> = crate::bandwidth_line::lines(&bytes, &parsed.file).collect();
    lines.reverse();
    Ok(lines.into_iter().collect())
}

/// The folder of a relay's page.
fn prefix(relay: RsaId) -> String {
    let mut prefix = relay.to_string();
    prefix.truncate(2);
    prefix
}

/// The relays' pages.
struct Relays<'a> {
    options: &'a SiteOptions<'a>,
    lines: Option<&'a BTreeMap<RsaId, Line>>,
    pages: &'a Pages,
    folder: &'a Folder<'a>,
}

impl Relays<'_> {
    /// Writes the pages of relays that no other thread has begun, until there are none.
    fn write(&self, relays: &[RelayRow], next: &AtomicUsize) -> Result<(), SiteError> {
        let reader = Reader::open(self.options.store)?;
        let explainer = reader.explainer(Audience::Public, self.options.now_unix_s)?;
        while let Some(relay) = relays.get(next.fetch_add(1, Ordering::Relaxed)) {
            self.write_relay(&reader, &explainer, relay)?;
        }
        Ok(())
    }

    fn write_relay(
        &self,
        reader: &Reader,
        explainer: &Explainer<'_>,
        relay: &RelayRow,
    ) -> Result<(), SiteError> {
        let mut measurements = reader.measurements_of(relay.rsa, MEASUREMENTS)?;
        // Nobody needs to know at once that it is being measured.
        measurements.retain(|measurement| measurement.state != State::Running);
        let line = self.lines.map(|lines| lines.get(&relay.rsa).copied());
        let explanation = explainer.explain(relay, &measurements, line)?;
        let explanation: Vec<String> =
            explanation.iter().map(|words| without_addresses(words)).collect();
        let page = RelayPage {
            relay,
            weight_kb_s: line.flatten().filter(|line| line.is_voted).map(|line| line.bw_kb_s),
            explanation: &explanation,
            measurements: &measurements,
            decision: Decision::new(self.options.votes, relay.rsa),
        };
        let name = format!("relays/{}/{}", prefix(relay.rsa), relay.rsa);
        self.folder.write(&format!("{name}.html"), self.pages.relay(&page)?.as_bytes())?;
        self.folder.write(&format!("{name}.json"), page.to_json().as_bytes())
    }
}

#[cfg(test)]
mod tests;
