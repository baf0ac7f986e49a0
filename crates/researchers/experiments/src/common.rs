//! Options that all experiments share, and parsers of their arguments.

use clap::{Args, ValueEnum};
use serde::Serializer;
use std::fmt::Display;
use std::path::PathBuf;
use terminal::{Interrupt, Output};

/// Options of all experiments.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Folder for the page, tables and figures.
    #[arg(long, global = true, value_name = "DIR", default_value = "flashflow-experiments")]
    pub(crate) out: PathBuf,
    /// Take minutes instead of hours, with fewer and shorter runs.
    #[arg(long, global = true)]
    pub(crate) quick: bool,
}

/// The common options, the terminal, and whether the user has interrupted.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) common: &'a Common,
    pub(crate) output: &'a Output,
    pub(crate) interrupt: &'a Interrupt,
}

impl Session<'_> {
    /// The value that the user gave, or the default: `quick` with --quick, else `usual`.
    pub(crate) fn or<T>(&self, asked: Option<T>, quick: T, usual: T) -> T {
        asked.unwrap_or(if self.common.quick { quick } else { usual })
    }
}

/// Serializes a value as its `Display` text.
pub(crate) fn as_text<S: Serializer>(
    value: &impl Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Parses a rate in Mbit/s, from 1 to 1000.
pub(crate) fn mbit(text: &str) -> Result<f64, String> {
    let mbit = text.parse().ok().filter(|mbit| (1.0..=1000.0).contains(mbit));
    mbit.ok_or_else(|| "a rate is 1 to 1000 Mbit/s".to_owned())
}

/// Parses a loss in percent, from 0 to 50.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=50.0).contains(share));
    share.ok_or_else(|| "a loss is 0 to 50 %".to_owned())
}

/// The values that the user gave, or the defaults: `quick` with --quick, else `all`.
pub(crate) fn values_or<T: Clone>(asked: &[T], is_quick: bool, quick: &[T], all: &[T]) -> Vec<T> {
    let default = if is_quick { quick } else { all };
    if asked.is_empty() { default.to_vec() } else { asked.to_vec() }
}

/// The values that the user gave, or all variants.
pub(crate) fn values_or_all<T: ValueEnum>(asked: &[T]) -> Vec<T> {
    if asked.is_empty() { T::value_variants().to_vec() } else { asked.to_vec() }
}

/// Parses the options of an experiment.
#[cfg(test)]
pub(crate) fn parse_options<T: Args>(arguments: &str) -> T {
    let command = T::augment_args(clap::Command::new("experiment").no_binary_name(true));
    let matches = command.try_get_matches_from(arguments.split_whitespace()).expect("options");
    T::from_arg_matches(&matches).expect("options")
}
