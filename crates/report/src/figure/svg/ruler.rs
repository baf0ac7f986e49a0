//! An axis for plotters, which knows where its numbers stand and how they are written.

use crate::figure::{Axis, ExperimentFigure, On, Scale};
use crate::text::plain;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use std::ops::Range;

/// One for each axis. It counts as [`Axis::place`] does.
pub(super) struct Ruler {
    inner: RangedCoordf64,
    ticks: Vec<(f64, String)>,
}

impl Ruler {
    pub(super) fn new(figure: &ExperimentFigure, on: On) -> Self {
        let axis = figure.axis(on);
        let (from, to) = figure.span(on);
        let inner = RangedCoordf64::from(from..to);
        let ticks = if !axis.ticks.is_empty() {
            let named = axis.ticks.iter();
            named.filter_map(|(at, name)| Some((axis.place(*at)?, plain(name)))).collect()
        } else {
            let places = match axis.scale {
                Scale::Log => decades(from.min(to), from.max(to)),
                Scale::Linear => inner.key_points(if on == On::X { 11_usize } else { 7 }),
            };
            places.into_iter().map(|place| (place, axis.number(place))).collect()
        };
        Self { inner, ticks }
    }

    /// Of the longest number or name, in characters.
    pub(super) fn width(&self) -> usize {
        self.ticks.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(0)
    }
}

impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.inner.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.inner.range()
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(place, _)| place == value);
        tick.map_or_else(String::new, |(_, name)| name.clone())
    }
}

impl Axis {
    fn number(&self, place: f64) -> String {
        let value = if self.scale == Scale::Log { 10_f64.powf(place) } else { place };
        // Sums of tenths are not exact; and there is no “-0”.
        let rounded = |value: f64| (value * 1e6).round() / 1e6 + 0.0;
        if self.is_percent {
            format!("{} %", rounded(value * 100.0))
        } else {
            rounded(value).to_string()
        }
    }
}

/// Powers of ten between two; on a short axis with their doubles and fivefolds.
fn decades(from: f64, to: f64) -> Vec<f64> {
    #[expect(clippy::cast_possible_truncation, reason = "a logarithm is small")]
    let powers = from.floor().max(-99.0) as i32..=to.ceil().min(99.0) as i32;
    let within: &[f64] = if to - from > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let places = powers.flat_map(|power| within.iter().map(move |n| f64::from(power) + n.log10()));
    places.filter(|place| (from - 1e-9..=to + 1e-9).contains(place)).collect()
}
