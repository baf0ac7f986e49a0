//! The legend of a picture: a piece of each series, and its name.

use super::{Area, Failed, MARGIN_PX, TEXT, WIDTH_PX, colour, dash_px, font};
use crate::figure::{ExperimentFigure, Series, Style};
use crate::text::plain;
use plotters::element::DashedPathElement;
use plotters::prelude::{Circle, PathElement, Rectangle, Text};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

const LINE_PX: i32 = 22;

/// Where the keys stand.
pub(super) struct Legend<'a>(Vec<(&'a Series, (i32, i32))>);

impl<'a> Legend<'a> {
    /// From left to right, in as many lines as it takes. A single series needs none.
    pub(super) fn new(figure: &'a ExperimentFigure) -> Self {
        let mut at = (0, 0);
        let place = |series: &'a Series| {
            let width = 46 + i32::try_from(series.name.chars().count()).unwrap_or(0) * 8;
            if at.0 > 0 && at.0 + width > WIDTH_PX.cast_signed() - 2 * MARGIN_PX {
                at = (0, at.1 + LINE_PX);
            }
            let here = at;
            at.0 += width;
            (series, here)
        };
        let series = if figure.series.len() > 1 { figure.series.as_slice() } else { &[] };
        Self(series.iter().map(place).collect())
    }

    pub(super) fn height_px(&self) -> i32 {
        self.0.last().map_or(0, |(_, (_, y))| y + LINE_PX)
    }

    pub(super) fn draw(&self, root: &Area<'_>, top: i32) -> Result<(), Failed> {
        self.0.iter().try_for_each(|(series, (x, y))| key(root, series, (x + MARGIN_PX, y + top)))
    }
}

fn key(root: &Area<'_>, series: &Series, (x, y): (i32, i32)) -> Result<(), Failed> {
    let style = colour(series.role).stroke_width(3);
    let ends = [(x, y), (x + 20, y)];
    match (series.style, dash_px(series.role)) {
        (Style::Bars, _) => {
            root.draw(&Rectangle::new([(x + 4, y - 6), (x + 16, y + 6)], style.filled()))?;
        }
        (Style::Dots, _) => root.draw(&Circle::new((x + 10, y), 4, style.filled()))?,
        (_, None) => root.draw(&PathElement::new(ends, style))?,
        (_, Some((dash, gap))) => {
            root.draw(&DashedPathElement::new(ends, dash, gap, style))?;
        }
    }
    let name = font(13.0, TEXT, HPos::Left, VPos::Center);
    root.draw(&Text::new(plain(&series.name), (x + 26, y), name))
}
