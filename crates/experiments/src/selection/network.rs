//! Strategies at the scale of a network: all clients of a simulated one choose so, and meet in its relays.

use super::judge::decided;
use crate::common::Common;
use crate::error::Error;
use crate::reporting;
use crate::simulated::{
    self, Batch, Interval, Played, Runs, SimulatedOptions, in_words, over_seeds, play_all, run_case,
};
use client::strategy::blend;
use report::experiment::{Case, CaseVerdict, ExperimentReport};
use sim::world::PositionWeights;
use std::collections::BTreeSet;
use std::path::Path;
use terminal::{Interrupt, Output};
use tornet::network::{Network, Relay};

/// The download by which throughput is judged: the middle one of Tor's benchmarks.
const MIDDLE_BYTES: u32 = 1 << 20;

/// How relays are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weighting {
    /// All alike.
    Uniform,
    /// By what they can carry, but with half of the influence.
    Half,
    /// By the network's weights, as stock clients.
    Weighted,
    /// By what they can carry: as measured without any error.
    Capacity,
}

impl Weighting {
    const ALL: [Self; 4] = [Self::Uniform, Self::Half, Self::Weighted, Self::Capacity];

    const fn word(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Half => "half-capacity",
            Self::Weighted => "weighted",
            Self::Capacity => "capacity",
        }
    }

    /// The relays' weights, in the network's order.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a million at most"
    )]
    fn weights(self, network: &Network) -> Vec<u64> {
        let capacity = |relay: &Relay| relay.capacity().as_bit_per_s();
        let most = network.relays.iter().map(capacity).max().unwrap_or(1).max(1) as f64;
        let weight = |relay: &Relay| match self {
            Self::Uniform => 1000,
            Self::Half => (blend(capacity(relay) as f64 / most, 0.5) * 1e6) as u64,
            Self::Weighted => relay.weight,
            Self::Capacity => (capacity(relay) / 8000).max(1),
        };
        network.relays.iter().map(weight).collect()
    }
}

pub(super) fn run(
    options: &SimulatedOptions,
    path: &Path,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let batch = Batch::new(&options.runs, path, common.quick)?;
    let names = Weighting::ALL.map(Weighting::word);
    let folder = common.out.join("selection-runs");
    let Runs { runs, planned, .. } = play_all(&batch, &names, folder, chosen, (output, interrupt))?;
    Ok(report(&batch, &names, &runs, planned))
}

/// The network, with clients that choose in this way.
fn chosen(network: Network, way: &str) -> Network {
    let way = Weighting::ALL.into_iter().find(|it| it.word() == way);
    let weights = way.unwrap_or(Weighting::Weighted).weights(&network);
    network.weighted(&weights)
}

/// Entropies of the choice of the first and of the last hop, in bits.
fn entropies(network: &Network) -> [f64; 2] {
    let total = |is_guard: bool, is_exit: bool| -> f64 {
        let of_kind = |it: &&Relay| it.is_guard == is_guard && it.is_exit == is_exit;
        network.relays.iter().filter(of_kind).map(|it| it.weight as f64).sum()
    };
    let (g, m) = (total(true, false), total(false, false));
    let at = PositionWeights::of(g, m, total(false, true), total(true, true));
    let entropy = |weight: &dyn Fn(&Relay) -> f64| {
        let weights: Vec<f64> = network.relays.iter().map(weight).collect();
        let all: f64 = weights.iter().sum();
        let shares = weights.into_iter().map(|it| it / all).filter(|it| *it > 0.0);
        -shares.map(|share| share * share.log2()).sum::<f64>()
    };
    let guard = |it: &Relay| {
        if it.is_guard { it.weight as f64 * at.guard[usize::from(it.is_exit)] } else { 0.0 }
    };
    let exit = |it: &Relay| {
        if it.is_exit { it.weight as f64 * at.exit[usize::from(it.is_guard)] } else { 0.0 }
    };
    [entropy(&guard), entropy(&exit)]
}

const TEXT: &str = include_str!("../../../../docs/experiments/selection-network.md");

fn report(batch: &Batch, names: &[&str], runs: &[Played], planned: usize) -> ExperimentReport {
    let mut cases = Vec::new();
    for load in batch.loads.iter().copied() {
        cases.extend(table_iii(runs, load));
        cases.extend(Weighting::ALL.map(|way| strategy(batch, runs, way, load)));
    }
    let told = cases.iter().filter(|it| it.verdict != CaseVerdict::Skipped);
    let told: Vec<String> = told.map(|it| format!("{} {}", it.name, it.detail)).collect();
    let answer = format!("In a network that its users load: {}.", told.join("; "));
    cases.extend(runs.iter().map(run_case));
    let figures = simulated::of_runs(runs, names, &batch.loads);
    let mut report = reporting::report("selection-network", TEXT);
    report.notes.extend(simulated::missing(runs.len(), planned));
    ExperimentReport { parameters: batch.parameters(), answer, cases, figures, ..report }
}

/// The size by which a run is judged.
fn judged_bytes(runs: &[Played]) -> Option<u32> {
    let sizes = || runs.iter().flat_map(|it| &it.sizes).map(|it| it.bytes);
    sizes().find(|it| *it == MIDDLE_BYTES).or_else(|| sizes().max())
}

fn first_byte_s(it: &Played) -> Option<f64> {
    let size = it.sizes.iter().min_by_key(|it| it.bytes)?;
    size.first_byte().median()
}

/// In the median of all downloads that began: one that failed had nothing, since it never comes.
fn kb_per_s(it: &Played, bytes: u32) -> Option<f64> {
    Some(f64::from(bytes) / 1e3 / it.size(bytes)?.last_byte().median()?)
}

/// Throughput and latency of weighted paths compared with those of uniform ones, a case each. Runs of a seed have the same network and users: they are
/// compared with each other.
fn table_iii(runs: &[Played], load: u32) -> [Case; 2] {
    let bytes = judged_bytes(runs).unwrap_or(MIDDLE_BYTES);
    let rate = |it: &Played| kb_per_s(it, bytes);
    let name = format!("throughput of {}", in_words(bytes));
    [
        compared(runs, load, (&name, &rate, 4.11)),
        compared(runs, load, ("time to the first byte", &first_byte_s, 0.68)),
    ]
}

/// What a run has of something.
type Of<'r> = &'r dyn Fn(&Played) -> Option<f64>;

fn compared(runs: &[Played], load: u32, (what, value, paper): (&str, Of<'_>, f64)) -> Case {
    let played = |name: &str, seed: u64| {
        let is_it = |it: &&Played| {
            it.point.variant == name && it.point.load_percent == load && it.point.seed == seed
        };
        runs.iter().find(is_it)
    };
    let of = |name: &str, seed: u64| played(name, seed).and_then(value);
    let all: BTreeSet<u64> = runs.iter().map(|it| it.point.seed).collect();
    let are_both =
        |seed: &&u64| played("weighted", **seed).is_some() && played("uniform", **seed).is_some();
    let seeds = all.iter().filter(are_both).count();
    let pairs =
        all.into_iter().filter_map(|seed| Some((of("weighted", seed)?, of("uniform", seed)?)));
    let pairs: Vec<(f64, f64)> = pairs.collect();
    let gains =
        pairs.iter().map(|(weighted, uniform)| (weighted - uniform) * (paper - 1.0).signum());
    let gain = Interval::of(&gains.collect::<Vec<_>>());
    let sum = |pick: fn(&(f64, f64)) -> f64| pairs.iter().map(pick).sum::<f64>();
    let factor = sum(|it| it.0) / sum(|it| it.1);
    let verdict = match pairs.is_empty() {
        true => CaseVerdict::Failed,
        // A seed without a median is the slowest: what the others show is of the fast ones.
        false if gain.count < seeds => CaseVerdict::Inconclusive,
        false => decided(gain.mean, gain.half_width),
    };
    let name = format!("table III: {what}, weighted over uniform, load {load} %");
    let finite = factor.is_finite().then(|| (factor * 1e3).round() / 1e3);
    Case::new(name, None, None)
        .column("factor", finite)
        .column("factor_paper", paper)
        .column("seeds", gain.count)
        .ended(
            verdict,
            format!("× {factor:.2} over {} of {seeds} seeds; paper × {paper:.2}", gain.count),
        )
}

fn strategy(batch: &Batch, runs: &[Played], way: Weighting, load: u32) -> Case {
    let of = |what: &dyn Fn(&Played) -> Option<f64>| over_seeds(runs, (way.word(), load), what);
    let bytes = judged_bytes(runs).unwrap_or(MIDDLE_BYTES);
    let [guard_bits, exit_bits] = entropies(&chosen(batch.at_load(load), way.word()));
    let first: Interval = of(&first_byte_s).times(1e3);
    let rate = of(&|it: &Played| kb_per_s(it, bytes));
    let failed = of(&Played::failed_share).times(100.0);
    let rounded = |it: f64| it.is_finite().then(|| (it * 1e3).round() / 1e3);
    Case::new(format!("{}, load {load} %", way.word()), None, None)
        .column("strategy", way.word())
        .column("first_byte_ms", rounded(first.mean))
        .column("first_byte_ms_interval", first.half_width.and_then(rounded))
        .column("throughput_kb_s", rounded(rate.mean))
        .column("throughput_kb_s_interval", rate.half_width.and_then(rounded))
        .column("failed_percent", rounded(failed.mean))
        .column("guard_bits", rounded(guard_bits))
        .column("exit_bits", rounded(exit_bits))
        .ended(
            CaseVerdict::Skipped,
            format!(
                "first byte after {first:.0} ms, {rate:.0} kB/s, {failed:.1} % failed; guard {guard_bits:.2} bits, exit {exit_bits:.2} bits"
            ),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;
    use tornet::network::Site;
    use tornet::results::Unfinished;

    fn network() -> Network {
        let relay = |number: u32, mbit: f64, is_guard, is_exit| {
            let rate = Rate::from_mbit_per_s(mbit);
            let site = Site::new(format!("relay{number}"), "DE", rate);
            Relay { site, weight: 7, is_guard, is_exit, limit: None }
        };
        let relays = vec![
            relay(1, 8.0, true, false),
            relay(2, 24.0, true, false),
            relay(3, 8.0, false, true),
            relay(4, 8.0, false, true),
            relay(5, 16.0, false, false),
        ];
        Network { relays, ..Network::default() }
    }

    fn played(variant: &str, seed: u64, last_byte_s: &[f64], failed: usize) -> Played {
        let transfers = serde_json::json!({
            "conditions": "", "network_weight_error": 0.0, "sent_mbit_per_s": [],
            "goodput_mbit_per_s": 0.0, "utilisation": 0.0, "queue_ms": 0.0, "wall_s": 0.0, "fingerprint": "",
            "point": {"variant": variant, "load_percent": 100, "seed": seed},
            "sizes": [{
                "bytes": MIDDLE_BYTES, "first_byte_s": last_byte_s, "last_byte_s": last_byte_s,
                "unfinished": vec![Unfinished::FAILED; failed], "failed_of_client": [],
            }],
        });
        serde_json::from_value(transfers).expect("a run")
    }

    #[test]
    fn downloads_that_failed_count_and_runs_of_a_seed_are_compared_with_each_other() {
        // Few uniform downloads are whole, and those are fast.
        assert_eq!(kb_per_s(&played("uniform", 1, &[1.0], 2), MIDDLE_BYTES), Some(0.0));
        assert_eq!(kb_per_s(&played("uniform", 1, &[1.0, 1.0], 1), MIDDLE_BYTES), Some(1048.576));
        // Seeds differ by far more than what weights do.
        let both = |seed: u64, s: f64| {
            [played("weighted", seed, &[s], 0), played("uniform", seed, &[s * 1.3 + 0.1], 0)]
        };
        let runs: Vec<Played> = [both(1, 1.0), both(2, 9.0), both(3, 3.0)].concat();
        let all = Interval::of(&[1.0, 9.0, 3.0]);
        assert!(all.half_width > Some(all.mean), "{all}");
        let [_, first] = table_iii(&runs, 100);
        assert_eq!(first.verdict, CaseVerdict::Inconclusive, "{first:?}");
        let close: Vec<Played> = [both(1, 1.0), both(2, 1.2), both(3, 1.1)].concat();
        assert_eq!(table_iii(&close, 100).map(|it| it.verdict), [CaseVerdict::Held; 2]);
        let others = |it: &Played| it.point.variant == "uniform";
        let only: Vec<Played> = close.into_iter().filter(others).collect();
        assert_eq!(table_iii(&only, 100).map(|it| it.verdict), [CaseVerdict::Failed; 2]);
    }

    #[test]
    fn weights_are_those_of_the_strategy_and_cost_the_entropy_of_a_textbook() {
        let network = network();
        assert_eq!(Weighting::Uniform.weights(&network), [1000; 5]);
        assert_eq!(Weighting::Weighted.weights(&network), [7; 5]);
        assert_eq!(Weighting::Capacity.weights(&network), [1000, 3000, 1000, 1000, 2000]);
        let half = Weighting::Half.weights(&network);
        assert_eq!((half[1], half[0]), (1_000_000, 666_666));
        let of = |way: Weighting| entropies(&network.clone().weighted(&way.weights(&network)));
        assert_eq!(of(Weighting::Uniform), [1.0, 1.0]);
        let [guard, exit] = of(Weighting::Capacity);
        // One in four and three in four.
        assert!((guard - 0.811_278).abs() < 1e-5 && (exit - 1.0).abs() < 1e-9, "{guard}, {exit}");
    }
}
