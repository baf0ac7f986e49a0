//! Experiments as grids of independent runs. A cell describes one run; its result is a row. The runner starts a setup for
//! the cells that share it, stores each row in a file so that an interrupted experiment continues, restricts runs to a shard,
//! reports progress, and collects the rows.

use crate::common::Session;
use crate::error::{Error, Result};
use crate::reporting::{failed_case, print_case, report, rule};
use crate::simulated::{Shard, Store, missing_runs};
use clap::Args;
use onion::Duration;
use report::experiment::{Case, CaseVerdict, ExperimentFigure, ExperimentReport, Miss, Promise};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::File;
use std::io;

/// Options of all grids.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct GridOptions {
    /// Run only this part of all runs, such as 1/6. With all files in one folder (--out), the same command without this
    /// option reports all runs.
    #[arg(long, value_name = "PART/PARTS")]
    pub(crate) shard: Option<Shard>,
}

/// An experiment whose runs are cells of a grid.
pub(crate) trait Grid {
    /// One run. Its text is its unique name; its fields are columns of its cases.
    type Cell: Display + Serialize;
    /// Relays, hosts and measurers that several cells share.
    type Setup;

    /// The experiment's name.
    const NAME: &'static str;
    /// Its page in docs/experiments.
    const TEXT: &'static str;
    /// Pause between two runs of a setup, in which token buckets fill and paths drain.
    const PAUSE: Duration = Duration::from_millis(1500);

    /// All cells in the order in which to run them, those with the same setup together.
    fn cells(&self) -> Vec<Self::Cell>;

    /// The parameters in the report; none by default, if [`conclude`](Self::conclude) adds them.
    fn parameters(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The parameters that all rows in a folder share, as text; by default, [all](Self::parameters).
    fn conditions(&self) -> String {
        in_words(&self.parameters())
    }

    /// The name of a cell's setup. Consecutive cells with the same name share a setup; by default, all do.
    fn setup(&self, _: &Self::Cell) -> String {
        "the processes of all runs".to_owned()
    }

    /// Cells with the same group are in one shard, for example because [`run`](Self::run) uses the rows of earlier ones. By
    /// default, each cell is a group.
    fn group(&self, cell: &Self::Cell) -> String {
        cell.to_string()
    }

    /// Starts the setup of a cell; `None` if the user has interrupted.
    fn start(&self, cell: &Self::Cell, session: Session<'_>) -> Result<Option<Self::Setup>>;

    /// Why the cells of a setup cannot run on this machine, if `error` shows that. They are then skipped.
    fn skips(&self, _error: &Error) -> Option<String> {
        None
    }

    /// Runs a cell; `None` if the user has interrupted.
    fn run(&self, setup: &mut Self::Setup, run: CellRun<'_, Self::Cell>) -> Result<Option<Row>>;

    /// Stops a setup that does not stop when it is dropped.
    fn stop(&self, _: Self::Setup) -> Result<()> {
        Ok(())
    }

    /// Adds answer, promise and figures to a report that has the contents of all rows.
    fn conclude(&self, rows: Rows<'_, Self::Cell>, report: &mut ExperimentReport);

    /// The promise with the rule from the experiment's page, and whether it held.
    fn promise(held: bool) -> Promise {
        Promise::Decided { held, rule: rule(Self::TEXT) }
    }
}

/// Parameters as text.
pub(crate) fn in_words(parameters: &[(String, String)]) -> String {
    parameters.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
}

/// An experiment whose parts depend on each other, so that it is a single run.
pub(crate) trait Undivided {
    /// See [`Grid::NAME`].
    const NAME: &'static str;
    /// See [`Grid::TEXT`].
    const TEXT: &'static str;

    /// The parameters in the report.
    fn parameters(&self) -> Vec<(String, String)>;

    /// Runs the experiment; `None` if the user has interrupted. An interrupted run may have a temporary row.
    fn run(&self, session: Session<'_>) -> Result<Option<Row>>;

    /// Adds answer and promise to a report that has the contents of the row.
    fn conclude(&self, row: &Row, report: &mut ExperimentReport);
}

/// The grid of an undivided experiment, which has one cell.
struct Whole<'t, T>(&'t T);

/// The cell of an undivided experiment.
#[derive(Clone, Copy, Serialize)]
struct WholeCell {}

impl Display for WholeCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the whole experiment")
    }
}

impl<T: Undivided> Grid for Whole<'_, T> {
    type Cell = WholeCell;
    type Setup = ();
    const NAME: &'static str = T::NAME;
    const TEXT: &'static str = T::TEXT;

    fn cells(&self) -> Vec<WholeCell> {
        vec![WholeCell {}]
    }

    fn parameters(&self) -> Vec<(String, String)> {
        self.0.parameters()
    }

    fn start(&self, _: &WholeCell, _: Session<'_>) -> Result<Option<()>> {
        Ok(Some(()))
    }

    fn run(&self, (): &mut (), run: CellRun<'_, WholeCell>) -> Result<Option<Row>> {
        self.0.run(run.session)
    }

    fn conclude(&self, rows: Rows<'_, WholeCell>, report: &mut ExperimentReport) {
        rows.iter().for_each(|(_, row)| self.0.conclude(row, report));
    }
}

/// Runs an undivided experiment unless its row exists.
pub(crate) fn run_whole<T: Undivided>(
    experiment: &T,
    session: Session<'_>,
) -> Result<ExperimentReport> {
    run(&Whole(experiment), GridOptions::default(), session)
}

/// A cell to run, and the rows that exist.
pub(crate) struct CellRun<'a, C> {
    pub(crate) cell: &'a C,
    pub(crate) earlier: Rows<'a, C>,
    pub(crate) session: Session<'a>,
}

/// The result of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) cases: Vec<Case>,
    pub(crate) misses: Vec<Miss>,
    pub(crate) figures: Vec<ExperimentFigure>,
    pub(crate) notes: Vec<String>,
    /// Results that [`Grid::conclude`] or later cells need, and that are no columns of a case.
    #[serde(default)]
    pub(crate) data: Value,
    /// Whether to run the cell again the next time, because this machine and not the subject decided the result.
    #[serde(skip)]
    pub(crate) is_temporary: bool,
}

impl From<Case> for Row {
    fn from(case: Case) -> Self {
        Self { cases: vec![case], ..Self::default() }
    }
}

impl Row {
    /// The row with these [`data`](Self::data).
    ///
    /// # Errors
    /// JSON cannot represent them: a number is not finite. Without this check, the report would lack them.
    pub(crate) fn with_data<T: Serialize + DeserializeOwned>(self, data: &T) -> Result<Self> {
        let data = serde_json::to_value(data).unwrap_or_default();
        if let Err(problem) = T::deserialize(&data) {
            return Err(Error::Failed(format!("a result cannot be stored: {problem}")));
        }
        Ok(Self { data, ..self })
    }

    /// The data; `None` if the cell failed before it had any.
    pub(crate) fn data<T: DeserializeOwned>(&self) -> Option<T> {
        T::deserialize(&self.data).ok()
    }
}

/// All cells with the rows that exist.
pub(crate) struct Rows<'a, C> {
    cells: &'a [C],
    rows: &'a [Option<Row>],
}

impl<'a, C> Rows<'a, C> {
    #[cfg(test)]
    pub(crate) const fn new(cells: &'a [C], rows: &'a [Option<Row>]) -> Self {
        Self { cells, rows }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&'a C, &'a Row)> + use<'a, C> {
        self.cells.iter().zip(self.rows).filter_map(|(cell, row)| Some((cell, row.as_ref()?)))
    }

    /// Whether all cells have rows.
    pub(crate) fn are_complete(&self) -> bool {
        self.rows.iter().all(Option::is_some)
    }

    /// The data of all rows that have some, each with its cell.
    pub(crate) fn data<T: DeserializeOwned>(
        &self,
    ) -> impl Iterator<Item = (&'a C, T)> + use<'a, C, T> {
        self.iter().filter_map(|(cell, row)| Some((cell, row.data()?)))
    }

    /// The cases, each with its cell.
    pub(crate) fn cases(&self) -> impl Iterator<Item = (&'a C, &'a Case)> + use<'a, C> {
        self.iter().flat_map(|(cell, row)| row.cases.iter().map(move |case| (cell, case)))
    }
}

/// A row as stored in a file.
#[derive(Serialize, Deserialize)]
struct StoredRow {
    conditions: String,
    row: Row,
}

/// The folder of a grid's rows.
struct RowStore {
    store: Store,
    conditions: String,
}

impl RowStore {
    fn open<G: Grid>(grid: &G, session: Session<'_>) -> Result<Self> {
        let store = Store::new(session.common.out.join(format!("{}-runs", G::NAME)))?;
        Ok(Self { store, conditions: format!("{}, program {}", grid.conditions(), program()?) })
    }

    /// The row of a cell, if it exists.
    ///
    /// # Errors
    /// If its file is corrupt, or belongs to other parameters or another build of the program.
    fn read(&self, cell: &impl Display) -> Result<Option<Row>> {
        let name = file_name(cell);
        let Some(stored) = self.store.read::<StoredRow>(&name)? else { return Ok(None) };
        if stored.conditions == self.conditions {
            return Ok(Some(stored.row));
        }
        Err(Error::Failed(format!(
            "{} belongs to other runs ({}; these are {}): use another --out, or remove the folder",
            self.store.path(&name).display(),
            stored.conditions,
            self.conditions,
        )))
    }

    fn write(&self, cell: &impl Display, row: &Row) -> Result<()> {
        let stored = StoredRow { conditions: self.conditions.clone(), row: row.clone() };
        self.store.write(&file_name(cell), &stored)
    }
}

/// The name of a cell without characters that have a meaning in file names.
fn file_name(cell: &impl Display) -> String {
    let text = cell.to_string();
    let words = text.split(|char: char| !char.is_alphanumeric() && !".+_".contains(char));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// The version of this program and the digest of its file, since a version has many builds.
fn program() -> Result<String> {
    const FILE: &str = "/proc/self/exe";
    let failed =
        |source| Error::File { what: "read this program's file", path: FILE.into(), source };
    let mut digest = Sha256::new();
    let mut file = File::open(FILE).map_err(failed)?;
    io::copy(&mut file, &mut digest).map_err(failed)?;
    Ok(format!(
        "{} with digest {}",
        env!("CARGO_PKG_VERSION"),
        hex::encode(&digest.finalize()[..6])
    ))
}

/// Runs all cells of the shard that have no row, and reports on all rows.
pub(crate) fn run<G: Grid>(
    grid: &G,
    options: GridOptions,
    session: Session<'_>,
) -> Result<ExperimentReport> {
    let store = RowStore::open(grid, session)?;
    let cells = unique(grid.cells())?;
    session.output.step(format!("{} runs, {}", cells.len(), grid.conditions()));
    // Before any run: a file of other runs is an error at once.
    let rows = cells.iter().map(|cell| store.read(cell)).collect::<Result<Vec<_>, _>>()?;
    let mut run = GridRun { grid, store, cells: &cells, rows, failed_setups: Vec::new(), session };
    let is_in_shard = of_shard(grid, &cells, options.shard);
    run.print_known();
    let mut start = 0;
    for sharing in cells.chunk_by(|one, next| grid.setup(one) == grid.setup(next)) {
        let places = start..start + sharing.len();
        start = places.end;
        let wanted: Vec<usize> =
            places.filter(|place| is_in_shard[*place] && run.rows[*place].is_none()).collect();
        if !session.interrupt.is_requested() && !wanted.is_empty() {
            run.run_sharing(&wanted)?;
        }
    }
    run.finish()
}

/// The cells without those that repeat an earlier one, as arguments can.
///
/// # Errors
/// Different cells have one file.
fn unique<C: Display>(cells: Vec<C>) -> Result<Vec<C>> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for cell in cells {
        let name = cell.to_string();
        match names.insert(file_name(&cell), name.clone()) {
            None => found.push(cell),
            Some(earlier) if earlier == name => {}
            Some(earlier) => {
                let problem = format!("the runs `{earlier}` and `{name}` have one file; report it");
                return Err(Error::Failed(problem));
            }
        }
    }
    Ok(found)
}

/// Whether each cell is in the shard.
fn of_shard<G: Grid>(grid: &G, cells: &[G::Cell], shard: Option<Shard>) -> Vec<bool> {
    let mut groups: Vec<String> = Vec::new();
    let mut number = |cell: &G::Cell| {
        let group = grid.group(cell);
        groups.iter().position(|known| *known == group).unwrap_or_else(|| {
            groups.push(group);
            groups.len() - 1
        })
    };
    cells
        .iter()
        .map(|cell| (number(cell), shard))
        .map(|(group, shard)| shard.is_none_or(|shard| shard.takes(group as u64)))
        .collect()
}

/// A running grid.
struct GridRun<'a, G: Grid> {
    grid: &'a G,
    store: RowStore,
    cells: &'a [G::Cell],
    rows: Vec<Option<Row>>,
    /// Setups that could not be started, and why.
    failed_setups: Vec<(String, Error)>,
    session: Session<'a>,
}

impl<G: Grid> GridRun<'_, G> {
    fn print_known(&self) {
        let known: Vec<&Row> = self.rows.iter().flatten().collect();
        for case in known.iter().flat_map(|row| &row.cases) {
            print_case(case, self.session.output);
        }
        if !known.is_empty() {
            let text = format!("{} of them were finished before, and are skipped", known.len());
            self.session.output.step(text);
        }
    }

    /// Runs these cells, which share a setup.
    fn run_sharing(&mut self, wanted: &[usize]) -> Result<()> {
        let Some(first) = wanted.first().map(|place| &self.cells[*place]) else { return Ok(()) };
        let name = self.grid.setup(first);
        self.session.output.doing(format!("starting {name}"));
        let mut setup = match self.grid.start(first, self.session) {
            Ok(Some(setup)) => setup,
            Ok(None) => return Ok(()),
            // The existing rows are kept.
            Err(error) => {
                self.failed_setups.push((name, error));
                return Ok(());
            }
        };
        for (number, place) in wanted.iter().enumerate() {
            if number > 0 && self.session.interrupt.wait(G::PAUSE)
                || !self.run_cell(&mut setup, *place)?
            {
                break;
            }
        }
        self.grid.stop(setup)
    }

    /// Runs a cell; `false` if the user has interrupted.
    fn run_cell(&mut self, setup: &mut G::Setup, place: usize) -> Result<bool> {
        let cell = &self.cells[place];
        let earlier = Rows { cells: self.cells, rows: &self.rows };
        let number = format!("run {} of {}", place + 1, self.cells.len());
        self.session.output.doing(format!("{number}: {cell}"));
        let run = CellRun { cell, earlier, session: self.session };
        let mut row = match self.grid.run(setup, run) {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(false),
            Err(_) if self.session.interrupt.is_requested() => return Ok(false),
            Err(error) if error.is_usage() => return Err(error),
            Err(error) => {
                let row = Row::from(failed_case(cell.to_string(), &error));
                Row { is_temporary: true, ..row }
            }
        };
        for case in &mut row.cases {
            *case = std::mem::take(case).with(cell);
            print_case(case, self.session.output);
        }
        if !row.is_temporary {
            self.store.write(cell, &row)?;
        }
        self.rows[place] = Some(row);
        Ok(true)
    }

    fn finish(self) -> Result<ExperimentReport> {
        let Self { grid, cells, rows, mut failed_setups, session, .. } = self;
        let finished = rows.iter().flatten().count();
        let is_failed = |(_, error): &(String, Error)| grid.skips(error).is_none();
        if finished == 0 && failed_setups.iter().all(is_failed) && !failed_setups.is_empty() {
            return Err(failed_setups.swap_remove(0).1);
        }
        let mut report = report(G::NAME, G::TEXT);
        report.parameters = grid.parameters();
        for row in rows.iter().flatten() {
            report.cases.extend(row.cases.iter().cloned());
            report.misses.extend(row.misses.iter().cloned());
            report.figures.extend(row.figures.iter().cloned());
            report.notes.extend(row.notes.iter().cloned());
        }
        for (name, error) in failed_setups {
            report.cases.push(match grid.skips(&error) {
                Some(reason) => Case::named(name).ended(CaseVerdict::Skipped, reason),
                None => failed_case(name, &error),
            });
        }
        report.notes.extend(missing_runs(finished, cells.len()));
        grid.conclude(Rows { cells, rows: &rows }, &mut report);
        // Those of rows have been printed.
        let of_rows: Vec<&Case> = rows.iter().flatten().flat_map(|row| &row.cases).collect();
        let is_new = |case: &&Case| !of_rows.iter().any(|printed| printed.name == case.name);
        report.cases.iter().filter(is_new).for_each(|case| print_case(case, session.output));
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Common;
    use std::cell::RefCell;
    use terminal::{Interrupt, Output};

    /// Two setups of three cells each. The result of a cell is the sum of the setup's earlier results and its number.
    #[derive(Default)]
    struct Sums {
        runs: RefCell<Vec<String>>,
        failing_setup: Option<u32>,
        seconds: u32,
    }

    #[derive(Serialize)]
    struct Cell {
        setup: u32,
        number: u32,
    }

    impl Display for Cell {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "setup {}, number {}/x", self.setup, self.number)
        }
    }

    impl Grid for Sums {
        type Cell = Cell;
        type Setup = u32;
        const NAME: &'static str = "sums";
        const TEXT: &'static str =
            "# Sums\n\nIs it\nthe sum?\n\n## Notes\n\nOne\nnote.\n\nAnother.\n";

        fn cells(&self) -> Vec<Cell> {
            (0..6).map(|number| Cell { setup: number / 3, number: number % 3 }).collect()
        }

        fn conditions(&self) -> String {
            format!("{} s", self.seconds)
        }

        fn setup(&self, cell: &Cell) -> String {
            format!("setup {}", cell.setup)
        }

        fn group(&self, cell: &Cell) -> String {
            self.setup(cell)
        }

        fn start(&self, cell: &Cell, _: Session<'_>) -> Result<Option<u32>> {
            if self.failing_setup == Some(cell.setup) {
                return Err(Error::Failed("no such setup".to_owned()));
            }
            Ok(Some(cell.setup))
        }

        fn run(&self, setup: &mut u32, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
            let CellRun { cell, earlier, .. } = run;
            self.runs.borrow_mut().push(cell.to_string());
            let before = earlier.cases().filter(|(cell, _)| cell.setup == *setup);
            let sum: f64 = before.filter_map(|(_, case)| case.truth_mbit_per_s).sum();
            let truth = sum + f64::from(cell.number) + 1.0;
            let row = Row::from(Case::judged(cell.to_string(), truth, Some(truth), 0.9..=1.1));
            Ok(Some(Row { is_temporary: cell.number == 2, ..row }))
        }

        fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
            report.answer = rows.iter().count().to_string();
        }
    }

    fn run_grid(
        grid: &Sums,
        out: &std::path::Path,
        shard: Option<&str>,
    ) -> Result<ExperimentReport> {
        let common = Common { out: out.to_owned(), quick: true };
        let options = GridOptions { shard: shard.map(|shard| shard.parse().expect("a part")) };
        let (output, interrupt) = (Output::new(true), Interrupt::install().expect("signals"));
        let session = Session { common: &common, output: &output, interrupt: &interrupt };
        run(grid, options, session)
    }

    #[test]
    fn finished_rows_are_not_run_again_and_later_rows_use_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Sums::default();
        let report = run_grid(&first, folder.path(), Some("2/2")).expect("a report");
        assert_eq!(report.answer, "3");
        assert_eq!(
            report.notes,
            ["One note.", "Another.", "3 runs are missing: the same command performs them."]
        );
        assert!(first.runs.borrow().iter().all(|run| run.starts_with("setup 1")));
        let second = Sums::default();
        let report = run_grid(&second, folder.path(), None).expect("a report");
        let again = [
            "setup 0, number 0/x",
            "setup 0, number 1/x",
            "setup 0, number 2/x",
            "setup 1, number 2/x",
        ];
        assert_eq!(*second.runs.borrow(), again, "temporary rows are run again");
        let truths: Vec<_> = report.cases.iter().filter_map(|case| case.truth_mbit_per_s).collect();
        assert_eq!(truths, [1.0, 3.0, 7.0, 1.0, 3.0, 7.0]);
        assert_eq!((report.question.as_str(), report.notes.len()), ("Is it the sum?", 2));
        let columns: Vec<&str> =
            report.cases[0].columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(columns, ["setup", "number"], "the fields of a cell are columns in their order");
        let others = Sums { seconds: 1, ..Sums::default() };
        let error = run_grid(&others, folder.path(), None).expect_err("other runs").to_string();
        assert!(error.contains("setup-0-number-0-x.json") && error.contains("--out"), "{error}");
    }

    #[test]
    fn a_repeated_cell_is_run_once_and_two_cells_never_share_a_file() {
        assert_eq!(unique(vec!["a 1", "a 2", "a 1"]).expect("no collision"), ["a 1", "a 2"]);
        let error = unique(vec!["a 1", "a-1"]).expect_err("one file").to_string();
        assert!(error.contains("`a 1` and `a-1`"), "{error}");
    }

    #[test]
    fn data_that_json_cannot_represent_are_an_error_and_do_not_vanish() {
        let row = Row::default().with_data(&vec![1.0, 2.5]).expect("finite");
        assert_eq!(row.data(), Some(vec![1.0, 2.5]));
        assert!(Row::default().with_data(&vec![1.0, f64::NAN]).is_err());
        let row = Row::default().with_data(&vec![Some(1.0), None]).expect("None is null");
        assert_eq!(row.data(), Some(vec![Some(1.0), None]));
    }

    #[test]
    fn a_setup_that_fails_is_a_case_unless_there_are_no_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let failing = Sums { failing_setup: Some(0), ..Sums::default() };
        let report = run_grid(&failing, folder.path(), None).expect("the other setup has rows");
        assert_eq!(report.cases.len(), 4);
        assert_eq!(
            (report.cases[3].name.as_str(), report.cases[3].detail.as_str()),
            ("setup 0", "no such setup")
        );
        assert!(run_grid(&failing, &folder.path().join("other"), Some("1/2")).is_err());
    }
}
