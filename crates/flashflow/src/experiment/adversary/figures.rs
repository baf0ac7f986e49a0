use super::GAIN;
use report::experiment::{Axis, Case, ExperimentFigure, On, Role, Series};

/// What each relay gained.
pub(super) fn gains(relays: &[Case]) -> ExperimentFigure {
    let x = Axis::columns(relays.iter().map(|case| case.name.clone()));
    let y = Axis::new("estimate ÷ truth").showing(0.0, 1.5);
    let bar = |(place, case): (f64, &Case)| (place, case.ratio.unwrap_or(0.0));
    let places = (0..u32::MAX).map(f64::from);
    let bars = Series::bars("relay", Role::Measurement, places.zip(relays).map(bar).collect());
    let labels = relays.iter().map(|case| format!("{} {}", case.verdict.word(), case.detail));
    ExperimentFigure::new("gains", "What relays gain that lie", x, y)
        .with(bars.labels(labels.collect()))
        .mark(On::Y, GAIN, "1/(1−r)", Role::Problem)
        .mark(On::Y, 1.0, "truth", Role::Truth)
        .caption(
            "Estimate over what the relay has. Where there is no bar the relay was found out, and \
             there is no estimate.",
        )
}
