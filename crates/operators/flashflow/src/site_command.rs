//! `flashflow site`: writes the relays of a store as static pages.

use clap::Args;
use cli::Error;
use dashboard::{SiteOptions, write_site};
use link::{Clock, unix_time_s};
use netdoc::bwfile::LATEST;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use terminal::{Exit, Output};

/// Write a page for each relay, which explains its weight: its estimates, what limited them, and whose vote decides.
///
/// The pages need no program on the server, and show neither addresses nor contacts. They contain measurements that have ended, never
/// future ones. The folder is complete before it replaces an earlier one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow site --store bandwidth/store.db --out /var/www/bandwidth
  flashflow site --store bandwidth/store.db --votes /var/lib/tor/v3-status-votes --out /var/www/bandwidth

Votes are those of one consensus: files from CollecTor, or v3-status-votes in the data folder of a directory authority. Without them the
pages do not show whose vote decides.

Exit status: 0 done; 1 the store, the bandwidth file or the votes cannot be read, or the pages cannot be written; 2 wrong arguments.")]
pub(crate) struct SiteArguments {
    /// The store: `store.db` in the coordinator's folder of bandwidth files.
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// The bandwidth file. By default `latest.v3bw` in the folder of the store, if it exists.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The votes of the authorities: a file, or a folder of files.
    #[arg(long, value_name = "PATH")]
    votes: Option<PathBuf>,
    /// The folder. It is created, or replaced if it is a site.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// The site is complete.
    Site {
        /// Its first page.
        path: &'a str,
        /// The number of relays.
        relays: usize,
        /// The number of files.
        files: usize,
        /// Their size.
        bytes: u64,
        /// How long it took.
        wall_s: f64,
    },
}

pub(crate) fn run(options: &SiteArguments, output: &Output) -> Result<Exit, Error> {
    let default = options.store.with_file_name(LATEST);
    let file = options.file.clone().or_else(|| default.exists().then_some(default));
    let votes = options.votes.as_deref().map(documents::votes).transpose()?.unwrap_or_default();
    let clock = Clock::start();
    let began = clock.now();
    let site = write_site(&SiteOptions {
        store: &options.store,
        file: file.as_deref(),
        votes: &votes,
        out: &options.out,
        now_unix_s: unix_time_s(),
    })?;
    let wall_s = clock.now().saturating_since(began).as_secs_f64();
    let index = options.out.join("index.html");
    let path = index.to_string_lossy();
    let words = format!(
        "{path}: {}, {}, {:.1} MB, in {wall_s:.1} s",
        report::plural(site.relays as u64, "relay"),
        report::plural(site.files as u64, "file"),
        site.bytes as f64 / 1e6,
    );
    output.result(words, || Line::Site {
        path: &path,
        relays: site.relays,
        files: site.files,
        bytes: site.bytes,
        wall_s,
    });
    Ok(Exit::Done)
}
