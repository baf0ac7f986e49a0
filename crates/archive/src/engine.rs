//! DataFusion over a dataset: its tables by their names, and `relay_hours`, which SQL alone could not compute.

use crate::dataset::Dataset;
use crate::error::ArchiveError;
use crate::relay_hours::RelayHours;
use crate::rows;
#[cfg(feature = "cluster")]
use ballista_core::extension::SessionConfigExt as _;
use datafusion::arrow::array::AsArray;
pub use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::ListingOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext, col};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A length of windows: *p*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its name in columns and legends.
    pub name: String,
    /// Its length.
    pub length_s: i64,
}

impl Period {
    /// The paper's: a day, a week, 30 days, 365 days.
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
                let digits = other.strip_suffix('d').filter(|it| !it.starts_with('+'));
                let number = digits.and_then(|it| it.parse::<u16>().ok());
                let number = number.filter(|it| (1..=4000).contains(it));
                i64::from(number.ok_or_else(|| {
                    format!("`{other}` is no period: write day, week, month, year or a number of days such as 14d, at most 4000d")
                })?)
            }
        };
        Ok(Self { name: text.to_owned(), length_s: days * crate::times::DAY_S })
    }
}

/// What the tables of relays and hours are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The origin whose rows count: one word of the column `origin`.
    pub origin: String,
    /// The windows.
    pub periods: Vec<Period>,
    /// Leave out weights that are based on fewer than three measurements (`Unmeasured=1`).
    pub is_measured_only: bool,
}

impl View {
    /// The paper's periods over one origin.
    #[must_use]
    pub fn of(origin: &str) -> Self {
        Self { origin: origin.to_owned(), periods: Period::paper(), is_measured_only: false }
    }
}

/// How much the engine may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads.
    pub threads: usize,
    /// Memory for sorting and joining; what needs more is spilled to temporary files.
    pub memory_mib: usize,
}

impl Default for Limits {
    /// All processors, 2 GiB.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, memory_mib: 2048 }
    }
}

/// Where plans run.
#[derive(Clone, Debug)]
pub(crate) enum Runner {
    /// In this process.
    Here,
    /// On a cluster.
    #[cfg(feature = "cluster")]
    Cluster(crate::cluster::Scheduler),
}

impl Runner {
    /// On a cluster, plans avoid what tasks cannot share: dynamic filters, subqueries as nodes, joins that cannot spill.
    fn configured(&self, config: SessionConfig) -> SessionConfig {
        match self {
            Self::Here => config,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => config.upgrade_for_ballista(),
        }
    }

    /// Options with which a join keeps its smaller side completely in memory.
    fn joins_that_collect(&self) -> &'static [(&'static str, &'static str)] {
        const ALL: [(&str, &str); 4] = [
            ("datafusion.optimizer.prefer_hash_join", "true"),
            ("datafusion.optimizer.hash_join_single_partition_threshold", "268435456"),
            ("datafusion.optimizer.hash_join_single_partition_threshold_rows", "4000000"),
            ("ballista.optimizer.broadcast_join_threshold_bytes", "268435456"),
        ];
        match self {
            // Without Ballista, its option is unknown.
            Self::Here => &ALL[..3],
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => &ALL,
        }
    }

    pub(crate) async fn collect(
        &self,
        frame: DataFrame,
    ) -> Result<Vec<RecordBatch>, DataFusionError> {
        match self {
            Self::Here => frame.collect().await,
            #[cfg(feature = "cluster")]
            Self::Cluster(scheduler) => scheduler.collect(frame).await,
        }
    }
}

/// Queries over a dataset.
pub struct Engine {
    dataset: Dataset,
    context: SessionContext,
    runtime: Runtime,
    runner: Runner,
}

impl Engine {
    /// Opens the tables of a dataset, and `relay_hours` of its only origin if it has one.
    ///
    /// # Errors
    /// The dataset cannot be read, or there is no memory for threads.
    pub fn open(dataset: Dataset, limits: Limits) -> Result<Self, ArchiveError> {
        Self::with_runner(dataset, limits, Runner::Here)
    }

    /// Opens the tables as [`open`](Self::open) does, and runs queries on a cluster. All its machines must have the dataset under the path
    /// that it has here.
    ///
    /// # Errors
    /// Those of `open`, or the scheduler does not answer.
    #[cfg(feature = "cluster")]
    pub fn on_cluster(
        dataset: Dataset,
        limits: Limits,
        scheduler: crate::cluster::Scheduler,
    ) -> Result<Self, ArchiveError> {
        Self::with_runner(dataset, limits, Runner::Cluster(scheduler))
    }

    fn with_runner(dataset: Dataset, limits: Limits, runner: Runner) -> Result<Self, ArchiveError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits.threads.max(1))
            .enable_all()
            .build()
            .map_err(ArchiveError::file("start threads for", dataset.folder()))?;
        let config = runner
            .configured(SessionConfig::new())
            .with_target_partitions(limits.threads.max(1))
            .with_information_schema(true);
        // Each sort, join and aggregation has its share of memory. Otherwise the first would leave nothing to later ones, which could not even
        // spill.
        let pool = FairSpillPool::new(limits.memory_mib << 20);
        let memory = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc()?;
        let context = SessionContext::new_with_config_rt(config, memory);
        runtime.block_on(register(&context, &dataset))?;
        let engine = Self { dataset, context, runtime, runner };
        if let [origin] = engine.origins()?.as_slice() {
            engine.view(View::of(origin))?;
        }
        Ok(engine)
    }

    /// The dataset.
    #[must_use]
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The origins that have views of the network.
    ///
    /// # Errors
    /// The dataset cannot be read.
    pub fn origins(&self) -> Result<Vec<String>, ArchiveError> {
        let batches = self.query("SELECT DISTINCT origin FROM statuses ORDER BY origin")?;
        Ok(texts(&batches, 0))
    }

    /// The origin to use: the one that is named, or the only one with published bandwidths.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn origin(&self, named: Option<&str>) -> Result<String, ArchiveError> {
        let known = self.origins()?;
        if let Some(named) = named {
            return known.iter().find(|it| *it == named).cloned().ok_or_else(|| {
                ArchiveError::Missing(format!(
                    "the dataset has no relays of the origin `{named}`, only of: {}",
                    known.join(", ")
                ))
            });
        }
        let published = self.query("SELECT DISTINCT origin FROM descriptors ORDER BY origin")?;
        let published = texts(&published, 0);
        let both: Vec<String> = known.into_iter().filter(|it| published.contains(it)).collect();
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

    /// Makes the table `relay_hours` anew.
    ///
    /// # Errors
    /// The dataset cannot be read.
    pub fn view(&self, view: View) -> Result<(), ArchiveError> {
        let months =
            self.dataset.months("statuses")?.len().max(self.dataset.months("descriptors")?.len());
        // Each month in a partition of its own keeps its order, so that months are merged and never sorted. Filters that are pushed
        // into the Parquet reader are lost when a plan is sent to other machines, so on a cluster they stay nodes of the plan.
        // Rows are not dealt out to other partitions, which would mix months. The reader has no cache of the columns that it filters by: each
        // open month would have one. One thread adds the sums of the months; divided among as many partitions as months, they would spill
        // gigabytes.
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
        let inner = SessionContext::new_with_config_rt(config, self.context.runtime_env());
        self.runtime.block_on(register(&inner, &self.dataset))?;
        let _ = self.context.deregister_table("relay_hours")?;
        self.context.register_table(
            "relay_hours",
            Arc::new(RelayHours::new(view, inner, self.runner.clone())),
        )?;
        Ok(())
    }

    /// Makes a table in memory. From now on, joins hold the smaller side as a whole in each thread or task, if it is not above 256 MiB:
    /// rows of the other side stay in their order, so that means are the same to the last digit on any number of threads and machines.
    ///
    /// # Errors
    /// The engine's.
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

    /// The result of a query that changes nothing. There is at least one batch, which has the columns, if there are no rows.
    ///
    /// # Errors
    /// The engine's: the query is wrong, or cannot be completed.
    pub fn query(&self, sql: &str) -> Result<Vec<RecordBatch>, ArchiveError> {
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

/// The dataset's tables.
async fn register(context: &SessionContext, dataset: &Dataset) -> Result<(), DataFusionError> {
    for (table, time, schema) in rows::tables() {
        let schema = viewed(&schema);
        let has = dataset.has(table).map_err(|it| DataFusionError::External(Box::new(it)))?;
        if !has {
            context.register_table(table, Arc::new(MemTable::try_new(schema, vec![vec![]])?))?;
            continue;
        }
        let folder = dataset.folder().join(table);
        let folder = std::path::absolute(&folder)?;
        let order = vec![col("relay").sort(true, false), col(time).sort(true, false)];
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
            .with_file_extension(".parquet")
            .with_table_partition_cols(vec![("month".to_owned(), DataType::Utf8)])
            .with_file_sort_order(vec![order]);
        let url = format!("{}/", folder.display());
        context.register_listing_table(table, url, options, Some(schema), None).await?;
    }
    Ok(())
}

/// The schema with texts as views, which are not copied from a file's dictionary.
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

/// A column of numbers as floats, null as none. A column that has no numbers is all null.
#[must_use]
pub fn numbers(batches: &[RecordBatch], name: &str) -> Vec<Option<f64>> {
    let mut all = Vec::new();
    for batch in batches {
        let column = batch
            .column_by_name(name)
            .and_then(|it| datafusion::arrow::compute::cast(it, &DataType::Float64).ok());
        match column {
            Some(column) => all.extend(column.as_primitive::<Float64Type>().iter()),
            None => all.extend(std::iter::repeat_n(None, batch.num_rows())),
        }
    }
    all
}

/// A column of integers; null is zero.
#[must_use]
pub fn integers(batches: &[RecordBatch], name: &str) -> Vec<i64> {
    let mut all = Vec::new();
    for batch in batches {
        let column = batch
            .column_by_name(name)
            .and_then(|it| datafusion::arrow::compute::cast(it, &DataType::Int64).ok());
        match column {
            Some(column) => {
                all.extend(
                    column.as_primitive::<Int64Type>().iter().map(Option::unwrap_or_default),
                );
            }
            None => all.extend(std::iter::repeat_n(0, batch.num_rows())),
        }
    }
    all
}

#[cfg(test)]
mod tests;
