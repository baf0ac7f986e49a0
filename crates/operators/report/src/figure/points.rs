//! Points of a series on a drawing, in pixels.

use super::{Role, Style};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A series with more points than this is thinned, because the drawing has fewer pixels.
const DRAWN_MAX: usize = 4000;
/// More labels than this are indistinguishable to a pointer.
const LABELLED_MAX: usize = 600;
/// Pixels are not joined to larger squares than this.
const SQUARE_MAX_PX: f64 = 64.0;

/// Index and position of a point; `None` if it has no position.
pub(super) type Position = (usize, Option<(f64, f64)>);

/// The positions that are drawn.
pub(super) fn drawn(positions: Vec<Position>, style: Style) -> Vec<Position> {
    thinned(positions, style, DRAWN_MAX)
}

/// The positions that show their values at the pointer.
pub(super) fn labelled(positions: &[Position], style: Style) -> Vec<(usize, (f64, f64))> {
    let thinned = thinned(positions.to_vec(), style, LABELLED_MAX).into_iter();
    thinned.filter_map(|(index, at)| Some((index, at?))).collect()
}

/// Removes invisible points. Of a line, each column of pixels keeps its first, lowest, highest and last point; of dots, one remains for
/// each square. Columns and squares are as small as possible.
fn thinned(positions: Vec<Position>, style: Style, most: usize) -> Vec<Position> {
    if positions.len() <= most {
        return positions;
    }
    let mut square_px = 1.0;
    loop {
        let kept = match style {
            Style::Dots | Style::Bars => one_of_each_square(&positions, square_px),
            Style::Line | Style::Steps => extremes_of_each_column(&positions, square_px),
        };
        if kept.len() <= most || square_px >= SQUARE_MAX_PX {
            return kept;
        }
        square_px *= 2.0;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "pixels")]
fn square(at: Option<(f64, f64)>, size_px: f64) -> Option<(i64, i64)> {
    at.map(|(x, y)| ((x / size_px) as i64, (y / size_px) as i64))
}

fn one_of_each_square(positions: &[Position], size_px: f64) -> Vec<Position> {
    let mut taken = BTreeSet::new();
    positions.iter().filter(|(_, at)| taken.insert(square(*at, size_px))).copied().collect()
}

fn extremes_of_each_column(positions: &[Position], size_px: f64) -> Vec<Position> {
    let column = |(_, at): &Position| square(*at, size_px).map(|(x, _)| x);
    let of_column = |points: &[Position]| {
        let height = |point: &&Position| point.1.map_or(0.0, |(_, y)| y);
        let by_height = || points.iter().max_by(|a, b| height(a).total_cmp(&height(b)));
        let by_depth = || points.iter().min_by(|a, b| height(a).total_cmp(&height(b)));
        let mut kept: Vec<Position> = [points.first(), by_height(), by_depth(), points.last()]
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

/// The path of a line through these points.
pub(super) fn line(positions: &[Position], style: Style) -> String {
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

/// The points of a line that no other point is joined to. A line alone would not show them.
pub(super) fn isolated(positions: &[Position]) -> Vec<Position> {
    let parts = positions.chunk_by(|one, next| one.1.is_some() == next.1.is_some());
    parts.filter(|part| part.len() == 1 && part[0].1.is_some()).flatten().copied().collect()
}

/// The path of separate points.
pub(super) fn dots(positions: &[Position], role: Role) -> String {
    let (_, shape) = shape(role);
    let dots = positions.iter().filter_map(|(_, at)| *at);
    dots.map(|(x, y)| format!("M{x} {y}{shape}")).collect()
}

/// Class and path of a point: a vertical line for true or permitted values, a diamond for reports of relays, else a disc.
pub(super) const fn shape(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Truth => ("shapes", "m0 -9v18"),
        Role::Client => ("shapes", "m0 -6l6 6l-6 6l-6 -6z"),
        _ => ("dots", "h0"),
    }
}
