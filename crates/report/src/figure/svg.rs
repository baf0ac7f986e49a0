//! Figures as files, for documents: SVG that suits light and dark pages.

mod legend;
mod ruler;

use super::drawn::Note;
use super::{Dash, ExperimentFigure, On, Role, Series, Style};
use crate::text::{Escaped, plain};
use crate::write::ReportError;
use legend::Legend;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use ruler::Ruler;

const WIDTH_PX: u32 = 860;
/// Of the axes and what is between them.
const CHART_PX: u32 = 360;
const ROW_PX: u32 = 30;
const MARGIN_PX: i32 = 16;
const FONT: &str = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const FAINT: RGBColor = RGBColor(0x57, 0x60, 0x6a);
const LINES: RGBColor = RGBColor(0xd0, 0xd7, 0xde);
/// Plotters writes colours into attributes: in the dark, these go before them.
const DARK: &str = r##".page { fill: #ffffff; stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; stroke: #30363d }
[fill="#1F2328"] { fill: #e6edf3 }
[fill="#57606A"] { fill: #9198a1 }
[stroke="#D0D7DE"] { stroke: #30363d }
[stroke="#57606A"] { stroke: #6e7681 }
}"##;

type Failed = DrawingAreaErrorKind<std::io::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ruler, Ruler>>;

impl ExperimentFigure {
    /// The figure as an SVG file, which needs no other file, and follows the reader's light or dark
    /// mode.
    ///
    /// # Errors
    ///
    /// If `plotters` can't draw it, which would be a defect of this crate.
    pub fn to_svg(&self) -> Result<String, ReportError> {
        let legend = Legend::new(self);
        let top = 40 + legend.height_px();
        let chart_px = match u32::try_from(self.y.ticks.len()) {
            Ok(0) | Err(_) => CHART_PX,
            Ok(rows) => 80 + ROW_PX * rows.min(200),
        };
        let height = top.unsigned_abs() + chart_px;
        let mut svg = String::new();
        self.draw(&mut svg, &legend, top, height).map_err(|error| ReportError::Draw {
            figure: plain(&self.title),
            reason: error.to_string(),
        })?;
        // Plotters' own opening tag gives way to one that says what the picture shows.
        let content = svg.split_once('>').map_or("", |(_, content)| content);
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH_PX} {height}\" \
             width=\"{WIDTH_PX}\" height=\"{height}\" role=\"img\">\n<title>{}</title>\n\
             <desc>{}</desc>\n<style>\n{DARK}\n</style>\n<rect class=\"page\" x=\"0.5\" y=\"0.5\" \
             width=\"{}\" height=\"{}\" rx=\"12\"/>{content}",
            Escaped(&self.title),
            Escaped(&self.caption),
            WIDTH_PX - 1,
            height - 1,
        ))
    }

    fn draw(
        &self,
        svg: &mut String,
        legend: &Legend<'_>,
        top: i32,
        height: u32,
    ) -> Result<(), Failed> {
        let root = SVGBackend::with_string(svg, (WIDTH_PX, height)).into_drawing_area();
        let title = font(15.0, TEXT, HPos::Left, VPos::Top);
        root.draw(&Text::new(plain(&self.title), (MARGIN_PX, 14), title))?;
        legend.draw(&root, 48)?;
        let below = root.margin(top, 8, 8, 24);
        let [x, y] = [On::X, On::Y].map(|on| Ruler::new(self, on));
        let labels_px = 40 + 7 * u32::try_from(y.width().min(40)).unwrap_or(0);
        let mut chart = ChartBuilder::on(&below)
            .x_label_area_size(50)
            .y_label_area_size(labels_px)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(LINES)
            .axis_style(LINES)
            .label_style(font(12.0, TEXT, HPos::Center, VPos::Center))
            .axis_desc_style(font(13.0, FAINT, HPos::Center, VPos::Center))
            .x_desc(plain(&self.x.label))
            .y_desc(plain(&self.y.label))
            .draw()?;
        self.behind(&mut chart)?;
        for (index, series) in self.series.iter().enumerate() {
            match series.style {
                Style::Bars => self.bars(&mut chart, index, series)?,
                _ => self.points(&mut chart, series)?,
            }
        }
        self.notes().try_for_each(|note| self.label(&root, &chart, &note))?;
        root.present()
    }

    /// Bands and marks.
    fn behind(&self, chart: &mut Chart<'_, '_>) -> Result<(), Failed> {
        let ((x0, x1), (y0, y1)) = (self.span(On::X), self.span(On::Y));
        for band in &self.bands {
            let axis = self.axis(band.on);
            let Some((from, to)) = axis.place(band.from).zip(axis.place(band.to)) else { continue };
            let corners = match band.on {
                On::X => [(from, y0), (to, y1)],
                On::Y => [(x0, from), (x1, to)],
            };
            let fill = colour(band.role).mix(0.14).filled();
            chart.draw_series([Rectangle::new(corners, fill)])?;
        }
        for mark in &self.marks {
            let Some(at) = self.axis(mark.on).place(mark.at) else { continue };
            let ends = match mark.on {
                On::X => [(at, y0), (at, y1)],
                On::Y => [(x0, at), (x1, at)],
            };
            let style = colour(mark.role).stroke_width(2);
            chart.draw_series(DashedLineSeries::new(ends, 3, 4, style))?;
        }
        Ok(())
    }

    fn points(&self, chart: &mut Chart<'_, '_>, series: &Series) -> Result<(), Failed> {
        let place = |(x, y): &(f64, f64)| self.x.place(*x).zip(self.y.place(*y));
        let places: Vec<_> = series.points.iter().map(place).collect();
        let style = colour(series.role).stroke_width(2);
        if series.style == Style::Dots || !series.labels.is_empty() {
            let dots = places.iter().flatten();
            chart.draw_series(dots.map(|at| Circle::new(*at, 4, style.filled())))?;
        }
        if series.style == Style::Dots {
            return Ok(());
        }
        for run in places.split(Option::is_none) {
            let run: Vec<_> = run.iter().flatten().copied().collect();
            let line = if series.style == Style::Steps { steps(&run) } else { run };
            if line.len() < 2 {
                continue;
            }
            if let Some((dash, gap)) = dash_px(series.role) {
                chart.draw_series(DashedLineSeries::new(line, dash, gap, style))?;
            } else {
                chart.draw_series([PathElement::new(line, style)])?;
            }
        }
        Ok(())
    }

    fn bars(&self, chart: &mut Chart<'_, '_>, index: usize, series: &Series) -> Result<(), Failed> {
        let is_bars = |series: &&Series| series.style == Style::Bars;
        let before = self.series.iter().take(index).filter(is_bars).count();
        let all = self.series.iter().filter(is_bars);
        let mut at: Vec<f64> = all.clone().flat_map(|bars| &bars.points).map(|(x, _)| *x).collect();
        at.sort_by(f64::total_cmp);
        let distances = at.windows(2).filter_map(|two| self.x.place(two[1] - two[0]));
        let nearest = distances.filter(|distance| *distance > 0.0).fold(1.0, f64::min);
        #[expect(clippy::cast_precision_loss, reason = "there are a few series")]
        let (before, all) = (before as f64, all.count() as f64);
        let width = 0.8 * nearest / all;
        let bottom = self.y.place(0.0).unwrap_or(self.span(On::Y).0);
        let fill = colour(series.role).filled();
        let bars = series.points.iter().filter_map(|(x, y)| {
            let left = self.x.place(*x)? + (before - all / 2.0) * width;
            Some(Rectangle::new([(left, bottom), (left + width, self.y.place(*y)?)], fill))
        });
        chart.draw_series(bars).map(drop)
    }

    fn label(&self, root: &Area<'_>, chart: &Chart<'_, '_>, note: &Note<'_>) -> Result<(), Failed> {
        let ((x0, x1), (y0, y1)) = (self.span(On::X), self.span(On::Y));
        let (at, h_pos, v_pos) = match (note.on, note.is_band) {
            (On::X, true) => ((note.place, y0), None, VPos::Bottom),
            (On::X, false) => ((note.place, y1), None, VPos::Top),
            (On::Y, true) => ((x0, note.place), Some(HPos::Left), VPos::Bottom),
            (On::Y, false) => ((x1, note.place), Some(HPos::Right), VPos::Bottom),
        };
        let v_pos = if note.on == On::Y && note.is_late { VPos::Top } else { v_pos };
        let beside = if note.is_late { HPos::Right } else { HPos::Left };
        let h_pos = h_pos.unwrap_or(beside);
        let (x, y) = chart.backend_coord(&at);
        let away = (
            if matches!(h_pos, HPos::Left) { 5 } else { -5 },
            if matches!(v_pos, VPos::Top) { 4 } else { -4 },
        );
        let style = font(12.0, FAINT, h_pos, v_pos);
        root.draw(&Text::new(plain(note.label), (x + away.0, y + away.1), style))
    }
}

fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = points.windows(2).flat_map(|two| [two[0], (two[1].0, two[0].1)]);
    corners.chain(points.last().copied()).collect()
}

const fn dash_px(role: Role) -> Option<(i32, i32)> {
    match role.dash() {
        Dash::Solid => None,
        Dash::Dashed => Some((8, 4)),
        Dash::Dotted => Some((2, 4)),
    }
}

fn colour(role: Role) -> RGBColor {
    let part = |at: usize| {
        let digits = role.colour().get(at..at + 2).unwrap_or_default();
        u8::from_str_radix(digits, 16).unwrap_or_default()
    };
    RGBColor(part(1), part(3), part(5))
}

fn font(size_px: f64, colour: RGBColor, h_pos: HPos, v_pos: VPos) -> TextStyle<'static> {
    // Plotters writes 1/1.24 of it.
    (FONT, size_px * 1.24).into_font().color(&colour).pos(Pos::new(h_pos, v_pos))
}
