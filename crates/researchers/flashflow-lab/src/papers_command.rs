//! `flashflow-lab papers`: the figures and tables of the papers, each by one command, recorded and compared with the paper's numbers.
//!
//! The items are data ([`items`]). A result is the lines that the item's command printed, with their digest ([`recorded`]); nothing in it is
//! typed. Pages are written from both ([`page`]).

mod items;
mod page;
mod recorded;

use crate::child;
use clap::{Args, Subcommand};
use cli::Error;
use items::{Item, Paper};
use recorded::Recorded;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use terminal::{Exit, Interrupt, Output};

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A figure, table or claim.
    Item {
        /// Its name.
        id: &'a str,
        /// Its paper.
        paper: Paper,
        /// `agrees`, `differs`, or why there is no result.
        state: &'a str,
        /// What the paper shows.
        shows: &'a str,
        /// The commands that repeat it.
        commands: &'a [String],
    },
    /// A recorded result.
    Result {
        /// The name of the item.
        id: &'a str,
        /// `agrees` or `differs`.
        state: &'a str,
        /// Our numbers, in the order of the paper's.
        numbers: &'a [f64],
        /// SHA-256 of what the commands printed.
        digest: &'a str,
    },
    /// A page.
    Page {
        /// Its path.
        path: &'a Path,
        /// Whether it is out of date; otherwise it was written.
        is_stale: bool,
    },
}

/// Repeat the figures and tables of the papers, and compare them with the papers' numbers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab papers list
  flashflow-lab papers run S-1t
  flashflow-lab papers run circuitstart --out /tmp/papers
  flashflow-lab papers report --check

Items are in papers/items.toml of the documentation, results in papers/data. A result of this build is not made again without --again, so an
interrupted run continues. Programs are those next to this one.

Exit status: 0 all that was run agrees with the paper; 1 something differs or failed, or a page is out of date; 2 wrong arguments; 130
interrupted.")]
pub(crate) struct PapersOptions {
    #[command(subcommand)]
    action: Action,
    /// Folder with `items.toml`, the results and the pages.
    #[arg(long, global = true, value_name = "DIR", default_value = "docs/papers")]
    folder: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the items, each with its state.
    List,
    /// Run the commands of items, and record what they print.
    Run(RunOptions),
    /// Write the pages of results.
    Report {
        /// Change nothing; fail if a page is out of date, or a result was changed by hand.
        #[arg(long)]
        check: bool,
    },
}

#[derive(Debug, Args)]
struct RunOptions {
    /// Items or papers, such as `S-1t` and `circuitstart`, or `all`.
    #[arg(required = true, value_name = "ITEM")]
    names: Vec<String>,
    /// Only items whose results depend on the seed alone.
    #[arg(long)]
    virtual_time: bool,
    /// Only part I of N, such as `2/5`: each Nth of the selected items.
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<(usize, usize)>,
    /// Folder of published data, for items that need it.
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
    /// Record again what this build has recorded.
    #[arg(long)]
    again: bool,
    /// Write results to this folder instead of the one with the items.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts =
        text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    parts
        .filter(|(part, of)| (1..=*of).contains(part))
        .ok_or_else(|| format!("{text:?} is not a part such as 2/5"))
}

pub(crate) fn run(
    options: &PapersOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let items = items::read(&options.folder.join("items.toml"))?;
    match &options.action {
        Action::List => list(options, &items, output),
        Action::Run(run) => record(options, run, &items, output, interrupt),
        Action::Report { check } => report(options, &items, *check, output),
    }
}

/// The results in a folder, by item.
fn results(folder: &Path, items: &[Item]) -> Result<BTreeMap<String, Recorded>, Error> {
    let mut found = BTreeMap::new();
    for item in items {
        let path = recorded::path(folder, &item.id);
        if path.exists() {
            found.insert(item.id.clone(), Recorded::read(&path, item)?);
        }
    }
    Ok(found)
}

fn list(options: &PapersOptions, items: &[Item], output: &Output) -> Result<Exit, Error> {
    let results = results(&options.folder, items)?;
    for item in items {
        let state = page::state(item, results.get(&item.id));
        let Item { id, paper, shows, commands, .. } = item;
        output.result(format!("{id:6} {:14} {state}: {shows}", paper.name()), || Line::Item {
            id,
            paper: *paper,
            state,
            shows,
            commands,
        });
    }
    Ok(Exit::Done)
}

fn record(
    options: &PapersOptions,
    run: &RunOptions,
    items: &[Item],
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let chosen = choose(run, items)?;
    let folder = run.out.as_deref().unwrap_or(&options.folder);
    let data = folder.join("data");
    fs::create_dir_all(&data).map_err(file_error("make the folder", &data))?;
    // Several items may have the same commands.
    let mut printed: BTreeMap<&[String], String> = BTreeMap::new();
    let mut agree = true;
    for item in chosen {
        if interrupt.is_requested() {
            return Ok(output.interrupted());
        }
        let path = recorded::path(folder, &item.id);
        let is_known = || Recorded::read(&path, item).is_ok_and(|known| known.is_of_this_build());
        let result = if !run.again && path.exists() && is_known() {
            Recorded::read(&path, item)?
        } else {
            let text = match printed.get(&item.commands[..]) {
                Some(text) => text.clone(),
                None => {
                    output.doing(format!("{}: {}", item.id, item.commands.join("; ")));
                    let Some(text) = perform(item, &run.data, interrupt)? else {
                        return Ok(output.interrupted());
                    };
                    printed.insert(&item.commands, text.clone());
                    text
                }
            };
            let result = Recorded::new(item, &text)?;
            result.write(&path)?;
            result
        };
        let state = page::state(item, Some(&result));
        agree &= result.agrees(item);
        let text = format!("{}: {state}\n{}", item.id, page::comparison(item, &result));
        let Recorded { numbers, digest, .. } = &result;
        output.result(text, || Line::Result { id: &item.id, state, numbers, digest });
    }
    Ok(if agree { Exit::Done } else { Exit::Failed })
}

/// The items that the arguments name and this machine can run.
fn choose<'i>(run: &RunOptions, items: &'i [Item]) -> Result<Vec<&'i Item>, Error> {
    let is_named = |item: &Item, name: &str| {
        name == "all" || name == item.paper.name() || name.eq_ignore_ascii_case(&item.id)
    };
    if let Some(unknown) =
        run.names.iter().find(|name| !items.iter().any(|item| is_named(item, name)))
    {
        let papers = Paper::ALL.map(Paper::name).join(", ");
        return Err(Error::Usage(format!(
            "there is no item or paper {unknown}; papers are {papers}, items are listed by `flashflow-lab papers list`"
        )));
    }
    let lacks = |item: &&Item| {
        let is_named = run.names.iter().any(|name| name.eq_ignore_ascii_case(&item.id));
        is_named && !(item.is_recorded() && (!item.needs_data() || run.data.is_dir()))
    };
    if let Some(item) = items.iter().find(lacks) {
        let why = if item.is_recorded() {
            format!("it needs the data in {}: see --data", run.data.display())
        } else {
            item.open.clone().unwrap_or_default()
        };
        return Err(Error::Failed(format!("{} cannot be run: {why}", item.id)));
    }
    let is_chosen = |item: &&Item| {
        run.names.iter().any(|name| is_named(item, name))
            && item.is_recorded()
            && (!run.virtual_time || item.is_virtual)
            && (!item.needs_data() || run.data.is_dir())
    };
    let (part, of) = run.shard.unwrap_or((1, 1));
    let chosen = items.iter().filter(is_chosen).enumerate();
    Ok(chosen.filter(|(place, _)| place % of == part - 1).map(|(_, item)| item).collect())
}

/// Runs the commands of an item in a temporary folder. Returns what the last one printed with `--json`; `None` if the user has interrupted.
fn perform(item: &Item, data: &Path, interrupt: &Interrupt) -> Result<Option<String>, Error> {
    let own = std::env::current_exe()?;
    let folder = tempfile::tempdir()?;
    let data = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    let mut printed = String::new();
    for (place, command) in item.commands.iter().enumerate() {
        let mut words = command.split(' ');
        let program = own.with_file_name(words.next().unwrap_or_default());
        let arguments = words.map(|word| word.replace("DATA", &data.to_string_lossy()));
        let mut child = Command::new(&program);
        child.args(arguments).arg("--json").current_dir(folder.path());
        let (status, text) = child::run(&mut child, interrupt)?;
        if interrupt.is_requested() {
            return Ok(None);
        }
        printed = text;
        // A claim that does not hold is a result, too; a preparation that fails is none, and has no summary.
        let is_last = place + 1 == item.commands.len();
        let is_result = match status.code() {
            Some(0) => true,
            Some(1 | 3) => is_last || has_summary(&printed),
            _ => false,
        };
        if !is_result {
            return Err(Error::Failed(format!(
                "{}: `{command}` ended with {status}, so there is nothing to record",
                item.id
            )));
        }
    }
    Ok(Some(printed))
}

/// Whether lines of JSON end with a summary.
fn has_summary(printed: &str) -> bool {
    let last = printed.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    last.is_some_and(|line| line["type"] == "summary")
}

fn report(
    options: &PapersOptions,
    items: &[Item],
    check: bool,
    output: &Output,
) -> Result<Exit, Error> {
    let results = results(&options.folder, items)?;
    let mut stale = Vec::new();
    for (name, text) in page::pages(items, &results) {
        let path = options.folder.join(name);
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            continue;
        }
        if !check {
            files::replace(&path, text.as_bytes(), files::Access::Umask)
                .map_err(file_error("write", &path))?;
        }
        stale.push(path);
    }
    let what = if check { "out of date" } else { "written" };
    for path in &stale {
        output
            .result(format!("{what}: {}", path.display()), || Line::Page { path, is_stale: check });
    }
    Ok(if check && !stale.is_empty() { Exit::Failed } else { Exit::Done })
}

fn file_error(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::File { what, path: path.to_owned(), source }
}
