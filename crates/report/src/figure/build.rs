//! Making figures.

use super::{Axis, Band, ExperimentFigure, Mark, On, Role, Scale, Series, Style};

/// The cumulative distribution of `values`: how large a share of them is at most so large. To be
/// drawn as [`Style::Steps`]. Values that are no numbers are left out.
#[must_use]
pub fn cumulative(values: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "nobody counts values beyond 2^53")]
    let share = |index: usize| index as f64 / sorted.len() as f64;
    sorted.iter().enumerate().map(|(index, value)| (*value, share(index + 1))).collect()
}

/// What a relay carried in one second, in Mbit/s; each cell counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficSecond {
    /// When it began, in seconds from wherever the figure begins.
    pub second: f64,
    /// Cells of the measurement.
    pub measurement_mbit_per_s: f64,
    /// Traffic of clients.
    pub client_mbit_per_s: f64,
}

impl ExperimentFigure {
    /// An empty figure.
    #[must_use]
    pub fn new(name: &str, title: &str, x: Axis, y: Axis) -> Self {
        Self { name: name.into(), title: title.into(), x, y, ..Self::default() }
    }

    /// How the values of each group are distributed, as in figure 6 of the paper: a step line for
    /// each, which begins at zero. Groups without values are left out.
    #[must_use]
    pub fn distributions(
        name: &str,
        title: &str,
        x_label: &str,
        groups: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<[f64]>)>,
    ) -> Self {
        let groups = groups.into_iter().map(|(name, values)| (name, cumulative(values.as_ref())));
        Self::shares(name, title, x_label, groups)
    }

    /// Distributions whose shares are known, each with the value that it has at most: where some are known only to be larger, they are not those of
    /// a list.
    #[must_use]
    pub fn shares(
        name: &str,
        title: &str,
        x_label: &str,
        groups: impl IntoIterator<Item = (impl AsRef<str>, Vec<(f64, f64)>)>,
    ) -> Self {
        let y = Axis { is_percent: true, ..Axis::new("share of runs").showing(0.0, 1.02) };
        let mut figure = Self::new(name, title, Axis::new(x_label), y);
        for (index, (name, mut points)) in
            groups.into_iter().filter(|(_, points)| !points.is_empty()).enumerate()
        {
            points.insert(0, (points[0].0, 0.0));
            figure = figure.with(Series::steps(name.as_ref(), Role::Nth(index), points));
        }
        figure
    }

    /// A relay second by second, as in figure 7 of the paper: measurement, clients and their sum,
    /// and when the measurement begins and ends.
    #[must_use]
    pub fn traffic(
        name: &str,
        title: &str,
        seconds: &[TrafficSecond],
        begins_s: f64,
        ends_s: f64,
    ) -> Self {
        let steps = |name, role, rate: fn(&TrafficSecond) -> f64| {
            Series::steps(name, role, seconds.iter().map(|at| (at.second, rate(at))).collect())
        };
        Self::new(name, title, Axis::new("second"), Axis::new("Mbit/s"))
            .with(steps("sum", Role::Sum, |at| at.measurement_mbit_per_s + at.client_mbit_per_s))
            .with(steps("measurement", Role::Measurement, |at| at.measurement_mbit_per_s))
            .with(steps("clients", Role::Client, |at| at.client_mbit_per_s))
            .mark(On::X, begins_s, "measurement begins", Role::Muted)
            .mark(On::X, ends_s, "ends", Role::Muted)
    }

    /// How to read it.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// And this series, on top.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// A shaded range.
    #[must_use]
    pub fn band(mut self, on: On, from: f64, to: f64, label: &str, role: Role) -> Self {
        self.bands.push(Band { on, from, to, label: label.into(), role });
        self
    }

    /// A dotted line.
    #[must_use]
    pub fn mark(mut self, on: On, at: f64, label: &str, role: Role) -> Self {
        self.marks.push(Mark { on, at, label: label.into(), role });
        self
    }
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn new(label: &str) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    /// A logarithmic one.
    #[must_use]
    pub fn log(self) -> Self {
        Self { scale: Scale::Log, ..self }
    }

    /// Shows at least from `from` to `to`.
    #[must_use]
    pub fn showing(self, from: f64, to: f64) -> Self {
        Self { range: Some((from, to)), ..self }
    }

    /// Names at 0, 1, 2…, from left to right: for the *x* of bars.
    #[must_use]
    pub fn columns<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        let ticks: Vec<_> = (0_u32..).map(f64::from).zip(names.into_iter().map(T::into)).collect();
        let range = ticks.last().map(|(last, _)| (-0.5, last + 0.5));
        Self { ticks, range, ..Self::default() }
    }

    /// Names at 0, 1, 2…, from the top down: for the *y* of dots. Long names have more room here.
    #[must_use]
    pub fn rows<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        let columns = Self::columns(names);
        let range = columns.range.map(|(first, last)| (last, first));
        Self { range, ..columns }
    }
}

impl Series {
    /// Points joined by lines.
    #[must_use]
    pub fn line(name: &str, role: Role, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, labels: Vec::new(), style: Style::Line, role }
    }

    /// Points that hold until the next.
    #[must_use]
    pub fn steps(name: &str, role: Role, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Steps, ..Self::line(name, role, points) }
    }

    /// Points alone.
    #[must_use]
    pub fn dots(name: &str, role: Role, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Dots, ..Self::line(name, role, points) }
    }

    /// Columns.
    #[must_use]
    pub fn bars(name: &str, role: Role, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Bars, ..Self::line(name, role, points) }
    }

    /// What each point is.
    #[must_use]
    pub fn labels(self, labels: Vec<String>) -> Self {
        Self { labels, ..self }
    }
}
