//! The dataset of a command: a folder, or object storage with a local copy.

use archive::dataset::remote::Notice;
use archive::dataset::{Dataset, Location};
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use cli::Error;
use std::path::PathBuf;
use terminal::Output;

/// The dataset that a command reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct DatasetOptions {
    /// The dataset: a folder, or s3://BUCKET/PREFIX.
    #[arg(value_parser = parser())]
    pub(super) dataset: Location,
    #[command(flatten)]
    pub(super) cache: CacheOptions,
}

/// The place of local copies.
#[derive(Clone, Debug, Args)]
pub(crate) struct CacheOptions {
    /// Folder for local copies of datasets in object storage. By default flashflow/datasets in $XDG_CACHE_HOME or ~/.cache.
    #[arg(long, value_name = "DIR")]
    pub(super) cache: Option<PathBuf>,
}

/// Reads the name of a dataset.
pub(crate) fn parser() -> impl TypedValueParser<Value = Location> {
    PathBufValueParser::new().try_map(Location::new)
}

impl CacheOptions {
    pub(super) fn open(&self, dataset: &Location, output: &Output) -> Result<Dataset, Error> {
        let opened = dataset.open(self.cache.as_deref(), &mut notify(output));
        output.quiet();
        Ok(opened?)
    }
}

impl DatasetOptions {
    pub(super) fn open(&self, output: &Output) -> Result<Dataset, Error> {
        self.cache.open(&self.dataset, output)
    }
}

/// Shows what happens while the command waits for object storage.
pub(super) fn notify(output: &Output) -> impl FnMut(Notice) {
    move |notice| match notice {
        Notice::Progress(text) => output.doing(text),
        Notice::Message(text) => output.step(text),
    }
}
