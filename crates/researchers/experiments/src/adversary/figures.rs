//! The figure of the relays' gains.

use super::GAIN;
use report::experiment::{Axis, Case, ExperimentFigure, On, Role, Series};

/// The gain of each relay with an estimate; `None` if all were detected.
pub(super) fn gains(relays: &[&Case]) -> Option<ExperimentFigure> {
    let (measured, others): (Vec<&Case>, Vec<&Case>) =
        relays.iter().copied().partition(|case| case.ratio.is_some());
    if measured.is_empty() {
        return None;
    }
    let name = |case: &&Case| case.name.clone();
    let x = Axis::columns(measured.iter().map(name));
    let max = measured.iter().filter_map(|case| case.ratio).fold(1.4, f64::max);
    let y = Axis::new("estimate ÷ truth").showing(0.0, max + 0.1);
    let places = (0..u32::MAX).map(f64::from);
    let ratios = measured.iter().filter_map(|case| case.ratio);
    let bars = Series::bars("relay", Role::Measurement, places.zip(ratios).collect());
    let labels = measured.iter().map(|case| format!("{} {}", case.verdict.word(), case.detail));
    let others = match others.iter().map(name).collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => names,
        names => format!(" Without an estimate: {names}."),
    };
    let figure = ExperimentFigure::new("gains", "Gain of lying relays", x, y)
        .with(bars.labels(labels.collect()))
        .mark(On::Y, GAIN, "1/(1−r)", Role::Problem)
        .mark(On::Y, 1.0, "truth", Role::Truth)
        .caption(format!(
            "Estimate relative to what the relay carries when it is not measured.{others}"
        ));
    Some(figure)
}
