//! Tests of reports of experiments.

use super::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Miss, On, Promise, Role, Series,
    Table, Value,
};
use std::path::Path;

const EVIL: &str = "</script><img src=x onerror='alert(1)'>\"&";

fn report() -> ExperimentReport {
    ExperimentReport {
        name: "accuracy".into(),
        title: "Test".into(),
        generated_unix_s: 1_800_000_000,
        software_version: "0.1.0".into(),
        cases: vec![
            Case::judged("echo 250", 250.0, Some(240.0), 0.9..=1.05)
                .column("mode", "echo")
                .column("client_mbit_per_s", 24.5)
                .column("runs", 7),
            Case::judged("echo 10", 10.0, Some(8.5), 0.9..=1.05).column("mode", "echo"),
            Case::judged("transit 10", 10.0, None, 0.9..=1.05).column("late", true),
            Case::new("forger", Some(250.0), None).ended(CaseVerdict::Refused, "a forged cell"),
            Case::new("none", None, None).ended(CaseVerdict::Skipped, "left out by --quick"),
        ],
        figures: vec![figure("figure-6")],
        ..ExperimentReport::default()
    }
}

fn figure(name: &str) -> ExperimentFigure {
    ExperimentFigure::new(name, "Ratios", Axis::new("x"), Axis::new("y"))
        .with(Series::dots("a", Role::Client, vec![(1.0, 0.5), (2.0, f64::NAN)]))
        .with(Series::line("b, c", Role::Sum, vec![(0.1, -1e-3)]).labels(vec!["=1+1".into()]))
}

fn page(report: &ExperimentReport) -> String {
    report.to_html()
}

fn rows(csv: &[u8]) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(csv);
    let row =
        |row: csv::Result<csv::StringRecord>| row.unwrap().iter().map(str::to_owned).collect();
    reader.records().map(row).collect()
}

fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_case_is_a_flat_object_with_the_fixed_keys_first() {
    let cases = report().cases;
    assert_eq!(
        serde_json::to_string(&cases[0]).unwrap(),
        r#"{"name":"echo 250","truth_mbit_per_s":250.0,"estimate_mbit_per_s":240.0,"ratio":0.96,"verdict":"held","detail":"","mode":"echo","client_mbit_per_s":24.5,"runs":7}"#
    );
    assert_eq!(
        serde_json::to_string(&cases[3]).unwrap(),
        r#"{"name":"forger","truth_mbit_per_s":250.0,"estimate_mbit_per_s":null,"ratio":null,"verdict":"refused","detail":"a forged cell"}"#
    );
}

#[test]
fn the_verdict_of_a_measurement_replaces_the_outcome() {
    let mut report = report();
    report.cases[0] = report.cases[0].clone().says("conclusive");
    let json = serde_json::to_string(&report.cases[0]).unwrap();
    assert!(json.contains(r#""verdict":"conclusive","#), "{json}");
    assert!(json.ends_with(r#""ended":"held"}"#), "{json}");
    let rows = rows(&report.cases_csv().unwrap());
    let at = rows[0].iter().position(|name| name == "ended").unwrap();
    assert_eq!((rows[1][4].as_str(), rows[1][at].as_str()), ("conclusive", "held"));
    assert_eq!(report.count(CaseVerdict::Held), 1, "{report:?}");
}

#[test]
fn a_case_round_trips_through_json() {
    #[derive(serde::Serialize)]
    struct Cell {
        zeta: u32,
        alpha: Option<f64>,
    }
    let case = report().cases[0].clone().with(&Cell { zeta: 1, alpha: None });
    let names: Vec<&str> = case.columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[3..], ["zeta", "alpha"]);
    for case in [case.clone(), case.says("lower_bound")] {
        let text = serde_json::to_string(&case).unwrap();
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
    }
}

#[test]
fn no_column_replaces_a_field_or_another_column() {
    let case = Case::new("a", None, None).column("name", "b").column("n", 1).column("n", 2);
    let json = serde_json::to_string(&case).unwrap();
    assert_eq!(json.matches("\"name\"").count(), 1);
    assert!(json.ends_with(r#""n":1}"#), "{json}");
}

#[test]
fn the_summary_is_one_line_with_the_outcome() {
    let mut report = report();
    report.answer = "two\nlines".into();
    report.also.insert("traces".into(), serde_json::json!([{"distance_hops": 1}]));
    let line = report.summary_line();
    assert!(line.starts_with(r#"{"type":"summary","experiment":"accuracy","held":false,"#));
    assert!(!line.contains('\n'));
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value, serde_json::to_value(report.last_line()).unwrap());
    assert_eq!(value["cases"][1]["verdict"], "missed");
    assert_eq!(value["cases"][1]["ratio"], 0.85);
    assert_eq!(value["counts"]["skipped"], 1);
    assert_eq!(value["counts"]["reported"], 0);
    assert_eq!(value["traces"][0]["distance_hops"], 1);
    let whole: Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(whole["traces"], value["traces"]);
    assert!(whole.get("also").is_none(), "they are next to the others");
    assert_eq!(value["unexplained"], serde_json::json!(["echo 10", "transit 10"]));
}

#[test]
fn an_experiment_holds_according_to_its_promise() {
    let mut report = report();
    let mut held = |promise| {
        report.promise = promise;
        report.held()
    };
    // Two of the four cases that were run.
    assert!(!held(Promise::EveryCase));
    assert!(held(Promise::Share(0.5)));
    assert!(!held(Promise::Share(0.51)));
    assert!(held(Promise::Decided { held: true, rule: String::new() }));
    report.cases.retain(|case| case.verdict == CaseVerdict::Skipped);
    for promise in [Promise::EveryCase, Promise::Share(0.0)] {
        report.promise = promise;
        assert!(!report.held(), "no case was run");
    }
}

#[test]
fn a_case_is_judged_by_its_ratio() {
    let verdict = |estimate| Case::judged("", 100.0, estimate, 0.9..=1.05).verdict;
    assert_eq!(verdict(Some(90.0)), CaseVerdict::Held);
    assert_eq!(verdict(Some(105.0)), CaseVerdict::Held);
    assert_eq!(verdict(Some(89.9)), CaseVerdict::Missed);
    assert_eq!(verdict(Some(105.1)), CaseVerdict::Missed);
    for nothing in [None, Some(f64::NAN), Some(f64::INFINITY)] {
        assert_eq!(verdict(nothing), CaseVerdict::Failed);
    }
    assert_eq!(Case::judged("", 0.0, Some(1.0), 0.9..=1.05).verdict, CaseVerdict::Failed);
}

#[test]
fn untrusted_text_is_escaped_everywhere() {
    let evil = || EVIL.to_owned();
    let case = Case::new(EVIL, None, None).column(EVIL, EVIL);
    let report = ExperimentReport {
        name: evil(),
        title: evil(),
        question: evil(),
        answer: evil(),
        promise: Promise::Decided { held: true, rule: evil() },
        software_version: evil(),
        machine: evil(),
        command: evil(),
        parameters: vec![(evil(), evil())],
        cases: vec![case.clone().ended(CaseVerdict::Missed, EVIL), case],
        misses: vec![Miss { case: "another".into(), explanation: evil() }],
        figures: vec![
            ExperimentFigure::new(EVIL, EVIL, Axis::new(EVIL), Axis::new(EVIL))
                .caption(EVIL)
                .with(Series::line(EVIL, Role::Sum, vec![(1.0, 1.0)]).labels(vec![evil()]))
                .mark(On::X, 1.0, EVIL, Role::Truth),
        ],
        notes: vec![evil()],
        ..report()
    };
    let html = page(&report);
    assert!(!html.contains("<img") && !html.contains(EVIL));
    assert!(
        html.contains("&lt;/script&gt;&lt;img src=x onerror=&#39;alert(1)&#39;&gt;&quot;&amp;")
    );
    assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
}

#[test]
fn the_page_shows_outcomes_and_explanations() {
    let mut report = report();
    report.misses.push(Miss { case: "echo 10".into(), explanation: "a busy core".into() });
    let html = page(&report);
    assert!(html.contains("<span class=\"badge missed\">missed</span> "));
    assert!(html.contains("a busy core"));
    assert!(html.contains("transit 10</th><td class=\"why\"><i>Not explained.</i> there is no"));
    assert!(html.contains("<th class=\"number\">Client<small>Mbit/s</small></th>"));
    assert!(html.contains("<td class=\"number\">24.50</td>"), "{html}");
    assert!(html.contains("<b>5</b>cases") && html.contains("<b>1</b>refused"));
}

#[test]
fn the_page_is_self_contained_and_small_without_figures() {
    let mut report = report();
    let own = page(&report);
    assert!(own.contains("default-src 'none'"));
    assert!(!own.contains("://") && !own.contains("src=") && !own.contains("href=\"h"));
    report.figures.clear();
    report.cases.clear();
    let html = report.to_html();
    assert!(html.contains("There are no cases."));
    assert!(!html.contains("<script") && html.len() < 20_000);
}

#[test]
fn a_table_of_cases_can_be_parsed() {
    let mut report = report();
    report.cases[0].detail = "a \"quoted\", divided\nnote".into();
    report.cases[1].name = "=HYPERLINK(1)".into();
    let rows = rows(&report.cases_csv().unwrap());
    assert_eq!(
        rows[0].join(" "),
        "name truth_mbit_per_s estimate_mbit_per_s ratio verdict detail \
         mode client_mbit_per_s runs late"
    );
    let first = [
        "echo 250",
        "250",
        "240",
        "0.96",
        "held",
        "a \"quoted\", divided note",
        "echo",
        "24.5",
        "7",
        "",
    ];
    assert_eq!(rows[1], first);
    assert_eq!(rows[2][0], "'=HYPERLINK(1)", "a formula");
    assert_eq!(rows[3][2..4], ["", ""]);
    assert_eq!(rows[3][9], "true");
    assert_eq!(rows.len(), 6);
}

#[test]
fn a_report_without_a_claim_has_no_verdicts_and_no_empty_columns() {
    let cases = ["a", "b"].map(|name| Case::reported(name, "").column("value", 1.5));
    let other = Case::reported("c", "").column("seed", 7).column("none", Value::Null);
    let mut report = ExperimentReport {
        promise: Promise::Nothing("The paper has other values.".into()),
        cases: cases.into_iter().chain([other]).collect(),
        ..report()
    };
    let html = page(&report);
    let (_, body) = html.split_once("<main>").unwrap();
    for word in ["held", "missed", "skipped", "reported", "badge", "tiles", "Verdict", "None"] {
        assert!(!body.contains(word), "{word} in {body}");
    }
    assert!(body.contains("The paper has other values."));
    assert_eq!(
        body.matches("<thead>").count(),
        2,
        "cases of different columns have their own tables"
    );
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!((&json["held"], &json["cases"][0]["verdict"]), (&Value::Null, &Value::Null));
    assert_eq!(rows(&report.cases_csv().unwrap())[0], ["name", "value", "seed"]);
    assert!(report.held() && report.unexplained().next().is_none());
    let text = serde_json::to_string(&report.cases[0]).unwrap();
    assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), report.cases[0]);
    report.cases.clear();
    assert!(!report.held(), "there are no results");
}

#[test]
fn a_tidy_table_replaces_the_cases() {
    let rows_of = |value: f64| vec!["a".into(), value.into(), Value::Null];
    let table =
        Table { columns: vec!["name", "value", "none"], rows: vec![rows_of(0.5), rows_of(-2.0)] };
    let report = ExperimentReport { table: Some(table), ..report() };
    let expected = [["name", "value"], ["a", "0.5"], ["a", "-2.0"]];
    assert_eq!(rows(&report.cases_csv().unwrap()), expected);
}

#[test]
fn values_for_comparison_have_no_verdict_next_to_judged_cases() {
    let mut report = report();
    let before = (report.held(), page(&report).matches("class=\"badge").count());
    report.cases.push(Case::reported("for comparison", "a value").column("runs", 3));
    assert_eq!((report.held(), page(&report).matches("class=\"badge").count()), before);
    assert!(page(&report).contains("<b>5</b>cases") && page(&report).contains("a value"));
}

#[test]
fn the_points_of_a_figure_can_be_parsed() {
    let rows = rows(&figure("f").points_csv().unwrap());
    let expected = [
        ["series", "x", "y", "label"],
        ["a", "1", "0.5", ""],
        ["a", "2", "", ""],
        ["b, c", "0.1", "-0.001", "'=1+1"],
    ];
    assert_eq!(rows, expected);
    let points = vec![(1_795_867_200.0, 1.0), (f64::NAN, 2.0)];
    let figure = ExperimentFigure::new("f", "t", Axis::time(), Axis::new("y")).with(Series::line(
        "a",
        Role::Sum,
        points,
    ));
    let rows = self::rows(&figure.points_csv().unwrap());
    assert_eq!(rows[1], ["a", "2026-11-28T12:00:00Z", "1", ""]);
    assert_eq!(rows[2], ["a", "", "2", ""]);
}

#[test]
fn exactly_the_files_of_the_report_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new/folder");
    let mut report = report();
    report.figures = ["figure-2", "", "figure-6", "figure-6", "../up"].map(figure).to_vec();
    let written = report.write(&folder).unwrap();
    let mut expected = vec![
        "accuracy----up.csv",
        "accuracy----up.svg",
        "accuracy-figure-2.csv",
        "accuracy-figure-2.svg",
        "accuracy-figure-2-2.csv",
        "accuracy-figure-2-2.svg",
        "accuracy-figure-6-4.csv",
        "accuracy-figure-6-4.svg",
        "accuracy-figure-6.csv",
        "accuracy-figure-6.svg",
        "accuracy.csv",
        "accuracy.html",
        "accuracy.json",
    ];
    expected.sort_unstable();
    assert_eq!(files_in(&folder), expected);
    assert_eq!(std::fs::read_to_string(&written.html).unwrap(), report.to_html());
    assert_eq!(std::fs::read(&written.csv).unwrap(), report.cases_csv().unwrap());
    let json: Value = serde_json::from_slice(&std::fs::read(&written.json).unwrap()).unwrap();
    assert_eq!(json["cases"].as_array().unwrap().len(), 5);
    assert_eq!(json["figures"][1]["series"][0]["points"][1], serde_json::json!([2.0, null]));
    assert_eq!(json["held"], false);
    // The files that the page links exist.
    let html = page(&report);
    for link in html.split("href=\"").skip(1) {
        assert!(folder.join(link.split('"').next().unwrap()).is_file(), "{link}");
    }
    // A second report replaces the first.
    report.write(&folder).unwrap();
    assert_eq!(files_in(&folder), expected);
}

#[test]
fn an_error_names_the_folder_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let text = report().write(&path).unwrap_err().to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.contains("A part of its path is a file"), "{text}");
    }
    assert_eq!(files_in(folder.path()), ["file"]);
}
