//! Figures as data: what is drawn, not how. [`svg`] draws them for pages and files, and programs read the points.

mod build;
mod scale;
mod svg;
#[cfg(test)]
mod tests;
mod ticks;

pub use build::{TrafficSecond, cumulative};

use serde::{Deserialize, Serialize};

/// A figure of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentFigure {
    /// In the names of its files, such as `figure-6`; made of letters, digits and `-`.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// How to read it, in a sentence or two.
    pub caption: String,
    /// The axis along the bottom.
    pub x: Axis,
    /// The axis along the left side.
    pub y: Axis,
    /// What is drawn, the last on top.
    pub series: Vec<Series>,
    /// Shaded ranges behind it.
    pub bands: Vec<Band>,
    /// Dotted lines through it.
    pub marks: Vec<Mark>,
}

/// An axis. Without a range it shows what there is; rates, counts and shares on *y* begin at zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it measures, with its unit.
    pub label: String,
    /// How numbers are laid out on it.
    pub scale: Scale,
    /// From and to: shown at least, more if a point, band or mark lies outside. If the first is
    /// the larger, the axis runs backwards.
    pub range: Option<(f64, f64)>,
    /// Whether numbers are shares, to be written as percentages.
    pub is_percent: bool,
    /// Names for places on it, instead of numbers.
    pub ticks: Vec<(f64, String)>,
}

/// How numbers are laid out on an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal differences take equal room.
    #[default]
    Linear,
    /// Equal ratios take equal room. What is not positive is left out.
    Log,
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// *x* and *y*, in the order in which to join them. A number that is none makes a gap.
    pub points: Vec<(f64, f64)>,
    /// What each point is, for whoever points at it: one for each, or none at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// How points are joined.
    pub style: Style,
    /// What it shows, which decides its colour.
    pub role: Role,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Joined by straight lines.
    #[default]
    Line,
    /// Each holds until the next, as in a cumulative distribution.
    Steps,
    /// Not joined.
    Dots,
    /// Columns from zero; those of several series stand side by side.
    Bars,
}

/// What something shows. The same things have the same colour in all figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// What FlashFlow measured.
    #[default]
    Measurement,
    /// What the relay says, such as its clients' traffic.
    Client,
    /// Both together.
    Sum,
    /// What is true or allowed.
    Truth,
    /// What must not be.
    Problem,
    /// What is less important.
    Muted,
    /// The *n*th of several of a kind, from zero: a colour and pattern of its own. They recur
    /// after the sixth.
    Nth(usize),
}

/// A shaded range of one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The axis.
    pub on: On,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// What it is; may be empty.
    pub label: String,
    /// What it shows.
    pub role: Role,
}

/// A dotted line at one place of an axis, right across the figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The axis; on *x*, the line is vertical.
    pub on: On,
    /// The place.
    pub at: f64,
    /// What it is; may be empty.
    pub label: String,
    /// What it shows.
    pub role: Role,
}

/// One of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// Along the bottom.
    X,
    /// Along the left side.
    Y,
}

/// A pattern of lines, for those who cannot distinguish all colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dash {
    Solid,
    Dashed,
    Dotted,
}

impl Role {
    /// Colours that stand out from a white page as from a dark one: contrast 3:1 or more.
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
