//! `flashflow-lab sim batch` and `sim report`: run networks repeatedly, and compare the results.

use crate::common::{Common, Session};
use crate::error::{Error, Result};
use crate::reporting::{self, parameter, publish};
use crate::simulated::{
    Batch, RunResult, Runner, Runs, RunsOptions, Store, comparison_cases, figures_of_runs,
    plateaus, run_case, tidy_table,
};
use clap::Args;
use report::experiment::{ExperimentReport, Line, Promise};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terminal::{Exit, Interrupt, Output};

/// The folder of completed runs, inside the folder of results.
const RUNS: &str = "batch-runs";

/// Run several networks with many seeds and compare the results.
///
/// Runs each network at each load with each seed. When a run completes, its result is written to a file in
/// DIR/batch-runs. If interrupted, the same command continues, and shards of a batch on several machines can be
/// combined into one report. The report has the means over seeds with 95 % confidence intervals, the differences
/// from the first network, seed by seed, and the distributions of transfer times.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab sim batch --network kist.toml --network vanilla.toml --seeds 10 --out results
  flashflow-lab sim batch --network five-percent.toml --loads 100,130 --shard 2/8 --out shared-folder

Exit status: 0 all runs, or all runs of this shard, have completed; 1 a network is invalid, the folder holds
another batch, or a file cannot be written; 2 wrong arguments; 130 interrupted: completed runs are kept.")]
pub struct BatchOptions {
    /// A scenario (TOML), or the folder of a network that tornettools made for Shadow. May be given several times;
    /// the others are compared with the first. Each is named after its file or folder.
    #[arg(long, value_name = "PATH", required = true)]
    network: Vec<PathBuf>,
    #[command(flatten)]
    runs: RunsOptions,
    /// Folder for the runs and the report.
    #[arg(long, value_name = "DIR", default_value = "flashflow-batch")]
    out: PathBuf,
}

/// Make one report of the runs in several folders.
///
/// The folders may hold shards of one batch from several machines. If several folders contain the same run, its
/// results must be equal.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab sim report machine-1 machine-2 --out results

Exit status: 0 done; 1 a file cannot be read or written, or the folders hold runs of different batches; 2 wrong
arguments.")]
pub struct ReportOptions {
    /// Folders written by `sim batch`.
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Network that the others are compared with; by default the first in alphabetical order.
    #[arg(long, value_name = "NAME")]
    first: Option<String>,
    /// Folder for the report.
    #[arg(long, value_name = "DIR", default_value = "flashflow-batch")]
    out: PathBuf,
}

/// `flashflow-lab sim batch`.
///
/// # Errors
/// [`Error`] if a network cannot be simulated, or files cannot be read or written.
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
    let Runs { runs, planned, remaining } =
        runner.run_all(|batch, key| Ok(Some(batch.at_load(key.load_percent))))?;
    let mut missing = Vec::new();
    if runs.len() < planned {
        missing.push(format!(
            "{} of {planned} runs are missing: the same command without --shard performs those whose results \
             are not in the folder by then.",
            planned - runs.len(),
        ));
    }
    conclude(&names, &runs, missing, &options.out, output)?;
    Ok(match (interrupt.is_requested(), remaining == 0) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Done,
        (false, false) => Exit::Failed,
    })
}

/// `flashflow-lab sim report`.
///
/// # Errors
/// [`Error`] if the folders hold different batches, or files cannot be read or written.
pub fn report(options: &ReportOptions, output: &Output) -> Result<Exit> {
    let mut all: BTreeMap<(u32, String, u64), RunResult> = BTreeMap::new();
    for folder in &options.folders {
        for run in Store::existing(folder.join(RUNS))?.read_runs()? {
            let failed = |problem| Error::Failed(format!("{}: {problem}", folder.display()));
            let (variant, conditions) = (&run.key.variant, &run.conditions);
            let mut others = all.values().filter(|other| other.key.variant == *variant);
            if let Some(other) = others.find(|other| other.conditions != *conditions) {
                let other = &other.conditions;
                return Err(failed(format!(
                    "runs of {variant} belong to different batches ({conditions}; {other})"
                )));
            }
            let key = (run.key.load_percent, variant.clone(), run.key.seed);
            if let Some(other) = all.get(&key)
                && other.fingerprint != run.fingerprint
            {
                let name = run.key.name();
                let problem = format!("{name} has another result elsewhere: different programs?");
                return Err(failed(problem));
            }
            all.insert(key, run);
        }
    }
    let runs: Vec<RunResult> = all.into_values().collect();
    let mut names: Vec<&str> = runs.iter().map(|run| run.key.variant.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if let Some(first) = &options.first {
        let Some(place) = names.iter().position(|name| name == first) else {
            let known = names.join(", ");
            return Err(Error::Usage(format!("--first {first}: not one of {known}")));
        };
        names[..=place].rotate_right(1);
    }
    conclude(&names, &runs, Vec::new(), &options.out, output)?;
    Ok(Exit::Done)
}

/// Writes the report, and prints its comparisons and its answer.
fn conclude(
    names: &[&str],
    runs: &[RunResult],
    missing: Vec<String>,
    out: &Path,
    output: &Output,
) -> Result<()> {
    let mut report = batch_report(names, runs, missing);
    // All other cases are single runs, which have been printed.
    for case in report.cases.iter().filter(|case| case.value("what").is_some()) {
        output.result(format!("{}: {}", case.name, case.detail), || Line::Mean(case));
    }
    for note in plateaus(runs, names, &loads(runs)) {
        output.result(format!("note: {note}"), || Line::Note { text: &note });
        report.notes.push(note);
    }
    publish(&mut report, out, output)
}

/// The loads of these runs.
fn loads(all: &[RunResult]) -> Vec<u32> {
    let mut loads: Vec<u32> = all.iter().map(|run| run.key.load_percent).collect();
    loads.sort_unstable();
    loads.dedup();
    loads
}

const TEXT: &str = include_str!("../../../../docs/experiments/batch.md");

fn batch_report(names: &[&str], all: &[RunResult], notes: Vec<String>) -> ExperimentReport {
    let loads = loads(all);
    let mut cases = comparison_cases(all, names, &loads);
    cases.extend(all.iter().map(run_case));
    let conditions = |name: &&str| {
        let one = all.iter().find(|run| run.key.variant == **name)?;
        Some(parameter(name, one.conditions.clone()))
    };
    let mut report = reporting::report("batch", TEXT);
    report.notes.splice(0..0, notes);
    ExperimentReport {
        parameters: names.iter().filter_map(conditions).collect(),
        answer: answer(names, all, &loads),
        promise: Promise::Nothing(reporting::rule(TEXT)),
        cases,
        table: Some(tidy_table(all, names, &loads)),
        figures: figures_of_runs(all, names, &loads),
        ..report
    }
}

fn answer(names: &[&str], all: &[RunResult], loads: &[u32]) -> String {
    let loads: Vec<String> = loads.iter().map(|load| format!("{load} %")).collect();
    match all.len() {
        0 => "There are no runs yet.".to_owned(),
        count => format!("{count} runs of {} at {}.", names.join(", "), loads.join(", ")),
    }
}

/// The name of a network: that of its file without the ending, or that of its folder.
fn name_of(path: &Path) -> Result<String> {
    let is_file = path.extension().is_some_and(|extension| extension == "toml");
    let name = if is_file { path.file_stem() } else { path.file_name() };
    let name = name.and_then(|name| name.to_str()).filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or_else(|| {
        Error::Usage(format!("--network {}: the path does not end with a name", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::experiment::{Case, CaseVerdict, Value};
    use tornet::results::{Transfers, Unfinished};

    #[test]
    fn a_network_is_named_after_its_file_or_folder() {
        for (path, name) in
            [("a/kist.toml", "kist"), ("tornet-0.05-1", "tornet-0.05-1"), ("x/sample/", "sample")]
        {
            assert_eq!(name_of(Path::new(path)).expect("a name"), name);
        }
        assert!(name_of(Path::new("..")).is_err());
    }

    fn run(variant: &str, seed: u64, last_s: f64) -> RunResult {
        let size = Transfers {
            bytes: 1 << 20,
            first_byte_s: vec![0.1; 3],
            last_byte_s: vec![last_s; 3],
            unfinished: vec![Unfinished::FAILED],
            failed_of_client: vec![0.25],
        };
        RunResult {
            conditions: "these".to_owned(),
            sizes: vec![size],
            sent_mbit_per_s: vec![100.0],
            ..RunResult::blank(variant, seed)
        }
    }

    fn found<'a>(report: &'a ExperimentReport, name: &str) -> &'a Case {
        let case = report.cases.iter().find(|case| case.name.contains(name));
        case.unwrap_or_else(|| panic!("{name} in {:?}", report.cases))
    }

    #[test]
    fn runs_are_compared_seed_by_seed() {
        // The second network is a tenth faster with each seed, though seeds differ by far more.
        let slow = [(1, 1.0), (2, 10.0), (3, 4.0)];
        let mut all: Vec<RunResult> = slow.map(|(seed, s)| run("slow", seed, s)).into();
        all.extend(slow.map(|(seed, s)| run("fast", seed, s * 0.9)));
        let report = batch_report(&["slow", "fast"], &all, Vec::new());
        let name = "fast against slow, load 100 %: median time to the last byte of 1 MiB";
        assert!(found(&report, name).detail.starts_with("-10.0 ± 0.0 %"), "{report:?}");
        assert!(found(&report, "slow, load 100 %: failed").detail.starts_with("25.000 ± 0.000 %"));
        let same = found(&report, "fast against slow, load 100 %: goodput of clients");
        assert!(same.detail.contains("not significant"), "{same:?}");
        // Nothing is claimed, so nothing has a verdict.
        assert!(report.cases.iter().all(|case| case.verdict == CaseVerdict::Reported));
        let html = report.to_html();
        // The rest names the command, which may be any.
        let (body, _) = html.split_once("<h2>Data</h2>").expect("data");
        let (_, body) = body.split_once("<main>").expect("a body");
        assert!(!body.contains("held") && !body.contains("skipped"), "{body}");
    }

    #[test]
    fn the_table_has_one_value_a_row() {
        let all =
            [run("slow", 1, 2.0), run("slow", 2, 4.0), run("fast", 1, 1.0), run("fast", 2, 2.0)];
        let report = batch_report(&["slow", "fast"], &all, Vec::new());
        let table = report.table.expect("a table");
        let column = |name| table.columns.iter().position(|column| *column == name).expect(name);
        let found = |kind: &str, variant: &str, metric: &str| -> Vec<[Option<f64>; 3]> {
            let is_it = |row: &&Vec<Value>| {
                row[column("kind")] == kind
                    && row[column("variant")] == variant
                    && row[column("metric")] == metric
            };
            let numbers = ["seed", "value", "seeds"].map(column);
            table
                .rows
                .iter()
                .filter(is_it)
                .map(|row| numbers.map(|place| row[place].as_f64()))
                .collect()
        };
        let metric = "last_byte_1024_kib_s";
        assert_eq!(
            found("run", "slow", metric),
            [[Some(1.0), Some(2.0), None], [Some(2.0), Some(4.0), None]]
        );
        assert_eq!(found("mean", "fast", metric), [[None, Some(1.5), Some(2.0)]]);
        let [[None, Some(percent), Some(2.0)]] = found("change", "fast", metric)[..] else {
            panic!("{:?}", table.rows)
        };
        assert!((percent + 50.0).abs() < 1e-9, "{percent}");
        assert_eq!(
            found("change", "slow", metric),
            [[None; 3]; 0],
            "the first is not compared with itself"
        );
    }

    #[test]
    fn a_median_between_two_groups_is_noted() {
        let mut two = run("two", 1, 2.0);
        two.sizes[0].last_byte_s = [2.0, 3.0].into_iter().cycle().take(201).collect();
        two.sizes[0].unfinished.clear();
        let notes = plateaus(&[two, run("one", 1, 2.0)], &["two", "one"], &[100]);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(
            note.starts_with("two: 50 % of the times to the last byte of 1 MiB are at most 2.00 s"),
            "{note}"
        );
    }

    #[test]
    fn seeds_without_a_median_are_counted() {
        let mut all: Vec<RunResult> = (1..=3).map(|seed| run("slow", seed, 2.0)).collect();
        all.extend((1..=3).map(|seed| run("fast", seed, 1.0)));
        all[5].sizes[0].unfinished = vec![Unfinished::FAILED; 9];
        let report = batch_report(&["slow", "fast"], &all, Vec::new());
        let case = found(&report, "fast against slow, load 100 %: median time to the last byte");
        assert!(case.detail.contains("2 seeds; in 1 more, one of them has no value"), "{case:?}");
    }

    #[test]
    fn one_seed_shows_no_significance_and_an_empty_batch_is_reported() {
        let all = [run("a", 1, 1.0), run("b", 1, 2.0)];
        let report = batch_report(&["a", "b"], &all, Vec::new());
        let case = found(&report, "b against a, load 100 %: median time to the last byte");
        assert!(case.detail.contains("significance unknown"), "{case:?}");
        assert_eq!(batch_report(&["a"], &[], Vec::new()).answer, "There are no runs yet.");
    }
}
