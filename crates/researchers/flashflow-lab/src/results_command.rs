//! `flashflow-lab results`: writes results to files, and generates the pages that show them.
//!
//! A result is a JSON file in `DATA/CLAIM/`: the command, its build, machine and date, and a table. A page names a claim between two comments, and
//! [`pages`] writes the results of the claim there, the newest first.

mod outcome;
mod page;

use crate::child;
use clap::{Args, Subcommand};
use cli::Error;
use link::unix_time_s;
use outcome::Outcome;
use page::Claims;
use report::machine;
use schemars::JsonSchema;
use serde::Serialize;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use terminal::{Exit, Interrupt, Output, times};

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A stored result.
    Result {
        /// Its file.
        path: &'a Path,
        /// The name of the claim.
        claim: &'a str,
        /// Number of its rows.
        rows: usize,
    },
    /// A page that was written, or is out of date.
    Page {
        /// Its path.
        path: &'a Path,
    },
}

/// Record results, and write the pages that show them.
///
/// A result is a JSON file with a command, its commit, machine, seed and date, and the values. See results/README.md in the documentation.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab results record bench-relay -- bench relay --seconds 6 --runs 2
  flashflow-lab results pages
  flashflow-lab results pages --check

Exit status: 0 done; 1 the command failed, a file is invalid, or a page is out of date; 2 wrong arguments.")]
pub(crate) struct ResultsOptions {
    #[command(subcommand)]
    action: ResultsAction,
    /// Folder of the pages. Results are in its folder `data`.
    #[arg(long, global = true, value_name = "DIR", default_value = "docs/results")]
    folder: PathBuf,
}

#[derive(Debug, Subcommand)]
enum ResultsAction {
    /// Run a command of this program, and write its result to a file.
    Record {
        /// The claim, as pages name it: letters, digits and `-`.
        claim: String,
        /// What else ran on the machine, such as `a quiet machine`.
        #[arg(long, value_name = "TEXT")]
        conditions: Option<String>,
        /// The command with its options. It runs with `--json`.
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Write the results into the pages.
    Pages {
        /// Change nothing; fail if a page is out of date.
        #[arg(long)]
        check: bool,
    },
}

pub(crate) fn run(
    options: &ResultsOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    match &options.action {
        ResultsAction::Record { claim, conditions, command } => {
            record(&options.folder, claim, conditions.clone(), command, output, interrupt)
        }
        ResultsAction::Pages { check } => pages(&options.folder, *check, output),
    }
}

fn record(
    folder: &Path,
    claim: &str,
    conditions: Option<String>,
    command: &[String],
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    if claim.is_empty()
        || !claim.chars().all(|character| character.is_ascii_alphanumeric() || character == '-')
    {
        return Err(Error::Usage(format!(
            "claim `{claim}`: use letters, digits and -, as in bench-relay"
        )));
    }
    let program = env::current_exe()?;
    let (status, printed) =
        child::run(Command::new(&program).args(command).arg("--json"), interrupt)?;
    if interrupt.is_requested() {
        return Ok(output.interrupted());
    }
    let date = times::readable(unix_time_s()).chars().take(10).collect();
    let outcome = Outcome {
        command: format!("flashflow-lab {}", command.join(" ")),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        commit: Some(cli::COMMIT.to_owned()),
        target: Some(cli::TARGET.to_owned()),
        machine: machine(),
        seed: seed_in(command),
        date,
        conditions,
        ..Outcome::of_lines(printed.lines()).ok_or_else(|| {
            Error::Failed(format!(
                "the command printed no summary, so there is nothing to record; it ended with {status}"
            ))
        })?
    };
    let path = folder.join("data").join(claim);
    fs::create_dir_all(&path).map_err(file_error("make the folder", &path))?;
    let path = path.join(format!("{}-{}.json", outcome.date, cli::COMMIT));
    outcome.write(&path)?;
    output.result(format!("{}; show it by `flashflow-lab results pages`", path.display()), || {
        Line::Result { path: &path, claim, rows: outcome.rows.len() }
    });
    Ok(if status.success() { Exit::Done } else { Exit::Failed })
}

fn pages(folder: &Path, check: bool, output: &Output) -> Result<Exit, Error> {
    let mut claims = Claims::read(&folder.join("data"))?;
    let mut stale = Vec::new();
    for path in page::pages_in(folder)? {
        let before = fs::read_to_string(&path).map_err(file_error("read", &path))?;
        let after = claims.shown(&path, &before)?;
        if after != before {
            if !check {
                files::replace(&path, after.as_bytes(), files::Access::Umask)
                    .map_err(file_error("write", &path))?;
            }
            stale.push(path);
        }
    }
    if let Some(claim) = claims.hidden() {
        return Err(Error::Failed(format!(
            "no page shows the results of {claim}: write `<!-- results: {claim} -->` and `<!-- end -->` into one, or delete them"
        )));
    }
    let what = if check { "out of date" } else { "written" };
    for path in &stale {
        output.result(format!("{}: {what}", path.display()), || Line::Page { path });
    }
    let is_fine = !check || stale.is_empty();
    Ok(if is_fine { Exit::Done } else { Exit::Failed })
}

/// The value of `--seed VALUE` or `--seed=VALUE`.
fn seed_in(command: &[String]) -> Option<u64> {
    let at = command
        .iter()
        .position(|argument| argument == "--seed" || argument.starts_with("--seed="))?;
    let value = command[at].strip_prefix("--seed=").or(command.get(at + 1).map(String::as_str));
    value?.parse().ok()
}

fn file_error(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_a_command_is_found_in_both_forms() {
        for (command, seed) in [
            ("sim run --seed 5 --threads 2", Some(5)),
            ("sim run --seed=5", Some(5)),
            ("sim run --seeds 5", None),
            ("sim run --seed", None),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(seed_in(&words), seed, "{command}");
        }
    }
}
