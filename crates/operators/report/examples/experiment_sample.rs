//! Writes the files of an invented experiment:
//! `cargo run -p report --example experiment_sample -- FOLDER`.
#![expect(clippy::print_stdout, reason = "an example prints")]

use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Miss, On, Promise, Role, Series,
    TrafficSecond,
};
use std::error::Error;

const LIMITS: [f64; 4] = [10.0, 100.0, 250.0, 500.0];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("give the folder to write into")?;
    let report = sample();
    let written = report.write(folder)?;
    println!("{}", report.summary_line());
    println!("The same with figures: {}", written.html.display());
    Ok(())
}

fn sample() -> ExperimentReport {
    let mut cases: Vec<Case> = LIMITS.into_iter().flat_map(runs).collect();
    let miss = "echo 500 Mbit/s, run 6";
    cases.push(
        Case::new("<script>alert(1)</script>", Some(250.0), None)
            .ended(CaseVerdict::Refused, "relay: a cell came back with other content than sent")
            .column("mode", "echo"),
    );
    ExperimentReport {
        name: "sample".into(),
        title: "FlashFlow: how accurate are the estimates?".into(),
        question: "How far are estimates from the relays’ configured limits?".into(),
        answer: "28 of 29 runs (96.6 %) ended as they should: within −10 % to +5 %, or refused."
            .into(),
        promise: Promise::Share(0.95),
        software_version: env!("CARGO_PKG_VERSION").into(),
        machine: "2 cores of an invented machine".into(),
        generated_unix_s: 1_795_264_800,
        command: "cargo run -p report --example experiment_sample -- FOLDER".into(),
        parameters: [("seconds per round (t)", "30 s"), ("sockets (s)", "160")]
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec(),
        table: None,
        figures: figures(&cases),
        misses: vec![Miss {
            case: miss.into(),
            explanation: "The measurer shared its cores with a compiler for nine seconds.".into(),
        }],
        cases,
        also: std::collections::BTreeMap::new(),
        notes: vec!["These numbers are invented.".into()],
    }
}

fn runs(limit: f64) -> impl Iterator<Item = Case> {
    (1_u32..=7).map(move |run| {
        let is_bad = run == 6 && limit > 400.0;
        let noise = (f64::from(run) * 1.7 + limit).sin();
        let ratio = if is_bad { 0.871 } else { 0.965 + 0.02 * noise };
        let name = format!("echo {limit} Mbit/s, run {run}");
        Case::judged(name, limit, Some(limit * ratio), 0.90..=1.05)
            .column("mode", "echo")
            .column("client_mbit_per_s", limit * 0.1 * (1.0 + noise / 10.0))
            .column("rounds", run % 2 + 1)
    })
}

fn figures(cases: &[Case]) -> Vec<ExperimentFigure> {
    let groups = LIMITS.map(|limit| {
        let of = cases.iter().filter(|case| case.truth_mbit_per_s == Some(limit));
        (format!("{limit} Mbit/s"), of.filter_map(|case| case.ratio).collect::<Vec<f64>>())
    });
    let groups = groups.iter().map(|(name, ratios)| (name.as_str(), ratios.as_slice()));
    let distributions = ExperimentFigure::distributions(
        "figure-6",
        "Estimates over limits",
        "estimate ÷ configured limit",
        groups,
    )
    .band(On::X, 0.90, 1.05, "−10 % to +5 %", Role::Truth)
    .mark(On::X, 1.0, "", Role::Truth)
    .caption("The share of runs whose estimate divided by the configured limit is at most x.");

    let traffic = ExperimentFigure::traffic(
        "figure-7",
        "A relay with clients, measured",
        &(0..60).map(second).collect::<Vec<_>>(),
        15.0,
        45.0,
    )
    .caption("While it is measured, the relay holds its clients’ traffic to a tenth of the whole.");

    let liars = ["forges answers", "answers before it received", "over-reports wildly", "honest"];
    let gains = vec![(0.2, 0.0), (0.31, 1.0), (1.33, 2.0), (0.97, 3.0)];
    let adversaries = ExperimentFigure::new(
        "adversaries",
        "What lying gains",
        Axis::new("estimate ÷ truth").showing(0.0, 1.5),
        Axis::rows(liars),
    )
    .mark(On::X, 1.0 / 0.75, "1/(1−r)", Role::Problem)
    .mark(On::X, 1.0, "the truth", Role::Truth)
    .with(Series::dots("estimate ÷ truth", Role::Measurement, gains));

    let evasion = |n: f64, p: f64| (n, (1.0 - p).powf(n));
    let cells = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0];
    let forger = ExperimentFigure::new(
        "forger",
        "How long a forger goes unnoticed",
        Axis::new("forged cells (k), logarithmic").log(),
        Axis { is_percent: true, ..Axis::new("runs in which it was not noticed") },
    )
    .with(Series::line("(1−p)ᵏ", Role::Truth, cells.map(|n| evasion(n, 0.01)).to_vec()))
    .with(Series::dots("200 runs", Role::Nth(0), cells.map(|n| evasion(n, 0.0097)).to_vec()))
    .band(On::Y, 0.0, 0.01, "one in a hundred", Role::Truth)
    .mark(On::X, 300.0, "k = 3/p", Role::Muted);

    let cost = ExperimentFigure::new(
        "cost",
        "What a Gbit costs",
        Axis::columns(["echo", "transit", "transit, encrypted"]),
        Axis::new("CPU-seconds per Gbit"),
    )
    .with(Series::bars("FlashFlow", Role::Nth(0), vec![(0.0, 0.31), (1.0, 0.5), (2.0, 0.7)]))
    .with(Series::bars("tor", Role::Nth(1), vec![(1.0, 1.12), (2.0, 1.2)]));

    vec![distributions, traffic, adversaries, forger, cost]
}

fn second(second: u32) -> TrafficSecond {
    let noise = 1.0 + 0.02 * (f64::from(second * second) * 1.3).sin();
    let (measurement, client) =
        if (15..45).contains(&second) { (225.0, 25.0) } else { (0.0, 50.0) };
    TrafficSecond {
        second: second.into(),
        measurement_mbit_per_s: measurement * noise,
        client_mbit_per_s: client * noise,
    }
}
