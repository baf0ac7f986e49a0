//! Writes rows in one of the formats.

use super::Format;
#[cfg(not(feature = "parquet"))]
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use store::StoreError;

/// Why there are no more rows.
pub(super) enum Failed {
    Store(StoreError),
    Write(io::Error),
}

/// The result of writing a row.
pub(super) type Emitted = Result<(), Failed>;

/// What can be a row of a table.
#[cfg(not(feature = "parquet"))]
pub(super) trait Row: Serialize {}

#[cfg(not(feature = "parquet"))]
impl<T: Serialize> Row for T {}

#[cfg(feature = "parquet")]
pub(super) use super::parquet::Row;

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Writes the rows that `feed` passes to its argument. Returns their number.
pub(super) fn table<T: Row>(
    format: Format,
    out: impl Write + Send,
    feed: impl FnOnce(&mut dyn FnMut(T) -> Emitted) -> Emitted,
) -> Result<u64, Failed> {
    let mut count = 0;
    match format {
        Format::Jsonl => {
            let mut out = BufWriter::new(out);
            feed(&mut |row| {
                count += 1;
                serde_json::to_writer(&mut out, &row).map_err(io::Error::from)?;
                Ok(out.write_all(b"\n")?)
            })?;
            out.flush()?;
        }
        Format::Csv => {
            let mut out = csv::Writer::from_writer(out);
            feed(&mut |row| {
                count += 1;
                Ok(out.serialize(row).map_err(of_csv)?)
            })?;
            out.flush()?;
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => count = super::parquet::write(out, feed)?,
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => return Err(io::Error::other("built without Parquet").into()),
    }
    Ok(count)
}

fn of_csv(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
