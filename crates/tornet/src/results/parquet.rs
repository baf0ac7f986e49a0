//! The rows as Parquet, with the feature `parquet`.

use super::rows::{relays, seconds, transfers};
use crate::error::Error;
use crate::network::Network;
use crate::run::Outcome;
use report::rows::{self, Row};
use std::fs::File;
use std::io;
use std::path::Path;

/// Writes `transfers.parquet`, `relays.parquet` and `seconds.parquet` into an existing folder: the same rows
/// and columns as in the CSV files.
///
/// # Errors
/// If a file cannot be written.
pub fn write_parquet(network: &Network, outcome: &Outcome, folder: &Path) -> Result<(), Error> {
    write(&folder.join("transfers.parquet"), transfers(network, outcome))?;
    write(&folder.join("relays.parquet"), relays(network, outcome))?;
    write(&folder.join("seconds.parquet"), seconds(network, outcome))
}

fn write<T: Row>(path: &Path, mut rows: impl Iterator<Item = T>) -> Result<(), Error> {
    let written = File::create(path)
        .and_then(|file| rows::write_parquet::<_, io::Error>(file, |emit| rows.try_for_each(emit)));
    written.map(drop).map_err(|source| Error::Write { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Plan, run};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn parquet_files_have_the_rows_of_the_csv_files() {
        let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/small.toml");
        let network = Network::read(&network).expect("a scenario").scaled(0.2);
        let plan = Plan { seconds: 30, warm_up_s: 5, threads: 1, seed: 1 };
        let outcome = run(&network, &plan, &AtomicBool::new(false), &|_, _| ()).expect("it runs");
        let folder = tempfile::tempdir().expect("a folder");
        super::super::finish(&network, &plan, &outcome, Some(folder.path())).expect("files");
        write_parquet(&network, &outcome, folder.path()).expect("files");
        for name in ["transfers", "relays", "seconds"] {
            let text = std::fs::read_to_string(folder.path().join(format!("{name}.csv")));
            let text = text.expect("a file");
            let file = File::open(folder.path().join(format!("{name}.parquet"))).expect("a file");
            let reader = SerializedFileReader::new(file).expect("Parquet");
            let schema = reader.metadata().file_metadata().schema_descr();
            let columns: Vec<&str> = schema.columns().iter().map(|it| it.name()).collect();
            let mut lines = text.lines();
            assert_eq!(lines.next(), Some(columns.join(",").as_str()));
            let mut rows = 0;
            for (row, line) in reader.get_row_iter(None).expect("rows").zip(lines) {
                let row = row.expect("a row");
                let first = line.split(',').next().expect("a column");
                assert_eq!(row.get_string(0).expect("text"), first);
                rows += 1;
            }
            assert!(rows > 0 && rows == text.lines().count() - 1, "{name}: {rows}");
        }
    }
}
