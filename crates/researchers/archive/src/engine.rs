//! SQL queries over a dataset by DataFusion: the dataset's tables, and the computed table `relay_hours`.

mod requirements;

use crate::dataset::{Dataset, FileState};
use crate::error::ArchiveError;
use crate::relay_hours::RelayHours;
use crate::rows;
use ballista_core::extension::SessionConfigExt as _;
use datafusion::arrow::array::AsArray;
pub use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float64Type, Int64Type, Schema, SchemaRef,
};
use datafusion::arrow::error::ArrowError;
use datafusion::datasource::MemTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::ListingOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext, col};
use requirements::Requirements;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The length *p* of the window in which the largest bandwidth is the capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period {
    /// Name in columns and legends.
    pub name: String,
    /// Length.
    pub length_s: i64,
}

impl Period {
    /// The periods of the paper: a day, a week, 30 days and 365 days.
    #[must_use]
    pub fn paper() -> Vec<Self> {
        ["day", "week", "month", "year"].iter().filter_map(|name| name.parse().ok()).collect()
    }
}

impl std::str::FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let days = match text {
            "day" => 1,
            "week" => 7,
            "month" => 30,
            "year" => 365,
            other => {
                let digits = other.strip_suffix('d').filter(|digits| !digits.starts_with('+'));
                let number = digits.and_then(|digits| digits.parse::<u16>().ok());
                let number = number.filter(|number| (1..=4000).contains(number));
                i64::from(number.ok_or_else(|| {
                    format!("`{other}` is not a period: use day, week, month, year or a number of days such as 14d, at most 4000d")
                })?)
            }
        };
        Ok(Self { name: text.to_owned(), length_s: days * crate::times::DAY_S })
    }
}

/// The input of the table `relay_hours`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The origin whose rows are used: a value of the column `origin`.
    pub origin: String,
    /// The lengths of windows.
    pub periods: Vec<Period>,
    /// Leave out weights that are based on fewer than three measurements (`Unmeasured=1`).
    pub is_measured_only: bool,
}

impl View {
    /// The rows of one origin, with the periods of the paper.
    #[must_use]
    pub fn new(origin: &str) -> Self {
        Self { origin: origin.to_owned(), periods: Period::paper(), is_measured_only: false }
    }
}

/// Resource limits of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of threads.
    pub threads: usize,
    /// Memory for sorting and joining. Operators that need more spill to temporary files.
    pub memory_mib: usize,
}

impl Default for Limits {
    /// All processors, 2 GiB.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, memory_mib: 2048 }
    }
}

/// Where query plans run.
#[derive(Clone, Debug)]
pub(crate) enum Runner {
    /// In this process.
    Here,
    /// On a cluster.
    Cluster(crate::cluster::Scheduler),
}

impl Runner {
    /// Adapts the configuration. Plans for a cluster must not have what tasks cannot share: dynamic filters, subqueries as nodes, and
    /// joins that cannot spill.
    fn configured(&self, config: SessionConfig) -> SessionConfig {
        match self {
            Self::Here => config,
            Self::Cluster(_) => config.upgrade_for_ballista(),
        }
    }

    /// Options by which a join keeps its smaller side in memory.
    fn joins_that_collect(&self) -> &'static [(&'static str, &'static str)] {
        const ALL: [(&str, &str); 4] = [
            ("datafusion.optimizer.prefer_hash_join", "true"),
            ("datafusion.optimizer.hash_join_single_partition_threshold", "268435456"),
            ("datafusion.optimizer.hash_join_single_partition_threshold_rows", "4000000"),
            ("ballista.optimizer.broadcast_join_threshold_bytes", "268435456"),
        ];
        match self {
            // DataFusion alone does not know Ballista's option.
            Self::Here => &ALL[..3],
            Self::Cluster(_) => &ALL,
        }
    }

    pub(crate) async fn collect(
        &self,
        frame: DataFrame,
    ) -> Result<Vec<RecordBatch>, DataFusionError> {
        match self {
            Self::Here => frame.collect().await,
            Self::Cluster(scheduler) => scheduler.collect(frame).await,
        }
    }
}

/// Queries over a dataset.
pub struct Engine {
    dataset: Dataset,
    /// The files whose digests were checked. A file that changes later could be read in parts of different contents.
    files: Vec<FileState>,
    context: SessionContext,
    runtime: Runtime,
    runner: Runner,
}

impl Engine {
    /// Opens the tables of a dataset, and `relay_hours` if the dataset has a single origin.
    ///
    /// All files are compared with their digests first.
    ///
    /// # Errors
    /// The dataset is damaged or cannot be read, or threads cannot be started.
    pub fn open(dataset: Dataset, limits: Limits) -> Result<Self, ArchiveError> {
        Self::with_runner(dataset, limits, Runner::Here)
    }

    /// Like [`open`](Self::open), but runs queries on a cluster, all of whose machines must have the dataset at the same path.
    ///
    /// # Errors
    /// As for `open`, or the scheduler does not answer.
    pub fn on_cluster(
        dataset: Dataset,
        limits: Limits,
        scheduler: crate::cluster::Scheduler,
    ) -> Result<Self, ArchiveError> {
        Self::with_runner(dataset, limits, Runner::Cluster(scheduler))
    }

    fn with_runner(dataset: Dataset, limits: Limits, runner: Runner) -> Result<Self, ArchiveError> {
        let files = dataset.state()?;
        dataset.verify(limits.threads)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits.threads.max(1))
            .enable_all()
            .build()
            .map_err(ArchiveError::file("start threads for", dataset.folder()))?;
        let config = runner
            .configured(SessionConfig::new())
            .with_target_partitions(limits.threads.max(1))
            .with_information_schema(true)
            // "The largest first" means values, not their absence.
            .set_str("datafusion.sql_parser.default_null_ordering", "nulls_last");
        // Each sort, join and aggregation has a fair share of memory. Otherwise the first operators would leave too little for later
        // ones to spill.
        let pool = FairSpillPool::new(limits.memory_mib << 20);
        let memory = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc()?;
        let context = context(config, memory);
        runtime.block_on(register(&context, &dataset))?;
        let engine = Self { dataset, files, context, runtime, runner };
        if let [origin] = engine.origins()?.as_slice() {
            engine.view(View::new(origin))?;
        }
        Ok(engine)
    }

    /// The dataset.
    #[must_use]
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The origins of consensuses and relay lists.
    ///
    /// # Errors
    /// The dataset cannot be read.
    pub fn origins(&self) -> Result<Vec<String>, ArchiveError> {
        let batches = self.query("SELECT DISTINCT origin FROM statuses ORDER BY origin")?;
        Ok(texts(&batches, 0))
    }

    /// The named origin, or the only one with published bandwidths.
    ///
    /// # Errors
    /// No origin matches, or several have bandwidths.
    pub fn origin(&self, named: Option<&str>) -> Result<String, ArchiveError> {
        let known = self.origins()?;
        if let Some(named) = named {
            return known.iter().find(|origin| *origin == named).cloned().ok_or_else(|| {
                ArchiveError::Missing(format!(
                    "the dataset has no relays of the origin `{named}`, only of: {}",
                    known.join(", ")
                ))
            });
        }
        let published = self.query("SELECT DISTINCT origin FROM descriptors ORDER BY origin")?;
        let published = texts(&published, 0);
        let both: Vec<String> =
            known.into_iter().filter(|origin| published.contains(origin)).collect();
        match both.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(ArchiveError::Missing(
                "the dataset has no relays with both a view of the network and published bandwidths; import consensuses and server \
                 descriptors"
                    .to_owned(),
            )),
            several => Err(ArchiveError::Missing(format!(
                "the dataset has relays of several origins, whose times differ; choose one with --origin: {}",
                several.join(", ")
            ))),
        }
    }

    /// Replaces the table `relay_hours`.
    ///
    /// # Errors
    /// The dataset cannot be read.
    pub fn view(&self, view: View) -> Result<(), ArchiveError> {
        let months =
            self.dataset.parts("statuses")?.len().max(self.dataset.parts("descriptors")?.len());
        // Each month is a partition, keeps its order, and is never repartitioned. So months are merged, not sorted.
        // - A plan loses filters that are pushed into the Parquet reader when it is sent to other machines. On a cluster, filters
        //   therefore stay nodes of the plan.
        // - The reader's predicate cache is off, because each open month would have one.
        // - Aggregations are not repartitioned: partial sums in one partition per month would spill gigabytes.
        let filters_in_reader = matches!(self.runner, Runner::Here);
        let config = self
            .runner
            .configured(SessionConfig::new())
            .with_target_partitions(months.max(1))
            .with_repartition_file_scans(false)
            .with_repartition_aggregations(false)
            .with_round_robin_repartition(false)
            .set_u64("datafusion.execution.parquet.max_predicate_cache_size", 0)
            .set_bool("datafusion.execution.parquet.pushdown_filters", filters_in_reader);
        let inner = context(config, self.context.runtime_env());
        self.runtime.block_on(register(&inner, &self.dataset))?;
        let _ = self.context.deregister_table("relay_hours")?;
        self.context.register_table(
            "relay_hours",
            Arc::new(RelayHours::new(view, inner, self.runner.clone())),
        )?;
        Ok(())
    }

    /// Creates a table in memory. From then on, joins hold the smaller side in memory in each thread or task, up to 256 MiB. This
    /// preserves the order of the other side, so that means have the same last digit on any number of threads and machines.
    ///
    /// # Errors
    /// The engine refuses the table.
    pub fn keep(&self, name: &str, batches: Vec<RecordBatch>) -> Result<(), ArchiveError> {
        let Some(first) = batches.first() else {
            return Err(ArchiveError::Missing("the query has no result".to_owned()));
        };
        let state = self.context.state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        for (option, value) in self.runner.joins_that_collect() {
            options.set(option, value)?;
        }
        drop(state);
        let table = MemTable::try_new(first.schema(), vec![batches])?;
        let _ = self.context.deregister_table(name)?;
        self.context.register_table(name, Arc::new(table))?;
        Ok(())
    }

    /// Runs a read-only query. An empty result is one batch without rows, which has the columns.
    ///
    /// # Errors
    /// The query is invalid or failed, or an import changed the dataset meanwhile.
    pub fn query(&self, sql: &str) -> Result<Vec<RecordBatch>, ArchiveError> {
        // A panic of a thread of the engine would end this process with a stack trace.
        let result = catch_unwind(AssertUnwindSafe(|| self.run(sql))).unwrap_or_else(|_| {
            let problem = "the query engine panicked, although all files are as imported";
            Err(DataFusionError::Internal(problem.to_owned()))
        });
        if self.dataset.state()? != self.files {
            return Err(ArchiveError::Missing(format!(
                "{}: an import changed the dataset during the query; repeat the command",
                self.dataset.name().display()
            )));
        }
        Ok(result?)
    }

    fn run(&self, sql: &str) -> Result<Vec<RecordBatch>, DataFusionError> {
        let options = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        self.runtime.block_on(async {
            let frame = self.context.sql_with_options(sql, options).await?;
            let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
            let mut batches = self.runner.collect(frame).await?;
            if batches.is_empty() {
                batches.push(RecordBatch::new_empty(schema));
            }
            Ok(batches)
        })
    }
}

/// A session whose plans are correct.
fn context(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> SessionContext {
    let rules = Requirements::replacing_the_rule_of(PhysicalOptimizer::default().rules);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_physical_optimizer_rules(rules);
    SessionContext::new_with_state(state.build())
}

/// Registers the tables of the dataset.
async fn register(context: &SessionContext, dataset: &Dataset) -> Result<(), DataFusionError> {
    for (table, time, span, schema) in rows::tables() {
        let schema = viewed(&schema);
        let has = dataset.has(table).map_err(|error| DataFusionError::External(Box::new(error)))?;
        if !has {
            context.register_table(table, Arc::new(MemTable::try_new(schema, vec![vec![]])?))?;
            continue;
        }
        let folder = dataset.folder().join(table);
        let folder = std::path::absolute(&folder)?;
        let order = vec![col("relay").sort(true, false), col(time).sort(true, false)];
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
            .with_file_extension(".parquet")
            .with_table_partition_cols(vec![(span.column().to_owned(), DataType::Utf8)])
            .with_file_sort_order(vec![order]);
        let url = format!("{}/", folder.display());
        context.register_listing_table(table, url, options, Some(schema), None).await?;
    }
    Ok(())
}

/// The schema with texts as views into a file's dictionary, so that they are not copied.
fn viewed(schema: &SchemaRef) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8 => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
        _ => Arc::clone(field),
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

/// A column of texts; nulls are left out.
#[must_use]
pub fn texts(batches: &[RecordBatch], column: usize) -> Vec<String> {
    let mut all = Vec::new();
    for batch in batches {
        let texts = datafusion::arrow::compute::cast(batch.column(column), &DataType::Utf8);
        if let Ok(texts) = texts {
            all.extend(texts.as_string::<i32>().iter().flatten().map(str::to_owned));
        }
    }
    all
}

/// A column of numbers as floats.
///
/// # Errors
/// The result has no such column, or its values are no numbers.
pub fn numbers(batches: &[RecordBatch], name: &str) -> Result<Vec<Option<f64>>, ArchiveError> {
    column::<Float64Type>(batches, name)
}

/// A column of integers; null is zero.
///
/// # Errors
/// As for [`numbers`].
pub fn integers(batches: &[RecordBatch], name: &str) -> Result<Vec<i64>, ArchiveError> {
    let column = column::<Int64Type>(batches, name)?;
    Ok(column.into_iter().map(Option::unwrap_or_default).collect())
}

fn column<T: ArrowPrimitiveType>(
    batches: &[RecordBatch],
    name: &str,
) -> Result<Vec<Option<T::Native>>, ArchiveError> {
    let mut all = Vec::new();
    for batch in batches {
        let column = batch.column_by_name(name).ok_or_else(|| {
            ArrowError::SchemaError(format!("the result of a query has no column `{name}`"))
        })?;
        // A failed cast would be null.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let column = cast_with_options(column, &T::DATA_TYPE, &options)?;
        all.extend(column.as_primitive::<T>().iter());
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
