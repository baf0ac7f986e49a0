//! Figures 8 and 9 of the paper.

use super::judge::Results;
use super::weighed::Errors;
use crate::simulated::{self, Interval, throughput, transfer_times};
use report::experiment::{Axis, ExperimentFigure, On, Role, Series};

impl Results {
    pub(super) fn figures(&self, names: &[&str], loads: &[u32]) -> Vec<ExperimentFigure> {
        let pooled = |what: &dyn Fn(&Errors) -> Vec<f64>| -> Vec<(String, Vec<f64>)> {
            let of = |name: &&str| ((*name).to_owned(), self.of(name).flat_map(what).collect());
            names.iter().map(of).collect()
        };
        let mut figures = vec![
            errors(
                "figure-8a",
                "Relay capacity error",
                "1 − estimate ÷ capacity",
                pooled(&|error| error.rce.clone()),
            )
            .caption("Equation 2 of the paper, over all relays and seeds: 0 is correct."),
            errors(
                "figure-8b",
                "Relay weight error",
                "log10 (share of weight ÷ share of capacity)",
                pooled(&|error| error.log_rwe.clone()),
            )
            .caption("Equation 5 of the paper: 0 is correct, 1 is ten times too much."),
        ];
        figures.extend(transfer_times(&self.runs, "figure-9a", names, loads));
        figures.push(self.failures(names, loads));
        figures.push(throughput(&self.runs, "figure-9c", names, loads));
        figures.retain(|figure| !figure.series.is_empty());
        figures
    }

    fn failures(&self, names: &[&str], loads: &[u32]) -> ExperimentFigure {
        let x = Axis::columns(loads.iter().map(|load| format!("load {load} %")));
        let y = Axis { is_percent: true, ..Axis::new("downloads that failed, mean over clients") };
        let mut figure = ExperimentFigure::new("figure-9b", "Downloads that failed", x, y)
            .caption("Downloads that timed out or lost their circuit.");
        for (n, name) in names.iter().enumerate() {
            let mean = |load: u32| {
                let sizes = simulated::runs(&self.runs, name, load).flat_map(|run| &run.sizes);
                Interval::of(sizes.flat_map(|size| &size.failed_of_client)).mean
            };
            let points =
                (0u32..).map(f64::from).zip(loads.iter().map(|load| mean(*load))).collect();
            figure = figure.with(Series::bars(name, Role::Nth(n), points));
        }
        figure
    }
}

fn errors(
    name: &str,
    title: &str,
    label: &str,
    groups: Vec<(String, Vec<f64>)>,
) -> ExperimentFigure {
    let mut figure = ExperimentFigure::distributions(name, title, label, groups);
    figure.y.label = "share of relays".to_owned();
    figure.mark(On::X, 0.0, "", Role::Truth)
}
