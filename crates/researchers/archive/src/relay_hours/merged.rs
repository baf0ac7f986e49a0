//! Merges streams that are sorted by relay and time.
//!
//! Each stream is a month, with many consecutive rows of a relay. A row is compared only with the least row of the other streams, so
//! its cost does not grow with the number of months.

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use futures::StreamExt as _;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The sorted streams that DataFusion would merge row by row.
pub(super) fn unmerged(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.downcast_ref::<SortPreservingMergeExec>() {
        Some(merge) => Arc::clone(merge.input()),
        None => plan,
    }
}

/// Rows of relays, times and values, ascending.
pub(super) struct Merged {
    streams: Vec<Stream>,
    /// The next row of each stream but the current one: relay, time, index of the stream.
    others: BinaryHeap<Reverse<(String, i64, usize)>>,
    /// The index of the stream that has the least row.
    current: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    /// The current row is the least of all streams.
    AtRow,
    /// The current row has been consumed.
    Advanced,
}

impl Merged {
    /// The merged rows of a plan with sorted partitions.
    pub(super) fn new(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<Self> {
        let partitions = 0..plan.properties().partitioning.partition_count();
        let stream = |partition: usize| {
            // Streams read ahead, on all threads.
            let stream = spawn_buffered(plan.execute(partition, Arc::clone(context))?, 1);
            Ok(Stream { stream, batch: None, at: 0 })
        };
        Ok(Self {
            streams: partitions.map(stream).collect::<Result<_>>()?,
            others: BinaryHeap::new(),
            current: 0,
            state: State::New,
        })
    }

    /// Moves to the next row, if this is the first call or the first since [`advance`](Self::advance). Returns false at the end of all
    /// streams.
    pub(super) async fn fill(&mut self) -> Result<bool> {
        match self.state {
            State::AtRow => return Ok(true),
            State::New => {
                for (index, stream) in self.streams.iter_mut().enumerate() {
                    if let Some((relay, time_s)) = stream.fill().await? {
                        self.others.push(Reverse((relay.to_owned(), time_s, index)));
                    }
                }
                return Ok(self.next_stream());
            }
            State::Advanced => {}
        }
        let Some(stream) = self.streams.get_mut(self.current) else { return Ok(false) };
        let Some((relay, time_s)) = stream.fill().await? else { return Ok(self.next_stream()) };
        if let Some(mut least) = self.others.peek_mut()
            && (least.0.0.as_str(), least.0.1, least.0.2) < (relay, time_s, self.current)
        {
            let head = Reverse((relay.to_owned(), time_s, self.current));
            self.current = std::mem::replace(&mut *least, head).0.2;
        }
        self.state = State::AtRow;
        Ok(true)
    }

    /// Switches to the stream with the least row.
    fn next_stream(&mut self) -> bool {
        let next = self.others.pop();
        if let Some(Reverse((_, _, index))) = next {
            (self.current, self.state) = (index, State::AtRow);
        } else {
            (self.current, self.state) = (self.streams.len(), State::Advanced);
        }
        self.state == State::AtRow
    }

    /// Relay, time and value, after [`fill`](Self::fill).
    pub(super) fn row(&self) -> Option<(&str, i64, Option<i64>)> {
        let Stream { batch, at, .. } = self.streams.get(self.current)?;
        let (relays, times, values) = batch.as_ref()?;
        let value = values.is_valid(*at).then(|| values.value(*at));
        Some((relays.value(*at), times.value(*at), value))
    }

    /// Consumes the row, so that the next [`fill`](Self::fill) moves.
    pub(super) fn advance(&mut self) {
        if let Some(stream) = self.streams.get_mut(self.current) {
            stream.at += 1;
        }
        self.state = State::Advanced;
    }
}

struct Stream {
    stream: SendableRecordBatchStream,
    batch: Option<(StringViewArray, Int64Array, Int64Array)>,
    at: usize,
}

impl Stream {
    /// Relay and time of the next row, of the next batch if this one is at its end.
    async fn fill(&mut self) -> Result<Option<(&str, i64)>> {
        while self.batch.as_ref().is_none_or(|(relays, ..)| self.at >= relays.len()) {
            let Some(batch) = self.stream.next().await else { return Ok(None) };
            let batch: RecordBatch = batch?;
            let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().clone();
            self.batch = Some((batch.column(0).as_string_view().clone(), column(1), column(2)));
            self.at = 0;
        }
        Ok(self
            .batch
            .as_ref()
            .map(|(relays, times, _)| (relays.value(self.at), times.value(self.at))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::memory::MemorySourceConfig;
    use proptest::prelude::*;

    type Row = (String, i64, Option<i64>);

    fn plan(partitions: &[Vec<Row>], batch_rows: usize) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![
            Field::new("relay", DataType::Utf8View, false),
            Field::new("time", DataType::Int64, false),
            Field::new("value", DataType::Int64, true),
        ]));
        let batch = |rows: &[Row]| {
            let relays: StringViewArray = rows.iter().map(|row| Some(&row.0)).collect();
            let times = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
            let values: Int64Array = rows.iter().map(|row| row.2).collect();
            let columns = vec![Arc::new(relays) as _, Arc::new(times) as _, Arc::new(values) as _];
            RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
        };
        let batches = |rows: &Vec<Row>| rows.chunks(batch_rows).map(batch).collect();
        let partitions: Vec<Vec<RecordBatch>> = partitions.iter().map(batches).collect();
        MemorySourceConfig::try_new_exec(&partitions, Arc::clone(&schema), None).unwrap()
    }

    async fn rows(plan: Arc<dyn ExecutionPlan>) -> Vec<Row> {
        let mut merged = Merged::new(&plan, &Arc::default()).unwrap();
        let mut rows = Vec::new();
        while merged.fill().await.unwrap() {
            // A second `fill` without `advance` does not move.
            assert!(merged.fill().await.unwrap());
            let (relay, time_s, value) = merged.row().unwrap();
            rows.push((relay.to_owned(), time_s, value));
            merged.advance();
        }
        assert!(!merged.fill().await.unwrap());
        rows
    }

    proptest! {
        #[test]
        fn sorted_streams_give_their_rows_in_order_and_equal_ones_in_order_of_streams(
            mut partitions in proptest::collection::vec(
                proptest::collection::vec(("[AB]{1,2}", 0_i64..20, proptest::option::of(0_i64..9)), 0..30), 0..6),
            batch_rows in 1_usize..8,
        ) {
            let key = |row: &Row| (row.0.clone(), row.1);
            partitions.iter_mut().for_each(|partition| partition.sort_by_key(key));
            let mut expected = partitions.concat();
            expected.sort_by_key(key);
            let runtime = tokio::runtime::Runtime::new().unwrap();
            prop_assert_eq!(runtime.block_on(rows(plan(&partitions, batch_rows))), expected);
        }
    }
}
