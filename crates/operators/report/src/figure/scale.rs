//! The visible range of an axis.

use super::{Axis, ExperimentFigure, Mark, On, Scale, Style};

/// Larger values are not shown. No rate or ratio is that large.
const FARTHEST: f64 = 1e15;
/// Times more than some thousand years from 1970 have no date.
const FARTHEST_S: f64 = 2.4e11;
/// Margin beyond the outermost points, as a share of their distance, so that no frame cuts them.
const ROOM: f64 = 0.04;
/// Margin around a single time.
const MOMENT_ROOM_S: f64 = 1800.0;

impl ExperimentFigure {
    pub(super) const fn axis(&self, on: On) -> &Axis {
        match on {
            On::X => &self.x,
            On::Y => &self.y,
        }
    }

    /// The ends of an axis, in units of [`Axis::place`].
    pub(super) fn span(&self, on: On) -> (f64, f64) {
        let axis = self.axis(on);
        let points = self.series.iter().flat_map(|series| &series.points);
        let points = points.map(|(x, y)| if on == On::X { *x } else { *y });
        let bands = self.bands.iter().filter(|band| band.on == on);
        let marks = self.marks.iter().filter(|mark| mark.on == on).map(|mark| mark.at);
        let has_bars = self.series.iter().any(|series| series.style == Style::Bars);
        let zero = (on == On::Y && (has_bars || axis.range.is_none())).then_some(0.0);
        let shown = points.chain(bands.flat_map(|band| [band.from, band.to])).chain(marks);
        let places = shown.chain(zero).filter_map(|value| axis.place(value));
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| {
            (low.min(place), high.max(place))
        });
        let asked = axis.range.and_then(|(from, to)| axis.place(from).zip(axis.place(to)));
        let (from, to) = match asked {
            Some((from, to)) if from > to => (from.max(high), to.min(low)),
            Some((from, to)) => (from.min(low), to.max(high)),
            None if low > high => (0.0, 1.0),
            None => {
                let below = if on == On::Y && low == 0.0 { 0.0 } else { ROOM };
                // Room for the labels of vertical lines at the top.
                let is_labelled = |mark: &Mark| mark.on == On::X && !mark.label.is_empty();
                let is_below_labels = on == On::Y && self.marks.iter().any(is_labelled);
                let above = if is_below_labels { 4.0 * ROOM } else { ROOM };
                (low - (high - low) * below, high + (high - low) * above)
            }
        };
        // A narrower range would have no distinct ticks.
        let size = from.abs().max(to.abs());
        let (least, room) = match axis.scale {
            Scale::Time => (1.0, MOMENT_ROOM_S),
            Scale::Linear | Scale::Log => (size * 1e-9, (size * 0.05).max(0.5)),
        };
        if (to - from).abs() > least { (from, to) } else { (from - room, to + room) }
    }
}

impl Axis {
    /// The position of a number on a linear scale; `None` if it has none.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let (place, farthest) = match self.scale {
            Scale::Linear => (value, FARTHEST),
            Scale::Log => (value.log10(), FARTHEST),
            Scale::Time => (value, FARTHEST_S),
        };
        (place.abs() < farthest).then_some(place)
    }
}
