//! Whole simulated networks, run many times: what `balance` and `kist --network` have in common.
//!
//! A run is a variant (a balancer, or a scheduler) at a load with a seed. What came out of it is a file of its own: a batch that was interrupted goes on where it was, and shards on
//! several machines that share a folder, or whose files are put into one, make one report.

mod change;
mod figures;
mod interval;
mod options;
mod played;
mod store;

pub(crate) use change::Change;
pub(crate) use figures::{of_runs, per_second, times, together};
pub use interval::Interval;
pub(crate) use options::{Batch, RunsOptions, Shard, SimulatedOptions};
pub(crate) use played::{Played, Point, play};
pub(crate) use store::Store;

use crate::error::Error;
use crate::telling::tell;
use report::experiment::{Case, CaseVerdict};
use std::collections::BTreeSet;
use std::path::PathBuf;
use terminal::{Interrupt, Output};
use tornet::network::Network;

/// Plays all runs of a batch that were not played yet, or reads what came of them from `folder`; `choose` makes the network of a variant. It
/// tells of each.
pub(crate) fn play_all(
    batch: &Batch,
    variants: &[&str],
    folder: PathBuf,
    choose: impl Fn(Network, &str) -> Network,
    (output, interrupt): (&Output, &Interrupt),
) -> Result<Vec<Played>, Error> {
    let store = Store::new(folder)?;
    let points = batch.points(variants);
    output.step(format!("{} runs, {}", points.len(), batch.conditions));
    let mut runs = Vec::new();
    for point in &points {
        let mut played = store.read_run(&point.file_name(), &batch.conditions)?;
        let may = batch.is_ours(point, variants) && !interrupt.is_requested();
        if played.is_none() && may {
            let network = choose(batch.at_load(point.load_percent), &point.variant);
            played = play(batch, &network, point, output, interrupt)?;
            if let Some(played) = &played {
                store.write(&point.file_name(), played)?;
            }
        }
        let Some(played) = played else { continue };
        tell(&run_case(&played), output);
        runs.push(played);
    }
    Ok(runs)
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
    (variant, load): (&str, u32),
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
    let mut case = Case::new(it.point.name(), None, None)
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

/// How medians of times are reckoned, for people.
pub(crate) const MEDIANS: &str = "Medians and distributions of times are of all downloads that began, estimated after Kaplan and Meier: one that was under way \
     when its run ended counts for as long as it was seen, one that failed never comes.";

/// A size of a download.
pub(crate) fn in_words(bytes: u32) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
