//! Rows as Parquet.

use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RecordWriter;
use parquet::schema::types::TypePtr;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;

/// Rows per group, which is the number of rows in memory.
const GROUP_ROWS: usize = 1 << 16;

/// A type whose values are rows in all formats.
pub trait Row: Serialize + Sized {
    /// Writes rows as a row group.
    ///
    /// # Errors
    /// Errors of the output.
    fn write_group<W: Write + Send>(
        rows: &[Self],
        out: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError>;

    /// The columns.
    ///
    /// # Errors
    /// The type of a column is not supported.
    fn schema() -> Result<TypePtr, ParquetError>;
}

impl<T: Serialize> Row for T
where
    for<'a> &'a [T]: RecordWriter<T>,
{
    fn write_group<W: Write + Send>(
        rows: &[Self],
        out: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError> {
        let mut columns = out.next_row_group()?;
        rows.write_to_row_group(&mut columns)?;
        columns.close().map(drop)
    }

    fn schema() -> Result<TypePtr, ParquetError> {
        (&[] as &[T]).schema()
    }
}

/// Writes rows as Parquet. Returns their number.
///
/// # Errors
/// Those of `feed`, and of `out`.
pub fn write_parquet<T: Row, E: From<io::Error>>(
    out: impl Write + Send,
    feed: impl FnOnce(&mut dyn FnMut(T) -> Result<(), E>) -> Result<(), E>,
) -> Result<u64, E> {
    let properties = Arc::new(WriterProperties::default());
    let schema = T::schema().map_err(io_error)?;
    let mut out = SerializedFileWriter::new(out, schema, properties).map_err(io_error)?;
    let (mut rows, mut count) = (Vec::new(), 0);
    feed(&mut |row| {
        count += 1;
        rows.push(row);
        if rows.len() >= GROUP_ROWS {
            T::write_group(&rows, &mut out).map_err(io_error)?;
            rows.clear();
        }
        Ok(())
    })?;
    if !rows.is_empty() {
        T::write_group(&rows, &mut out).map_err(io_error)?;
    }
    out.close().map_err(io_error)?;
    Ok(count)
}

/// The I/O error of the file, if there is one, so that a closed pipe can be recognized.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::write_json_lines;
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    #[derive(Clone, Serialize, parquet_derive::ParquetRecordWriter)]
    struct Line {
        name: String,
        word: &'static str,
        share: f64,
        bytes: Option<u64>,
        count: u32,
    }

    fn line(count: u32) -> Line {
        let bytes = count.is_multiple_of(2).then_some(u64::MAX);
        Line { name: count.to_string(), word: "transit", share: 0.001, bytes, count }
    }

    #[test]
    fn a_closed_pipe_is_reported_as_for_other_formats() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let written = write_parquet::<_, io::Error>(writer, |emit| emit(line(1)));
        let error = written.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn parquet_has_the_rows_and_columns_of_the_other_formats() {
        let lines = [60, 71, 80].map(line);
        let mut file = tempfile::tempfile().expect("room");
        let written = write_parquet::<_, io::Error>(&mut file, |emit| {
            lines.iter().cloned().try_for_each(emit)
        });
        assert_eq!(written.expect("room"), 3);
        let mut json = Vec::new();
        write_json_lines::<_, io::Error>(&mut json, |emit| emit(line(60))).expect("memory");
        let json = String::from_utf8(json).expect("text");
        let reader = SerializedFileReader::new(file).expect("Parquet");
        let schema = reader.metadata().file_metadata().schema_descr();
        let columns: Vec<&str> = schema.columns().iter().map(|it| it.name()).collect();
        let places: Vec<_> = columns.iter().map(|it| json.find(&format!("\"{it}\":"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{columns:?} {json}");
        let rows: Vec<_> = reader.get_row_iter(None).expect("rows").collect();
        assert_eq!(rows.len(), 3);
        for (row, line) in rows.iter().zip(&lines) {
            let row = row.as_ref().expect("a row");
            assert_eq!(row.get_string(0).expect("text"), &line.name);
            assert_eq!(row.get_ulong(3).ok(), line.bytes);
            assert_eq!(row.get_uint(4).expect("a number"), line.count);
        }
    }
}
