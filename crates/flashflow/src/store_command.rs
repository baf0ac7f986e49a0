//! `flashflow store`: looks after a coordinator's store.

use clap::{Args, Subcommand};
use cli::Error;
use serde_json::json;
use std::path::PathBuf;
use store::{Reader, RelayQuery};
use terminal::{Exit, Output};

/// Look after a coordinator's store: copy it while it is written, and see whether it is sound.
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

/// Copy the store as it is now, though the coordinator may be writing to it.
///
/// The copy appears under its name only when it is whole and on the disk. To restore it, stop the coordinator, remove the
/// store with its -wal and -shm files, and put the copy there.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow store backup bandwidth/store.db /var/backups/flashflow-$(date +%F).db

Exit status: 0 done; 1 the store cannot be read, or the copy not be made; 2 wrong arguments.")]
struct BackupOptions {
    /// The store.
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// The copy, which must not be there.
    #[arg(value_name = "COPY")]
    copy: PathBuf,
}

/// Look at every page of a store and at all its indexes.
///
/// The coordinator does the same at its start, without the indexes.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow store check bandwidth/store.db

Exit status: 0 it is sound; 1 it is not, or cannot be read; 2 wrong arguments.")]
struct CheckOptions {
    /// The store.
    #[arg(value_name = "STORE")]
    store: PathBuf,
}

pub(crate) fn run(options: &StoreOptions, output: &Output) -> Result<Exit, Error> {
    match &options.action {
        Action::Backup(BackupOptions { store, copy, .. }) => {
            let size = Reader::open(store)?.back_up(copy)?;
            output.result(
                format!("{}: {size} bytes", copy.display()),
                || json!({"type": "backup", "path": copy, "size_bytes": size}),
            );
        }
        Action::Check(CheckOptions { store, .. }) => {
            let reader = Reader::open(store)?;
            reader.check_all()?;
            let any = RelayQuery { most: 1, ..RelayQuery::default() };
            let relays = reader.relays(&any)?.found;
            output.result(
                format!("{} is sound, and knows {relays} relays", store.display()),
                || json!({"type": "check", "sound": true, "relays": relays}),
            );
        }
    }
    Ok(Exit::Done)
}
