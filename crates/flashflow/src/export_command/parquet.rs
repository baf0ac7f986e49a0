//! Writes rows as Parquet, with the feature `parquet`.

use super::table::{Emitted, Failed};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RecordWriter;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;

/// Rows of a group: what is in memory at once.
const GROUP_ROWS: usize = 1 << 16;

/// What can be a row of a table in this format, too.
pub(super) trait Row: Serialize + Sized {
    /// Writes some as a group.
    fn write_group<W: Write + Send>(
        rows: &[Self],
        out: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError>;

    /// The columns.
    fn schema() -> Result<parquet::schema::types::TypePtr, ParquetError>;
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

    fn schema() -> Result<parquet::schema::types::TypePtr, ParquetError> {
        (&[] as &[T]).schema()
    }
}

/// Writes the rows that `feed` passes to its argument. Returns their number.
pub(super) fn write<T: Row>(
    out: impl Write + Send,
    feed: impl FnOnce(&mut dyn FnMut(T) -> Emitted) -> Emitted,
) -> Result<u64, Failed> {
    let properties = Arc::new(WriterProperties::default());
    let schema = T::schema().map_err(failed)?;
    let mut out = SerializedFileWriter::new(out, schema, properties).map_err(failed)?;
    let (mut rows, mut count) = (Vec::new(), 0);
    feed(&mut |row| {
        count += 1;
        rows.push(row);
        if rows.len() >= GROUP_ROWS {
            T::write_group(&rows, &mut out).map_err(failed)?;
            rows.clear();
        }
        Ok(())
    })?;
    if !rows.is_empty() {
        T::write_group(&rows, &mut out).map_err(failed)?;
    }
    out.close().map_err(failed)?;
    Ok(count)
}

/// The I/O error of the file, if there was one: a closed pipe is not an error.
fn failed(error: ParquetError) -> Failed {
    Failed::Write(match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    })
}

#[cfg(test)]
mod tests {
    use super::super::rows::SuspicionLine;
    use super::*;
    use coordinator::Suspicion;
    use onion::identity::RsaId;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use store::Suspect;

    fn suspect(moves: u32) -> Suspect {
        Suspect {
            suspicion: Suspicion {
                relays: (RsaId([1; 20]), RsaId([2; 20])),
                moves,
                alike: moves - 1,
                by_chance: 0.001,
            },
            nicknames: ("one".to_owned(), "other".to_owned()),
        }
    }

    #[test]
    fn a_closed_pipe_is_reported_as_for_other_formats() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let suspect = suspect(60);
        let written = write(writer, |emit| emit(SuspicionLine::from(&suspect)));
        let is_known =
            matches!(&written, Err(Failed::Write(it)) if it.kind() == io::ErrorKind::BrokenPipe);
        assert!(is_known);
    }

    #[test]
    fn parquet_has_the_rows_and_columns_of_the_other_formats() {
        let suspects = [60, 70, 80].map(suspect);
        let mut file = tempfile::tempfile().expect("room");
        let written =
            write(&mut file, |emit| suspects.iter().map(SuspicionLine::from).try_for_each(emit));
        assert!(matches!(written, Ok(3)));
        let reader = SerializedFileReader::new(file).expect("Parquet");
        let schema = reader.metadata().file_metadata().schema_descr();
        let columns: Vec<&str> = schema.columns().iter().map(|it| it.name()).collect();
        let json = serde_json::to_string(&SuspicionLine::from(&suspects[0])).expect("a row");
        let places: Vec<_> = columns.iter().map(|it| json.find(&format!("\"{it}\":"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{columns:?} {json}");
        let rows: Vec<_> = reader.get_row_iter(None).expect("rows").collect();
        assert_eq!(rows.len(), 3);
        for (row, suspect) in rows.iter().zip(&suspects) {
            let row = row.as_ref().expect("a row");
            assert_eq!(row.get_string(0).expect("text"), &suspect.suspicion.relays.0.to_string());
            assert_eq!(row.get_uint(4).expect("a number"), suspect.suspicion.moves);
        }
    }
}
