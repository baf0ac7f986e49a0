//! `flashflow-lab sim batch` and `sim report`: networks run repeatedly, and their results compared.

mod judge;

use crate::error::Error;
use crate::simulated::{Batch, Played, Runner, Runs, RunsOptions, Store};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terminal::{Exit, Interrupt, Output};

/// Where runs that are over are kept, in the folder of results.
const RUNS: &str = "batch-runs";

/// Run several networks with many seeds and compare the results.
///
/// Each network is run at each load with each seed. What came out of a run is a file of its own in DIR/batch-runs, written when the run is over: the same command goes on where it
/// was interrupted, and shards of a batch on several machines make one report. It says for each network the mean over seeds with 95 % intervals, how the others differ from the first,
/// seed by seed, and draws the distributions of transfer times.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab sim batch --network kist.toml --network vanilla.toml --seeds 10 --out results
  flashflow-lab sim batch --network five-percent.toml --loads 100,130 --shard 2/8 --out shared-folder

Exit status: 0 all runs are there, or this shard's; 1 something is wrong with a network, a file of another batch is in the way, or a file
cannot be written; 2 wrong arguments; 130 interrupted: runs that are over are kept.")]
pub struct BatchOptions {
    /// A scenario (TOML), or a folder with a sample that tornettools made for Shadow. May be given several times; the
    /// others are compared with the first. Each is named after its file or folder.
    #[arg(long, value_name = "PATH", required = true)]
    network: Vec<PathBuf>,
    #[command(flatten)]
    runs: RunsOptions,
    /// Folder for runs, page, tables and figures.
    #[arg(long, value_name = "DIR", default_value = "flashflow-batch")]
    out: PathBuf,
}

/// Make one report of batches' runs.
///
/// Of all that lie in the folders, such as shards of one batch on several machines. A run that is in several of them must be the same in each.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab sim report machine-1 machine-2 --out results

Exit status: 0 done; 1 a file cannot be read or written, or folders hold runs that do not belong together; 2 wrong arguments.")]
pub struct ReportOptions {
    /// Folders that `sim batch` has written.
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Network that the others are compared with; the first in the alphabet by default.
    #[arg(long, value_name = "NAME")]
    first: Option<String>,
    /// Folder for page, tables and figures.
    #[arg(long, value_name = "DIR", default_value = "flashflow-batch")]
    out: PathBuf,
}

/// `flashflow-lab sim batch`.
///
/// # Errors
/// Where a network cannot be simulated, or files cannot be read or written.
pub fn batch(
    options: &BatchOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    interrupt.wind_up_in_order();
    let mut batches: Vec<(String, Batch)> = Vec::new();
    for path in &options.network {
        let name = name_of(path)?;
        if batches.iter().any(|(other, _)| *other == name) {
            return Err(Error::Usage(format!("two networks are called {name}: rename one")));
        }
        let mut batch = Batch::new(&options.runs, path, false)?;
        if let Some(remark) = batch.network.remark() {
            output.step(format!("{name}: {remark}"));
        }
        if options.runs.loads.is_empty() {
            batch.loads = vec![100];
        }
        batches.push((name, batch));
    }
    let names: Vec<&str> = batches.iter().map(|(name, _)| name.as_str()).collect();
    if batches.is_empty() {
        return Err(Error::Usage("--network PATH is missing".to_owned()));
    }
    let store = &Store::new(options.out.join(RUNS))?;
    let variants = batches.iter().map(|(name, batch)| (name.as_str(), batch)).collect();
    let runner = Runner { variants, store, output, interrupt };
    let Runs { runs, planned, left } =
        runner.play_all(|batch, point| Ok(Some(batch.at_load(point.load_percent))))?;
    let mut missing = Vec::new();
    if runs.len() < planned {
        missing.push(format!(
            "{} of {} runs are missing: the same command without --shard plays them, or takes them where they are in the folder by then.",
            planned - runs.len(),
            planned,
        ));
    }
    conclude(&names, &runs, missing, &options.out, output)?;
    Ok(match (interrupt.is_requested(), left == 0) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Done,
        (false, false) => Exit::Failed,
    })
}

/// `flashflow-lab sim report`.
///
/// # Errors
/// Where there is nothing to report, folders do not belong together, or files cannot be read or written.
pub fn report(options: &ReportOptions, output: &Output) -> Result<Exit, Error> {
    let mut all: BTreeMap<(u32, String, u64), Played> = BTreeMap::new();
    for folder in &options.folders {
        for played in Store::existing(folder.join(RUNS))?.read_runs()? {
            let point = &played.point;
            let other = all
                .values()
                .find(|it| it.point.variant == point.variant && it.conditions != played.conditions);
            if let Some(other) = other {
                return Err(Error::Failed(format!(
                    "{}: runs of {} are of another batch than elsewhere ({}; {})",
                    folder.display(),
                    point.variant,
                    played.conditions,
                    other.conditions,
                )));
            }
            let key = (point.load_percent, point.variant.clone(), point.seed);
            let name = point.name();
            let fingerprint = played.fingerprint.clone();
            let same = all.insert(key, played);
            if same.is_some_and(|it| it.fingerprint != fingerprint) {
                return Err(Error::Failed(format!(
                    "{}: {name} came out another way elsewhere: not the same program?",
                    folder.display(),
                )));
            }
        }
    }
    let runs: Vec<Played> = all.into_values().collect();
    let mut names: Vec<&str> = runs.iter().map(|it| it.point.variant.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if let Some(first) = &options.first {
        let Some(place) = names.iter().position(|it| it == first) else {
            let known = names.join(", ");
            return Err(Error::Usage(format!("--first {first}: there are runs of {known}")));
        };
        names[..=place].rotate_right(1);
    }
    conclude(&names, &runs, Vec::new(), &options.out, output)?;
    Ok(Exit::Done)
}

/// Writes the report, and prints its answer.
fn conclude(
    names: &[&str],
    runs: &[Played],
    missing: Vec<String>,
    out: &Path,
    output: &Output,
) -> Result<(), Error> {
    let report = judge::report(names, runs, missing);
    for case in report.cases.iter().filter(|case| judge::is_comparison(case)) {
        output.result(format!("{}: {}", case.name, case.detail), || {
            let mut value = serde_json::to_value(case).unwrap_or_default();
            value["type"] = "mean".into();
            value
        });
    }
    let written = report.write(out)?;
    output.quiet();
    output.step(format!("page: {}", written.html.display()));
    output.result(&report.answer, || report.summary_value());
    Ok(())
}

/// How a network is called: as its file without ending, or its folder.
fn name_of(path: &Path) -> Result<String, Error> {
    let is_file = path.extension().is_some_and(|it| it == "toml");
    let name = if is_file { path.file_stem() } else { path.file_name() };
    let name = name.and_then(|it| it.to_str()).filter(|it| !it.is_empty());
    name.map(str::to_owned).ok_or_else(|| {
        Error::Usage(format!("--network {}: a path that ends with a name please", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_called_as_its_file_or_folder() {
        for (path, name) in
            [("a/kist.toml", "kist"), ("tornet-0.05-1", "tornet-0.05-1"), ("x/sample/", "sample")]
        {
            assert_eq!(name_of(Path::new(path)).expect("a name"), name);
        }
        assert!(name_of(Path::new("..")).is_err());
    }
}
