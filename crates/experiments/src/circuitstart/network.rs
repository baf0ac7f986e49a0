//! Windows from hop to hop over a whole simulated network, compared with Tor's own from end to end.

use super::Options;
use crate::common::Common;
use crate::error::Error;
use crate::reporting::{self, print_case};
use crate::simulated::{
    self, Batch, Change, Interval, Played, Runs, in_words, over_seeds, play_all, run_case,
};
use onion::flow::hop::HopWindows;
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};
use std::path::Path;
use terminal::{Interrupt, Output};
use tornet::network::Network;
use tornet::results::Transfers;

/// What all relays and clients have, as in names of files; the others are compared with the first.
const VARIANTS: [&str; 4] = ["vegas", "fixed", "circuitstart", "vegas-circuitstart"];

/// Congestion control from end to end (proposal 324), or windows of 1,000 cells; and in addition windows from hop to hop, or none.
fn chosen(mut network: Network, variant: &str) -> Network {
    let choices = &mut network.choices;
    choices.has_congestion_control = variant.starts_with("vegas");
    choices.hop_windows =
        variant.ends_with("circuitstart").then_some(HopWindows::CircuitStartAgain);
    network
}

pub(super) fn run(
    options: &Options,
    path: &Path,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let batch = Batch::new(&options.simulated.runs, path, common.quick)?;
    let folder = common.out.join("circuitstart-runs");
    let Runs { runs, planned, .. } =
        play_all(&batch, &VARIANTS, folder, chosen, (output, interrupt))?;
    let report = report(&batch, &runs, planned);
    let compared = batch.loads.len() * VARIANTS.len();
    report.cases.iter().take(compared).for_each(|case| print_case(case, output));
    Ok(report)
}

const TEXT: &str = include_str!("../../../../docs/experiments/circuitstart-network.md");

fn report(batch: &Batch, runs: &[Played], planned: usize) -> ExperimentReport {
    let loads = batch.loads.iter();
    let mut cases: Vec<Case> =
        loads.flat_map(|load| VARIANTS.map(|variant| variant_case(runs, variant, *load))).collect();
    cases.extend(runs.iter().map(run_case));
    let figures = simulated::of_runs(runs, &VARIANTS, &batch.loads);
    let mut report = reporting::report("circuitstart-network", TEXT);
    report.notes.extend(simulated::missing(runs.len(), planned));
    ExperimentReport {
        parameters: batch.parameters(),
        answer: format!("{} of {planned} runs; see the comparison.", runs.len()),
        cases,
        figures,
        promise: Promise::Decided { held: runs.len() == planned, rule: reporting::rule(TEXT) },
        ..report
    }
}

/// A single download shows nothing: the largest size of which each run has this number.
const DOWNLOADS_MIN: usize = 5;

fn largest(runs: &[Played]) -> Option<u32> {
    let has_enough = |bytes: u32| {
        let of = |it: &Played| it.size(bytes).map_or(0, |size| size.last_byte_s.len());
        runs.iter().all(|it| of(it) >= DOWNLOADS_MIN)
    };
    let sizes = runs.iter().flat_map(|it| &it.sizes).map(|it| it.bytes);
    sizes.filter(|bytes| has_enough(*bytes)).max()
}

/// A name, a unit, and what a run has of it.
type Figure<'a> = (String, &'a str, &'a dyn Fn(&Played) -> Option<f64>);

/// The results of a variant at a load, compared with the first one.
fn variant_case(runs: &[Played], variant: &str, load: u32) -> Case {
    let smallest = runs.iter().flat_map(|it| &it.sizes).map(|it| it.bytes).min().unwrap_or(0);
    let largest = largest(runs).unwrap_or(smallest);
    let of = |variant: &str, what: &dyn Fn(&Played) -> Option<f64>| -> Interval {
        over_seeds(runs, (variant, load), what)
    };
    let first_byte = |it: &Played| it.size(smallest)?.first_byte().median();
    let small_last = |it: &Played| it.size(smallest)?.last_byte().median();
    let large_last = |it: &Played| it.size(largest)?.last_byte().median();
    let fair = |it: &Played| fairness(it.size(largest)?);
    let queue = |it: &Played| Some(it.queue_ms);
    let sent = |it: &Played| Some(it.sent_median_mbit_per_s());
    let (small, large) = (in_words(smallest), in_words(largest));
    let mut told: Vec<Figure<'_>> = vec![
        (format!("first byte of {small}"), "s", &first_byte),
        (format!("last byte of {small}"), "s", &small_last),
        (format!("last byte of {large}"), "s", &large_last),
        ("fairness".to_owned(), "", &fair),
        ("in relays' queues".to_owned(), "ms", &queue),
        ("in queues and kernels".to_owned(), "ms", &Played::congestion_ms),
        ("relays sent".to_owned(), "Mbit/s", &sent),
    ];
    // Where there is one size only.
    told.dedup_by(|one, other| one.0 == other.0);
    let mut case = Case::new(format!("{variant}, load {load} %"), None, None);
    let mut parts = Vec::new();
    for (name, unit, what) in told {
        let own = of(variant, what);
        let change = Change::of(runs, (VARIANTS[0], variant), load, what);
        let compared = match change.percent.count {
            0 => String::new(),
            _ => format!(" ({:+.1} %)", change.percent),
        };
        parts.push(format!("{name} {own:.3} {unit}{compared}"));
        let column = name.replace(' ', "_").replace('\'', "");
        case = case
            .column(&column, own.mean)
            .column(&format!("{column}_half_width"), own.half_width.unwrap_or(f64::NAN));
    }
    case.ended(CaseVerdict::Skipped, parts.join("; "))
}

/// Jain's index of the rates at which downloads came: 1 if all were alike.
#[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
fn fairness(size: &Transfers) -> Option<f64> {
    let rates: Vec<f64> =
        size.last_byte_s.iter().map(|s| 1.0 / s).filter(|it| it.is_finite()).collect();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let sum: f64 = rates.iter().sum();
    (!rates.is_empty()).then(|| sum * sum / (rates.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_all_four_that_there_are() {
        let network = Network::default;
        let all = VARIANTS.map(|variant| {
            let choices = chosen(network(), variant).choices;
            (choices.has_congestion_control, choices.hop_windows.is_some())
        });
        assert_eq!(all, [(true, false), (false, false), (false, true), (true, true)]);
    }
}
