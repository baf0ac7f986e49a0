//! Options and arguments of all experiments.

use clap::Args;
use serde::Serializer;
use std::fmt::Display;
use std::path::PathBuf;
use terminal::{Interrupt, Output};

/// Options of all experiments.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Folder for page, tables and figures.
    #[arg(long, global = true, value_name = "DIR", default_value = "flashflow-experiments")]
    pub(crate) out: PathBuf,
    /// Minutes instead of hours: fewer and shorter runs.
    #[arg(long, global = true)]
    pub(crate) quick: bool,
}

/// What all parts of an experiment may use: its options, the terminal, and whether the user has interrupted.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) common: &'a Common,
    pub(crate) output: &'a Output,
    pub(crate) interrupt: &'a Interrupt,
}

impl Session<'_> {
    /// The asked value, or the default: that of --quick, or the usual one.
    pub(crate) fn or<T>(&self, asked: Option<T>, quick: T, usual: T) -> T {
        asked.unwrap_or(if self.common.quick { quick } else { usual })
    }
}

/// Serializes something as its text.
pub(crate) fn as_text<S: Serializer>(it: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(it)
}

/// A rate in Mbit/s, from 1 to 1000.
pub(crate) fn mbit(text: &str) -> Result<f64, String> {
    let mbit = text.parse().ok().filter(|it| (1.0..=1000.0).contains(it));
    mbit.ok_or_else(|| "a rate is 1 to 1000 Mbit/s".to_owned())
}

/// A loss in per cent, from 0 to 50.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|it| (0.0..=50.0).contains(it));
    share.ok_or_else(|| "a loss is 0 to 50 %".to_owned())
}

/// The values that the user gave, or the defaults: those of --quick, or all.
pub(crate) fn values_or<T: Clone>(asked: &[T], is_quick: bool, quick: &[T], all: &[T]) -> Vec<T> {
    let default = if is_quick { quick } else { all };
    if asked.is_empty() { default.to_vec() } else { asked.to_vec() }
}
