//! `flashflow keys`: keys of coordinators and measurers.

use clap::{ArgGroup, Args};
use cli::Error;
use control::keys::SecretKey;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use terminal::{Exit, Output};

/// Make a key for a coordinator or a measurer, or show the public key of one.
///
/// Each coordinator and measurer has one Ed25519 key, in a file that only its owner can read. This command prints the public key, 64
/// hexadecimal digits. Coordinators and measurers list each other's public keys in their configurations.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["out", "show"]))]
#[command(after_help = "Examples:
  flashflow keys --out measurer.key
  flashflow keys --show measurer.key

Exit status: 0 done; 1 failed, for instance because the file exists; 2 wrong arguments.")]
pub(crate) struct KeysOptions {
    /// Make a key and write it to this new file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show the public key of the key in this file.
    #[arg(long, value_name = "FILE")]
    show: Option<PathBuf>,
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A key.
    Key {
        /// Its public half, 64 hex digits.
        public_key: &'a str,
    },
}

pub(crate) fn run(options: &KeysOptions, output: &Output) -> Result<Exit, Error> {
    let key = match (&options.out, &options.show) {
        (Some(path), _) => {
            let key = SecretKey::generate()?;
            key.write_new(path)?;
            key
        }
        (None, Some(path)) => SecretKey::read(path)?,
        (None, None) => return Err(Error::Usage("give --out or --show".to_owned())),
    };
    let public = key.public().to_string();
    output.result(&public, || Line::Key { public_key: &public });
    Ok(Exit::Done)
}
