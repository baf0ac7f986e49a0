//! Draws figures as SVG. Files and pages have the same markup, which follows the reader's light or dark mode. Browsers show the values of
//! points at the pointer; on a page with `page.js`, those of all series, and series can be hidden.

use super::points::{Position, dots, drawn, isolated, labelled, line, shape};
use super::ticks::{CHARACTER_PX, Ticks, fit, x_ticks, y_ticks};
use super::{Dash, ExperimentFigure, On, Role, Scale, Series, Style, time};
use crate::text::{Escaped, readable};
use std::fmt::{self, Display, Formatter, Write};

const KEY_LINE_PX: f64 = 22.0;
const MARGIN_PX: f64 = 16.0;
/// Height of the labels below the x axis.
const BELOW_PX: f64 = 52.0;
/// Longer names of rows and columns are cut off by their place, not by us.
const NAME_MAX: usize = 40;
const STYLE: &str = include_str!("figure.css");

/// The style sheet of pages that contain figures ([`ExperimentFigure::to_html`]).
pub const PAGE_STYLE: &str = concat!(include_str!("figure.css"), include_str!("page.css"));

/// Where a figure is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Medium {
    /// A file of its own.
    File,
    /// A page on a wide screen.
    Wide,
    /// A page on a phone. Its texts are as large as those around it.
    Narrow,
}

impl Medium {
    const fn width_px(self) -> f64 {
        match self {
            Self::File | Self::Wide => 960.0,
            Self::Narrow => 380.0,
        }
    }

    /// Height of the area between the axes, unless the y axis has named rows.
    const fn area_px(self) -> f64 {
        match self {
            Self::File | Self::Wide => 320.0,
            Self::Narrow => 240.0,
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::File => "figure",
            Self::Wide => "figure wide",
            Self::Narrow => "figure narrow",
        }
    }
}

impl ExperimentFigure {
    /// The figure as a self-contained SVG file, which follows the reader's light or dark mode.
    #[must_use]
    pub fn to_svg(&self) -> String {
        Drawing::new(self, Medium::File).to_string()
    }

    /// The figure for a page with [`PAGE_STYLE`], which shows one of two drawings: for a wide screen, or for a phone.
    #[must_use]
    pub fn to_html(&self) -> String {
        [Medium::Wide, Medium::Narrow].map(|medium| Drawing::new(self, medium).to_string()).concat()
    }
}

/// The layout of a figure, in pixels.
struct Drawing<'a> {
    figure: &'a ExperimentFigure,
    medium: Medium,
    x_ticks: Ticks,
    y_ticks: Ticks,
    /// Height of the names of columns, if these are slanted because they do not fit next to each other.
    slant_px: Option<f64>,
    /// Whether the names of rows are above their rows, because there is no room on the left.
    names_above: bool,
    /// Positions of the legend's entries, one for each series; none if there is a single series.
    keys: Vec<(f64, f64)>,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl<'a> Drawing<'a> {
    fn new(figure: &'a ExperimentFigure, medium: Medium) -> Self {
        let is_narrow = medium == Medium::Narrow;
        let y_ticks = y_ticks(figure, if is_narrow { 5 } else { 7 });
        let longest = |ticks: &Ticks| {
            let lengths = ticks.iter().map(|(_, name)| name.chars().count());
            as_f64(lengths.max().unwrap_or(0).min(NAME_MAX)) * CHARACTER_PX
        };
        let names_above = is_narrow && longest(&y_ticks) > 80.0;
        let names_px = if names_above { 0.0 } else { longest(&y_ticks) };
        let left = if is_narrow { 32.0 } else { 48.0 } + names_px;
        let right = medium.width_px() - if is_narrow { 12.0 } else { 24.0 };
        let x_ticks = x_ticks(figure, right - left);
        let slant_px = (!figure.x.ticks.is_empty() && !fit(&x_ticks, right - left))
            .then(|| longest(&x_ticks) * 0.6);
        let legend_top = if medium == Medium::File { 48.0 } else { 16.0 };
        let keys = keys(&figure.series, legend_top, medium.width_px());
        let top = keys.last().map_or(legend_top, |(_, y)| y + KEY_LINE_PX);
        let area = match figure.y.ticks.len() {
            0 => medium.area_px(),
            rows => 30.0 + if names_above { 40.0 } else { 30.0 } * as_f64(rows.min(200)),
        };
        let bottom = top + area;
        Self {
            figure,
            medium,
            x_ticks,
            y_ticks,
            slant_px,
            names_above,
            keys,
            left,
            top,
            right,
            bottom,
        }
    }

    fn x(&self, place: f64) -> f64 {
        let (from, to) = self.figure.span(On::X);
        tenth(self.left + (place - from) / (to - from) * (self.right - self.left))
    }

    fn y(&self, place: f64) -> f64 {
        let (from, to) = self.figure.span(On::Y);
        tenth(self.bottom - (place - from) / (to - from) * (self.bottom - self.top))
    }

    /// Positions of the distinguishable points.
    fn positions(&self, series: &Series) -> Vec<Position> {
        let ((x0, x1), (y0, y1)) = (self.figure.span(On::X), self.figure.span(On::Y));
        let x_scale = (self.right - self.left) / (x1 - x0);
        let y_scale = (self.bottom - self.top) / (y1 - y0);
        let position = |(x, y): &(f64, f64)| {
            let (x, y) = (self.figure.x.place(*x)?, self.figure.y.place(*y)?);
            let at = (self.left + (x - x0) * x_scale, self.bottom - (y - y0) * y_scale);
            Some((tenth(at.0), tenth(at.1)))
        };
        drawn(series.points.iter().map(position).enumerate().collect(), series.style)
    }

    /// The values of points, which browsers show at the pointer.
    fn values(
        &self,
        f: &mut Formatter<'_>,
        series: &Series,
        positions: &[Position],
    ) -> fmt::Result {
        let name = Escaped(&series.name);
        for (index, (x, y)) in labelled(positions, series.style) {
            write!(f, "<circle cx=\"{x}\" cy=\"{y}\" r=\"6\"><title>{name}: ")?;
            match series.labels.get(index) {
                Some(label) => write!(f, "{}", Escaped(label))?,
                None => {
                    let (x, y) = series.points[index];
                    let (x, y) = (self.value(On::X, x), self.value(On::Y, y));
                    write!(f, "{} ({})", Escaped(&y), Escaped(&x))?;
                }
            }
            f.write_str("</title></circle>")?;
        }
        Ok(())
    }

    fn value(&self, on: On, value: f64) -> String {
        let axis = self.figure.axis(on);
        let is_here = |(at, _): &&(f64, String)| at.to_bits() == value.to_bits();
        match axis.ticks.iter().find(is_here) {
            Some((_, name)) => name.clone(),
            None if axis.scale == Scale::Time => time::readable(value),
            None if axis.is_percent => format!("{} %", readable(value * 100.0)),
            None => readable(value),
        }
    }

    fn axes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { left, top, right, bottom, .. } = *self;
        write!(f, "<path class=\"rule\" d=\"M{left} {top}V{bottom}H{right}")?;
        self.x_ticks.iter().try_for_each(|(at, _)| write!(f, "M{} {bottom}V{top}", self.x(*at)))?;
        self.y_ticks.iter().try_for_each(|(at, _)| write!(f, "M{left} {}H{right}", self.y(*at)))?;
        writeln!(f, "\"/>")?;
        for (at, name) in &self.x_ticks {
            let (x, y) = (self.x(*at), bottom + 18.0);
            if self.slant_px.is_some() {
                write!(f, "<g transform=\"rotate(-40 {x} {y})\">")?;
                text(f, x + 4.0, y, "end", "", name)?;
                f.write_str("</g>")?;
            } else {
                text(f, x, y, "middle", "", name)?;
            }
        }
        for (at, name) in &self.y_ticks {
            let y = self.y(*at);
            if self.names_above {
                text(f, left + 4.0, y - 12.0, "start", "", name)?;
            } else {
                text(f, left - 6.0, y + 4.0, "end", "", name)?;
            }
        }
        let middle = tenth(f64::midpoint(left, right));
        let below = bottom + 40.0 + self.slant_px.unwrap_or_default();
        text(f, middle, below, "middle", "soft", &self.label(On::X))?;
        let (x, y) = (MARGIN_PX, tenth(f64::midpoint(top, bottom)));
        write!(f, "<g transform=\"rotate(-90 {x} {y})\">")?;
        text(f, x, y, "middle", "soft", &self.label(On::Y))?;
        writeln!(f, "</g>")
    }

    /// The label of an axis. Times without a date are of a day that it names.
    fn label(&self, on: On) -> String {
        let axis = self.figure.axis(on);
        let (from, to) = self.figure.span(on);
        let day = (axis.scale == Scale::Time).then(|| time::common_day(from, to)).flatten();
        day.map_or_else(|| axis.label.clone(), |day| format!("{}, {day}", axis.label))
    }

    /// Bands and marks, behind the series.
    fn behind(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { figure, left, top, right, bottom, .. } = *self;
        for band in &figure.bands {
            let axis = figure.axis(band.on);
            let Some((from, to)) = axis.place(band.from).zip(axis.place(band.to)) else { continue };
            let (x0, y0, x1, y1) = match band.on {
                On::X => (self.x(from), top, self.x(to), bottom),
                On::Y => (left, self.y(to), right, self.y(from)),
            };
            let colour = band.role.colour();
            let d = format!("M{x0} {y0}H{x1}V{y1}H{x0}z");
            writeln!(f, "<path class=\"band\" fill=\"{colour}\" d=\"{d}\"/>")?;
        }
        for mark in &figure.marks {
            let Some(at) = figure.axis(mark.on).place(mark.at) else { continue };
            let d = match mark.on {
                On::X => format!("M{} {bottom}V{top}", self.x(at)),
                On::Y => format!("M{left} {}H{right}", self.y(at)),
            };
            writeln!(f, "<path class=\"mark\" stroke=\"{}\" d=\"{d}\"/>", mark.role.colour())?;
        }
        Ok(())
    }

    fn series(&self, f: &mut Formatter<'_>, index: usize, series: &Series) -> fmt::Result {
        let positions = self.positions(series);
        let colour = series.role.colour();
        f.write_str("<g class=\"series\">")?;
        let separate = match series.style {
            Style::Bars => {
                let bars = self.bars(index, &positions);
                write!(f, "<path fill=\"{colour}\" d=\"{bars}\"/>")?;
                Vec::new()
            }
            Style::Dots => positions.clone(),
            Style::Line | Style::Steps => {
                let class = line_class(series.role);
                let line = line(&positions, series.style);
                write!(f, "<path class=\"{class}\" stroke=\"{colour}\" d=\"{line}\"/>")?;
                let is_labelled = !series.labels.is_empty();
                if is_labelled { positions.clone() } else { isolated(&positions) }
            }
        };
        if !separate.is_empty() || series.style == Style::Dots {
            let class = shape(series.role).0;
            let dots = dots(&separate, series.role);
            write!(f, "<path class=\"{class}\" stroke=\"{colour}\" d=\"{dots}\"/>")?;
        }
        if !self.figure.is_without_values {
            self.values(f, series, &positions)?;
        }
        writeln!(f, "</g>")
    }

    /// Bars from zero; those of several series are side by side.
    fn bars(&self, index: usize, positions: &[Position]) -> String {
        let figure = self.figure;
        let is_bars = |series: &&Series| series.style == Style::Bars;
        let before = figure.series.iter().take(index).filter(is_bars).count();
        let all = figure.series.iter().filter(is_bars);
        let mut at: Vec<f64> = all.clone().flat_map(|bars| &bars.points).map(|(x, _)| *x).collect();
        at.sort_by(f64::total_cmp);
        let distances = at.windows(2).filter_map(|two| figure.x.place(two[1] - two[0]));
        let nearest = distances.filter(|distance| *distance > 0.0).fold(1.0, f64::min);
        let (before, all) = (as_f64(before), as_f64(all.count()));
        let (from, to) = figure.span(On::X);
        let width = 0.8 * nearest / all / (to - from) * (self.right - self.left);
        let zero = figure.y.place(0.0).map_or(self.bottom, |zero| self.y(zero));
        let mut path = String::new();
        for (x, y) in positions.iter().filter_map(|(_, at)| *at) {
            let left = tenth(x + (before - all / 2.0) * width);
            let right = tenth(left + width);
            // Writing to a string cannot fail.
            let _ = write!(path, "M{left} {zero}V{y}H{right}V{zero}z");
        }
        path
    }

    /// The names of bands and marks.
    fn labels(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let figure = self.figure;
        let bands = figure.bands.iter().map(|band| (band.on, band.from, &band.label, true));
        let marks = figure.marks.iter().map(|mark| (mark.on, mark.at, &mark.label, false));
        for (on, at, label, is_band) in bands.chain(marks) {
            let Some(place) = figure.axis(on).place(at).filter(|_| !label.is_empty()) else {
                continue;
            };
            let (from, to) = figure.span(on);
            // Little room is left on the right.
            let is_late = (place - from) / (to - from) > 0.8;
            let (x, y, anchor) = match (on, is_band) {
                (On::X, _) => {
                    let y = if is_band { self.bottom - 6.0 } else { self.top + 12.0 };
                    let (away, anchor) = if is_late { (-5.0, "end") } else { (5.0, "start") };
                    (self.x(place) + away, y, anchor)
                }
                (On::Y, _) => {
                    let (x, anchor) = if is_band {
                        (self.left + 5.0, "start")
                    } else {
                        (self.right - 5.0, "end")
                    };
                    (x, self.y(place) + if is_late { 14.0 } else { -4.0 }, anchor)
                }
            };
            text(f, tenth(x), tenth(y), anchor, "soft", label)?;
        }
        Ok(())
    }

    fn legend(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (series, (x, y)) in self.figure.series.iter().zip(&self.keys) {
            let (colour, middle) = (series.role.colour(), x + 10.0);
            f.write_str("<g class=\"key\">")?;
            match series.style {
                Style::Bars => {
                    let d = format!("M{} {}h12v12h-12z", x + 4.0, y - 6.0);
                    write!(f, "<path fill=\"{colour}\" d=\"{d}\"/>")?;
                }
                Style::Dots => {
                    let (class, d) = shape(series.role);
                    write!(
                        f,
                        "<path class=\"{class}\" stroke=\"{colour}\" d=\"M{middle} {y}{d}\"/>"
                    )?;
                }
                Style::Line | Style::Steps => {
                    let class = line_class(series.role);
                    write!(f, "<path class=\"{class}\" stroke=\"{colour}\" d=\"M{x} {y}h20\"/>")?;
                }
            }
            text(f, x + 26.0, y + 4.0, "start", "", &series.name)?;
            writeln!(f, "</g>")?;
        }
        Ok(())
    }
}

impl Display for Drawing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { figure, medium, .. } = self;
        let width = medium.width_px();
        let height = tenth(self.bottom + BELOW_PX + self.slant_px.unwrap_or_default());
        let is_file = *medium == Medium::File;
        let namespace = if is_file { " xmlns=\"http://www.w3.org/2000/svg\"" } else { "" };
        writeln!(
            f,
            "<svg{namespace} class=\"{}\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{}\">",
            medium.class(),
            Escaped(&figure.title),
        )?;
        if is_file {
            writeln!(
                f,
                "<style>\n{STYLE}</style>\n<title>{}</title>\n<desc>{}</desc>\n\
                 <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"12\"/>",
                Escaped(&figure.title),
                Escaped(&figure.caption),
                width - 1.0,
                tenth(height - 1.0),
            )?;
            text(f, MARGIN_PX, 26.0, "start", "heading", &figure.title)?;
        }
        self.legend(f)?;
        self.axes(f)?;
        self.behind(f)?;
        for (index, series) in self.figure.series.iter().enumerate() {
            self.series(f, index, series)?;
        }
        self.labels(f)?;
        f.write_str("</svg>\n")
    }
}

fn text(
    f: &mut Formatter<'_>,
    x: f64,
    y: f64,
    anchor: &str,
    class: &str,
    text: &str,
) -> fmt::Result {
    let text = Escaped(text);
    let (x, y) = (tenth(x), tenth(y));
    writeln!(
        f,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
    )
}

/// Positions of the legend's entries, from left to right, wrapped into lines.
fn keys(series: &[Series], top: f64, width_px: f64) -> Vec<(f64, f64)> {
    let mut at = (MARGIN_PX, top);
    let place = |series: &Series| {
        let width = 46.0 + CHARACTER_PX * as_f64(series.name.chars().count());
        if at.0 > MARGIN_PX && at.0 + width > width_px - MARGIN_PX {
            at = (MARGIN_PX, at.1 + KEY_LINE_PX);
        }
        let here = at;
        at.0 += width;
        here
    };
    if series.len() > 1 { series.iter().map(place).collect() } else { Vec::new() }
}

const fn line_class(role: Role) -> &'static str {
    match role.dash() {
        Dash::Solid => "line",
        Dash::Dashed => "line dashed",
        Dash::Dotted => "line dotted",
    }
}

fn tenth(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0 + 0.0
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}
