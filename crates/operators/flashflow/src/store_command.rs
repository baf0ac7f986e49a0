//! `flashflow store`: backup and check of a coordinator's store.

use clap::{Args, Subcommand};
use cli::Error;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use store::{Reader, RelayQuery};
use terminal::{Exit, Output};

/// Back up or check a coordinator's store.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Backup(BackupOptions),
    Check(CheckOptions),
}

/// Copy the store. The coordinator may be running.
///
/// The copy gets its name only when it is complete and on disk. To restore it, stop the coordinator, remove the store with its -wal and
/// -shm files, and put the copy in its place.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow store backup bandwidth/store.db /var/backups/flashflow-$(date +%F).db

Exit status: 0 done; 1 the store cannot be read, or the copy cannot be written; 2 wrong arguments.")]
struct BackupOptions {
    /// The store.
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// File for the copy, which must not exist.
    #[arg(value_name = "COPY")]
    copy: PathBuf,
}

/// Check every page and index of a store for corruption.
///
/// The coordinator checks the pages, but not the indexes, when it starts.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow store check bandwidth/store.db

Exit status: 0 the store is intact; 1 it is corrupt, or cannot be read; 2 wrong arguments.")]
struct CheckOptions {
    /// The store.
    #[arg(value_name = "STORE")]
    store: PathBuf,
}

/// A line of `backup` with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum BackupLine<'a> {
    /// The copy is complete.
    Backup {
        /// The copy.
        path: &'a Path,
        /// Its size.
        size_bytes: u64,
    },
}

/// A line of `check` with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum CheckLine {
    /// The store is intact.
    Check {
        /// Always true: a defect is an error.
        sound: bool,
        /// The number of its relays.
        relays: u64,
    },
}

pub(crate) fn run(options: &StoreOptions, output: &Output) -> Result<Exit, Error> {
    match &options.action {
        Action::Backup(BackupOptions { store, copy, .. }) => {
            let size = Reader::open(store)?.back_up(copy)?;
            output.result(format!("{}: {size} bytes", copy.display()), || BackupLine::Backup {
                path: copy,
                size_bytes: size,
            });
        }
        Action::Check(CheckOptions { store, .. }) => {
            let reader = Reader::open(store)?;
            reader.check_all()?;
            let any = RelayQuery { most: 1, ..RelayQuery::default() };
            let relays = reader.relays(&any)?.found;
            output.result(format!("{} is intact, with {relays} relays", store.display()), || {
                CheckLine::Check { sound: true, relays }
            });
        }
    }
    Ok(Exit::Done)
}
