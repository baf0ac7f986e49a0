//! Experiments as grids. A cell is data: what is measured in one run, in which world, with which fault. The runner does
//! once what all of them need: it starts a world for the cells that share it, keeps the row of each cell in a file so that an
//! interrupted experiment continues, plays a shard, reports progress, and collects the rows.

use crate::common::Session;
use crate::error::{Error, Result};
use crate::reporting::{failed_case, print_case, report};
use crate::simulated::{Shard, Store, missing};
use clap::Args;
use onion::Duration;
use report::experiment::{Case, ExperimentFigure, ExperimentReport, Miss};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Display;
use std::fs::File;
use std::io;

/// Between two runs: token buckets are full again, and paths are empty.
const PAUSE: Duration = Duration::from_millis(1500);

/// Options of all grids.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct GridOptions {
    /// Play only this part of all runs, such as 1/6. With all files in one folder (--out), the same command without this option
    /// reports all of them.
    #[arg(long, value_name = "PART/PARTS")]
    pub(crate) shard: Option<Shard>,
}

/// An experiment whose runs are cells of a grid.
pub(crate) trait Grid {
    /// One run. Its text is its name, unique in the grid; its fields are columns of its cases.
    type Cell: Display + Serialize;
    /// Relays, hosts and measurers, which several cells share.
    type World;

    /// The experiment's name, and its texts (docs/experiments).
    const NAME: &'static str;
    const TEXT: &'static str;

    /// All cells in the order of play, those with the same world together.
    fn cells(&self) -> Vec<Self::Cell>;

    /// What all rows in a folder have in common, as text.
    fn conditions(&self) -> String;

    /// Cells in sequence for which this is equal share a world.
    fn world(&self, cell: &Self::Cell) -> String;

    /// Cells for which this is equal are in one shard, since [`play`](Self::play) looks at the rows of the earlier ones.
    fn group(&self, cell: &Self::Cell) -> String {
        self.world(cell)
    }

    /// Starts the world of a cell; `None` if the user has interrupted.
    fn start(&self, cell: &Self::Cell, session: Session<'_>) -> Result<Option<Self::World>>;

    /// Plays a cell; `None` if the user has interrupted.
    fn play(&self, world: &mut Self::World, turn: Turn<'_, Self::Cell>) -> Result<Option<Row>>;

    /// Stops a world that does not stop when it is dropped.
    fn stop(&self, _: Self::World) -> Result<()> {
        Ok(())
    }

    /// Adds answer, promise, parameters and figures of all rows to a report that contains what the rows contain.
    fn conclude(&self, rows: Rows<'_, Self::Cell>, report: &mut ExperimentReport);
}

/// A cell that is to be played.
pub(crate) struct Turn<'a, C> {
    pub(crate) cell: &'a C,
    pub(crate) earlier: Rows<'a, C>,
    pub(crate) session: Session<'a>,
}

/// What came of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) cases: Vec<Case>,
    pub(crate) misses: Vec<Miss>,
    pub(crate) figures: Vec<ExperimentFigure>,
    pub(crate) notes: Vec<String>,
    /// Whether the cell is to be played again the next time: this machine, not the subject, decided the result.
    #[serde(skip)]
    pub(crate) is_temporary: bool,
}

impl From<Case> for Row {
    fn from(case: Case) -> Self {
        Self { cases: vec![case], ..Self::default() }
    }
}

/// The rows that are there.
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

    /// The cases, each with its cell.
    pub(crate) fn cases(&self) -> impl Iterator<Item = (&'a C, &'a Case)> + use<'a, C> {
        self.iter().flat_map(|(cell, row)| row.cases.iter().map(move |case| (cell, case)))
    }
}

/// A row in its file.
#[derive(Serialize, Deserialize)]
struct Kept {
    conditions: String,
    row: Row,
}

/// The files of the rows of a grid.
struct Files {
    store: Store,
    conditions: String,
}

impl Files {
    fn open<G: Grid>(grid: &G, session: Session<'_>) -> Result<Self> {
        let store = Store::new(session.common.out.join(format!("{}-runs", G::NAME)))?;
        Ok(Self { store, conditions: format!("{}, program {}", grid.conditions(), program()?) })
    }

    /// The row of a cell, if it was played.
    ///
    /// # Errors
    /// If its file is of other parameters or of another program, or if this program did not write it.
    fn read(&self, cell: &impl Display) -> Result<Option<Row>> {
        let name = file_name(cell);
        let Some(kept) = self.store.read::<Kept>(&name)? else { return Ok(None) };
        if kept.conditions == self.conditions {
            return Ok(Some(kept.row));
        }
        Err(Error::Failed(format!(
            "{} is of other runs ({}; these are {}): take another --out, or remove the folder",
            self.store.path(&name).display(),
            kept.conditions,
            self.conditions,
        )))
    }

    fn write(&self, cell: &impl Display, row: &Row) -> Result<()> {
        let kept = Kept { conditions: self.conditions.clone(), row: row.clone() };
        self.store.write(&file_name(cell), &kept)
    }
}

/// The name of a cell without what has a meaning in names of files.
fn file_name(cell: &impl Display) -> String {
    let text = cell.to_string();
    let words = text.split(|char: char| !char.is_alphanumeric() && !".+_".contains(char));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// This program: its version and the digest of its file, since a version has many builds.
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

/// Plays all cells that were not played yet and that the shard contains, and reports on all rows that are there.
pub(crate) fn run<G: Grid>(
    grid: &G,
    options: GridOptions,
    session: Session<'_>,
) -> Result<ExperimentReport> {
    let files = Files::open(grid, session)?;
    let cells = grid.cells();
    session.output.step(format!("{} runs, {}", cells.len(), grid.conditions()));
    // Before anything is played: a file of other runs is an error at once.
    let read = cells.iter().map(|cell| files.read(cell)).collect::<Result<Vec<_>, _>>()?;
    let mut play = Play { grid, files, cells: &cells, rows: read, unplayed: Vec::new(), session };
    let is_ours = of_shard(grid, &cells, options.shard);
    play.report_known();
    let mut start = 0;
    for world in cells.chunk_by(|one, next| grid.world(one) == grid.world(next)) {
        let places = start..start + world.len();
        start = places.end;
        let wanted: Vec<usize> =
            places.filter(|it| is_ours[*it] && play.rows[*it].is_none()).collect();
        if !session.interrupt.is_requested() && !wanted.is_empty() {
            play.world(&wanted)?;
        }
    }
    play.finish()
}

/// Whether each cell is in the shard.
fn of_shard<G: Grid>(grid: &G, cells: &[G::Cell], shard: Option<Shard>) -> Vec<bool> {
    let mut groups: Vec<String> = Vec::new();
    let mut number = |cell: &G::Cell| {
        let group = grid.group(cell);
        groups.iter().position(|it| *it == group).unwrap_or_else(|| {
            groups.push(group);
            groups.len() - 1
        })
    };
    cells
        .iter()
        .map(|cell| (number(cell), shard))
        .map(|(group, shard)| shard.is_none_or(|it| it.takes(group as u64)))
        .collect()
}

/// A grid that is being played.
struct Play<'a, G: Grid> {
    grid: &'a G,
    files: Files,
    cells: &'a [G::Cell],
    rows: Vec<Option<Row>>,
    /// Worlds that could not be started, and why.
    unplayed: Vec<(String, Error)>,
    session: Session<'a>,
}

impl<G: Grid> Play<'_, G> {
    fn report_known(&self) {
        let known: Vec<&Row> = self.rows.iter().flatten().collect();
        for case in known.iter().flat_map(|row| &row.cases) {
            print_case(case, self.session.output);
        }
        if !known.is_empty() {
            let text =
                format!("{} of them were played before, and are not played again", known.len());
            self.session.output.step(text);
        }
    }

    /// Plays these cells, which share a world.
    fn world(&mut self, wanted: &[usize]) -> Result<()> {
        let Some(first) = wanted.first().map(|place| &self.cells[*place]) else { return Ok(()) };
        let name = self.grid.world(first);
        self.session.output.doing(format!("starting {name}"));
        let mut world = match self.grid.start(first, self.session) {
            Ok(Some(world)) => world,
            Ok(None) => return Ok(()),
            // The rows found so far are not lost.
            Err(error) => {
                self.unplayed.push((name, error));
                return Ok(());
            }
        };
        for (number, place) in wanted.iter().enumerate() {
            if number > 0 && self.session.interrupt.wait(PAUSE) || !self.cell(&mut world, *place)? {
                break;
            }
        }
        self.grid.stop(world)
    }

    /// Plays a cell; `false` if the user has interrupted.
    fn cell(&mut self, world: &mut G::World, place: usize) -> Result<bool> {
        let cell = &self.cells[place];
        let earlier = Rows { cells: self.cells, rows: &self.rows };
        let turn = Turn { cell, earlier, session: self.session };
        let mut row = match self.grid.play(world, turn) {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(false),
            Err(_) if self.session.interrupt.is_requested() => return Ok(false),
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
            self.files.write(cell, &row)?;
        }
        self.rows[place] = Some(row);
        Ok(true)
    }

    fn finish(self) -> Result<ExperimentReport> {
        let Self { grid, cells, rows, mut unplayed, .. } = self;
        let played = rows.iter().flatten().count();
        if played == 0 && !unplayed.is_empty() {
            return Err(unplayed.swap_remove(0).1);
        }
        let mut report = report(G::NAME, G::TEXT);
        for row in rows.iter().flatten() {
            report.cases.extend(row.cases.iter().cloned());
            report.misses.extend(row.misses.iter().cloned());
            report.figures.extend(row.figures.iter().cloned());
            report.notes.extend(row.notes.iter().cloned());
        }
        let worlds = unplayed.into_iter();
        report.cases.extend(worlds.map(|(name, error)| failed_case(name, &error)));
        report.notes.extend(missing(played, cells.len()));
        grid.conclude(Rows { cells, rows: &rows }, &mut report);
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Common;
    use std::cell::RefCell;
    use terminal::{Interrupt, Output};

    /// Two worlds of three cells each; the sum of the world's earlier results is the result.
    #[derive(Default)]
    struct Sums {
        played: RefCell<Vec<String>>,
        breaks: Option<u32>,
        seconds: u32,
    }

    #[derive(Serialize)]
    struct Cell {
        world: u32,
        number: u32,
    }

    impl Display for Cell {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "world {}, number {}/x", self.world, self.number)
        }
    }

    impl Grid for Sums {
        type Cell = Cell;
        type World = u32;
        const NAME: &'static str = "sums";
        const TEXT: &'static str =
            "# Sums\n\nIs it\nthe sum?\n\n## Notes\n\nOne\nnote.\n\nAnother.\n";

        fn cells(&self) -> Vec<Cell> {
            (0..6).map(|it| Cell { world: it / 3, number: it % 3 }).collect()
        }

        fn conditions(&self) -> String {
            format!("{} s", self.seconds)
        }

        fn world(&self, cell: &Cell) -> String {
            format!("world {}", cell.world)
        }

        fn start(&self, cell: &Cell, _: Session<'_>) -> Result<Option<u32>> {
            if self.breaks == Some(cell.world) {
                return Err(Error::Failed("no such world".to_owned()));
            }
            Ok(Some(cell.world))
        }

        fn play(&self, world: &mut u32, turn: Turn<'_, Cell>) -> Result<Option<Row>> {
            let Turn { cell, earlier, .. } = turn;
            self.played.borrow_mut().push(cell.to_string());
            let before = earlier.cases().filter(|(it, _)| it.world == *world);
            let sum: f64 = before.filter_map(|(_, case)| case.truth_mbit_per_s).sum();
            let truth = sum + f64::from(cell.number) + 1.0;
            let row = Row::from(Case::judged(cell.to_string(), truth, Some(truth), 0.9..=1.1));
            Ok(Some(Row { is_temporary: cell.number == 2, ..row }))
        }

        fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
            report.answer = rows.iter().count().to_string();
        }
    }

    fn play(grid: &Sums, out: &std::path::Path, shard: Option<&str>) -> Result<ExperimentReport> {
        let common = Common { out: out.to_owned(), quick: true };
        let options = GridOptions { shard: shard.map(|it| it.parse().expect("a part")) };
        let (output, interrupt) = (Output::new(true), Interrupt::install().expect("signals"));
        let session = Session { common: &common, output: &output, interrupt: &interrupt };
        run(grid, options, session)
    }

    #[test]
    fn rows_that_are_there_are_not_played_again_and_depend_on_each_other_as_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Sums::default();
        let report = play(&first, folder.path(), Some("2/2")).expect("played");
        assert_eq!(report.answer, "3");
        assert_eq!(
            report.notes,
            ["One note.", "Another.", "3 runs are missing: the same command plays them."]
        );
        assert!(first.played.borrow().iter().all(|it| it.starts_with("world 1")));
        let second = Sums::default();
        let report = play(&second, folder.path(), None).expect("played");
        let again = [
            "world 0, number 0/x",
            "world 0, number 1/x",
            "world 0, number 2/x",
            "world 1, number 2/x",
        ];
        assert_eq!(*second.played.borrow(), again, "what this machine decided is played again");
        let truths: Vec<_> = report.cases.iter().filter_map(|it| it.truth_mbit_per_s).collect();
        assert_eq!(truths, [1.0, 3.0, 7.0, 1.0, 3.0, 7.0]);
        assert_eq!((report.question.as_str(), report.notes.len()), ("Is it the sum?", 2));
        let columns: Vec<&str> =
            report.cases[0].columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            columns,
            ["world", "number"],
            "the fields of a cell are columns, in their order"
        );
        let others = Sums { seconds: 1, ..Sums::default() };
        let error = play(&others, folder.path(), None).expect_err("of other runs").to_string();
        assert!(error.contains("world-0-number-0-x.json") && error.contains("--out"), "{error}");
    }

    #[test]
    fn a_world_that_cannot_be_started_is_a_case_unless_nothing_was_played() {
        let folder = tempfile::tempdir().expect("a folder");
        let broken = Sums { breaks: Some(0), ..Sums::default() };
        let report = play(&broken, folder.path(), None).expect("the other world was played");
        assert_eq!(report.cases.len(), 4);
        assert_eq!(
            (report.cases[3].name.as_str(), report.cases[3].detail.as_str()),
            ("world 0", "no such world")
        );
        assert!(play(&broken, &folder.path().join("other"), Some("1/2")).is_err());
    }
}
