//! Writes rows of a table as JSON lines or CSV.
//!
//! A writer passes a function to its argument `feed`, which calls it for each row. So at most one row is in memory, and
//! errors of the caller, such as those of a database, are returned.

use serde::Serialize;
use std::io::{self, BufWriter, Write};

/// Writes each row as a JSON object on a line. Returns the number of rows.
///
/// # Errors
/// Those of `feed`, and of `out`.
pub fn write_json_lines<T: Serialize, E: From<io::Error>>(
    out: impl Write,
    feed: impl FnOnce(&mut dyn FnMut(T) -> Result<(), E>) -> Result<(), E>,
) -> Result<u64, E> {
    let (mut out, mut count) = (BufWriter::new(out), 0);
    feed(&mut |row| {
        count += 1;
        serde_json::to_writer(&mut out, &row).map_err(io::Error::from)?;
        Ok(out.write_all(b"\n")?)
    })?;
    out.flush()?;
    Ok(count)
}

/// Writes comma-separated values with a header. Returns the number of rows.
///
/// # Errors
/// Those of `feed`, and of `out`.
pub fn write_csv<T: Serialize, E: From<io::Error>>(
    out: impl Write,
    feed: impl FnOnce(&mut dyn FnMut(T) -> Result<(), E>) -> Result<(), E>,
) -> Result<u64, E> {
    let (mut out, mut count) = (csv::Writer::from_writer(out), 0);
    feed(&mut |row| {
        count += 1;
        Ok(out.serialize(row).map_err(io_error)?)
    })?;
    out.flush()?;
    Ok(count)
}

fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
