//! Figures on the page: data for plotly.

use super::{Axis, Dash, ExperimentFigure, On, Scale, Series, Style};
use crate::plots::Figure;
use crate::text::Escaped;
use plotly::common::{Anchor, DashType, HoverInfo, Line, LineShape, Marker, Mode};
use plotly::layout::{Annotation, AxisRange, AxisType, HoverMode, Shape, ShapeLayer};
use plotly::layout::{ShapeLine, ShapeType};
use plotly::{Bar, Layout, Plot, Scatter, Trace, layout};

/// How high a plot is, without rows of its own.
const HEIGHT_PX: usize = 360;
/// Of shaded ranges.
const BAND_OPACITY: f64 = 0.14;

impl ExperimentFigure {
    /// For plotly.
    pub(crate) fn to_plot(&self) -> Figure {
        let mut plot = Plot::new();
        for series in &self.series {
            plot.add_trace(self.trace(series));
        }
        let hover = if self.has_common_x() { HoverMode::XUnified } else { HoverMode::Closest };
        plot.set_layout(
            Layout::new()
                .show_legend(self.series.len() > 1)
                .hover_mode(hover)
                .shapes(self.shapes())
                .annotations(self.annotations())
                .x_axis(self.plotly_axis(On::X))
                .y_axis(self.plotly_axis(On::Y)),
        );
        let rows = self.y.ticks.len();
        Figure::new(&plot, if rows == 0 { HEIGHT_PX } else { 130 + 34 * rows.max(2) })
    }

    /// Whether all series say something of the same places, to be compared there.
    fn has_common_x(&self) -> bool {
        let places = |series: &Series| series.points.iter().map(|(x, _)| *x).collect::<Vec<_>>();
        self.series.windows(2).all(|two| places(&two[0]) == places(&two[1]))
            && self.series.iter().all(|series| series.labels.is_empty())
            && self.series.len() > 1
    }

    fn trace(&self, series: &Series) -> Box<dyn Trace> {
        let shown = |axis: &Axis, value| axis.place(value).map(|_| value);
        let (x, y): (Vec<Option<f64>>, Vec<Option<f64>>) =
            series.points.iter().map(|(x, y)| (shown(&self.x, *x), shown(&self.y, *y))).unzip();
        let name = Escaped(&series.name).to_string();
        let labels: Vec<String> =
            series.labels.iter().map(|label| Escaped(label).to_string()).collect();
        let colour = series.role.colour();
        if series.style == Style::Bars {
            let bars = Bar::new(x, y).name(name).marker(Marker::new().color(colour));
            return if labels.is_empty() {
                bars
            } else {
                bars.hover_info(HoverInfo::Text).hover_text_array(labels)
            };
        }
        let mode = match (series.style, labels.is_empty()) {
            (Style::Dots, _) => Mode::Markers,
            (_, true) => Mode::Lines,
            (_, false) => Mode::LinesMarkers,
        };
        let shape = if series.style == Style::Steps { LineShape::Hv } else { LineShape::Linear };
        let dash = match series.role.dash() {
            Dash::Solid => DashType::Solid,
            Dash::Dashed => DashType::Dash,
            Dash::Dotted => DashType::Dot,
        };
        let scatter = Scatter::new(x, y)
            .name(name)
            .mode(mode)
            .line(Line::new().shape(shape).color(colour).width(2.0).dash(dash))
            .marker(Marker::new().color(colour).size(8));
        if labels.is_empty() {
            scatter
        } else {
            scatter.hover_info(HoverInfo::Text).hover_text_array(labels)
        }
    }

    fn plotly_axis(&self, on: On) -> layout::Axis {
        let axis = self.axis(on);
        let (from, to) = self.span(on);
        let mut shown = layout::Axis::new()
            .title(Escaped(&axis.label).to_string())
            .range(AxisRange::new(from, to))
            .zero_line(false);
        if axis.scale == Scale::Log {
            shown = shown.type_(AxisType::Log);
            // Less than two decades have too few powers of ten to read anything from.
            shown = if (to - from).abs() > 2.0 { shown.dtick(1.0) } else { shown.n_ticks(6) };
        }
        if axis.is_percent {
            shown = shown.tick_format(".0%");
        } else {
            shown = shown.hover_format(".4~g");
        }
        if !axis.ticks.is_empty() {
            let names = axis.ticks.iter().map(|(_, name)| format!("{}  ", Escaped(name)));
            shown = shown
                .tick_values(axis.ticks.iter().map(|(at, _)| *at).collect())
                .tick_text(names.collect())
                .auto_margin(true)
                .fixed_range(on == On::Y);
        }
        shown
    }

    fn shapes(&self) -> Vec<Shape> {
        let across = |on: On, from: f64, to: f64| match on {
            On::X => Shape::new().y_ref("paper").y0(0).y1(1).x0(from).x1(to),
            On::Y => Shape::new().x_ref("paper").x0(0).x1(1).y0(from).y1(to),
        };
        let bands = self.bands.iter().filter(|band| is_shown(self.axis(band.on), band.from));
        let bands = bands.filter(|band| is_shown(self.axis(band.on), band.to)).map(|band| {
            across(band.on, band.from, band.to)
                .shape_type(ShapeType::Rect)
                .fill_color(band.role.colour())
                .opacity(BAND_OPACITY)
                .line(ShapeLine::new().width(0.0))
        });
        let marks = self.marks.iter().filter(|mark| is_shown(self.axis(mark.on), mark.at));
        let marks = marks.map(|mark| {
            let line = ShapeLine::new().color(mark.role.colour()).width(1.5).dash(DashType::Dot);
            across(mark.on, mark.at, mark.at).shape_type(ShapeType::Line).line(line)
        });
        bands.chain(marks).map(|shape| shape.layer(ShapeLayer::Below)).collect()
    }

    fn annotations(&self) -> Vec<Annotation> {
        self.notes()
            .map(|note| {
                let text = Annotation::new()
                    .text(Escaped(note.label).to_string())
                    .show_arrow(false)
                    .border_pad(3.0);
                let is_late = note.is_late;
                match note.on {
                    On::X => text
                        .x_ref("x")
                        .x(note.place)
                        .x_anchor(if is_late { Anchor::Right } else { Anchor::Left })
                        .y_ref("paper")
                        .y(if note.is_band { 0 } else { 1 })
                        .y_anchor(if note.is_band { Anchor::Bottom } else { Anchor::Top }),
                    On::Y => text
                        .y_ref("y")
                        .y(note.place)
                        .y_anchor(if is_late { Anchor::Top } else { Anchor::Bottom })
                        .x_ref("paper")
                        .x(if note.is_band { 0 } else { 1 })
                        .x_anchor(if note.is_band { Anchor::Left } else { Anchor::Right }),
                }
            })
            .collect()
    }
}

fn is_shown(axis: &Axis, value: f64) -> bool {
    axis.place(value).is_some()
}

/// The label of a band or mark.
pub(super) struct Note<'a> {
    pub(super) label: &'a str,
    pub(super) on: On,
    /// On the axis, as [`Axis::place`] counts.
    pub(super) place: f64,
    /// Whether there is little room behind it.
    pub(super) is_late: bool,
    pub(super) is_band: bool,
}

impl ExperimentFigure {
    /// The labels of bands and marks.
    pub(super) fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        let bands = self.bands.iter().map(|band| (band.on, band.from, &band.label, true));
        let marks = self.marks.iter().map(|mark| (mark.on, mark.at, &mark.label, false));
        bands.chain(marks).filter(|(_, _, label, _)| !label.is_empty()).filter_map(
            |(on, at, label, is_band)| {
                let (from, to) = self.span(on);
                let place = self.axis(on).place(at)?;
                let is_late = (place - from) / (to - from) > 0.8;
                Some(Note { label, on, place, is_late, is_band })
            },
        )
    }
}
