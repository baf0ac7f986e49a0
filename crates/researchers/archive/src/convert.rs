//! Tables of other programs as Parquet.

use crate::error::ArchiveError;
use crate::printed;
use datafusion::arrow::csv::reader::{Format, ReaderBuilder as CsvReaderBuilder};
use datafusion::arrow::json::reader::{ReaderBuilder as JsonReaderBuilder, infer_json_schema};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

/// Writes a table, CSV with a header or JSON lines, as a Parquet file, which must not exist. The types of columns are those of their values in
/// all rows. Returns the number of rows.
///
/// # Errors
/// The table cannot be read, its name has another ending, or the file exists or cannot be written.
pub fn to_parquet(table: &Path, out: &Path) -> Result<usize, ArchiveError> {
    let problem = |problem: &dyn ToString| ArchiveError::Source {
        path: table.to_owned(),
        problem: problem.to_string(),
    };
    let no_rows =
        || problem(&"the table has no rows, so that the types of its columns are unknown");
    // Read twice: for the types, and for the values.
    let open = || File::open(table).map(BufReader::new).map_err(ArchiveError::file("read", table));
    match table.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => {
            let format = Format::default().with_header(true);
            let inferred = format.infer_schema(open()?, None).map_err(|error| problem(&error))?;
            let (schema, 1..) = inferred else { return Err(no_rows()) };
            let schema = Arc::new(schema);
            let reader = CsvReaderBuilder::new(Arc::clone(&schema)).with_header(true);
            let batches = reader.build(open()?).map_err(|error| problem(&error))?;
            printed::parquet(
                schema,
                batches.map(|batch| batch.map_err(|error| problem(&error))),
                out,
            )
        }
        Some("jsonl") => {
            let inferred = infer_json_schema(open()?, None).map_err(|error| problem(&error))?;
            let (schema, 1..) = inferred else { return Err(no_rows()) };
            let schema = Arc::new(schema);
            let reader = JsonReaderBuilder::new(Arc::clone(&schema));
            let batches = reader.build(open()?).map_err(|error| problem(&error))?;
            printed::parquet(
                schema,
                batches.map(|batch| batch.map_err(|error| problem(&error))),
                out,
            )
        }
        _ => Err(problem(&"neither .csv nor .jsonl")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;
    use std::fs;

    #[test]
    fn a_table_becomes_parquet_with_the_same_columns_and_values() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [
            (
                "t.csv",
                "relay,mbit_per_s,rounds,conclusive\nA,9.5,1,true\nB,47,2,false\nC,,3,true\n",
            ),
            (
                "t.jsonl",
                "{\"relay\":\"A\",\"mbit_per_s\":9.5,\"rounds\":1,\"conclusive\":true}\n\
                 {\"relay\":\"B\",\"mbit_per_s\":47,\"rounds\":2,\"conclusive\":false}\n\
                 {\"relay\":\"C\",\"rounds\":3,\"conclusive\":true}\n",
            ),
        ] {
            let (table, out) =
                (folder.path().join(name), folder.path().join(format!("{name}.parquet")));
            fs::write(&table, text).expect("room");
            assert_eq!(to_parquet(&table, &out).expect("a table"), 3);
            let reader =
                SerializedFileReader::new(File::open(&out).expect("made")).expect("Parquet");
            let rows: Vec<_> =
                reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
            let of = |name: &str| {
                let names: Vec<_> =
                    rows[0].get_column_iter().map(|(name, _)| name.clone()).collect();
                names.iter().position(|column| column == name).expect("a column")
            };
            assert_eq!(rows[1].get_string(of("relay")).expect("text"), "B");
            assert_eq!(rows[0].get_double(of("mbit_per_s")).ok(), Some(9.5));
            assert_eq!(rows[1].get_double(of("mbit_per_s")).ok(), Some(47.0));
            assert!(rows[2].get_double(of("mbit_per_s")).is_err(), "null");
            assert_eq!(rows[2].get_long(of("rounds")).ok(), Some(3));
            assert_eq!(rows[1].get_bool(of("conclusive")).ok(), Some(false));
            let again = to_parquet(&table, &out).expect_err("it exists").to_string();
            assert!(again.contains(&*out.to_string_lossy()), "{again}");
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out.parquet");
        for (name, text, part) in [
            ("a.txt", "a,b\n1,2\n", "neither .csv nor .jsonl"),
            ("a.csv", "a,b\n", "no rows"),
            ("b.csv", "a,b\n1,2\n1,2,3\n", ""),
        ] {
            let table = folder.path().join(name);
            fs::write(&table, text).expect("room");
            let error = to_parquet(&table, &out).expect_err(name).to_string();
            assert!(error.contains(part), "{error}");
        }
        let missing =
            to_parquet(&folder.path().join("none.csv"), &out).expect_err("missing").to_string();
        assert!(missing.contains("none.csv"), "{missing}");
        // Neither the file nor a part of it is left.
        let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().collect();
        assert!(left.iter().all(|entry| entry.file_name() != "out.parquet"), "{left:?}");
        assert_eq!(left.len(), 3, "{left:?}");
    }

    #[test]
    fn names_that_are_patterns_elsewhere_are_names_of_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let (table, out) = (folder.path().join("a*[1]%20.csv"), folder.path().join("out.parquet"));
        fs::write(&table, "a\n1\n").expect("room");
        fs::write(folder.path().join("ab1 .csv"), "a\n2\n").expect("room");
        assert_eq!(to_parquet(&table, &out).expect("one row"), 1);
    }
}
