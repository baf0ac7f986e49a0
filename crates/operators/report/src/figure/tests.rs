//! Tests of figures.

use super::{Axis, ExperimentFigure, On, Role, Series, TrafficSecond, cumulative};

const EVIL: &str = "</script></text><image href='x' onerror=\"alert(1)\"/>&\u{1b}";

/// The markup of each series.
fn groups(svg: &str) -> impl Iterator<Item = &str> {
    svg.split("<g class=\"series\">").skip(1).map(|group| group.split_once("</g>").unwrap().0)
}

/// The values at the pointer, for each series.
fn values(svg: &str) -> Vec<Vec<String>> {
    let titles = |group: &str| {
        let titles = group.split("<title>").skip(1);
        titles.map(|title| title.split_once("</title>").unwrap().0.to_owned()).collect()
    };
    groups(svg).map(titles).collect()
}

/// The paths of the series.
fn paths(figure: &ExperimentFigure) -> Vec<String> {
    let svg = figure.to_svg();
    let paths = groups(&svg).flat_map(|group| {
        let parts = group.split(" d=\"").skip(1);
        parts.map(|part| part.split_once('"').unwrap().0.to_owned()).collect::<Vec<_>>()
    });
    paths.collect()
}

/// The texts of a drawing, without those at the pointer.
fn texts(svg: &str) -> Vec<&str> {
    let texts = svg.split("<text ").skip(1);
    texts.map(|text| text.split_once('>').unwrap().1.split_once('<').unwrap().0).collect()
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
    assert_eq!(values(&svg)[1], ["measurement: 90.00 (7.000)"]);
}

#[test]
fn untrusted_text_is_escaped_in_pages_and_files() {
    let figure = full(EVIL);
    for drawn in [figure.to_svg(), figure.to_html()] {
        assert!(!drawn.contains("<image") && !drawn.contains('\u{1b}'));
        assert!(drawn.contains("&lt;image") && !drawn.contains("</script>"));
    }
}

#[test]
fn an_svg_file_loads_nothing_and_supports_dark_mode() {
    let svg = full("text").to_svg();
    assert_eq!(svg.matches("://").count(), 1, "the namespace alone: {svg}");
    assert!(!svg.contains("href") && !svg.contains("url("));
    assert!(svg.contains("prefers-color-scheme: dark"));
    assert!(svg.contains("<title>text</title>") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("<svg").count(), 1);
    // Programs that know no variables find a plain colour first.
    let (_, rules) = svg.split_once("\n}\n").expect("the colours of dark mode");
    let (rules, drawing) = rules.split_once("</style>").expect("a style");
    for variable in rules.split('{').skip(1).filter(|rule| rule.contains("var(")) {
        for declaration in variable.split(';').filter(|declaration| declaration.contains("var(")) {
            let (property, _) = declaration.split_once(':').expect("a declaration");
            let plain = format!("{}: #", property.trim());
            assert!(variable.contains(&plain), "{variable}");
        }
    }
    assert!(!drawing.contains("var("), "{drawing}");
}

#[test]
fn nan_makes_a_gap() {
    let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 1.0)];
    let figure = empty().with(Series::line("s", Role::Problem, points));
    let [line] = &paths(&figure)[..] else { panic!("one line") };
    assert_eq!((line.matches('M').count(), line.matches('L').count()), (2, 2), "{line}");
    let svg = figure.to_svg();
    assert_eq!(values(&svg)[0].len(), 4);
    assert!(!svg.contains("NaN"));
}

#[test]
fn a_point_without_neighbours_is_drawn() {
    let gap = (f64::NAN, f64::NAN);
    let points = vec![(0.0, 1.0), (1.0, 1.0), gap, (3.0, 2.0), gap];
    for kind in [Series::line, Series::steps] {
        let figure = empty().with(kind("s", Role::Problem, points.clone()));
        let [_, dots] = &paths(&figure)[..] else { panic!("a line and the point") };
        assert_eq!((dots.matches('M').count(), dots.matches("h0").count()), (1, 1), "{dots}");
        let alone = empty().with(kind("s", Role::Problem, vec![(3.0, 2.0)]));
        assert!(paths(&alone)[1].ends_with("h0"), "a series of one point");
    }
    let joined = empty().with(Series::line("s", Role::Problem, points[..2].to_vec()));
    assert_eq!(paths(&joined).len(), 1, "a line shows its points");
}

#[test]
fn an_axis_of_times_shows_dates() {
    let noon = 1_795_867_200.0;
    let days = |count: i32| (0..=count).map(|day| (noon + f64::from(day) * 86_400.0, 1.0));
    let figure = |points: Vec<(f64, f64)>| {
        ExperimentFigure::new("f", "t", Axis::time(), Axis::new("y")).with(Series::line(
            "s",
            Role::Sum,
            points,
        ))
    };
    let week = figure(days(7).collect());
    let svg = week.to_svg();
    for text in ["time (UTC)", "2026-11-29", "2026-12-05"] {
        assert!(texts(&svg).contains(&text), "{text} in {:?}", texts(&svg));
    }
    assert_eq!(values(&svg)[0][0], "s: 1.000 (2026-11-28 12:00)");
    let year = figure(days(365).collect()).to_svg();
    assert!(texts(&year).contains(&"2027-03"), "{:?}", texts(&year));
    let one = figure(days(0).collect()).to_svg();
    assert!(texts(&one).contains(&"time (UTC), 2026-11-28"), "{:?}", texts(&one));
    assert!(texts(&one).contains(&"12:00") && !one.contains("1795867200"), "{one}");
}

/// Widths and positions in the drawings are in pixels of a phone or of a wide screen.
#[test]
fn a_page_has_a_drawing_for_phones_whose_labels_fit() {
    let names = ["a relay with a long name", "another relay"];
    let points = vec![(0.0, 1000.0), (1.0, 123_456.0)];
    let mut figure = empty().with(Series::dots("s", Role::Sum, points));
    figure.x = Axis::new("x").showing(0.0, 1_000_000.0);
    let page = figure.to_html();
    let (wide, narrow) = page.split_at(page.rfind("<svg").unwrap());
    assert!(wide.contains("class=\"figure wide\"") && narrow.contains("class=\"figure narrow\""));
    assert!(texts(narrow).len() < texts(wide).len(), "{:?}", texts(narrow));
    assert_eq!(values(wide), values(narrow));
    assert!(!page.contains("<style"), "the style sheet of the page has it");
    // Labels of one line do not overlap: they are centred at their places.
    let ticks: Vec<(f64, f64)> = narrow
        .split("<text x=\"")
        .filter(|text| text.contains("\"middle\" class=\"\""))
        .map(|text| {
            let label = text.split_once('>').unwrap().1.split_once('<').unwrap().0;
            let half = 3.0 * label.len() as f64;
            let x: f64 = text.split('"').next().unwrap().parse().unwrap();
            (x - half, x + half)
        })
        .collect();
    assert!(ticks.len() > 1 && ticks.windows(2).all(|two| two[0].1 < two[1].0), "{ticks:?}");
    // Long names of rows are above them, and long names of columns are slanted.
    let at = |svg: &str| -> Vec<f64> {
        let of = |name: &&str| {
            let (before, _) = svg.split_once(&format!(">{name}<")).unwrap();
            let x = before.rsplit_once("x=\"").unwrap().1.split('"').next().unwrap();
            x.parse().unwrap()
        };
        names.iter().map(of).collect()
    };
    figure.y = Axis::rows(names);
    let narrow = figure.to_html();
    let narrow = narrow.rsplit_once("<svg").unwrap().1;
    assert!(at(narrow).iter().all(|x| *x < 60.0) && narrow.contains("\"start\" class=\"\""));
    figure.x = Axis::columns(names.iter().cycle().take(8).copied());
    let slanted = figure.to_html();
    assert!(slanted.contains("rotate(-40"), "{slanted}");
    figure.x = Axis::columns(["a", "b"]);
    assert!(!figure.to_html().contains("rotate(-40"));
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
    let page = line.to_html();
    assert!(page.len() < 250_000, "{} bytes", page.len());
    let shown = &values(&page)[0];
    assert!(shown.iter().any(|text| text == "s: 9.000 (77777.0)"), "the highest is not lost");
    assert_eq!([shown.first().unwrap(), shown.last().unwrap()], ["s: 0 (0)", "s: 4.000 (99999.0)"]);
    let dots = empty().with(Series::dots("s", Role::Sum, points)).to_html();
    assert!(dots.len() < 250_000, "{} bytes", dots.len());
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
        for axis in [
            Axis::new("x"),
            Axis::new("x").log(),
            Axis::new("x").showing(f64::NAN, 1.0),
            Axis::time(),
        ] {
            let mut figure = empty()
                .with(style("s", Role::Nth(usize::MAX), points.clone()))
                .mark(On::Y, f64::NAN, "m", Role::Sum)
                .band(On::X, 1.0, f64::INFINITY, "b", Role::Sum);
            (figure.x, figure.y) = (axis.clone(), axis);
            let drawn = figure.to_svg() + &figure.to_html();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }
    assert!(empty().to_svg().ends_with("</svg>\n"));
}
