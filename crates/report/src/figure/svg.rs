//! Draws figures as SVG. Files and pages have the same markup, which follows the reader's light or dark mode. On a page, `page.js` shows
//! the values at the pointer and hides series.

use super::ticks::ticks;
use super::{Dash, ExperimentFigure, On, Role, Series, Style};
use crate::text::{Escaped, readable};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write};

const WIDTH_PX: f64 = 860.0;
/// Height of the area between the axes, unless the y axis has named rows.
const AREA_PX: f64 = 310.0;
const ROW_PX: f64 = 30.0;
const KEY_LINE_PX: f64 = 22.0;
const MARGIN_PX: f64 = 16.0;
/// Height of the labels below the x axis.
const BELOW_PX: f64 = 52.0;
/// A series with more points than this is thinned, because the picture has fewer pixels.
const POINTS_MAX: usize = 2000;
const STYLE: &str = include_str!("figure.css");

impl ExperimentFigure {
    /// The figure as a self-contained SVG file, which follows the reader's light or dark mode.
    #[must_use]
    pub fn to_svg(&self) -> String {
        Drawing::new(self, true).to_string()
    }

    /// The figure for a page, with the values that `page.js` shows.
    pub(crate) fn in_page(&self) -> String {
        let drawing = Drawing::new(self, false);
        let values: Vec<_> = self.series.iter().map(|series| drawing.values(series)).collect();
        let values = serde_json::to_string(&values).unwrap_or_default();
        // “</script>” in a string would end the element; JSON has no other use for “<”.
        let values = values.replace('<', "\\u003c");
        format!("{drawing}<script type=\"application/json\">{values}</script>")
    }
}

/// Index and position of a point in pixels; `None` if it has no position.
type Position = (usize, Option<(f64, f64)>);
type Positions = Vec<Position>;

/// The layout of a figure, in pixels.
struct Drawing<'a> {
    figure: &'a ExperimentFigure,
    is_file: bool,
    x_ticks: Vec<(f64, String)>,
    y_ticks: Vec<(f64, String)>,
    /// Positions of the legend's entries, one for each series; none if there is a single series.
    keys: Vec<(f64, f64)>,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl<'a> Drawing<'a> {
    fn new(figure: &'a ExperimentFigure, is_file: bool) -> Self {
        let [x_ticks, y_ticks] = [On::X, On::Y].map(|on| ticks(figure, on));
        let longest = y_ticks.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(0);
        let legend_top = if is_file { 48.0 } else { 16.0 };
        let keys = keys(&figure.series, legend_top);
        let top = keys.last().map_or(legend_top, |(_, y)| y + KEY_LINE_PX);
        let area = match figure.y.ticks.len() {
            0 => AREA_PX,
            rows => 30.0 + ROW_PX * as_f64(rows.min(200)),
        };
        let left = 48.0 + 7.0 * as_f64(longest.min(40));
        let right = WIDTH_PX - 24.0;
        Self { figure, is_file, x_ticks, y_ticks, keys, left, top, right, bottom: top + area }
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
    fn positions(&self, series: &Series) -> Positions {
        let ((x0, x1), (y0, y1)) = (self.figure.span(On::X), self.figure.span(On::Y));
        let x_scale = (self.right - self.left) / (x1 - x0);
        let y_scale = (self.bottom - self.top) / (y1 - y0);
        let position = |(x, y): &(f64, f64)| {
            let (x, y) = (self.figure.x.place(*x)?, self.figure.y.place(*y)?);
            let at = (self.left + (x - x0) * x_scale, self.bottom - (y - y0) * y_scale);
            Some((tenth(at.0), tenth(at.1)))
        };
        let positions = series.points.iter().map(position).enumerate().collect();
        thinned(positions, series.style)
    }

    /// The name of a series, and position and label of each point.
    fn values<'s>(&self, series: &'s Series) -> (&'s str, Vec<(f64, f64, String)>) {
        let text = |index: usize| match series.labels.get(index) {
            Some(label) => label.clone(),
            None => {
                let (x, y) = series.points[index];
                format!("{} ({})", self.value(On::Y, y), self.value(On::X, x))
            }
        };
        let points = self.positions(series).into_iter();
        let points = points.filter_map(|(index, at)| at.map(|(x, y)| (x, y, text(index))));
        (&series.name, points.collect())
    }

    fn value(&self, on: On, value: f64) -> String {
        let axis = self.figure.axis(on);
        let is_here = |(at, _): &&(f64, String)| at.to_bits() == value.to_bits();
        match axis.ticks.iter().find(is_here) {
            Some((_, name)) => name.clone(),
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
            text(f, self.x(*at), bottom + 18.0, "middle", "", name)?;
        }
        for (at, name) in &self.y_ticks {
            text(f, left - 6.0, self.y(*at) + 4.0, "end", "", name)?;
        }
        let middle = tenth(f64::midpoint(left, right));
        text(f, middle, bottom + 40.0, "middle", "soft", &self.figure.x.label)?;
        let (x, y) = (MARGIN_PX, tenth(f64::midpoint(top, bottom)));
        write!(f, "<g transform=\"rotate(-90 {x} {y})\">")?;
        text(f, x, y, "middle", "soft", &self.figure.y.label)?;
        writeln!(f, "</g>")
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
        if series.style == Style::Bars {
            let bars = self.bars(index, &positions);
            write!(f, "<path fill=\"{colour}\" d=\"{bars}\"/>")?;
        } else if series.style != Style::Dots {
            let class = line_class(series.role);
            let line = line(&positions, series.style);
            write!(f, "<path class=\"{class}\" stroke=\"{colour}\" d=\"{line}\"/>")?;
        }
        if series.style == Style::Dots || series.style != Style::Bars && !series.labels.is_empty() {
            let class = shape(series.role).0;
            let dots = dots(&positions, series.role);
            write!(f, "<path class=\"{class}\" stroke=\"{colour}\" d=\"{dots}\"/>")?;
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
        let height = self.bottom + BELOW_PX;
        let namespace = if self.is_file { " xmlns=\"http://www.w3.org/2000/svg\"" } else { "" };
        writeln!(
            f,
            "<svg{namespace} class=\"figure\" viewBox=\"0 0 {WIDTH_PX} {height}\" \
             width=\"{WIDTH_PX}\" height=\"{height}\" role=\"img\">\n<style>\n{STYLE}</style>"
        )?;
        if self.is_file {
            let Self { figure, .. } = self;
            writeln!(
                f,
                "<title>{}</title>\n<desc>{}</desc>\n<rect class=\"ground\" x=\"0.5\" y=\"0.5\" \
                 width=\"{}\" height=\"{}\" rx=\"12\"/>",
                Escaped(&figure.title),
                Escaped(&figure.caption),
                WIDTH_PX - 1.0,
                height - 1.0,
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
    writeln!(
        f,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
    )
}

/// Positions of the legend's entries, from left to right, wrapped into lines.
fn keys(series: &[Series], top: f64) -> Vec<(f64, f64)> {
    let mut at = (MARGIN_PX, top);
    let place = |series: &Series| {
        let width = 46.0 + 7.0 * as_f64(series.name.chars().count());
        if at.0 > MARGIN_PX && at.0 + width > WIDTH_PX - MARGIN_PX {
            at = (MARGIN_PX, at.1 + KEY_LINE_PX);
        }
        let here = at;
        at.0 += width;
        here
    };
    if series.len() > 1 { series.iter().map(place).collect() } else { Vec::new() }
}

/// Removes invisible points. Of a line, each column of pixels keeps its first, lowest, highest and last point; of dots, one remains for
/// each pixel.
fn thinned(positions: Positions, style: Style) -> Positions {
    if positions.len() <= POINTS_MAX {
        return positions;
    }
    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    let pixel = |at: Option<(f64, f64)>| at.map(|(x, y)| (x as i64, y as i64));
    if matches!(style, Style::Dots | Style::Bars) {
        let mut taken = BTreeSet::new();
        return positions.into_iter().filter(|(_, at)| taken.insert(pixel(*at))).collect();
    }
    let column = |(_, at): &Position| pixel(*at).map(|(x, _)| x);
    let of_column = |points: &[Position]| {
        let height = |it: &&Position| it.1.map_or(0.0, |(_, y)| y);
        let by_height = || points.iter().max_by(|a, b| height(a).total_cmp(&height(b)));
        let by_depth = || points.iter().min_by(|a, b| height(a).total_cmp(&height(b)));
        let mut kept: Positions = [points.first(), by_height(), by_depth(), points.last()]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        kept.sort_by_key(|(index, _)| *index);
        kept.dedup_by_key(|(index, _)| *index);
        kept
    };
    positions.chunk_by(|one, next| column(one) == column(next)).flat_map(of_column).collect()
}

fn line(positions: &[Position], style: Style) -> String {
    let mut path = String::new();
    let mut is_joined = false;
    for (_, at) in positions {
        // Writing to a string cannot fail.
        let _ = match at {
            None => Ok(()),
            Some((x, y)) if !is_joined => write!(path, "M{x} {y}"),
            Some((x, y)) if style == Style::Steps => write!(path, "H{x}V{y}"),
            Some((x, y)) => write!(path, "L{x} {y}"),
        };
        is_joined = at.is_some();
    }
    path
}

fn dots(positions: &[Position], role: Role) -> String {
    let (_, shape) = shape(role);
    let dots = positions.iter().filter_map(|(_, at)| *at);
    dots.map(|(x, y)| format!("M{x} {y}{shape}")).collect()
}

const fn line_class(role: Role) -> &'static str {
    match role.dash() {
        Dash::Solid => "line",
        Dash::Dashed => "line dashed",
        Dash::Dotted => "line dotted",
    }
}

/// Class and path of a point: a vertical line for true or permitted values, a diamond for reports of relays, else a disc.
const fn shape(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Truth => ("shapes", "m0 -9v18"),
        Role::Client => ("shapes", "m0 -6l6 6l-6 6l-6 -6z"),
        _ => ("dots", "h0"),
    }
}

fn tenth(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0 + 0.0
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}
