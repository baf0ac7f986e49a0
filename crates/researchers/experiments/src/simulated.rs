//! Repeated runs of whole simulated networks, shared by `balance`, `sim batch` and the `--network` experiments.
//!
//! A run is one variant (such as a balancer or a scheduler) at one load with one seed. Each run has its own
//! result file, so that an interrupted batch resumes where it stopped, and shards that write to one folder
//! make one report.

mod change;
mod comparison;
mod figures;
mod interval;
mod options;
mod progress;
mod run_result;
mod store;
mod tidy;

pub(crate) use change::Change;
pub(crate) use comparison::{Claim, Comparison, Expected, Quantity, comparison_cases};
pub(crate) use figures::{figures_of_runs, plateaus, throughput, transfer_times};
pub use interval::Interval;
pub(crate) use options::{Batch, RunsOptions, Shard, SimulatedOptions};
pub(crate) use run_result::{RunKey, RunResult, simulate};
pub(crate) use store::Store;
pub(crate) use tidy::tidy_table;

use crate::common::Session;
use crate::error::Result;
use crate::reporting::print_case;
use progress::Progress;
use report::experiment::Case;
use std::collections::BTreeSet;
use tornet::network::Network;

/// Runs all variants of networks at all loads with all seeds.
pub(crate) struct Runner<'a> {
    /// Each variant with its batch.
    pub(crate) variants: Vec<(&'a str, &'a Batch)>,
    pub(crate) store: &'a Store,
    pub(crate) session: Session<'a>,
}

/// The completed runs of a batch, from this process or an earlier one.
#[derive(Default)]
pub(crate) struct Runs {
    pub(crate) runs: Vec<RunResult>,
    /// The number of runs of all shards.
    pub(crate) planned: usize,
    /// The number of runs of this shard that have not completed.
    pub(crate) remaining: usize,
}

impl Runner<'_> {
    /// Simulates this shard's runs that have no result yet, and reads all other results. `network` makes the
    /// network of a run, or returns `None` after an interrupt.
    pub(crate) fn run_all(
        &self,
        network: impl Fn(&Batch, &RunKey) -> Result<Option<Network>>,
    ) -> Result<Runs> {
        let Some((_, first)) = self.variants.first() else { return Ok(Runs::default()) };
        let names: Vec<&str> = self.variants.iter().map(|(name, _)| *name).collect();
        let keys = first.keys(&names);
        self.session.output.step(format!("{} runs, {}", keys.len(), first.conditions));
        let ours = keys.iter().filter(|key| first.is_in_shard(key, &names)).count();
        let mut progress = Progress::new(ours);
        let mut runs = Vec::new();
        for key in &keys {
            let variant = self.variants.iter().find(|(name, _)| *name == key.variant);
            let Some((_, batch)) = variant else { continue };
            let name = key.file_name();
            let mut result = self.store.read_run(&name, &batch.conditions)?;
            let is_ours = first.is_in_shard(key, &names);
            if result.is_some() {
                progress.skip(is_ours);
            } else if is_ours && !self.session.interrupt.is_requested() {
                self.session.output.step(progress.next(key));
                if let Some(network) = network(batch, key)? {
                    result = simulate(batch, &network, key, self.session)?;
                }
                if let Some(result) = &result {
                    self.store.write(&name, result)?;
                    progress.complete();
                }
            }
            let Some(result) = result else { continue };
            print_case(&run_case(&result), self.session.output);
            runs.push(result);
        }
        Ok(Runs { runs, planned: keys.len(), remaining: progress.remaining })
    }
}

/// A note that some runs have no result, or `None` if all have one.
pub(crate) fn missing_runs(completed: usize, planned: usize) -> Option<String> {
    let missing = planned.saturating_sub(completed);
    (missing > 0).then(|| format!("{missing} runs are missing: the same command performs them."))
}

/// All runs of a variant at a load, by seed.
pub(crate) fn runs<'a>(
    all: &'a [RunResult],
    variant: &'a str,
    load: u32,
) -> impl Iterator<Item = &'a RunResult> + Clone {
    all.iter().filter(move |run| run.key.variant == variant && run.key.load_percent == load)
}

/// The sizes of downloads in these runs, in ascending order.
pub(crate) fn sizes(all: &[RunResult]) -> BTreeSet<u32> {
    all.iter().flat_map(|run| &run.sizes).map(|size| size.bytes).collect()
}

/// The mean over seeds of a figure of each run, with its interval.
pub(crate) fn mean_over_seeds(
    all: &[RunResult],
    variant: &str,
    load: u32,
    figure: impl Fn(&RunResult) -> Option<f64>,
) -> Interval {
    Interval::of(runs(all, variant, load).filter_map(figure))
}

/// A run as a row of the table.
pub(crate) fn run_case(run: &RunResult) -> Case {
    let mut detail = format!("relays sent {:.0} Mbit/s", run.sent_median_mbit_per_s());
    for size in &run.sizes {
        if let Some(last) = size.last_byte().median() {
            detail.push_str(&format!("; {} in {last:.2} s", size_text(size.bytes)));
        }
    }
    let mut case = Case::reported(run.key.name(), detail)
        .column("variant", run.key.variant.as_str())
        .column("load_percent", run.key.load_percent)
        .column("seed", run.key.seed)
        .column("network_weight_error", run.network_weight_error)
        .column("sent_median_mbit_per_s", run.sent_median_mbit_per_s())
        .column("goodput_mbit_per_s", run.goodput_mbit_per_s)
        .column("utilisation", run.utilisation)
        .column("queue_ms", run.queue_ms)
        .column("kernel_queue_ms", run.kernel_queue_ms.unwrap_or(f64::NAN))
        .column("wall_s", run.wall_s)
        .column("fingerprint", run.fingerprint.as_str());
    for size in &run.sizes {
        let kib = size.bytes / 1024;
        let (first, last) = (size.first_byte().median(), size.last_byte().median());
        case = case
            .column(&format!("first_byte_{kib}_kib_s"), first.unwrap_or(f64::NAN))
            .column(&format!("last_byte_{kib}_kib_s"), last.unwrap_or(f64::NAN))
            .column(&format!("downloads_{kib}_kib"), size.last_byte_s.len() + size.unfinished.len())
            .column(&format!("failed_{kib}_kib"), size.failed())
            .column(&format!("under_way_{kib}_kib"), size.under_way());
    }
    case
}

/// The size of a download as text, such as `50 KiB`.
pub(crate) fn size_text(bytes: u32) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
