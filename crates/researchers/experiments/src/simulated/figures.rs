//! Figures of simulated networks.

use super::{RunResult, runs, size_text, sizes};
use report::experiment::ExperimentFigure;
use tornet::results::{Plateau, Transfers, Waits};

/// Applies `pool` to the runs of each variant at each load. Each result has the name of its group.
fn pooled<T>(
    all: &[RunResult],
    variants: &[&str],
    loads: &[u32],
    pool: impl Fn(&mut dyn Iterator<Item = &RunResult>) -> T,
) -> Vec<(String, T)> {
    let groups =
        variants.iter().flat_map(|variant| loads.iter().map(move |load| (*variant, *load)));
    let of = |(variant, load): (&str, u32)| {
        let name =
            if loads.len() > 1 { format!("{variant}, {load} %") } else { variant.to_owned() };
        (name, pool(&mut runs(all, variant, load)))
    };
    groups.map(of).collect()
}

/// Transfer times for each size, and throughput; figures without data are left out.
pub(crate) fn figures_of_runs(
    all: &[RunResult],
    variants: &[&str],
    loads: &[u32],
) -> Vec<ExperimentFigure> {
    let mut figures = transfer_times(all, "times", variants, loads);
    figures.push(throughput(all, "throughput", variants, loads));
    figures.retain(|figure| !figure.series.is_empty());
    figures
}

/// A note for each median that lies on a plateau of its distribution.
pub(crate) fn plateaus(all: &[RunResult], variants: &[&str], loads: &[u32]) -> Vec<String> {
    let mut notes = Vec::new();
    for bytes in sizes(all) {
        for (what, of) in [
            ("first", Transfers::first_byte as fn(&Transfers) -> Waits),
            ("last", Transfers::last_byte),
        ] {
            let found = pooled(all, variants, loads, |runs| {
                Waits::together(runs.filter_map(|run| run.size(bytes).map(of))).plateau()
            });
            for (name, plateau) in found {
                let Some(Plateau { share, from_s, until_s }) = plateau else { continue };
                notes.push(format!(
                    "{name}: {:.0} % of the times to the {what} byte of {} are at most {from_s:.2} s, and nearly all others at least \
                     {until_s:.2} s. The median is between two groups, and where exactly is chance: compare the 10th and 90th percentiles.",
                    share * 100.0,
                    size_text(bytes),
                ));
            }
        }
    }
    notes
}

/// Times to the first and to the last byte for each size.
pub(crate) fn transfer_times(
    all: &[RunResult],
    prefix: &str,
    variants: &[&str],
    loads: &[u32],
) -> Vec<ExperimentFigure> {
    let mut figures = Vec::new();
    for bytes in sizes(all) {
        let size = size_text(bytes);
        for what in ["first", "last"] {
            let of = |run: &RunResult| -> Option<Waits> {
                let size = run.size(bytes)?;
                Some(if what == "first" { size.first_byte() } else { size.last_byte() })
            };
            let waits = pooled(all, variants, loads, |runs| {
                Waits::together(runs.filter_map(of)).distribution()
            });
            let name = format!("{prefix}-{what}-byte-{}", size.replace(' ', "").to_lowercase());
            let title = format!("Time to the {what} byte of {size}");
            let label = format!("time to the {what} byte, s");
            let mut figure = ExperimentFigure::shares(&name, &title, &label, waits);
            figure.y.label = "share of downloads".to_owned();
            figures.push(figure);
        }
    }
    figures
}

/// What all relays together sent in each second.
pub(crate) fn throughput(
    all: &[RunResult],
    name: &str,
    variants: &[&str],
    loads: &[u32],
) -> ExperimentFigure {
    let groups = pooled(all, variants, loads, |runs| -> Vec<f64> {
        runs.flat_map(|run| run.sent_mbit_per_s.iter().copied()).collect()
    });
    let label = "what all relays sent, Mbit/s";
    let mut figure =
        ExperimentFigure::distributions(name, "Throughput of all relays", label, groups);
    figure.y.label = "share of seconds".to_owned();
    figure
}
