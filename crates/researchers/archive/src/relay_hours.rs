//! The table `relay_hours`. It has a row for each relay and view that lists it: the advertised bandwidth in force, the share of the
//! weight, and for each period the capacity and deviations.
//!
//! The table is a plan node that merges statuses and descriptors, whose months are sorted by relay and time, and holds the windows of
//! one relay at a time. Relays are partitioned by the first digits of their fingerprints, one range per thread.
//!
//! The only child of the node has a row with the number of each range. A task of a cluster restricts the leaves of its plan to its own
//! partitions. So it computes the ranges in its remaining rows, and no other task does.

mod columns;
mod merged;

use crate::engine::{Period, Runner, View};
use crate::sliding::{Sliding, WindowSpec};
use async_trait::async_trait;
use columns::{Columns, Wanted};
use datafusion::arrow::array::{AsArray, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt64Type};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion::prelude::SessionContext;
use merged::{Merged, unmerged};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Columns before those of the periods.
const COMMON: usize = 5;
/// Columns of each period.
const EACH: usize = 3;

/// The table.
pub(crate) struct RelayHours {
    view: View,
    /// Reads each month as a separate partition.
    inner: SessionContext,
    runner: Runner,
    schema: SchemaRef,
}

impl RelayHours {
    pub(crate) fn new(view: View, inner: SessionContext, runner: Runner) -> Self {
        let schema = schema(&view.periods);
        Self { view, inner, runner, schema }
    }

    /// The sum of weights in each view of the network.
    async fn totals(&self) -> Result<Vec<(i64, i64)>> {
        let sql = format!(
            "SELECT valid_after_unix_s AS t, SUM({}) AS w FROM statuses WHERE origin = '{}' AND is_running GROUP BY valid_after_unix_s ORDER BY t",
            self.weight(),
            self.view.origin,
        );
        let mut totals = Vec::new();
        for batch in self.runner.collect(self.inner.sql(&sql).await?).await? {
            let times = batch.column(0).as_primitive::<Int64Type>();
            let weights = batch.column(1).as_primitive::<Int64Type>();
            for (time, weight) in times.iter().zip(weights.iter()) {
                if let (Some(time), Some(weight)) = (time, weight) {
                    totals.push((time, weight));
                }
            }
        }
        Ok(totals)
    }

    /// The weight used, in SQL.
    const fn weight(&self) -> &'static str {
        match self.view.is_measured_only {
            true => "CASE WHEN is_unmeasured THEN NULL ELSE weight_kb_per_s END",
            false => "weight_kb_per_s",
        }
    }

    /// Statuses and descriptors of the relays from `from` up to `to`, sorted, one partition per month.
    async fn inputs(&self, from: &str, to: &str) -> Result<Input> {
        let origin = &self.view.origin;
        let range = format!("origin = '{origin}' AND relay >= '{from}' AND relay < '{to}'");
        let statuses = format!(
            "SELECT relay, valid_after_unix_s, {} AS weight FROM statuses WHERE {range} AND is_running ORDER BY relay, valid_after_unix_s",
            self.weight(),
        );
        let descriptors = format!(
            "SELECT relay, published_unix_s, advertised_byte_per_s FROM descriptors WHERE {range} ORDER BY relay, published_unix_s"
        );
        Ok(Input {
            statuses: unmerged(self.inner.sql(&statuses).await?.create_physical_plan().await?),
            descriptors: unmerged(
                self.inner.sql(&descriptors).await?.create_physical_plan().await?,
            ),
        })
    }
}

impl fmt::Debug for RelayHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayHours").field("view", &self.view).finish_non_exhaustive()
    }
}

fn schema(periods: &[Period]) -> SchemaRef {
    let mut fields = vec![
        Field::new("relay", DataType::Utf8View, false),
        Field::new("valid_after_unix_s", DataType::Int64, false),
        Field::new("advertised_byte_per_s", DataType::Int64, true),
        Field::new("weight_kb_per_s", DataType::Int64, true),
        Field::new("weight_share", DataType::Float64, true),
    ];
    for Period { name, .. } in periods {
        fields.push(Field::new(format!("capacity_{name}_byte_per_s"), DataType::Int64, true));
        fields.push(Field::new(format!("advertised_rsd_{name}"), DataType::Float64, true));
        fields.push(Field::new(format!("weight_rsd_{name}"), DataType::Float64, true));
    }
    Arc::new(Schema::new(fields))
}

#[async_trait]
impl TableProvider for RelayHours {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    // Filters stay in the plan. A filter for a single relay limits what is read.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match only_relay(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all).clone();
        let mut inputs = BTreeMap::new();
        if let Some(relay) = filters.iter().find_map(only_relay) {
            // A space sorts before all hex digits, so the range contains only this relay.
            inputs.insert(0, self.inputs(&relay, &format!("{relay} ")).await?);
        } else {
            let threads = state.config().target_partitions().clamp(1, 256);
            for (number, thread) in (0..).zip(0..threads) {
                let bound = |thread: usize| format!("{:02X}", thread * 256 / threads);
                // `G` sorts after all hex digits.
                let to = if thread + 1 == threads { "G".to_owned() } else { bound(thread + 1) };
                inputs.insert(number, self.inputs(&bound(thread), &to).await?);
            }
        }
        let needs_share =
            |column: usize| column == 4 || column >= COMMON && (column - COMMON) % EACH == 2;
        let totals = match projection.iter().any(|column| needs_share(*column)) {
            true => self.totals().await?,
            false => Vec::new(),
        };
        let ranges = ranges(inputs.keys())?;
        let periods = self.view.periods.clone();
        let node =
            RelayHoursExec::new(projection, periods, Arc::new(inputs), Arc::new(totals), ranges)?;
        Ok(Arc::new(node))
    }
}

/// The fingerprint in a filter `relay = '…'`.
fn only_relay(filter: &Expr) -> Option<String> {
    let Expr::BinaryExpr(binary) = filter else { return None };
    let (Expr::Column(column), Operator::Eq, Expr::Literal(value, _)) =
        (&*binary.left, binary.op, &*binary.right)
    else {
        return None;
    };
    let relay = value.try_as_str()??;
    // The fingerprint becomes part of a query.
    let is_fingerprint = relay.len() == 40 && relay.bytes().all(|byte| byte.is_ascii_hexdigit());
    (column.name == "relay" && is_fingerprint).then(|| relay.to_owned())
}

/// The numbers of ranges, each in a separate partition.
fn ranges<'a>(numbers: impl Iterator<Item = &'a u64>) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = Arc::new(Schema::new(vec![Field::new("range", DataType::UInt64, false)]));
    let partition = |number: &u64| {
        let column = Arc::new(UInt64Array::from(vec![*number]));
        Ok(vec![RecordBatch::try_new(Arc::clone(&schema), vec![column])?])
    };
    let partitions: Vec<_> = numbers.map(partition).collect::<Result<_>>()?;
    Ok(MemorySourceConfig::try_new_exec(&partitions, schema, None)?)
}

fn numbers(ranges: &[RecordBatch]) -> Vec<u64> {
    let column =
        |batch: &RecordBatch| batch.column(0).as_primitive::<UInt64Type>().values().to_vec();
    ranges.iter().flat_map(column).collect()
}

/// The range number in a partition of `ranges`, if it is left.
async fn range(ranges: SendableRecordBatchStream) -> Result<Option<u64>> {
    match numbers(&collect(ranges).await?).as_slice() {
        [] => Ok(None),
        [number] => Ok(Some(*number)),
        // The partition would not be sorted by relay.
        several => Err(DataFusionError::Internal(format!("a partition has {several:?} as ranges"))),
    }
}

/// Rows per batch of a month's stream. For each range all months are open at the same time, with two batches each.
const INPUT_ROWS: usize = 2048;

/// The relays of one range.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) statuses: Arc<dyn ExecutionPlan>,
    pub(crate) descriptors: Arc<dyn ExecutionPlan>,
}

/// The plan node.
#[derive(Debug)]
pub(crate) struct RelayHoursExec {
    /// Inputs by range number; at least those of all numbers in `ranges`.
    pub(crate) inputs: Arc<BTreeMap<u64, Input>>,
    pub(crate) periods: Vec<Period>,
    /// The sum of the weights of each view, in order of time.
    pub(crate) totals: Arc<Vec<(i64, i64)>>,
    /// The numbers of the ranges to compute, at most one in a partition.
    ranges: Arc<dyn ExecutionPlan>,
    wanted: Wanted,
    specs: Vec<WindowSpec>,
    properties: Arc<PlanProperties>,
}

impl RelayHoursExec {
    /// The node with the columns of `projection`, by their indexes in the table.
    pub(crate) fn new(
        projection: Vec<usize>,
        periods: Vec<Period>,
        inputs: Arc<BTreeMap<u64, Input>>,
        totals: Arc<Vec<(i64, i64)>>,
        ranges: Arc<dyn ExecutionPlan>,
    ) -> Result<Self> {
        let schema = Arc::new(schema(&periods).project(&projection)?);
        let mut orderings = Vec::new();
        if projection.contains(&0) {
            orderings.push(vec![PhysicalSortExpr::new_default(col("relay", &schema)?)]);
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), orderings),
            Partitioning::UnknownPartitioning(ranges.properties().partitioning.partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        // Windows without any projected column are not computed.
        let has =
            |window: usize, what: usize| projection.contains(&(COMMON + window * EACH + what));
        let spec = |(window, period): (usize, &Period)| WindowSpec {
            length_s: period.length_s,
            has_capacity: has(window, 0),
            has_advertised_rsd: has(window, 1),
            has_weight_rsd: has(window, 2),
        };
        let specs: Vec<WindowSpec> = periods.iter().enumerate().map(spec).collect();
        Ok(Self {
            inputs,
            wanted: Wanted::new(schema, projection),
            periods,
            totals,
            ranges,
            specs,
            properties: Arc::new(properties),
        })
    }

    /// The range numbers left in `ranges`, if it is a table in memory.
    pub(crate) fn numbers(&self) -> Option<Vec<u64>> {
        let source = self.ranges.downcast_ref::<DataSourceExec>()?.data_source().as_ref();
        let source: &dyn std::any::Any = source;
        let source = source.downcast_ref::<MemorySourceConfig>()?;
        Some(source.partitions().iter().flat_map(|partition| numbers(partition)).collect())
    }

    /// The indexes of its columns in the table.
    pub(crate) fn projection(&self) -> &[usize] {
        self.wanted.projection()
    }
}

impl DisplayAs for RelayHoursExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.periods.iter().map(|period| period.name.as_str()).collect();
        let streams = |input: &Input| input.statuses.properties().partitioning.partition_count();
        let streams = self.inputs.values().map(streams).max().unwrap_or_default();
        write!(
            f,
            "RelayHoursExec: ranges={}, streams={streams}, windows={}",
            self.inputs.len(),
            names.join(",")
        )
    }
}

impl ExecutionPlan for RelayHoursExec {
    fn name(&self) -> &'static str {
        "RelayHoursExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    // The inputs are already planned with one partition per month, which no rule may change.
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.ranges]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let missing = || DataFusionError::Internal("there are no ranges".to_owned());
        Ok(Arc::new(Self::new(
            self.projection().to_vec(),
            self.periods.clone(),
            Arc::clone(&self.inputs),
            Arc::clone(&self.totals),
            children.pop().ok_or_else(missing)?,
        )?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let ranges = self.ranges.execute(partition, Arc::clone(&context))?;
        let inputs = Arc::clone(&self.inputs);
        let rows = context.session_config().batch_size();
        let columns = Columns::new(self.wanted.clone(), self.specs.len(), rows);
        let sliding = Sliding::new(&self.specs);
        let totals = Totals { all: Arc::clone(&self.totals), at: 0 };
        let mut stream = RecordBatchReceiverStreamBuilder::new(Arc::clone(self.wanted.schema()), 2);
        let sender = stream.tx();
        let config = context.session_config().clone().with_batch_size(INPUT_ROWS);
        let context = TaskContext::default().with_runtime(context.runtime_env());
        let context = Arc::new(context.with_session_config(config));
        stream.spawn(async move {
            let Some(number) = range(ranges).await? else { return Ok(()) };
            let missing = || DataFusionError::Internal(format!("there is no range {number}"));
            let Input { statuses, descriptors } = inputs.get(&number).ok_or_else(missing)?;
            let statuses = Merged::new(statuses, &context)?;
            let descriptors = Merged::new(descriptors, &context)?;
            let relay = String::new();
            Merge { statuses, descriptors, sliding, columns, totals, relay, rows }.run(sender).await
        });
        Ok(stream.build())
    }
}

/// The sums of weights, with a cursor, because most reads are of the next view.
struct Totals {
    all: Arc<Vec<(i64, i64)>>,
    at: usize,
}

impl Totals {
    /// The sum at a time; 0 if no relay has a weight at that time.
    fn at(&mut self, time_s: i64) -> i64 {
        let entry = |at: usize| self.all.get(at).filter(|(time, _)| *time == time_s);
        if let Some((_, total)) = entry(self.at + 1) {
            self.at += 1;
            return *total;
        }
        let Ok(at) = self.all.binary_search_by_key(&time_s, |(time, _)| *time) else { return 0 };
        self.at = at;
        entry(at).map_or(0, |(_, total)| *total)
    }
}

/// Computes the rows of a range.
struct Merge {
    statuses: Merged,
    descriptors: Merged,
    sliding: Sliding,
    columns: Columns,
    totals: Totals,
    relay: String,
    rows: usize,
}

impl Merge {
    async fn run(mut self, sender: Sender<Result<RecordBatch>>) -> Result<()> {
        while self.statuses.fill().await? {
            let Some((relay, time_s, weight)) = self.statuses.row() else { break };
            if relay != self.relay {
                relay.clone_into(&mut self.relay);
                self.sliding.clear();
                self.columns.begin(&self.relay);
            }
            self.statuses.advance();
            self.publish(time_s).await?;
            let total = self.totals.at(time_s);
            let share = weight.filter(|_| total > 0).map(|weight| weight as f64 / total as f64);
            let columns = &mut self.columns;
            let advertised =
                self.sliding.listed(time_s, share, |window, found| columns.window(window, found));
            columns.row(time_s, advertised, weight, share);
            if columns.len() >= self.rows && sender.send(columns.finish(&self.relay)).await.is_err()
            {
                return Ok(()); // The receiver is gone.
            }
        }
        if self.columns.len() > 0 {
            let _ = sender.send(self.columns.finish(&self.relay)).await;
        }
        Ok(())
    }

    /// Consumes the relay's descriptors up to this time.
    async fn publish(&mut self, time_s: i64) -> Result<()> {
        while self.descriptors.fill().await? {
            let Some((relay, published_s, value)) = self.descriptors.row() else { break };
            match relay.cmp(&self.relay) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal if published_s <= time_s => {
                    let value = value.and_then(|value| u32::try_from(value).ok());
                    if let Some(value) = value {
                        self.sliding.published(published_s, value);
                    }
                }
                _ => return Ok(()),
            }
            self.descriptors.advance();
        }
        Ok(())
    }
}
