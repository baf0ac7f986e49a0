//! Formats query results as a table, CSV, JSON and Parquet.

use crate::error::ArchiveError;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::{Map, Value};
use std::fs::File;
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
            .write_record(first.schema().fields().iter().map(|it| it.name().clone()))
            .map_err(impossible)?;
    }
    let options = FormatOptions::default();
    for batch in batches {
        let columns: Result<Vec<_>, _> =
            batch.columns().iter().map(|it| ArrayFormatter::try_new(it, &options)).collect();
        let columns = columns?;
        for row in 0..batch.num_rows() {
            writer
                .write_record(columns.iter().map(|it| it.value(row).to_string()))
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

/// Writes a Parquet file, which must not exist.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn parquet(batches: &[RecordBatch], path: &Path) -> Result<(), ArchiveError> {
    let Some(first) = batches.first() else { return Ok(()) };
    let file = File::create_new(path).map_err(ArchiveError::file("write", path))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let write = || {
        let mut writer = ArrowWriter::try_new(file, first.schema(), Some(properties))?;
        for batch in batches {
            writer.write(batch)?;
        }
        writer.close()
    };
    write().map_err(|it| ArchiveError::file("write", path)(it.into()))?;
    Ok(())
}
