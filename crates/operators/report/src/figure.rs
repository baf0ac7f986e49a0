//! Figures as data. [`svg`] draws them for pages and files; programs read the points.

mod build;
mod points;
mod scale;
mod svg;
#[cfg(test)]
mod tests;
mod ticks;
mod time;

pub use build::{TrafficSecond, cumulative};
pub use svg::PAGE_STYLE;
pub(crate) use time::rfc_3339;

use serde::{Deserialize, Serialize};

/// A figure of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentFigure {
    /// The name in file names, such as `figure-6`: letters, digits and `-`.
    pub name: String,
    /// The heading.
    pub title: String,
    /// An explanation, in one or two sentences.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series, the last on top.
    pub series: Vec<Series>,
    /// Shaded ranges behind the series.
    pub bands: Vec<Band>,
    /// Dotted lines across the figure.
    pub marks: Vec<Mark>,
    /// Whether drawings have no values of points at the pointer.
    #[serde(skip)]
    pub is_without_values: bool,
}

/// An axis. Without a range it shows all points; rates, counts and shares on *y* begin at zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// The scale.
    pub scale: Scale,
    /// The minimum range shown. It grows to include all points, bands and marks. If the first value is the larger, the axis is reversed.
    pub range: Option<(f64, f64)>,
    /// Whether values are shares, shown as percentages.
    pub is_percent: bool,
    /// Names instead of numbers.
    pub ticks: Vec<(f64, String)>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic. Values that are not positive are left out.
    Log,
    /// Times: values are Unix seconds, ticks are dates and times of day in UTC. See [`Axis::time`].
    Time,
}

/// A series of points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// *x* and *y*, in drawing order. NaN makes a gap.
    pub points: Vec<(f64, f64)>,
    /// A label for each point, shown at the pointer; or empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The drawing style.
    pub style: Style,
    /// The role, which determines the colour.
    pub role: Role,
}

/// The drawing style of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Straight lines between points.
    #[default]
    Line,
    /// Each value holds until the next point, as in a cumulative distribution.
    Steps,
    /// Separate points.
    Dots,
    /// Bars from zero; those of several series are side by side.
    Bars,
}

/// The role of a series, band or mark. Each role has the same colour in all figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A result of FlashFlow.
    #[default]
    Measurement,
    /// A report of the relay, such as its client traffic.
    Client,
    /// The sum of both.
    Sum,
    /// A true or permitted value.
    Truth,
    /// A problem.
    Problem,
    /// Secondary information.
    Muted,
    /// The *n*th of several series of a kind, from zero. The six colours and patterns repeat.
    Nth(usize),
}

/// A shaded range of one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The axis.
    pub on: On,
    /// The lower end.
    pub from: f64,
    /// The upper end.
    pub to: f64,
    /// The label; may be empty.
    pub label: String,
    /// The role, which determines the colour.
    pub role: Role,
}

/// A dotted line at one place of an axis, right across the figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The axis; on *x*, the line is vertical.
    pub on: On,
    /// The position.
    pub at: f64,
    /// The label; may be empty.
    pub label: String,
    /// The role, which determines the colour.
    pub role: Role,
}

/// An axis of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// The horizontal axis.
    X,
    /// The vertical axis.
    Y,
}

/// A line pattern, for readers who cannot distinguish all colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dash {
    Solid,
    Dashed,
    Dotted,
}

impl Role {
    /// Colours with a contrast of at least 3:1 to both a white and a dark page.
    const OF_MANY: [&str; 6] = ["#3b82f6", "#d97706", "#059669", "#8b5cf6", "#ec4899", "#0891b2"];

    pub(crate) const fn colour(self) -> &'static str {
        let [blue, amber, green, violet, ..] = Self::OF_MANY;
        match self {
            Self::Measurement => blue,
            Self::Client => amber,
            Self::Truth => green,
            Self::Sum => violet,
            Self::Problem => "#ef4444",
            Self::Muted => "#7c8798",
            Self::Nth(n) => Self::OF_MANY[n % Self::OF_MANY.len()],
        }
    }

    const fn dash(self) -> Dash {
        match self {
            Self::Nth(n) => match n / 2 % 3 {
                0 => Dash::Solid,
                1 => Dash::Dashed,
                _ => Dash::Dotted,
            },
            _ => Dash::Solid,
        }
    }
}
