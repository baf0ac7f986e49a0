//! Tables of other programs as Parquet.

use crate::error::ArchiveError;
use crate::printed;
use datafusion::prelude::{CsvReadOptions, JsonReadOptions, SessionContext};
use std::path::Path;

/// Writes a table, CSV with a header or JSON lines, as a Parquet file, which must not exist. The types of columns are those of their values in
/// all rows. Returns the number of rows.
///
/// # Errors
/// The table cannot be read, its name has another ending, or the file exists or cannot be written.
pub fn to_parquet(table: &Path, out: &Path) -> Result<usize, ArchiveError> {
    // DataFusion takes a folder without files for an empty table.
    std::fs::File::open(table).map_err(ArchiveError::file("read", table))?;
    let problem = |problem: &str| ArchiveError::Source {
        path: table.to_owned(),
        problem: problem.to_owned(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .build()
        .map_err(ArchiveError::file("start threads to read", table))?;
    let path = table.to_str().ok_or_else(|| problem("the path is not UTF-8"))?;
    let context = SessionContext::new();
    let batches = runtime.block_on(async {
        let frame = match table.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => {
                let options = CsvReadOptions::new().schema_infer_max_records(usize::MAX);
                context.read_csv(path, options).await?
            }
            Some("jsonl") => {
                let options = JsonReadOptions {
                    file_extension: ".jsonl",
                    schema_infer_max_records: usize::MAX,
                    ..JsonReadOptions::default()
                };
                context.read_json(path, options).await?
            }
            _ => return Err(problem("neither .csv nor .jsonl")),
        };
        Ok(frame.collect().await?)
    })?;
    let rows = batches.iter().map(|batch| batch.num_rows()).sum();
    if rows == 0 {
        return Err(problem("the table has no rows, so that the types of its columns are unknown"));
    }
    printed::parquet(&batches, out)?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;
    use std::fs::{self, File};

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
        assert!(!out.exists());
    }
}
