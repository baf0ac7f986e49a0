//! Which relays ran when, from the change tables of docs/archives.md: `relays`, `snapshots` and `presence`.

use crate::error::{Error, Result};
use liblzma::read::XzDecoder;
use onion::identity::RsaId;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The runs of all relays in the lists of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// When each list was fetched, ascending, in Unix seconds.
    pub(super) times_s: Vec<u64>,
    /// Each relay with its first and last lists, both included, of each run.
    pub(super) relays: Vec<(RsaId, Vec<(usize, usize)>)>,
}

impl History {
    /// Reads a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut history = Self::default();
        rows(folder, "snapshots", ["unix_time"], |[time]| {
            history.times_s.push(time.parse().ok()?);
            Some(())
        })?;
        rows(folder, "relays", ["fingerprint"], |[fingerprint]| {
            history.relays.push((relay(fingerprint)?, Vec::new()));
            Some(())
        })?;
        let columns = ["relay_index", "first_snapshot", "last_snapshot"];
        rows(folder, "presence", columns, |[relay, first, last]| {
            let run = (first.parse().ok()?, last.parse().ok()?);
            let runs = &mut history.relays.get_mut(relay.parse::<usize>().ok()?)?.1;
            (run.0 <= run.1 && run.1 < history.times_s.len()).then(|| runs.push(run))
        })?;
        history.relays.iter_mut().for_each(|(_, runs)| runs.sort_unstable());
        Ok(history)
    }

    /// The time between the first list of a run and the first list after it, in Unix seconds.
    pub(super) fn span_s(&self, (first, last): (usize, usize)) -> (u64, u64) {
        (self.times_s[first], self.times_s[(last + 1).min(self.times_s.len() - 1)])
    }
}

/// The country of each relay for which the tables of a folder have one.
pub(super) fn countries(folder: &Path) -> Result<Vec<(RsaId, String)>> {
    let mut all = Vec::new();
    rows(folder, "relays", ["fingerprint", "country"], |[fingerprint, country]| {
        let relay = relay(fingerprint)?;
        (!country.is_empty()).then(|| all.push((relay, country.to_owned())));
        Some(())
    })?;
    Ok(all)
}

fn relay(fingerprint: &str) -> Option<RsaId> {
    let mut id = [0; 20];
    hex::decode_to_slice(fingerprint, &mut id).ok()?;
    Some(RsaId(id))
}

/// Calls `row` with these columns of each line of a table, uncompressed or compressed with xz. `None` is for an invalid line.
fn rows<const N: usize>(
    folder: &Path,
    name: &str,
    columns: [&str; N],
    mut row: impl FnMut([&str; N]) -> Option<()>,
) -> Result<()> {
    let paths = [".csv", ".csv.xz"].map(|end| folder.join(format!("{name}{end}")));
    let path = paths.iter().find(|path| path.is_file()).unwrap_or(&paths[0]);
    let file = |source: io::Error| Error::File { what: "read", path: path.clone(), source };
    let opened = File::open(path).map_err(file)?;
    let stream: Box<dyn Read> = match path.extension().is_some_and(|end| end == "xz") {
        true => Box::new(XzDecoder::new(opened)),
        false => Box::new(opened),
    };
    let mut reader = csv::Reader::from_reader(stream);
    let wrong = |line: usize, problem: String| {
        Error::Failed(format!("{}, line {line}: {problem}", path.display()))
    };
    let header = reader.headers().map_err(|error| wrong(1, error.to_string()))?.clone();
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        let found = header.iter().position(|field| field == column);
        *place = found.ok_or_else(|| wrong(1, format!("there is no column {column}")))?;
    }
    for (line, record) in (2..).zip(reader.records()) {
        let record = record.map_err(|error| wrong(line, error.to_string()))?;
        let cells = places.map(|place| record.get(place).unwrap_or_default());
        row(cells).ok_or_else(|| wrong(line, "not a line of such a table".to_owned()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(presence: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: String| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        write("snapshots.csv", "snapshot_index,unix_time\n0,100\n1,200\n2,400\n".to_owned());
        let relays = format!(
            "relay_index,fingerprint,country\n0,{},\n1,{},Chile\n",
            "0A".repeat(20),
            "0B".repeat(20)
        );
        write("relays.csv", relays);
        write("presence.csv", format!("relay_index,first_snapshot,last_snapshot\n{presence}"));
        folder
    }

    #[test]
    fn runs_are_read_with_their_times() {
        let folder = folder("1,2,2\n1,0,0\n0,0,2\n");
        let history = History::read(folder.path()).expect("tables");
        let [one, other] = [RsaId([10; 20]), RsaId([11; 20])];
        assert_eq!(history.relays, [(one, vec![(0, 2)]), (other, vec![(0, 0), (2, 2)])]);
        assert_eq!((history.span_s((0, 0)), history.span_s((1, 2))), ((100, 200), (200, 400)));
        assert_eq!(countries(folder.path()).expect("a table"), [(other, "Chile".to_owned())]);
    }

    #[test]
    fn invalid_tables_are_refused_with_their_lines() {
        for (line, problem) in [("0,0,3", "line 2"), ("2,0,0", "line 2"), ("0,2,1", "line 2")] {
            let error = History::read(folder(line).path()).expect_err("invalid").to_string();
            assert!(error.contains("presence.csv") && error.contains(problem), "{error}");
        }
        let empty = tempfile::tempdir().expect("a folder");
        assert!(matches!(History::read(empty.path()), Err(Error::File { .. })));
    }
}
