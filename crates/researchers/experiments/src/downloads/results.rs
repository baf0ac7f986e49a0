//! The report on all downloads.

use super::Done;
use super::network::Cost;
use super::plan::Placement;
use crate::grid::Rows;
use crate::reporting::median;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Role, Series, Value,
};
use std::collections::BTreeMap;

pub(super) fn case(placement: Placement, done: Done) -> Case {
    let len = done.content.len;
    let case = Case::named(format!("{placement}, {}", size(len)))
        .column("placement", placement.word())
        .column("content_bytes", len);
    let download = match done.result {
        Err(error) => return case.ended(CaseVerdict::Failed, error.to_string()),
        Ok(download) => download,
    };
    let rate = mbit_per_s(download.received, download.took.as_secs_f64());
    let case = case
        .column("received_bytes", download.received)
        .column("to_first_byte_ms", download.to_first_byte.as_secs_f64() * 1e3)
        .column("took_ms", download.took.as_secs_f64() * 1e3)
        .column("rate_mbit_per_s", rate);
    if download.is_right {
        return case.ended(CaseVerdict::Held, format!("{rate:.1} Mbit/s"));
    }
    let detail = format!("{} of {len} bytes received, or wrong content", download.received);
    case.ended(CaseVerdict::Missed, detail)
}

/// Checks that all circuits used the pinned path. `None` if there were neither downloads nor circuits.
pub(super) fn path_case(
    placement: Placement,
    path: [[u8; 20]; 3],
    used: &[Vec<[u8; 20]>],
    downloads: usize,
) -> Option<Case> {
    let others = used.iter().filter(|one| **one != path).count();
    let case = Case::named(format!("{placement}: circuits"))
        .column("placement", placement.word())
        .column("circuits", used.len());
    Some(match (others, used.len()) {
        (0, 0) if downloads == 0 => return None,
        (0, 0) => case.ended(CaseVerdict::Failed, "tor reports no circuit"),
        (0, count) => case.ended(CaseVerdict::Held, format!("{count}, all as pinned")),
        _ => case.ended(CaseVerdict::Missed, format!("{others} on other paths")),
    })
}

/// Adds the answer, the figures, and the resources that our relays used.
pub(super) fn conclude(rows: &Rows<'_, Placement>, report: &mut ExperimentReport) {
    let number = |case: &Case, column: &str| case.value(column).and_then(Value::as_f64);
    let downloads: Vec<(Placement, &Case)> = rows
        .cases()
        .filter(|(_, case)| case.value("content_bytes").is_some())
        .map(|(placement, case)| (*placement, case))
        .collect();
    let is_correct = |case: &Case| case.verdict == CaseVerdict::Held;
    // Two columns of the correct downloads with a placement.
    let of = |placement: Placement, x: &str, y: &str| -> Vec<(f64, f64)> {
        let of_placement =
            downloads.iter().filter(|(used, case)| *used == placement && is_correct(case));
        of_placement.filter_map(|(_, case)| Some((number(case, x)?, number(case, y)?))).collect()
    };
    let rates = |placement| of(placement, "content_bytes", "rate_mbit_per_s");
    let rate = |placement| {
        // The rate of short downloads depends on round trips only.
        let long = rates(placement).into_iter().filter(|(len, _)| *len >= 1e6);
        median(long.map(|(_, rate)| rate)).map_or("–".to_owned(), |rate| format!("{rate:.0}"))
    };
    let ours = || downloads.iter().filter(|(placement, _)| *placement != Placement::CTor);
    report.answer = format!(
        "{} of {} downloads through our relays were correct; the median rate of those of 1 MB or more was {} Mbit/s \
         through our guard, {} through our middle, {} through our exit, {} through all three, and {} through C tor relays.",
        ours().filter(|(_, case)| is_correct(case)).count(),
        ours().count(),
        rate(Placement::Guard),
        rate(Placement::Middle),
        rate(Placement::Exit),
        rate(Placement::AllThree),
        rate(Placement::CTor),
    );
    report.notes.extend(costs(rows));
    let (x, y) = (Axis::new("bytes").log(), Axis::new("Mbit/s").log());
    let empty = ExperimentFigure::new("rates", "Rate by size", x, y);
    let with = |figure: ExperimentFigure, (nth, placement): (usize, Placement)| {
        figure.with(Series::dots(placement.word(), Role::Nth(nth), rates(placement)))
    };
    let has_some = |placement: &Placement| !rates(*placement).is_empty();
    let placements = || Placement::ALL.into_iter().filter(has_some);
    let dots = placements().enumerate().fold(empty.caption("Each dot is a download."), with);
    let first_bytes = placements().map(|placement| {
        let all = of(placement, "content_bytes", "to_first_byte_ms").into_iter();
        (placement.word(), all.map(|(_, ms)| ms).collect::<Vec<f64>>())
    });
    let title = "Time to the first byte";
    let first = ExperimentFigure::distributions("first-byte", title, "milliseconds", first_bytes)
        .caption("Includes the set-up of the circuit if none was ready.");
    report.figures = vec![dots, first];
}

/// The resources that each of our relays used.
fn costs(rows: &Rows<'_, Placement>) -> Vec<String> {
    let mut relays = BTreeMap::<String, (Vec<f64>, Option<f64>)>::new();
    for cost in rows.data::<Vec<Cost>>().flat_map(|(_, costs)| costs) {
        let (cpu_s, peak_mib) = relays.entry(cost.nickname).or_default();
        cpu_s.extend(cost.cpu_s);
        *peak_mib = [*peak_mib, cost.peak_mib].into_iter().flatten().reduce(f64::max);
    }
    let note = |(nickname, (cpu_s, peak_mib)): (String, (Vec<f64>, Option<f64>))| {
        let peak = peak_mib.map_or("–".to_owned(), |mib| format!("{mib:.0}"));
        let cpu_s: f64 = cpu_s.iter().sum();
        format!("{nickname}: {cpu_s:.1} s of CPU time, at most {peak} MiB of memory.")
    };
    relays.into_iter().map(note).collect()
}

fn mbit_per_s(received: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes(received) * 8.0 / 1e6 / seconds } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "rounded for display")]
fn bytes(len: u64) -> f64 {
    len as f64
}

/// A size for people.
pub(super) fn size(len: u64) -> String {
    match len {
        0..10_000 => format!("{len} B"),
        10_000..10_000_000 => format!("{} KB", len / 1_000),
        _ => format!("{} MB", len / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Row;
    use lab::{Content, Download};
    use std::io;
    use std::time::Duration;

    fn done(len: u64, received: u64, is_right: bool) -> Done {
        let took = Duration::from_secs(1);
        let result = Ok(Download { to_first_byte: took / 10, took, received, is_right });
        Done { content: Content { len, seed: 1 }, result }
    }

    #[test]
    fn only_complete_downloads_over_the_pinned_circuits_hold() {
        let report = |placement: Placement, cases: Vec<Case>| {
            let mut report = ExperimentReport { cases: cases.clone(), ..Default::default() };
            let (cells, rows) = ([placement], [Some(Row { cases, ..Row::default() })]);
            conclude(&Rows::new(&cells, &rows), &mut report);
            report
        };
        let path = [[1; 20], [2; 20], [3; 20]];
        let held = case(Placement::Guard, done(2_000_000, 2_000_000, true));
        assert_eq!((held.verdict, held.detail.as_str()), (CaseVerdict::Held, "16.0 Mbit/s"));
        let paths = path_case(Placement::Guard, path, &[path.to_vec()], 1).expect("a case");
        let good = report(Placement::Guard, vec![held, paths]);
        assert!(good.held() && good.answer.starts_with("1 of 1 "), "{}", good.answer);
        assert!(good.answer.contains("16 Mbit/s through our guard"), "{}", good.answer);

        let altered = case(Placement::Exit, done(1_000, 1_000, false));
        assert!(!report(Placement::Exit, vec![altered]).held());
        let content = Content { len: 1, seed: 1 };
        let broken = Done { content, result: Err(io::Error::other("broken")) };
        assert!(!report(Placement::Exit, vec![case(Placement::Exit, broken)]).held());
        let right = case(Placement::Exit, done(1_000, 1_000, true));
        let elsewhere = path_case(Placement::Exit, path, &[vec![[9; 20]; 3]], 1).expect("a case");
        assert!(!report(Placement::Exit, vec![right, elsewhere]).held());
    }
}
