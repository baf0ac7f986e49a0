//! What figures of simulated networks have in common.

use super::{Played, in_words, runs};
use report::experiment::ExperimentFigure;

/// What all runs of each variant at each load have seen, pooled over seeds, by name.
pub(crate) fn together(
    all: &[Played],
    variants: &[&str],
    loads: &[u32],
    what: impl Fn(&Played) -> Vec<f64>,
) -> Vec<(String, Vec<f64>)> {
    let groups =
        variants.iter().flat_map(|variant| loads.iter().map(move |load| (*variant, *load)));
    let pooled = |(variant, load): (&str, u32)| {
        let name =
            if loads.len() > 1 { format!("{variant}, {load} %") } else { variant.to_owned() };
        (name, runs(all, variant, load).flat_map(&what).collect())
    };
    groups.map(pooled).collect()
}

fn distributions(
    name: &str,
    title: &str,
    label: &str,
    of: &str,
    groups: &[(String, Vec<f64>)],
) -> ExperimentFigure {
    let groups = groups.iter().map(|(name, values)| (name.as_str(), values.as_slice()));
    let mut figure = ExperimentFigure::distributions(name, title, label, groups);
    figure.y.label = format!("share of {of}");
    figure
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
    let mut sizes: Vec<u32> = all.iter().flat_map(|it| &it.sizes).map(|it| it.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut figures = Vec::new();
    for bytes in sizes {
        let size = in_words(bytes);
        let pooled = |first: bool| {
            together(all, variants, loads, |it| {
                let times = it.size(bytes);
                times
                    .map(|it| if first { &it.first_byte_s } else { &it.last_byte_s })
                    .cloned()
                    .unwrap_or_default()
            })
        };
        for (first, what) in [(true, "first"), (false, "last")] {
            let name = format!("{prefix}-{what}-byte-{}", size.replace(' ', "").to_lowercase());
            let title = format!("Time to the {what} byte of {size}");
            let label = format!("time to the {what} byte in s");
            figures.push(distributions(&name, &title, &label, "downloads", &pooled(first)));
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
    distributions(name, "Throughput of all relays", label, "seconds", &groups)
}
