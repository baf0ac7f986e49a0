//! Queries on a cluster of Apache Ballista: this process makes the plan, and executors run its stages.
//!
//! Scheduler and executors are processes of this program, since Ballista's own programs cannot decode the plan node of `relay_hours`. Each machine
//! has the dataset under the same path.

mod codec;

use crate::error::ArchiveError;
use ballista_core::config::{BallistaConfig, TaskSchedulingPolicy};
use ballista_core::execution_plans::execute_physical_plan;
use ballista_core::planner::scans_only_information_schema;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::start_server;
use codec::Codec;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use datafusion::prelude::DataFrame;
use datafusion_proto::protobuf::PhysicalPlanNode;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Maximum length of a message in bytes: the plan of a thousand months has some megabytes.
const MESSAGE_MAX: u32 = 256 << 20;
/// After this time without a heartbeat, the scheduler gives the work of an executor to others.
const SILENCE_S: u64 = 20;

/// The scheduler of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduler {
    /// `HOST:PORT`.
    pub address: String,
}

impl FromStr for Scheduler {
    type Err = String;

    /// Reads `df://HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("df://").unwrap_or_default();
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        match port.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            true => Ok(Self { address: address.to_owned() }),
            false => Err(format!("`{text}` is not the address of a scheduler: use df://HOST:PORT")),
        }
    }
}

impl Scheduler {
    /// The result of a query.
    pub(crate) async fn collect(
        &self,
        frame: DataFrame,
    ) -> Result<Vec<RecordBatch>, DataFusionError> {
        if scans_only_information_schema(frame.logical_plan())? {
            return frame.collect().await;
        }
        let (config, codec) = (BallistaConfig::default(), Codec::default());
        let session = frame.task_ctx().session_config().clone();
        let plan = sorted_after_exchange(frame.create_physical_plan().await?)?;
        if let Some(name) = not_splittable(plan.as_ref()) {
            return Err(DataFusionError::NotImplemented(format!(
                "on a cluster, a query cannot contain {name} yet; omit --cluster"
            )));
        }
        let stream = execute_physical_plan::<PhysicalPlanNode>(
            format!("http://{}", self.address),
            &config,
            plan,
            &codec,
            format!("flashflow-{:032x}", rand::random::<u128>()),
            session,
        );
        let failed = |error: DataFusionError| {
            DataFusionError::Context(
                format!("the cluster at df://{} did not complete the query", self.address),
                Box::new(error),
            )
        };
        collect(stream.await.map_err(failed)?).await.map_err(failed)
    }
}

/// The first node of a plan that Ballista cannot divide among the tasks of a stage. Tasks share files, tables in memory and the output of
/// other stages. Each task would run any other leaf completely, and its rows would count several times.
fn not_splittable(plan: &dyn ExecutionPlan) -> Option<&str> {
    let children = plan.children();
    let is_known = matches!(plan.name(), "DataSourceExec" | "PlaceholderRowExec" | "EmptyExec");
    if plan.name() == "ScalarSubqueryExec" || children.is_empty() && !is_known {
        return Some(plan.name());
    }
    children.into_iter().find_map(|child| not_splittable(child.as_ref()))
}

/// Restores the order of rows after an exchange between stages. The exchange loses it, and Ballista does not detect this in a plan whose
/// exchange should preserve it.
fn sorted_after_exchange(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let sorted = plan.transform_up(|node| {
        let exchange =
            node.downcast_ref::<RepartitionExec>().filter(|exchange| exchange.preserve_order());
        let (Some(exchange), Some(ordering)) = (exchange, node.output_ordering()) else {
            return Ok(Transformed::no(node));
        };
        let (input, partitioning) = (Arc::clone(exchange.input()), exchange.partitioning().clone());
        let exchange = Arc::new(RepartitionExec::try_new(input, partitioning)?);
        let sort = SortExec::new(ordering.clone(), exchange).with_preserve_partitioning(true);
        Ok(Transformed::yes(Arc::new(sort)))
    });
    sorted.data()
}

fn runtime() -> Result<Runtime, ArchiveError> {
    // Plans are decoded recursively.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(16 << 20)
        .build();
    runtime.map_err(|error| ArchiveError::Cluster(error.to_string()))
}

fn failed(error: ballista_core::error::BallistaError) -> ArchiveError {
    ArchiveError::Cluster(error.to_string())
}

/// Runs a scheduler until the process ends.
///
/// # Errors
/// The address is in use.
pub fn schedule(address: SocketAddr) -> Result<(), ArchiveError> {
    let config = SchedulerConfig {
        external_host: address.ip().to_string(),
        bind_host: address.ip().to_string(),
        bind_port: address.port(),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        task_distribution: TaskDistributionPolicy::RoundRobin,
        grpc_server_max_decoding_message_size: MESSAGE_MAX,
        grpc_server_max_encoding_message_size: MESSAGE_MAX,
        grpc_client_max_message_size: MESSAGE_MAX,
        executor_timeout_seconds: SILENCE_S,
        expire_dead_executor_interval_seconds: SILENCE_S / 4,
        override_physical_codec: Some(Arc::new(Codec::default())),
        ..SchedulerConfig::default()
    };
    runtime()?.block_on(async {
        let cluster = BallistaCluster::new_from_config(&config).await.map_err(failed)?;
        start_server(cluster, address, Arc::new(config)).await.map_err(failed)
    })
}

/// Options of an executor.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// Its scheduler.
    pub scheduler: Scheduler,
    /// Address at which other executors and clients fetch results.
    pub address: SocketAddr,
    /// Stages that run at the same time.
    pub threads: usize,
    /// Memory for sorting and joining.
    pub memory_mib: usize,
    /// Folder for results of stages and for spilled data.
    pub work_folder: PathBuf,
}

/// Runs an executor until the process ends.
///
/// # Errors
/// The address is in use, or the scheduler cannot be reached.
pub fn execute(options: &ExecutorOptions) -> Result<(), ArchiveError> {
    let (host, port) = options.scheduler.address.rsplit_once(':').unwrap_or_default();
    let address: IpAddr = options.address.ip();
    let config = ExecutorProcessConfig {
        bind_host: address.to_string(),
        external_host: Some(address.to_string()),
        port: options.address.port(),
        scheduler_host: host.to_owned(),
        scheduler_port: port.parse().unwrap_or_default(),
        scheduler_connect_timeout_seconds: 30,
        vcores: options.threads,
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(options.work_folder.display().to_string()),
        memory_pool_size: Some((options.memory_mib as u64) << 20),
        grpc_max_decoding_message_size: MESSAGE_MAX,
        grpc_max_encoding_message_size: MESSAGE_MAX,
        executor_heartbeat_interval_seconds: SILENCE_S / 4,
        override_physical_codec: Some(Arc::new(Codec::default())),
        ..ExecutorProcessConfig::default()
    };
    runtime()?.block_on(start_executor_process(Arc::new(config))).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_have_a_host_and_a_port() {
        let parsed: Scheduler = "df://[::1]:50050".parse().unwrap();
        assert_eq!(parsed.address, "[::1]:50050");
        for wrong in ["df://host", "host:1", "df://:1", "df://host:99999"] {
            assert!(wrong.parse::<Scheduler>().is_err(), "{wrong}");
        }
    }
}
