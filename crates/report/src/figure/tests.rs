//! Tests of figures.

use super::{Axis, ExperimentFigure, On, Role, Series, TrafficSecond, cumulative};
use serde_json::{Value, json};

const EVIL: &str = "</script></text><image href='x' onerror=\"alert(1)\"/>&\u{1b}";

fn plot(figure: &ExperimentFigure) -> Value {
    serde_json::from_str(&figure.to_plot().json).unwrap()
}

fn empty() -> ExperimentFigure {
    ExperimentFigure::new("f", "Title", Axis::new("x"), Axis::new("y"))
}

/// A figure with one of everything.
fn full(text: &str) -> ExperimentFigure {
    let points = || vec![(1.0, 2.0), (2.0, f64::NAN), (3.0, 4.0)];
    let labels = || vec![text.to_owned(); 3];
    let mut figure = ExperimentFigure::new("f", text, Axis::rows([text, "b"]), Axis::new(text));
    figure.y.ticks = vec![(2.0, text.to_owned())];
    figure
        .caption(text)
        .with(Series::line(text, Role::Client, points()).labels(labels()))
        .with(Series::steps(text, Role::Nth(2), points()))
        .with(Series::dots(text, Role::Problem, points()).labels(labels()))
        .with(Series::bars(text, Role::Nth(1), points()).labels(labels()))
        .band(On::X, 1.0, 2.0, text, Role::Truth)
        .band(On::Y, 1.0, 2.0, text, Role::Truth)
        .mark(On::X, 1.5, text, Role::Muted)
        .mark(On::Y, 1.5, text, Role::Muted)
}

#[test]
fn a_distribution_rises_to_one_and_counts_numbers_alone() {
    assert_eq!(
        cumulative(&[3.0, f64::NAN, 1.0, 2.0, 2.0]),
        [(1.0, 0.25), (2.0, 0.5), (2.0, 0.75), (3.0, 1.0)]
    );
    assert_eq!(cumulative(&[f64::INFINITY]), []);
}

#[test]
fn distributions_have_a_step_line_for_each_group_with_values() {
    let groups = [("a", &[0.9, 1.1][..]), ("none", &[]), ("b", &[1.0])];
    let figure = ExperimentFigure::distributions("f", "t", "x", groups);
    let names: Vec<_> = figure.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(figure.series[0].points, [(0.9, 0.0), (0.9, 0.5), (1.1, 1.0)]);
    let plot = plot(&figure);
    assert_eq!(plot["data"][0]["line"]["shape"], "hv");
    assert_ne!(plot["data"][0]["line"]["color"], plot["data"][1]["line"]["color"]);
    assert_eq!(plot["layout"]["yaxis"]["tickformat"], ".0%");
}

#[test]
fn traffic_shows_the_sum_and_when_the_measurement_begins_and_ends() {
    let second =
        TrafficSecond { second: 7.0, measurement_mbit_per_s: 90.0, client_mbit_per_s: 10.0 };
    let figure = ExperimentFigure::traffic("f", "t", &[second], 5.0, 35.0);
    let of = |name| figure.series.iter().find(|series| series.name == name).unwrap();
    assert_eq!(of("sum").points, [(7.0, 100.0)]);
    assert_eq!(of("measurement").points, [(7.0, 90.0)]);
    assert_eq!(of("clients").points, [(7.0, 10.0)]);
    let plot = plot(&figure);
    let shapes = plot["layout"]["shapes"].as_array().unwrap();
    assert_eq!([&shapes[0]["x0"], &shapes[1]["x0"]], [&json!(5.0), &json!(35.0)]);
    assert_eq!(plot["layout"]["annotations"][0]["text"], "measurement begins");
    assert!(figure.to_svg().unwrap().contains("\nends\n"));
}

#[test]
fn strangers_words_are_escaped_in_plots_and_pictures() {
    let figure = full(EVIL);
    let json = figure.to_plot().json;
    assert!(!json.contains('<') && !json.contains("\\u003cimage"), "{json}");
    let svg = figure.to_svg().unwrap();
    assert!(!svg.contains("<image") && !svg.contains("<script") && !svg.contains('\u{1b}'));
    assert!(svg.contains("&lt;image"));
}

#[test]
fn a_picture_fetches_nothing_and_suits_the_dark() {
    let svg = full("text").to_svg().unwrap();
    assert_eq!(svg.matches("://").count(), 1, "the namespace alone: {svg}");
    assert!(!svg.contains("href") && !svg.contains("url("));
    assert!(svg.contains("prefers-color-scheme: dark"));
    // The colours that the dark replaces are those that are there.
    for colour in ["fill=\"#1F2328\"", "fill=\"#57606A\"", "stroke=\"#D0D7DE\""] {
        assert!(svg.contains(&format!("[{colour}]")) && svg.contains(&format!(" {colour}")));
    }
    assert!(svg.contains("<title>text</title>") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("<svg").count(), 1);
}

#[test]
fn a_number_that_is_none_makes_a_gap() {
    let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 1.0)];
    let figure = empty().with(Series::line("s", Role::Problem, points));
    assert_eq!(plot(&figure)["data"][0]["y"], json!([1.0, 1.0, null, 1.0, 1.0]));
    let svg = figure.to_svg().unwrap();
    assert_eq!(svg.matches("stroke=\"#EF4444\"").count(), 2, "{svg}");
    assert!(!svg.contains("NaN"));
}

#[test]
fn a_logarithmic_axis_leaves_out_what_has_no_logarithm() {
    let points = vec![(0.0, 1.0), (-1.0, 1.0), (10.0, 1.0), (1000.0, 2.0)];
    let mut figure = empty().with(Series::dots("s", Role::Problem, points));
    figure.x = Axis::new("k").log();
    let figure = figure.mark(On::X, 100.0, "m", Role::Muted).mark(On::X, 0.0, "0", Role::Muted);
    let plot = plot(&figure);
    assert_eq!(plot["data"][0]["x"], json!([null, null, 10.0, 1000.0]));
    assert_eq!(plot["layout"]["xaxis"]["type"], "log");
    // For plotly, lines have places as data have, but texts have logarithms.
    assert_eq!(plot["layout"]["shapes"].as_array().unwrap().len(), 1);
    assert_eq!(plot["layout"]["shapes"][0]["x0"], 100.0);
    assert_eq!(plot["layout"]["annotations"][0]["x"], 2.0);
    let svg = figure.to_svg().unwrap();
    for number in ["10", "100", "1000"] {
        assert!(svg.contains(&format!("\n{number}\n")) || svg.contains(&format!(">{number}")));
    }
    assert_eq!(svg.matches("<circle").count(), 2);
}

#[test]
fn an_axis_shows_what_was_asked_for_and_all_that_there_is() {
    let figure = |x: Axis| {
        let mut figure =
            empty().with(Series::dots("s", Role::Client, vec![(2.0, 5.0), (3.0, 6.0)]));
        figure.x = x;
        figure
    };
    assert_eq!(figure(Axis::new("").showing(0.0, 2.5)).span(On::X), (0.0, 3.0));
    assert_eq!(figure(Axis::rows(["a", "b"])).span(On::X), (3.0, -0.5));
    assert_eq!(figure(Axis::new("")).band(On::X, 1.0, 9.0, "", Role::Truth).span(On::X).1, 9.32);
    assert_eq!(figure(Axis::new("")).span(On::Y).0, 0.0);
}

#[test]
fn odd_numbers_do_no_harm() {
    let odd = [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, -1e300, 100.0, 100.0 + 1e-13];
    let points: Vec<_> = odd.iter().flat_map(|x| odd.map(|y| (*x, y))).collect();
    for style in [Series::line, Series::steps, Series::dots, Series::bars] {
        for axis in [Axis::new("x"), Axis::new("x").log(), Axis::new("x").showing(f64::NAN, 1.0)] {
            let mut figure = empty()
                .with(style("s", Role::Nth(usize::MAX), points.clone()))
                .mark(On::Y, f64::NAN, "m", Role::Sum)
                .band(On::X, 1.0, f64::INFINITY, "b", Role::Sum);
            (figure.x, figure.y) = (axis.clone(), axis);
            let (json, svg) = (figure.to_plot().json, figure.to_svg().unwrap());
            assert!(!json.contains("inf") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
    assert!(empty().to_svg().is_ok());
}
