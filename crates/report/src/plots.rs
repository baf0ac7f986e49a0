//! The plots, as data for plotly's script. Colours that depend on the reader's light or dark mode
//! are left to `page.js`.

use crate::figure::{Axis, ExperimentFigure, On, Role, Series, cumulative};
use crate::text::{Escaped, finite, mbit, quotient, range};
use crate::{RelayReport, SecondPoint, Verdict};
use plotly::common::{DashType, ErrorData, ErrorType, HoverInfo, Line};
use plotly::common::{Marker, MarkerSymbol, Mode};
use plotly::layout::{self, AxisRange, AxisType, RangeMode};
use plotly::{Layout, Plot, Scatter};

/// The relays that the overview has room for.
pub(crate) const MOST_IN_OVERVIEW: usize = 100;
/// The paper's bounds of the error of an estimate: *ε₁* = 0.20 below, *ε₂* = 0.05 above.
pub(crate) const ACCURATE: [f64; 2] = [0.80, 1.05];

const MEASURED: &str = Role::Measurement.colour();
const RELAY_SAID: &str = Role::Client.colour();
const LIMIT: &str = Role::Truth.colour();
const CONCLUSIVE_LIMIT: &str = Role::Problem.colour();
const EARLIER: &str = Role::Muted.colour();

/// A plot, ready to go into the page.
pub(crate) struct Figure {
    /// Of data, layout and configuration: JSON that is safe in a `script` element.
    pub(crate) json: String,
    /// How high it is.
    pub(crate) height_px: usize,
}

impl Figure {
    pub(crate) fn new(plot: &Plot, height_px: usize) -> Self {
        // “</script>” in a string would end the element; JSON has no other use for “<”.
        Self { json: plot.to_json().replace('<', "\\u003c"), height_px }
    }
}

/// plotly's script, to be embedded once.
///
/// The `plotly` crate puts that of MathJax behind it: 2 MB, and it would read formulas into
/// relays' nicknames.
pub(crate) fn script() -> String {
    let mut scripts = Plot::offline_js_sources();
    let end = "</script>";
    if let Some(first) = scripts.find(end) {
        scripts.truncate(first + end.len());
    }
    scripts
}

/// All relays side by side: limits, estimates with their quartiles, and what the relays said.
pub(crate) fn overview(relays: &[RelayReport]) -> Option<Figure> {
    let relays = relays.get(..MOST_IN_OVERVIEW).unwrap_or(relays);
    let shown: Vec<f64> = relays.iter().flat_map(rates).collect();
    if shown.is_empty() {
        return None;
    }
    let rows: Vec<usize> = (0..relays.len()).collect();
    let dots = |rate: fn(&RelayReport) -> Option<f64>| {
        let rates: Vec<Option<f64>> = relays.iter().map(|relay| finite(rate(relay))).collect();
        Scatter::new(rates, rows.clone()).mode(Mode::Markers).hover_info(HoverInfo::Text)
    };
    let hover = |what: &dyn Fn(&RelayReport) -> String| -> Vec<String> {
        relays
            .iter()
            .map(|relay| format!("{}: {}", Escaped(&relay.nickname), what(relay)))
            .collect()
    };

    let (above, below): (Vec<f64>, Vec<f64>) = relays.iter().map(quartile_distances).unzip();
    let error = ErrorData::new(ErrorType::Data).symmetric(false).array(above).array_minus(below);
    let estimate = dots(|relay| relay.estimate_mbit_per_s)
        .name("estimate, quartiles")
        .marker(Marker::new().color(MEASURED).size(10))
        .error_x(error.color(MEASURED).thickness(2.0).width(5))
        .hover_text_array(hover(&|relay| {
            let spread = relay.spread_mbit_per_s.map_or_else(String::new, |spread| {
                format!(", quartiles {}", range(spread.lower_quartile, spread.upper_quartile))
            });
            format!("estimate {} Mbit/s{spread}", mbit(relay.estimate_mbit_per_s))
        }));
    let said = dots(|relay| relay.relay_said_mbit_per_s)
        .name("relay’s own median")
        .marker(open(MarkerSymbol::DiamondOpen, 13, RELAY_SAID))
        .hover_text_array(hover(&|relay| {
            format!("says {} Mbit/s", mbit(relay.relay_said_mbit_per_s))
        }));
    let limit = dots(|relay| relay.limit_mbit_per_s)
        .name("configured limit")
        .marker(open(MarkerSymbol::LineNSOpen, 22, LIMIT))
        .hover_text_array(hover(&|relay| format!("limit {} Mbit/s", mbit(relay.limit_mbit_per_s))));

    #[expect(clippy::cast_precision_loss, reason = "there are at most a hundred rows")]
    let (ticks, bottom) = (rows.iter().map(|row| *row as f64).collect(), rows.len() as f64 - 0.5);
    let y_axis = layout::Axis::new()
        .tick_values(ticks)
        .tick_text(relays.iter().map(label).collect())
        .range(AxisRange::new(bottom, -0.5))
        .fixed_range(true)
        .zero_line(false)
        .auto_margin(true);
    let layout = Layout::new().x_axis(rate_axis(&shown)).y_axis(y_axis);
    let mut plot = Plot::new();
    plot.add_traces(vec![limit, said, estimate]);
    plot.set_layout(layout);
    Some(Figure::new(&plot, 130 + 34 * relays.len().max(2)))
}

/// How estimates compare with limits, as in figure 6 of the paper: the share of relays up to each
/// ratio. One relay makes no distribution.
pub(crate) fn accuracy(relays: &[RelayReport]) -> Option<Figure> {
    let mut ratios: Vec<(f64, &RelayReport)> =
        relays.iter().filter_map(|relay| Some((relay.ratio_to_limit()?, relay))).collect();
    if ratios.len() < 2 {
        return None;
    }
    ratios.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let names = ratios.iter().map(|(ratio, relay)| {
        format!("{}: {} of its limit", relay.nickname, quotient(Some(*ratio)))
    });
    let names = names.collect();
    let ratios: Vec<f64> = ratios.iter().map(|(ratio, _)| *ratio).collect();
    let line = Series::steps("estimate ÷ limit", Role::Measurement, cumulative(&ratios));
    let y = Axis { is_percent: true, ..Axis::new("share of relays").showing(0.0, 1.04) };
    let x = Axis::new("estimate ÷ configured limit").showing(0.73, 1.12);
    let figure = ExperimentFigure::new("accuracy", "Accuracy", x, y)
        .band(On::X, ACCURATE[0], ACCURATE[1], "", Role::Truth)
        .mark(On::X, 1.0, "", Role::Truth)
        .with(line.labels(names));
    Some(figure.to_plot())
}

/// One relay, second by second.
pub(crate) fn seconds(relay: &RelayReport) -> Option<Figure> {
    let last = relay.series.iter().map(|point| point.round).max()?;
    let mut plot = Plot::new();
    let rounds = relay.series.chunk_by(|one, next| one.round == next.round);
    for (index, round) in rounds.clone().filter(|round| is_not(round, last)).enumerate() {
        plot.add_trace(
            line(round, |point| Some(point.measured_mbit_per_s))
                .name("earlier rounds")
                .legend_group("earlier")
                .show_legend(index == 0)
                .opacity(0.65)
                .line(Line::new().color(EARLIER).width(1.5)),
        );
    }
    for round in rounds.filter(|round| !is_not(round, last)) {
        if round.iter().any(|point| finite(point.relay_said_mbit_per_s).is_some()) {
            plot.add_trace(
                line(round, |point| point.relay_said_mbit_per_s)
                    .name("relay says")
                    .line(Line::new().color(RELAY_SAID).width(2.0).dash(DashType::Dash)),
            );
        }
        plot.add_trace(
            line(round, |point| Some(point.measured_mbit_per_s))
                .name("measured")
                .mode(Mode::LinesMarkers)
                .marker(Marker::new().color(MEASURED).size(5))
                .line(Line::new().color(MEASURED).width(2.5)),
        );
    }
    let end = relay.series.iter().map(shown_second).max().unwrap_or(1);
    let fastest = relay.series.iter().map(|point| point.measured_mbit_per_s).fold(0.0, f64::max);
    let levels = [
        ("median: the estimate", relay.estimate_mbit_per_s, MEASURED, DashType::Dot),
        ("configured limit", relay.limit_mbit_per_s, LIMIT, DashType::Solid),
        (
            "conclusive below",
            // Far above all seconds, it would press them flat.
            relay.conclusive_limit_mbit_per_s.filter(|limit| *limit < 3.0 * fastest),
            CONCLUSIVE_LIMIT,
            DashType::DashDot,
        ),
    ];
    for (name, rate, color, dash) in levels {
        if let Some(rate) = finite(rate) {
            plot.add_trace(
                Scatter::new(vec![1, end], vec![Some(rate); 2])
                    .name(format!("{name} ({})", mbit(Some(rate))))
                    .mode(Mode::Lines)
                    .hover_info(HoverInfo::Skip)
                    .line(Line::new().color(color).width(1.5).dash(dash)),
            );
        }
    }
    plot.set_layout(
        Layout::new()
            .hover_mode(layout::HoverMode::XUnified)
            .x_axis(
                layout::Axis::new()
                    .title("second")
                    .range(AxisRange::new(0.5, f64::from(end) + 0.5)),
            )
            .y_axis(
                layout::Axis::new()
                    .title("Mbit/s")
                    .range_mode(RangeMode::ToZero)
                    .hover_format(".1f"),
            ),
    );
    Some(Figure::new(&plot, 360))
}

fn is_not(round: &[SecondPoint], last: u32) -> bool {
    round.first().is_some_and(|point| point.round != last)
}

/// Seconds are counted from one, as people do.
const fn shown_second(point: &SecondPoint) -> u32 {
    point.second.saturating_add(1)
}

fn line(
    round: &[SecondPoint],
    rate: fn(&SecondPoint) -> Option<f64>,
) -> Box<Scatter<u32, Option<f64>>> {
    let seconds = round.iter().map(shown_second).collect();
    Scatter::new(seconds, round.iter().map(|point| finite(rate(point))).collect()).mode(Mode::Lines)
}

fn open(symbol: MarkerSymbol, size: usize, color: &'static str) -> Marker {
    Marker::new().symbol(symbol).size(size).color(color).line(Line::new().color(color).width(2.5))
}

/// From zero, unless small rates would then vanish beside large ones.
fn rate_axis(rates: &[f64]) -> layout::Axis {
    let smallest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = rates.iter().copied().fold(0.0, f64::max);
    if smallest > 0.0 && largest / smallest > 30.0 {
        layout::Axis::new().type_(AxisType::Log).dtick(1.0).title("Mbit/s, logarithmic")
    } else {
        layout::Axis::new().range_mode(RangeMode::ToZero).zero_line(false).title("Mbit/s")
    }
}

fn rates(relay: &RelayReport) -> impl Iterator<Item = f64> {
    let lowest = relay.spread_mbit_per_s.map(|spread| spread.lower_quartile);
    [relay.limit_mbit_per_s, relay.estimate_mbit_per_s, relay.relay_said_mbit_per_s, lowest]
        .into_iter()
        .filter_map(finite)
}

/// How far the quartiles lie above and below the estimate.
fn quartile_distances(relay: &RelayReport) -> (f64, f64) {
    let distances = relay.estimate().zip(relay.spread_mbit_per_s).map(|(estimate, spread)| {
        (spread.upper_quartile - estimate, estimate - spread.lower_quartile)
    });
    let (above, below) = distances.unwrap_or_default();
    let shown = |distance: f64| finite(Some(distance)).unwrap_or(0.0).max(0.0);
    (shown(above), shown(below))
}

fn label(relay: &RelayReport) -> String {
    let name: String = relay.nickname.chars().take(20).collect();
    let suffix = if matches!(relay.verdict(), Verdict::Failed(_)) { " (failed)" } else { "" };
    format!("{}{suffix}  ", Escaped(&name))
}
