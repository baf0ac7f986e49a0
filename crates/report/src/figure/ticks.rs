//! Ticks of an axis and their labels.

use super::{Axis, ExperimentFigure, On, Scale};
use crate::text::plain;

/// Positions of ticks in units of [`Axis::place`], with their labels.
pub(super) fn ticks(figure: &ExperimentFigure, on: On) -> Vec<(f64, String)> {
    let axis = figure.axis(on);
    let (from, to) = figure.span(on);
    if !axis.ticks.is_empty() {
        let named = axis.ticks.iter();
        return named.filter_map(|(at, name)| Some((axis.place(*at)?, plain(name)))).collect();
    }
    let (low, high) = (from.min(to), from.max(to));
    let places = match axis.scale {
        Scale::Log => decades(low, high),
        Scale::Linear => steps(low, high, if on == On::X { 10.0 } else { 7.0 }),
    };
    places.into_iter().map(|place| (place, axis.number(place))).collect()
}

impl Axis {
    fn number(&self, place: f64) -> String {
        let value = if self.scale == Scale::Log { 10_f64.powf(place) } else { place };
        // Sums of tenths are inexact. A label is never “-0”.
        let rounded = |value: f64| (value * 1e6).round() / 1e6 + 0.0;
        if self.is_percent {
            format!("{} %", rounded(value * 100.0))
        } else {
            rounded(value).to_string()
        }
    }
}

/// Multiples of 1, 2 or 5 times a power of ten, at most `count + 1` of them.
fn steps(from: f64, to: f64, count: f64) -> Vec<f64> {
    let least = (to - from) / count;
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter();
    let step =
        step.fold(f64::INFINITY, |best, it| if it >= least * 0.999 { best.min(it) } else { best });
    let first = (from / step).ceil();
    let all = (0..=20).map(|number| (first + f64::from(number)) * step);
    all.take_while(|place| *place <= to + step * 1e-9).collect()
}

/// Powers of ten in a range; if the range is short, with their multiples by 2 and 5.
fn decades(from: f64, to: f64) -> Vec<f64> {
    #[expect(clippy::cast_possible_truncation, reason = "a logarithm is small")]
    let powers = from.floor().max(-99.0) as i32..=to.ceil().min(99.0) as i32;
    let within: &[f64] = if to - from > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let places = powers.flat_map(|power| within.iter().map(move |n| f64::from(power) + n.log10()));
    places.filter(|place| (from - 1e-9..=to + 1e-9).contains(place)).collect()
}
