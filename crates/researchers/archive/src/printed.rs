//! Formats query results as a table, CSV, JSON and Parquet.

use crate::dataset::readable;
use crate::error::ArchiveError;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef, UInt64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde_json::{Map, Value};
use std::io;
use std::path::Path;

/// A table with borders.
///
/// # Errors
/// A value cannot be printed.
pub fn table(batches: &[RecordBatch]) -> Result<String, ArchiveError> {
    Ok(pretty_format_batches(batches)?.to_string())
}

/// CSV with a header line. Null is empty.
///
/// # Errors
/// A value cannot be printed.
pub fn csv(batches: &[RecordBatch]) -> Result<String, ArchiveError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    if let Some(first) = batches.first() {
        writer
            .write_record(first.schema().fields().iter().map(|field| field.name().clone()))
            .map_err(impossible)?;
    }
    let options = FormatOptions::default();
    for batch in batches {
        let columns: Result<Vec<_>, _> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect();
        let columns = columns?;
        for row in 0..batch.num_rows() {
            writer
                .write_record(columns.iter().map(|column| column.value(row).to_string()))
                .map_err(impossible)?;
        }
    }
    let bytes = writer.into_inner().map_err(impossible)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writing to memory does not fail.
fn impossible(error: impl std::error::Error) -> ArchiveError {
    ArchiveError::Missing(error.to_string())
}

/// A JSON object for each row.
///
/// # Errors
/// A value cannot be printed.
pub fn json(batches: &[RecordBatch]) -> Result<Vec<Value>, ArchiveError> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let schema = batch.schema();
        for row in 0..batch.num_rows() {
            let mut object = Map::new();
            for (field, column) in schema.fields().iter().zip(batch.columns()) {
                let value = match column.data_type() {
                    _ if column.is_null(row) => Value::Null,
                    DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
                    DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
                    DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
                    DataType::Boolean => column.as_boolean().value(row).into(),
                    _ => ArrayFormatter::try_new(column, &options)?.value(row).to_string().into(),
                };
                object.insert(field.name().clone(), value);
            }
            rows.push(Value::Object(object));
        }
    }
    Ok(rows)
}

/// Writes a Parquet file, which must not exist. Nothing is left of a file that cannot be written completely. Returns the number of rows.
///
/// # Errors
/// Those of the batches; or the file exists, or cannot be written.
pub fn parquet(
    schema: SchemaRef,
    batches: impl IntoIterator<Item = Result<RecordBatch, ArchiveError>>,
    path: &Path,
) -> Result<usize, ArchiveError> {
    let failed = || ArchiveError::file("write", path);
    let parquet_failed = |error: ParquetError| failed()(error.into());
    if path.exists() {
        return Err(failed()(io::ErrorKind::AlreadyExists.into()));
    }
    let folder = files::folder_of(path);
    let file = tempfile::Builder::new().prefix(".parquet").tempfile_in(folder).map_err(failed())?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer =
        ArrowWriter::try_new(file.as_file(), schema, Some(properties)).map_err(parquet_failed)?;
    let mut rows = 0;
    for batch in batches {
        let batch = batch?;
        rows += batch.num_rows();
        writer.write(&batch).map_err(parquet_failed)?;
    }
    writer.close().map_err(parquet_failed)?;
    readable(file.as_file()).map_err(failed())?;
    file.persist_noclobber(path).map_err(|error| failed()(error.error))?;
    Ok(rows)
}
