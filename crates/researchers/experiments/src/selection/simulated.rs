//! Strategies in a simulated network, all of whose clients use the same strategy and share its relays.

use crate::columns::rounded;
use crate::common::Session;
use crate::error::Result;
use crate::simulated::{Claim, Comparison, Expected, Quantity, RunResult, SimulatedOptions, sizes};
use client::strategy::blend;
use report::experiment::{Case, CaseVerdict, ExperimentReport};
use sim::world::PositionWeights;
use std::path::Path;
use tornet::network::{Network, Relay};

/// The size of the download that determines throughput: the middle one of Tor's benchmarks.
const MIDDLE_BYTES: u32 = 1 << 20;

/// The weights of relays: equal; by capacity, with half of the influence; the network's own, which C tor clients use; by exact capacity.
const VARIANTS: [&str; 4] = ["uniform", "half-capacity", "weighted", "capacity"];

/// The relays' weights, in the network's order.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a million at most")]
fn weights(network: &Network, variant: &str) -> Vec<u64> {
    let capacity = |relay: &Relay| relay.capacity().as_bit_per_s();
    let most = network.relays.iter().map(capacity).max().unwrap_or(1).max(1) as f64;
    let weight = |relay: &Relay| match variant {
        "uniform" => 1000,
        "half-capacity" => (blend(capacity(relay) as f64 / most, 0.5) * 1e6) as u64,
        "capacity" => (capacity(relay) / 8000).max(1),
        _ => relay.weight,
    };
    network.relays.iter().map(weight).collect()
}

/// The network with these weights.
fn reweighted(network: Network, variant: &str) -> Network {
    let weights = weights(&network, variant);
    network.weighted(&weights)
}

pub(super) fn run(
    options: &SimulatedOptions,
    path: &Path,
    session: Session<'_>,
) -> Result<ExperimentReport> {
    let comparison = Comparison {
        name: "selection-network",
        text: include_str!("../../../../../docs/experiments/selection-network.md"),
        folder: "selection-runs",
        conditions: String::new(),
        variants: &VARIANTS,
        choose: &reweighted,
        claims: &claims,
    };
    comparison.run(&options.runs, path, session, |batch| {
        VARIANTS.map(|variant| anonymity(&batch.network, variant)).into()
    })
}

/// Table III: weighted paths have 4.11 times the throughput of uniform ones, and 0.68 times the time to the first byte.
fn claims(runs: &[RunResult]) -> Vec<Claim> {
    let sizes = sizes(runs);
    let judged = sizes.get(&MIDDLE_BYTES).or(sizes.last()).copied().unwrap_or(MIDDLE_BYTES);
    let least = sizes.first().copied().unwrap_or(MIDDLE_BYTES);
    let claim = |quantity, factor: f64| Claim {
        variant: "weighted",
        against: "uniform",
        quantity,
        expected: Expected::Less,
        paper_percent: Some((factor - 1.0) * 100.0),
    };
    vec![claim(Quantity::last_byte(judged), 1.0 / 4.11), claim(Quantity::first_byte(least), 0.68)]
}

/// The entropies of the choice of guard and exit, in bits.
fn entropies(network: &Network) -> [f64; 2] {
    let total = |is_guard: bool, is_exit: bool| -> f64 {
        let of_kind = |relay: &&Relay| relay.is_guard == is_guard && relay.is_exit == is_exit;
        network.relays.iter().filter(of_kind).map(|relay| relay.weight as f64).sum()
    };
    let (g, m) = (total(true, false), total(false, false));
    let at = PositionWeights::of(g, m, total(false, true), total(true, true));
    let entropy = |weight: &dyn Fn(&Relay) -> f64| {
        let weights: Vec<f64> = network.relays.iter().map(weight).collect();
        let all: f64 = weights.iter().sum();
        let shares = weights.into_iter().map(|weight| weight / all).filter(|share| *share > 0.0);
        -shares.map(|share| share * share.log2()).sum::<f64>()
    };
    let guard = |relay: &Relay| {
        if relay.is_guard {
            relay.weight as f64 * at.guard[usize::from(relay.is_exit)]
        } else {
            0.0
        }
    };
    let exit = |relay: &Relay| {
        if relay.is_exit { relay.weight as f64 * at.exit[usize::from(relay.is_guard)] } else { 0.0 }
    };
    [entropy(&guard), entropy(&exit)]
}

/// The entropy case of a variant.
fn anonymity(network: &Network, variant: &str) -> Case {
    let [guard_bits, exit_bits] = entropies(&reweighted(network.clone(), variant));
    Case::named(format!("{variant}: entropy of the choice of relays"))
        .column("strategy", variant)
        .column("guard_bits", rounded(guard_bits, 3))
        .column("exit_bits", rounded(exit_bits, 3))
        .ended(
            CaseVerdict::Reported,
            format!("guard {guard_bits:.2} bits, exit {exit_bits:.2} bits"),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;
    use tornet::network::Site;
    use tornet::results::{Transfers, Unfinished};

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

    fn run_with(variant: &str, seed: u64, last_byte_s: &[f64], failed: usize) -> RunResult {
        let sizes = vec![Transfers {
            bytes: MIDDLE_BYTES,
            first_byte_s: last_byte_s.to_vec(),
            last_byte_s: last_byte_s.to_vec(),
            unfinished: vec![Unfinished::FAILED; failed],
            ..Transfers::default()
        }];
        RunResult { sizes, ..RunResult::blank(variant, seed) }
    }

    #[test]
    fn runs_are_compared_seed_by_seed_and_failed_downloads_are_inconclusive() {
        let verdicts = |runs: &[RunResult]| -> Vec<CaseVerdict> {
            claims(runs).iter().map(|claim| claim.case(runs, 100).verdict).collect()
        };
        // Seeds differ far more than variants do.
        let both = |seed: u64, s: f64, failed: usize| {
            [
                run_with("weighted", seed, &[s], 0),
                run_with("uniform", seed, &[s * 1.3 + 0.1], failed),
            ]
        };
        let runs: Vec<RunResult> = [both(1, 1.0, 0), both(2, 9.0, 0), both(3, 3.0, 0)].concat();
        assert_eq!(verdicts(&runs), [CaseVerdict::Held; 2]);
        // Most uniform downloads fail; the others are fast.
        let failed: Vec<RunResult> = [both(1, 1.0, 0), both(2, 1.2, 2), both(3, 1.1, 0)].concat();
        assert_eq!(verdicts(&failed), [CaseVerdict::Inconclusive; 2]);
        let others = |run: &RunResult| run.key.variant == "uniform";
        let only: Vec<RunResult> = runs.into_iter().filter(others).collect();
        assert_eq!(verdicts(&only), [CaseVerdict::Failed; 2]);
    }

    #[test]
    fn variants_have_the_expected_weights_and_entropies() {
        let network = network();
        assert_eq!(weights(&network, "uniform"), [1000; 5]);
        assert_eq!(weights(&network, "weighted"), [7; 5]);
        assert_eq!(weights(&network, "capacity"), [1000, 3000, 1000, 1000, 2000]);
        let half = weights(&network, "half-capacity");
        assert_eq!((half[1], half[0]), (1_000_000, 666_666));
        let of = |variant| entropies(&reweighted(network.clone(), variant));
        assert_eq!(of("uniform"), [1.0, 1.0]);
        let [guard, exit] = of("capacity");
        // Probabilities of one quarter and three quarters.
        assert!((guard - 0.811_278).abs() < 1e-5 && (exit - 1.0).abs() < 1e-9, "{guard}, {exit}");
    }
}
