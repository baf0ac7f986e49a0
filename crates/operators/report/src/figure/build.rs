//! Constructors of figures.

use super::{Axis, Band, ExperimentFigure, Mark, On, Role, Scale, Series, Style};

/// The cumulative distribution of `values` without NaN, as points for [`Style::Steps`].
#[must_use]
pub fn cumulative(values: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "nobody counts values beyond 2^53")]
    let share = |index: usize| index as f64 / sorted.len() as f64;
    sorted.iter().enumerate().map(|(index, value)| (*value, share(index + 1))).collect()
}

/// The traffic of a relay in one second, in Mbit/s. Each cell counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficSecond {
    /// Start of the second, relative to the start of the figure.
    pub second: f64,
    /// Measurement traffic.
    pub measurement_mbit_per_s: f64,
    /// Client traffic.
    pub client_mbit_per_s: f64,
}

impl ExperimentFigure {
    /// An empty figure.
    #[must_use]
    pub fn new(name: &str, title: &str, x: Axis, y: Axis) -> Self {
        Self { name: name.into(), title: title.into(), x, y, ..Self::default() }
    }

    /// The cumulative distribution of each group's values as a step line from zero, as in figure 6 of the paper. Groups without values
    /// are left out.
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

    /// Distributions given as shares, each with the value that it does not exceed, for instance if some values are known only to be larger.
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

    /// The traffic of a relay by second, as in figure 7 of the paper: measurement, clients and their sum, with begin and end of the
    /// measurement.
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

    /// Leaves out the values of points at the pointer, which are most of a drawing.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        self.is_without_values = true;
        self
    }

    /// Sets the caption.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// Adds a series on top.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a shaded range.
    #[must_use]
    pub fn band(mut self, on: On, from: f64, to: f64, label: &str, role: Role) -> Self {
        self.bands.push(Band { on, from, to, label: label.into(), role });
        self
    }

    /// Adds a dotted line.
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

    /// An axis of times. Its values are Unix seconds; tables of its points have dates and times (RFC 3339).
    #[must_use]
    pub fn time() -> Self {
        Self { scale: Scale::Time, ..Self::new("time (UTC)") }
    }

    /// Makes the axis logarithmic.
    #[must_use]
    pub fn log(self) -> Self {
        Self { scale: Scale::Log, ..self }
    }

    /// Shows at least the range from `from` to `to`.
    #[must_use]
    pub fn showing(self, from: f64, to: f64) -> Self {
        Self { range: Some((from, to)), ..self }
    }

    /// An axis with names at 0, 1, 2…, from left to right: for the *x* of bars.
    #[must_use]
    pub fn columns<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        let ticks: Vec<_> = (0_u32..).map(f64::from).zip(names.into_iter().map(T::into)).collect();
        let range = ticks.last().map(|(last, _)| (-0.5, last + 0.5));
        Self { ticks, range, ..Self::default() }
    }

    /// An axis with names at 0, 1, 2…, from the top down: for the *y* of dots. It has more room for long names.
    #[must_use]
    pub fn rows<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        let columns = Self::columns(names);
        let range = columns.range.map(|(first, last)| (last, first));
        Self { range, ..columns }
    }
}

impl Series {
    /// A series of points joined by lines.
    #[must_use]
    pub fn line(name: &str, role: Role, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, labels: Vec::new(), style: Style::Line, role }
    }

    /// A series whose values hold until the next point.
    #[must_use]
    pub fn steps(name: &str, role: Role, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Steps, ..Self::line(name, role, points) }
    }

    /// A series of separate points.
    #[must_use]
    pub fn dots(name: &str, role: Role, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Dots, ..Self::line(name, role, points) }
    }

    /// A series of bars.
    #[must_use]
    pub fn bars(name: &str, role: Role, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Bars, ..Self::line(name, role, points) }
    }

    /// Sets the labels of the points.
    #[must_use]
    pub fn labels(self, labels: Vec<String>) -> Self {
        Self { labels, ..self }
    }
}
