//! Tests of figures.

use super::{Axis, ExperimentFigure, On, Role, Series, TrafficSecond, cumulative};
use serde_json::{Value, json};

const EVIL: &str = "</script></text><image href='x' onerror=\"alert(1)\"/>&\u{1b}";

/// The data for `page.js`: name of each series, and position and label of its points.
fn values(figure: &ExperimentFigure) -> Value {
    let page = figure.in_page();
    let (_, script) = page.split_once("<script type=\"application/json\">").unwrap();
    serde_json::from_str(script.strip_suffix("</script>").unwrap()).unwrap()
}

/// The paths of the series, one for each connected part.
fn paths(figure: &ExperimentFigure) -> Vec<String> {
    let svg = figure.to_svg();
    let groups = svg.split("<g class=\"series\">").skip(1);
    let paths = groups.flat_map(|group| {
        let (group, _) = group.split_once("</g>").unwrap();
        let parts = group.split(" d=\"").skip(1);
        parts.map(|part| part.split_once('"').unwrap().0.to_owned()).collect::<Vec<_>>()
    });
    paths.collect()
}

fn empty() -> ExperimentFigure {
    ExperimentFigure::new("f", "Title", Axis::new("x"), Axis::new("y"))
}

/// A figure with each kind of part.
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
fn a_distribution_rises_to_one_and_ignores_nan() {
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
    let paths = paths(&figure);
    assert!(paths.len() == 2 && paths[0].contains('V') && !paths[0].contains('L'), "{paths:?}");
    let svg = figure.to_svg();
    assert!(svg.contains(Role::Nth(0).colour()) && svg.contains(Role::Nth(1).colour()));
    assert!(svg.contains(">50 %</text>") || svg.contains(">40 %</text>"), "{svg}");
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
    let svg = figure.to_svg();
    assert_eq!(svg.matches("class=\"mark\"").count(), 2);
    assert!(svg.contains(">measurement begins</text>") && svg.contains(">ends</text>"));
    assert_eq!(values(&figure)[1][0], "measurement");
    assert_eq!(values(&figure)[1][1][0][2], "90.00 (7.000)");
}

#[test]
fn untrusted_text_is_escaped_in_pages_and_files() {
    let figure = full(EVIL);
    for drawn in [figure.to_svg(), figure.in_page()] {
        assert!(!drawn.contains("<image") && !drawn.contains('\u{1b}'));
        assert!(drawn.contains("&lt;image") && drawn.matches("</script>").count() <= 1);
    }
    assert_eq!(values(&figure)[0][0], EVIL, "the script writes it as text");
}

#[test]
fn an_svg_file_loads_nothing_and_supports_dark_mode() {
    let svg = full("text").to_svg();
    assert_eq!(svg.matches("://").count(), 1, "the namespace alone: {svg}");
    assert!(!svg.contains("href") && !svg.contains("url("));
    assert!(svg.contains("prefers-color-scheme: dark"));
    assert!(svg.contains("<title>text</title>") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("<svg").count(), 1);
}

#[test]
fn nan_makes_a_gap() {
    let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 1.0)];
    let figure = empty().with(Series::line("s", Role::Problem, points));
    let [line] = &paths(&figure)[..] else { panic!("one line") };
    assert_eq!((line.matches('M').count(), line.matches('L').count()), (2, 2), "{line}");
    assert_eq!(values(&figure)[0][1].as_array().unwrap().len(), 4);
    assert!(!figure.to_svg().contains("NaN"));
}

#[test]
fn a_logarithmic_axis_leaves_out_values_that_are_not_positive() {
    let points = vec![(0.0, 1.0), (-1.0, 1.0), (10.0, 1.0), (1000.0, 2.0)];
    let mut figure = empty().with(Series::dots("s", Role::Problem, points));
    figure.x = Axis::new("k").log();
    let figure = figure.mark(On::X, 100.0, "m", Role::Muted).mark(On::X, 0.0, "0", Role::Muted);
    let svg = figure.to_svg();
    assert_eq!(svg.matches("class=\"mark\"").count(), 1, "zero has no logarithm");
    for number in ["10", "100", "1000"] {
        assert!(svg.contains(&format!(">{number}</text>")), "{number}: {svg}");
    }
    assert_eq!(paths(&figure)[0].matches("h0").count(), 2);
}

#[test]
fn thinning_keeps_extremes() {
    let points: Vec<(f64, f64)> = (0..100_000)
        .map(|n| (f64::from(n), if n == 77_777 { 9.0 } else { f64::from(n % 7) }))
        .collect();
    let line = empty().with(Series::line("s", Role::Sum, points.clone()));
    assert!(line.in_page().len() < 250_000, "{} bytes", line.in_page().len());
    let shown = values(&line)[0][1].as_array().unwrap().clone();
    assert!(shown.iter().any(|it| it[2] == "9.000 (77777.0)"), "the highest is not lost");
    assert_eq!(
        [&shown[0][2], &shown[shown.len() - 1][2]],
        [&json!("0 (0)"), &json!("4.000 (99999.0)")]
    );
    let dots = empty().with(Series::dots("s", Role::Sum, points));
    assert!(dots.in_page().len() < 500_000, "{} bytes", dots.in_page().len());
}

#[test]
fn an_axis_shows_its_range_and_all_points() {
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
fn extreme_numbers_are_drawn_safely() {
    let odd = [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, -1e300, 100.0, 100.0 + 1e-13];
    let points: Vec<_> = odd.iter().flat_map(|x| odd.map(|y| (*x, y))).collect();
    for style in [Series::line, Series::steps, Series::dots, Series::bars] {
        for axis in [Axis::new("x"), Axis::new("x").log(), Axis::new("x").showing(f64::NAN, 1.0)] {
            let mut figure = empty()
                .with(style("s", Role::Nth(usize::MAX), points.clone()))
                .mark(On::Y, f64::NAN, "m", Role::Sum)
                .band(On::X, 1.0, f64::INFINITY, "b", Role::Sum);
            (figure.x, figure.y) = (axis.clone(), axis);
            let svg = figure.to_svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(values(&figure)[0][1].is_array());
        }
    }
    assert!(empty().to_svg().ends_with("</svg>\n"));
}
