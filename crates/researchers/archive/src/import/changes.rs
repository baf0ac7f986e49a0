//! Folders of change tables: runs of snapshots that list a relay, and the snapshots at which its values change.
//!
//! The tables are CSV files, optionally compressed: `relays`, `snapshots`, `presence`, and optionally `guards`, `exits`, `advertised`
//! and `guard_weights`. See docs/archives.md.

use super::documents::Rows;
use super::source;
use crate::error::ArchiveError;
use crate::rows::{Descriptor, Origin, Relays, Status};
use crate::times;
use csv::{ReaderBuilder, StringRecord};
use netdoc::RsaId;
use netdoc::consensus::{Flag, Flags};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of relays, and of snapshots, of a folder.
const ENTRIES_MAX: usize = 10_000_000;
/// Maximum number of lines of a table: in memory, a line takes 8 to 16 bytes.
const LINES_MAX: u64 = 30_000_000;

/// A table of the folder, uncompressed or compressed with xz or gzip.
pub(super) fn table_file(folder: &Path, name: &str) -> Option<PathBuf> {
    ["", ".xz", ".gz"]
        .iter()
        .map(|end| folder.join(format!("{name}{end}")))
        .find(|path| path.is_file())
}

/// The rows of a relay in all tables, in order of snapshots.
#[derive(Clone, Debug, Default)]
struct History {
    fingerprint: Option<RsaId>,
    presence: Vec<(u32, u32)>,
    guards: Vec<(u32, u32)>,
    exits: Vec<(u32, u32)>,
    advertised: Vec<(u32, Option<u32>)>,
    weights: Vec<(u32, Weight)>,
}

/// Weight of a guard. The weights of other relays are unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    kb_per_s: Option<u32>,
    is_guard: bool,
    is_exit: bool,
}

/// A folder of change tables, in memory.
pub(super) struct ChangeTables {
    origin: Origin,
    times_s: Vec<u32>,
    histories: Vec<History>,
}

impl ChangeTables {
    pub(super) fn read(folder: &Path) -> Result<Self, ArchiveError> {
        let mut tables =
            Self { origin: Origin::Membership, times_s: Vec::new(), histories: Vec::new() };
        each(folder, "snapshots", &["unix_time"], |cells| {
            tables.times_s.push(number(&cells[0])?);
            (tables.times_s.len() <= ENTRIES_MAX).then_some(()).ok_or("too many snapshots")
        })?;
        if !tables.times_s.is_sorted() {
            let problem = "snapshots.csv: snapshots are not in order of time".to_owned();
            return Err(ArchiveError::Source { path: folder.to_owned(), problem });
        }
        each(folder, "relays", &["fingerprint"], |cells| {
            let fingerprint =
                RsaId::parse(cells[0].as_bytes()).map_err(|_| "expected 40 hex digits")?;
            tables.histories.push(History { fingerprint: Some(fingerprint), ..History::default() });
            (tables.histories.len() <= ENTRIES_MAX).then_some(()).ok_or("too many relays")
        })?;
        type Runs = fn(&mut History) -> &mut Vec<(u32, u32)>;
        let runs: [(&str, Runs); 3] = [
            ("presence", |history| &mut history.presence),
            ("guards", |history| &mut history.guards),
            ("exits", |history| &mut history.exits),
        ];
        for (name, runs) in runs {
            if table_file(folder, &format!("{name}.csv")).is_some() {
                each(folder, name, &["relay_index", "first_snapshot", "last_snapshot"], |cells| {
                    let run = (number(&cells[1])?, number(&cells[2])?);
                    let count = tables.times_s.len();
                    if run.0 > run.1 || run.1 as usize >= count {
                        return Err("expected existing snapshots, the first not after the last");
                    }
                    runs(relay(&mut tables.histories, &cells[0])?).push(run);
                    Ok(())
                })?;
            }
        }
        if table_file(folder, "advertised.csv").is_some() {
            tables.origin = Origin::Onionoo;
            let columns = ["relay_index", "snapshot_index", "advertised_bandwidth_byte_per_s"];
            each(folder, "advertised", &columns, |cells| {
                let value = if cells[2].is_empty() { None } else { Some(number(&cells[2])?) };
                relay(&mut tables.histories, &cells[0])?
                    .advertised
                    .push((number(&cells[1])?, value));
                Ok(())
            })?;
        }
        if table_file(folder, "guard_weights.csv").is_some() {
            let columns = ["relay_index", "snapshot_index", "weight", "position"];
            each(folder, "guard_weights", &columns, |cells| {
                let kb_per_s = match cells[2].as_str() {
                    "" | "?" | "0" => None,
                    digits => Some(number(digits)?),
                };
                let (is_guard, is_exit) = (kb_per_s.is_some(), cells[3] == "e");
                let weight = Weight { kb_per_s, is_guard, is_exit };
                relay(&mut tables.histories, &cells[0])?.weights.push((number(&cells[1])?, weight));
                Ok(())
            })?;
        }
        for history in &mut tables.histories {
            history.presence.sort_unstable();
            if history
                .presence
                .windows(2)
                .any(|pair| matches!(pair, [one, next] if next.0 <= one.1))
            {
                let problem = "presence.csv: runs of a relay overlap".to_owned();
                return Err(ArchiveError::Source { path: folder.to_owned(), problem });
            }
            history.guards.sort_unstable();
            history.exits.sort_unstable();
            history.advertised.sort_by_key(|advertised| advertised.0);
            history.weights.sort_by_key(|weight| weight.0);
        }
        Ok(tables)
    }

    pub(super) fn snapshots(&self) -> usize {
        self.times_s.len()
    }

    /// The snapshots of each month.
    pub(super) fn months(&self) -> Vec<Range<u32>> {
        let mut months: Vec<Range<u32>> = Vec::new();
        let mut last = String::new();
        for (index, time_s) in (0_u32..).zip(&self.times_s) {
            let month = times::month(i64::from(*time_s));
            match months.last_mut().filter(|_| month == last) {
                Some(range) => range.end = index + 1,
                None => months.push(index..index + 1),
            }
            last = month;
        }
        months
    }

    /// The sum of the numbers of relays in these snapshots.
    pub(super) fn count(&self, snapshots: &Range<u32>) -> u64 {
        let runs = self.histories.iter().flat_map(|history| &history.presence);
        let within = runs.map(|(first, last)| {
            (*last + 1).min(snapshots.end).saturating_sub(*first.max(&snapshots.start))
        });
        within.map(u64::from).sum()
    }

    /// Appends the rows of a range of snapshots.
    pub(super) fn rows(&self, snapshots: Range<u32>, relays: &mut Relays, rows: &mut Rows) {
        for history in &self.histories {
            let Some(fingerprint) = history.fingerprint else { continue };
            for (first, last) in &history.presence {
                for snapshot in *first.max(&snapshots.start)..(*last + 1).min(snapshots.end) {
                    self.row(history, fingerprint, snapshot, relays, rows);
                }
            }
        }
    }

    fn row(
        &self,
        history: &History,
        fingerprint: RsaId,
        snapshot: u32,
        relays: &mut Relays,
        rows: &mut Rows,
    ) {
        let Some(time_s) = self.times_s.get(snapshot as usize).copied() else { return };
        let relay = relays.id(fingerprint);
        let weight = in_force(&history.weights, snapshot).unwrap_or_default();
        let mut flags = Flags::from_iter([Flag::Running]);
        if weight.is_guard || is_within(&history.guards, snapshot) {
            flags.insert(Flag::Guard);
        }
        if weight.is_exit || is_within(&history.exits, snapshot) {
            flags.insert(Flag::Exit);
        }
        rows.statuses.push(Status {
            weight_kb_per_s: weight.kb_per_s,
            ..Status::new(relay, time_s, self.origin, flags)
        });
        if let Some(Some(advertised_byte_per_s)) = in_force(&history.advertised, snapshot) {
            rows.descriptors.push(Descriptor {
                relay,
                published_unix_s: time_s,
                origin: self.origin,
                advertised_byte_per_s,
                rate_byte_per_s: None,
                burst_byte_per_s: None,
                observed_byte_per_s: None,
            });
        }
    }
}

/// The last value at or before a snapshot.
fn in_force<T: Copy>(values: &[(u32, T)], snapshot: u32) -> Option<T> {
    let after = values.partition_point(|(at, _)| *at <= snapshot);
    Some(values.get(after.checked_sub(1)?)?.1)
}

fn is_within(runs: &[(u32, u32)], snapshot: u32) -> bool {
    in_force(runs, snapshot).is_some_and(|last| snapshot <= last)
}

fn number(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "expected a number below 2^32")
}

fn relay<'a>(histories: &'a mut [History], cell: &str) -> Result<&'a mut History, &'static str> {
    histories.get_mut(number(cell)? as usize).ok_or("there is no such relay_index")
}

/// Calls `row` with these columns of each row.
fn each(
    folder: &Path,
    name: &str,
    columns: &[&str],
    mut row: impl FnMut(&[String]) -> Result<(), &'static str>,
) -> Result<(), ArchiveError> {
    let Some(path) = table_file(folder, &format!("{name}.csv")) else {
        let problem = format!("there is no {name}.csv, .csv.xz or .csv.gz");
        return Err(ArchiveError::Source { path: folder.to_owned(), problem });
    };
    let wrong = |line: u64, problem: String| ArchiveError::Source {
        path: path.clone(),
        problem: format!("line {line}: {problem}; the folder is not imported"),
    };
    let opened = source::open(&path, Arc::default()).map_err(ArchiveError::file("read", &path))?;
    let mut reader = ReaderBuilder::new().from_reader(source::ShortLines::new(opened.stream));
    let header = reader.headers().map_err(|error| wrong(1, error.to_string()))?;
    let mut places = Vec::new();
    for column in columns {
        let place = header.iter().position(|field| field == *column);
        places.push(place.ok_or_else(|| wrong(1, format!("there is no column {column}")))?);
    }
    let mut record = StringRecord::new();
    let mut cells = vec![String::new(); columns.len()];
    while reader.read_record(&mut record).map_err(|error| wrong(0, error.to_string()))? {
        for (cell, place) in cells.iter_mut().zip(&places) {
            cell.clear();
            cell.push_str(record.get(*place).unwrap_or_default());
        }
        let line = record.position().map_or(0, csv::Position::line);
        if line > LINES_MAX {
            return Err(wrong(line, format!("there are more than {LINES_MAX} lines")));
        }
        row(&cells).map_err(|error| wrong(line, error.to_owned()))?;
    }
    Ok(())
}
