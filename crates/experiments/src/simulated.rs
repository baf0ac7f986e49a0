//! Whole simulated networks, run many times: what `balance` and `kist --network` have in common.
//!
//! A run is a variant (a balancer, or a scheduler) at a load with a seed. What came out of it is a file of its own: a batch that was interrupted goes on where it was, and shards on
//! several machines that share a folder, or whose files are put into one, make one report.

mod change;
mod comparison;
mod figures;
mod interval;
mod options;
mod played;
mod progress;
mod store;

pub(crate) use change::Change;
pub(crate) use comparison::{Claim, Comparison, Expected, Quantity, compared};
pub(crate) use figures::{of_runs, per_second, times, together};
pub use interval::Interval;
pub(crate) use options::{Batch, RunsOptions, Shard, SimulatedOptions};
pub(crate) use played::{Played, Point, play};
pub(crate) use store::Store;

use crate::common::Session;
use crate::error::Result;
use crate::reporting::print_case;
use progress::Progress;
use report::experiment::{Case, CaseVerdict};
use std::collections::BTreeSet;
use tornet::network::Network;

/// Plays all variants of networks at all loads with all seeds.
pub(crate) struct Runner<'a> {
    /// Each variant with its batch.
    pub(crate) variants: Vec<(&'a str, &'a Batch)>,
    /// Where the results of runs are.
    pub(crate) store: &'a Store,
    pub(crate) session: Session<'a>,
}

/// The runs that were played, now or before.
#[derive(Default)]
pub(crate) struct Runs {
    pub(crate) runs: Vec<Played>,
    /// Of all shards.
    pub(crate) planned: usize,
    /// Of this shard, and not played yet.
    pub(crate) left: usize,
}

impl Runner<'_> {
    /// Plays the runs of this shard that were not played yet, and reads the results of the others. `network` makes the network of a run; `None` if the
    /// user has interrupted.
    pub(crate) fn play_all(
        &self,
        network: impl Fn(&Batch, &Point) -> Result<Option<Network>>,
    ) -> Result<Runs> {
        let Some((_, first)) = self.variants.first() else { return Ok(Runs::default()) };
        let names: Vec<&str> = self.variants.iter().map(|(name, _)| *name).collect();
        let points = first.points(&names);
        self.session.output.step(format!("{} runs, {}", points.len(), first.conditions));
        let ours = points.iter().filter(|it| first.is_ours(it, &names)).count();
        let mut progress = Progress::new(ours);
        let mut runs = Vec::new();
        for point in &points {
            let variant = self.variants.iter().find(|(name, _)| *name == point.variant);
            let Some((_, batch)) = variant else { continue };
            let name = point.file_name();
            let mut played = self.store.read_run(&name, &batch.conditions)?;
            let is_ours = first.is_ours(point, &names);
            if played.is_some() {
                progress.was_there(is_ours);
            } else if is_ours && !self.session.interrupt.is_requested() {
                self.session.output.step(progress.next(point));
                if let Some(network) = network(batch, point)? {
                    played = play(batch, &network, point, self.session)?;
                }
                if let Some(played) = &played {
                    self.store.write(&name, played)?;
                    progress.is_over();
                }
            }
            let Some(played) = played else { continue };
            print_case(&run_case(&played), self.session.output);
            runs.push(played);
        }
        Ok(Runs { runs, planned: points.len(), left: progress.left })
    }
}

/// That some were not played, if so.
pub(crate) fn missing(played: usize, planned: usize) -> Option<String> {
    let left = planned.saturating_sub(played);
    (left > 0).then(|| format!("{left} runs are missing: the same command plays them."))
}

/// All runs of a variant at a load, by seed.
pub(crate) fn runs<'a>(
    all: &'a [Played],
    variant: &'a str,
    load: u32,
) -> impl Iterator<Item = &'a Played> + Clone {
    all.iter().filter(move |it| it.point.variant == variant && it.point.load_percent == load)
}

/// The sizes of downloads that there are, the smallest first.
pub(crate) fn sizes(all: &[Played]) -> BTreeSet<u32> {
    all.iter().flat_map(|it| &it.sizes).map(|it| it.bytes).collect()
}

/// The mean over seeds of something that each run has, with its interval.
pub(crate) fn over_seeds(
    all: &[Played],
    variant: &str,
    load: u32,
    what: impl Fn(&Played) -> Option<f64>,
) -> Interval {
    Interval::of(&runs(all, variant, load).filter_map(what).collect::<Vec<f64>>())
}

/// A run as a row of the table.
pub(crate) fn run_case(it: &Played) -> Case {
    let mut detail = format!("relays sent {:.0} Mbit/s", it.sent_median_mbit_per_s());
    for size in &it.sizes {
        if let Some(last) = size.last_byte().median() {
            detail.push_str(&format!("; {} in {last:.2} s", in_words(size.bytes)));
        }
    }
    let mut case = Case::named(it.point.name())
        .ended(CaseVerdict::Held, detail)
        .column("variant", it.point.variant.as_str())
        .column("load_percent", it.point.load_percent)
        .column("seed", it.point.seed)
        .column("network_weight_error", it.network_weight_error)
        .column("sent_median_mbit_per_s", it.sent_median_mbit_per_s())
        .column("goodput_mbit_per_s", it.goodput_mbit_per_s)
        .column("utilisation", it.utilisation)
        .column("queue_ms", it.queue_ms)
        .column("kernel_queue_ms", it.kernel_queue_ms.unwrap_or(f64::NAN))
        .column("wall_s", it.wall_s)
        .column("fingerprint", it.fingerprint.as_str());
    for size in &it.sizes {
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

/// A size of a download.
pub(crate) fn in_words(bytes: u32) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
