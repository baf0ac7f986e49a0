//! The lines of the commands with `--json`.

use archive::co_location::{CoLocation, NamedPair};
use archive::dataset::Imported;
use archive::errors::Line as ErrorLine;
use archive::schedule::{Arrivals, Line as QuantityLine, PlannedNetwork};
use archive::speedtest::Effect;
use archive::staging::StagedErrors;
use archive::summary::Day;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// A line of a command. `query` prints the rows of its result instead, and `schedule` has lines of its own.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// `import`: a source.
    Imported(&'a Imported),
    /// `import`: all sources, last.
    Summary {
        /// Imported sources.
        sources: usize,
        /// Sources that were imported before.
        known: usize,
        /// Rows that the dataset did not have.
        new_rows: u64,
        /// Damaged documents, which are left out.
        damaged: u64,
        /// Sources that could not be read.
        unreadable: usize,
        /// Whether the dataset has all documents of all sources.
        is_complete: bool,
    },
    /// `check`: a file that is not as it was imported.
    Problem {
        /// What is wrong.
        problem: String,
    },
    /// `check`: all files, last.
    Check {
        /// Files that are as they were imported.
        files: usize,
        /// Their length.
        bytes: u64,
        /// Files that are not.
        problems: usize,
    },
    /// `errors`: a statistic.
    Error(&'a ErrorLine),
    /// `speedtest`.
    Speedtest {
        /// Relays that were measured.
        measured_relays: usize,
        /// The effect.
        #[serde(flatten)]
        effect: &'a Effect,
    },
    /// `staging`: a network.
    Staging {
        /// Its name.
        which: &'a str,
        /// Its errors.
        #[serde(flatten)]
        errors: StagedErrors,
    },
    /// `summary`: a day.
    Day(&'a Day),
    /// `co-location`: a named pair.
    Pair(&'a NamedPair),
    /// `co-location`: all pairs, last.
    CoLocation(&'a CoLocation),
    /// `convert`, `query --parquet`: a written file.
    Parquet {
        /// Its rows.
        rows: usize,
    },
    /// `synth`.
    Synth {
        /// Rows that the dataset did not have.
        new_rows: u64,
    },
}

/// The line of commands with `--out`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum PageLine<'a> {
    /// The page of a report.
    Page {
        /// Its path.
        html: &'a Path,
    },
}

/// A line of `schedule`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ScheduleLine<'a> {
    /// A network staged by tornettools.
    Staged {
        /// Its name.
        which: &'a str,
        /// Its plan.
        #[serde(flatten)]
        network: &'a PlannedNetwork,
    },
    /// The network of a day.
    Day(&'a PlannedNetwork),
    /// New relays of a consensus.
    Arrivals(&'a Arrivals),
    /// A quantity over all days.
    Quantity(&'a QuantityLine),
}
