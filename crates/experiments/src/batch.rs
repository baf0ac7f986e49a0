//! `flashflow-lab sim batch` and `sim report`: networks run repeatedly, and their results compared.

use crate::common::{Common, Session};
use crate::error::{Error, Result};
use crate::reporting::{self, parameter, publish};
use crate::simulated::{
    Batch, Played, Runner, Runs, RunsOptions, Store, compared, of_runs, run_case,
};
use clap::Args;
use report::experiment::{ExperimentReport, Promise};
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
pub fn batch(options: &BatchOptions, output: &Output, interrupt: &Interrupt) -> Result<Exit> {
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
    if batches.is_empty() {
        return Err(Error::Usage("--network PATH is missing".to_owned()));
    }
    let common = Common { out: options.out.clone(), quick: false };
    let session = Session { common: &common, output, interrupt };
    let names: Vec<&str> = batches.iter().map(|(name, _)| name.as_str()).collect();
    let store = &Store::new(options.out.join(RUNS))?;
    let variants = batches.iter().map(|(name, batch)| (name.as_str(), batch)).collect();
    let runner = Runner { variants, store, session };
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
pub fn report(options: &ReportOptions, output: &Output) -> Result<Exit> {
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

/// Writes the report, and prints what it compares and its answer.
fn conclude(
    names: &[&str],
    runs: &[Played],
    missing: Vec<String>,
    out: &Path,
    output: &Output,
) -> Result<()> {
    let mut report = reported(names, runs, missing);
    // The others are single runs, which were printed before.
    for case in report.cases.iter().filter(|case| case.value("what").is_some()) {
        output.result(format!("{}: {}", case.name, case.detail), || {
            let mut value = serde_json::to_value(case).unwrap_or_default();
            value["type"] = "mean".into();
            value
        });
    }
    publish(&mut report, out, output)
}

const TEXT: &str = include_str!("../../../docs/experiments/batch.md");

fn reported(names: &[&str], all: &[Played], notes: Vec<String>) -> ExperimentReport {
    let mut loads: Vec<u32> = all.iter().map(|it| it.point.load_percent).collect();
    loads.sort_unstable();
    loads.dedup();
    let mut cases = compared(all, names, &loads);
    cases.extend(all.iter().map(run_case));
    let conditions = |name: &&str| {
        let one = all.iter().find(|it| it.point.variant == **name)?;
        Some(parameter(name, one.conditions.clone()))
    };
    let mut report = reporting::report("batch", TEXT);
    report.notes.splice(0..0, notes);
    ExperimentReport {
        parameters: names.iter().filter_map(conditions).collect(),
        answer: answer(names, all, &loads),
        promise: Promise::Decided { held: !all.is_empty(), rule: reporting::rule(TEXT) },
        cases,
        figures: of_runs(all, names, &loads),
        ..report
    }
}

/// In a sentence.
fn answer(names: &[&str], all: &[Played], loads: &[u32]) -> String {
    let loads: Vec<String> = loads.iter().map(|it| format!("{it} %")).collect();
    match all.len() {
        0 => "There are no runs yet.".to_owned(),
        count => format!("{count} runs of {} at {}.", names.join(", "), loads.join(", ")),
    }
}

/// How a network is called: as its file without ending, or its folder.
fn name_of(path: &Path) -> Result<String> {
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
    use report::experiment::Case;
    use tornet::results::{Transfers, Unfinished};

    #[test]
    fn a_network_is_called_as_its_file_or_folder() {
        for (path, name) in
            [("a/kist.toml", "kist"), ("tornet-0.05-1", "tornet-0.05-1"), ("x/sample/", "sample")]
        {
            assert_eq!(name_of(Path::new(path)).expect("a name"), name);
        }
        assert!(name_of(Path::new("..")).is_err());
    }

    fn played(variant: &str, seed: u64, last_s: f64) -> Played {
        let size = Transfers {
            bytes: 1 << 20,
            first_byte_s: vec![0.1; 3],
            last_byte_s: vec![last_s; 3],
            unfinished: vec![Unfinished::FAILED],
            failed_of_client: vec![0.25],
        };
        Played {
            conditions: "these".to_owned(),
            sizes: vec![size],
            sent_mbit_per_s: vec![100.0],
            ..Played::blank(variant, seed)
        }
    }

    fn found<'a>(report: &'a ExperimentReport, name: &str) -> &'a Case {
        let case = report.cases.iter().find(|it| it.name.contains(name));
        case.unwrap_or_else(|| panic!("{name} in {:?}", report.cases))
    }

    #[test]
    fn differences_are_of_the_same_seeds() {
        // The second network is a tenth faster with each seed, though seeds differ by far more.
        let slow = [(1, 1.0), (2, 10.0), (3, 4.0)];
        let mut all: Vec<Played> = slow.map(|(seed, s)| played("slow", seed, s)).into();
        all.extend(slow.map(|(seed, s)| played("fast", seed, s * 0.9)));
        let report = reported(&["slow", "fast"], &all, Vec::new());
        let words = "fast against slow, load 100 %: median time to the last byte of 1 MiB";
        assert!(found(&report, words).detail.starts_with("-10.0 ± 0.0 %"), "{report:?}");
        assert!(found(&report, "slow, load 100 %: failed").detail.starts_with("25.000 ± 0.000 %"));
        let same = found(&report, "fast against slow, load 100 %: what clients got");
        assert!(same.detail.contains("no difference is shown"), "{same:?}");
        assert!(report.held());
    }

    #[test]
    fn seeds_that_have_no_median_are_told_of() {
        let mut all: Vec<Played> = (1..=3).map(|seed| played("slow", seed, 2.0)).collect();
        all.extend((1..=3).map(|seed| played("fast", seed, 1.0)));
        all[5].sizes[0].unfinished = vec![Unfinished::FAILED; 9];
        let report = reported(&["slow", "fast"], &all, Vec::new());
        let case = found(&report, "fast against slow, load 100 %: median time to the last byte");
        assert!(case.detail.contains("2 seeds; of 3: with the others one has none"), "{case:?}");
    }

    #[test]
    fn one_seed_shows_nothing_and_no_run_is_said_to_be_none() {
        let all = [played("a", 1, 1.0), played("b", 1, 2.0)];
        let told = reported(&["a", "b"], &all, Vec::new());
        let case = found(&told, "b against a, load 100 %: median time to the last byte");
        assert!(case.detail.contains("may be chance"), "{case:?}");
        assert_eq!(reported(&["a"], &[], Vec::new()).answer, "There are no runs yet.");
    }
}
