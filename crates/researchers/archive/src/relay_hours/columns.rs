//! Builds the columns of a batch.

use super::{COMMON, EACH};
use crate::sliding::Windowed;
use datafusion::arrow::array::{
    ArrayRef, Float64Builder, Int64Builder, RecordBatch, RecordBatchOptions, StringViewBuilder,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use std::sync::Arc;

/// The projected columns, in order.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    schema: SchemaRef,
    projection: Vec<usize>,
}

impl Wanted {
    pub(super) const fn new(schema: SchemaRef, projection: Vec<usize>) -> Self {
        Self { schema, projection }
    }

    pub(super) fn projection(&self) -> &[usize] {
        &self.projection
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn has(&self, column: usize) -> bool {
        self.projection.contains(&column)
    }
}

/// The projected columns of a window.
struct Window {
    capacity: Option<Int64Builder>,
    advertised_rsd: Option<Float64Builder>,
    weight_rsd: Option<Float64Builder>,
}

/// The columns.
pub(super) struct Columns {
    wanted: Wanted,
    relays: StringViewBuilder,
    /// Index of the relay's fingerprint in `relays`.
    block: Option<u32>,
    has_relays: bool,
    times: Int64Builder,
    advertised: Int64Builder,
    weights: Int64Builder,
    shares: Float64Builder,
    windows: Vec<Window>,
    len: usize,
}

impl Columns {
    pub(super) fn new(wanted: Wanted, windows: usize, rows: usize) -> Self {
        let window = |index: usize| {
            let column = |what: usize| wanted.has(COMMON + index * EACH + what);
            Window {
                capacity: column(0).then(|| Int64Builder::with_capacity(rows)),
                advertised_rsd: column(1).then(|| Float64Builder::with_capacity(rows)),
                weight_rsd: column(2).then(|| Float64Builder::with_capacity(rows)),
            }
        };
        Self {
            windows: (0..windows).map(window).collect(),
            has_relays: wanted.has(0),
            wanted,
            relays: StringViewBuilder::new(),
            block: None,
            times: Int64Builder::with_capacity(rows),
            advertised: Int64Builder::with_capacity(rows),
            weights: Int64Builder::with_capacity(rows),
            shares: Float64Builder::with_capacity(rows),
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Sets the relay of the following rows.
    pub(super) fn begin(&mut self, relay: &str) {
        if self.has_relays {
            self.block = Some(self.relays.append_block(Buffer::from(relay.as_bytes().to_vec())));
        }
    }

    pub(super) fn window(&mut self, window: usize, found: Windowed) {
        let Some(columns) = self.windows.get_mut(window) else { return };
        if let Some(column) = &mut columns.capacity {
            column.append_option(found.capacity_byte_per_s.map(i64::from));
        }
        if let Some(column) = &mut columns.advertised_rsd {
            column.append_option(found.advertised_rsd);
        }
        if let Some(column) = &mut columns.weight_rsd {
            column.append_option(found.weight_rsd);
        }
    }

    pub(super) fn row(
        &mut self,
        time_s: i64,
        advertised: Option<u32>,
        weight: Option<i64>,
        share: Option<f64>,
    ) {
        if let Some(block) = self.block {
            // The block consists of the 40 digits of one fingerprint.
            let _cannot_fail = self.relays.try_append_view(block, 0, 40);
        }
        self.times.append_value(time_s);
        self.advertised.append_option(advertised.map(i64::from));
        self.weights.append_option(weight);
        self.shares.append_option(share);
        self.len += 1;
    }

    /// Returns the rows so far as a batch. The following rows are of `relay`.
    pub(super) fn finish(&mut self, relay: &str) -> Result<RecordBatch> {
        let len = std::mem::take(&mut self.len);
        let relays: ArrayRef = Arc::new(self.relays.finish());
        self.begin(relay);
        let common: [ArrayRef; COMMON] = [
            relays,
            Arc::new(self.times.finish()),
            Arc::new(self.advertised.finish()),
            Arc::new(self.weights.finish()),
            Arc::new(self.shares.finish()),
        ];
        let mut columns = Vec::with_capacity(self.wanted.projection.len());
        for column in &self.wanted.projection {
            let array = match column.checked_sub(COMMON) {
                None => common.get(*column).cloned(),
                Some(place) => {
                    self.windows.get_mut(place / EACH).and_then(|window| match place % EACH {
                        0 => window
                            .capacity
                            .as_mut()
                            .map(|capacity| Arc::new(capacity.finish()) as ArrayRef),
                        1 => window
                            .advertised_rsd
                            .as_mut()
                            .map(|advertised_rsd| Arc::new(advertised_rsd.finish()) as ArrayRef),
                        _ => window
                            .weight_rsd
                            .as_mut()
                            .map(|weight_rsd| Arc::new(weight_rsd.finish()) as ArrayRef),
                    })
                }
            };
            columns.extend(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(len));
        Ok(RecordBatch::try_new_with_options(Arc::clone(self.wanted.schema()), columns, &options)?)
    }
}
