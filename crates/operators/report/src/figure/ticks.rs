//! Ticks of an axis and their labels.

use super::{Axis, ExperimentFigure, On, Scale, time};
use crate::text::plain;

/// Positions of ticks in units of [`Axis::place`], with their labels.
pub(super) type Ticks = Vec<(f64, String)>;

/// Room that a character of a label takes, in pixels.
pub(super) const CHARACTER_PX: f64 = 7.0;
/// Distance between the labels of two ticks, in pixels.
const GAP_PX: f64 = 12.0;
/// Numbers of ticks that are tried, the largest first.
const COUNTS: [u8; 7] = [10, 8, 6, 5, 4, 3, 2];

/// The ticks of the horizontal axis: as many as `room_px` has room for. The names of an axis are all there, even if they overlap.
pub(super) fn x_ticks(figure: &ExperimentFigure, room_px: f64) -> Ticks {
    if let Some(named) = named(figure, On::X) {
        return named;
    }
    let tried = || COUNTS.into_iter().map(|count| numbered(figure, On::X, count));
    tried().find(|ticks| fit(ticks, room_px)).unwrap_or_else(|| numbered(figure, On::X, 2))
}

/// The ticks of the vertical axis.
pub(super) fn y_ticks(figure: &ExperimentFigure, most: u8) -> Ticks {
    named(figure, On::Y).unwrap_or_else(|| numbered(figure, On::Y, most))
}

/// Whether the labels fit next to each other.
pub(super) fn fit(ticks: &Ticks, room_px: f64) -> bool {
    let widths = ticks.iter().map(|(_, label)| CHARACTER_PX * as_f64(label.chars().count()));
    // Ticks are about equally far apart, so the longest label needs its width at each of them.
    widths.fold(0.0, f64::max) * as_f64(ticks.len()) + GAP_PX * as_f64(ticks.len()) <= room_px
}

fn named(figure: &ExperimentFigure, on: On) -> Option<Ticks> {
    let axis = figure.axis(on);
    let ticks = axis.ticks.iter();
    let ticks = ticks.filter_map(|(at, name)| Some((axis.place(*at)?, plain(name))));
    (!axis.ticks.is_empty()).then(|| ticks.collect())
}

fn numbered(figure: &ExperimentFigure, on: On, most: u8) -> Ticks {
    let axis = figure.axis(on);
    let (from, to) = figure.span(on);
    let (low, high) = (from.min(to), from.max(to));
    let places = match axis.scale {
        Scale::Time => return time::ticks(low, high, most),
        Scale::Log => decades(low, high, most),
        Scale::Linear => steps(low, high, most),
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

/// Multiples of 1, 2 or 5 times a power of ten, at most `most + 1` of them.
fn steps(from: f64, to: f64, most: u8) -> Vec<f64> {
    let least = (to - from) / f64::from(most);
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter();
    let is_enough = |step: &f64| *step >= least * 0.999;
    let step = step.filter(is_enough).fold(f64::INFINITY, f64::min);
    let first = (from / step).ceil();
    let all = (0..=20).map(|number| (first + f64::from(number)) * step);
    all.take_while(|place| *place <= to + step * 1e-9).collect()
}

/// Powers of ten in a range; if the range is short, with their multiples by 2 and 5. If there are more than `most`, only some powers.
fn decades(from: f64, to: f64, most: u8) -> Vec<f64> {
    #[expect(clippy::cast_possible_truncation, reason = "a logarithm is small")]
    let powers = from.floor().max(-99.0) as i32..=to.ceil().min(99.0) as i32;
    let of = |factors: &[f64], each: i32| -> Vec<f64> {
        let powers = powers.clone().filter(|power| power % each == 0);
        let places = powers
            .flat_map(|power| factors.iter().map(move |factor| f64::from(power) + factor.log10()));
        places.filter(|place| (from - 1e-9..=to + 1e-9).contains(place)).collect()
    };
    let is_few = |places: &Vec<f64>| places.len() <= usize::from(most) + 1;
    let all = (to - from <= 3.0).then(|| of(&[1.0, 2.0, 5.0], 1)).filter(is_few);
    all.unwrap_or_else(|| {
        let some = [1, 2, 3, 5, 10].map(|each| of(&[1.0], each));
        some.iter().find(|places| is_few(places)).unwrap_or(&some[4]).clone()
    })
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}
