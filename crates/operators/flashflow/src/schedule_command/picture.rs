//! Charts of the load of slots.

use report::experiment::{Axis, ExperimentFigure, On, Role, Series};
use std::fmt::Write as _;

/// Columns that fit into a terminal.
const COLUMNS: usize = 72;
/// Maximum number of points in a figure.
const POINTS: usize = 288;

/// A line for each team, with a block for each group of slots; its height is the mean load.
pub(super) fn text(filled: &[Vec<f64>], slot_s: u32) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut text = String::new();
    for (team, slots) in filled.iter().enumerate() {
        let block = |share: &f64| {
            let full = f64::from(8u8);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
            let height = (share * full).round().clamp(0.0, full) as usize;
            // A slot with any load is visible.
            BLOCKS.get(height.max(usize::from(*share > 0.0))).copied().unwrap_or(' ')
        };
        let line: String = together(slots, COLUMNS).iter().map(|(_, share)| block(share)).collect();
        let hours = hours(slots.len(), slot_s);
        let _cannot_fail = writeln!(text, "team {team} |{line}| {hours:.1} h");
    }
    text.truncate(text.trim_end().len());
    text
}

/// The load of the slots of each team over time, as a figure.
pub(super) fn figure(filled: &[Vec<f64>], slot_s: u32, is_greedy: bool) -> ExperimentFigure {
    let title = if is_greedy { "The fastest plan" } else { "A randomised plan" };
    let y = Axis { is_percent: true, ..Axis::new("of the team's capacity").showing(0.0, 1.05) };
    let figure = ExperimentFigure::new("schedule", title, Axis::new("hours"), y)
        .caption("Allocated share of the team's capacity in each slot.")
        .mark(On::Y, 1.0, "", Role::Muted);
    filled.iter().enumerate().fold(figure, |figure, (team, slots)| {
        let points = together(slots, POINTS).into_iter();
        let points = points.map(|(slot, share)| (hours(slot, slot_s), share)).collect();
        figure.with(Series::steps(&format!("team {team}"), Role::Nth(team), points))
    })
}

fn hours(slots: usize, slot_s: u32) -> f64 {
    slots as f64 * f64::from(slot_s) / 3600.0
}

/// Groups neighbouring slots into at most `most` groups: the first slot and the mean of each.
fn together(slots: &[f64], most: usize) -> Vec<(usize, f64)> {
    let size = slots.len().div_ceil(most).max(1);
    let mean = |(group, slots): (usize, &[f64])| {
        (group * size, slots.iter().sum::<f64>() / slots.len() as f64)
    };
    slots.chunks(size).enumerate().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_the_load() {
        let shown = text(&[vec![1.0, 0.5, 0.001, 0.0]], 900);
        assert_eq!(shown, "team 0 |█▄▁ | 1.0 h");
    }

    #[test]
    fn a_long_period_is_drawn_with_few_points() {
        let slots: Vec<f64> = (0..2880).map(|slot| f64::from(slot % 2)).collect();
        let points = together(&slots, POINTS);
        assert_eq!((points.len(), points[1]), (288, (10, 0.5)));
        let svg = figure(&[slots.clone(), slots], 30, false).to_svg();
        assert!(svg.contains("team 1") && svg.len() < 100_000, "{}", svg.len());
    }
}
