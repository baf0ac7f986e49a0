//! What figures of simulated networks have in common.

use super::{Played, in_words, runs, sizes};
use report::experiment::ExperimentFigure;
use tornet::results::Waits;

/// What all runs of each variant at each load have seen, by name, pooled over seeds.
fn pooled<T>(
    all: &[Played],
    variants: &[&str],
    loads: &[u32],
    pool: impl Fn(&mut dyn Iterator<Item = &Played>) -> T,
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

/// Lists of all runs, pooled over seeds.
pub(crate) fn together(
    all: &[Played],
    variants: &[&str],
    loads: &[u32],
    what: impl Fn(&Played) -> Vec<f64>,
) -> Vec<(String, Vec<f64>)> {
    pooled(all, variants, loads, |runs| runs.flat_map(&what).collect())
}

/// Times for each size and what relays sent in each second, as far as there is anything to be drawn.
pub(crate) fn of_runs(all: &[Played], variants: &[&str], loads: &[u32]) -> Vec<ExperimentFigure> {
    let mut figures = times(all, "times", variants, loads);
    figures.push(per_second(all, "throughput", variants, loads));
    figures.retain(|figure| !figure.series.is_empty());
    figures
}

/// Times to the first and to the last byte for each size.
pub(crate) fn times(
    all: &[Played],
    prefix: &str,
    variants: &[&str],
    loads: &[u32],
) -> Vec<ExperimentFigure> {
    let mut figures = Vec::new();
    for bytes in sizes(all) {
        let size = in_words(bytes);
        for what in ["first", "last"] {
            let of = |it: &Played| -> Option<Waits> {
                let size = it.size(bytes)?;
                Some(if what == "first" { size.first_byte() } else { size.last_byte() })
            };
            let waits = pooled(all, variants, loads, |runs| {
                Waits::together(runs.filter_map(of)).distribution()
            });
            let name = format!("{prefix}-{what}-byte-{}", size.replace(' ', "").to_lowercase());
            let title = format!("Time to the {what} byte of {size}");
            let label = format!("time to the {what} byte in s");
            let mut figure = ExperimentFigure::shares(&name, &title, &label, waits);
            figure.y.label = "share of downloads".to_owned();
            figures.push(figure);
        }
    }
    figures
}

/// What relays sent in each second.
pub(crate) fn per_second(
    all: &[Played],
    name: &str,
    variants: &[&str],
    loads: &[u32],
) -> ExperimentFigure {
    let groups = together(all, variants, loads, |it| it.sent_mbit_per_s.clone());
    let label = "what all relays sent, in Mbit/s";
    let mut figure =
        ExperimentFigure::distributions(name, "Throughput of all relays", label, groups);
    figure.y.label = "share of seconds".to_owned();
    figure
}
