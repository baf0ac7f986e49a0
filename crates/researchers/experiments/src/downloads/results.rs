//! The report on all downloads.

use super::network::Cost;
use super::plan::Placement;
use super::{Done, Options, reporting};
use crate::reporting::{median, parameter};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Role, Series,
};
use std::collections::BTreeMap;

/// The results of all downloads.
#[derive(Default)]
pub(super) struct Results {
    cases: Vec<Case>,
    /// Size in bytes and rate in Mbit/s of the correct downloads.
    rates: BTreeMap<Placement, Vec<(f64, f64)>>,
    /// The time from the start to the first byte, in milliseconds.
    first_bytes_ms: BTreeMap<Placement, Vec<f64>>,
    /// The number of correct downloads through our relays.
    correct: usize,
    /// The number of downloads through our relays.
    ours: usize,
}

const TEXT: &str = include_str!("../../../../../docs/experiments/downloads.md");

impl Results {
    pub(super) fn add(&mut self, placement: Placement, done: Done) -> Case {
        let len = done.content.len;
        let case = Case::named(format!("{placement}, {}", size(len)))
            .column("placement", placement.word())
            .column("content_bytes", len);
        let is_ours = placement != Placement::CTor;
        self.ours += usize::from(is_ours);
        let case = match done.result {
            Err(error) => case.ended(CaseVerdict::Failed, error.to_string()),
            Ok(download) => {
                let rate = mbit_per_s(download.received, download.took.as_secs_f64());
                let first_ms = download.to_first_byte.as_secs_f64() * 1e3;
                let case = case
                    .column("received_bytes", download.received)
                    .column("to_first_byte_ms", first_ms)
                    .column("took_ms", download.took.as_secs_f64() * 1e3)
                    .column("rate_mbit_per_s", rate);
                if download.is_right {
                    self.correct += usize::from(is_ours);
                    self.rates.entry(placement).or_default().push((bytes(len), rate));
                    self.first_bytes_ms.entry(placement).or_default().push(first_ms);
                    case.ended(CaseVerdict::Held, format!("{rate:.1} Mbit/s"))
                } else {
                    let detail =
                        format!("{} of {len} bytes received, or wrong content", download.received);
                    case.ended(CaseVerdict::Missed, detail)
                }
            }
        };
        self.cases.push(case.clone());
        case
    }

    /// Checks that all circuits used the pinned path. `None` if there were neither downloads nor circuits.
    pub(super) fn add_paths(
        &mut self,
        placement: Placement,
        path: [[u8; 20]; 3],
        used: &[Vec<[u8; 20]>],
        downloads: usize,
    ) -> Option<Case> {
        let others = used.iter().filter(|one| **one != path).count();
        let case = Case::named(format!("{placement}: circuits"))
            .column("placement", placement.word())
            .column("circuits", used.len());
        let case = match (others, used.len()) {
            (0, 0) if downloads == 0 => return None,
            (0, 0) => case.ended(CaseVerdict::Failed, "tor reports no circuit"),
            (0, count) => case.ended(CaseVerdict::Held, format!("{count}, all as pinned")),
            _ => case.ended(CaseVerdict::Missed, format!("{others} on other paths")),
        };
        self.cases.push(case.clone());
        Some(case)
    }

    pub(super) fn report(
        self,
        options: &Options,
        count: u32,
        largest: u64,
        costs: &[Cost],
    ) -> ExperimentReport {
        let mut report = reporting::report("downloads", TEXT);
        let rate = |placement| {
            let rates = self.rates.get(&placement);
            // The rate of short downloads depends on round trips only.
            let long = rates.into_iter().flatten().filter(|(len, _)| *len >= 1e6);
            median(long.map(|(_, rate)| *rate))
                .map_or("–".to_owned(), |rate| format!("{rate:.0}"))
        };
        let answer = format!(
            "{} of {} downloads through our relays were correct; the median rate of those of 1 MB or more was {} Mbit/s \
             through our guard, {} through our middle, {} through our exit, {} through all three, and {} through C tor relays.",
            self.correct,
            self.ours,
            rate(Placement::Guard),
            rate(Placement::Middle),
            rate(Placement::Exit),
            rate(Placement::AllThree),
            rate(Placement::CTor),
        );
        let costs = costs.iter().map(|cost| {
            let cpu = cost.cpu.map_or("–".to_owned(), |cpu| format!("{:.1}", cpu.as_secs_f64()));
            let peak = cost.peak_mib.map_or("–".to_owned(), |mib| format!("{mib:.0}"));
            format!("{}: {cpu} s of CPU time, at most {peak} MiB of memory.", cost.nickname)
        });
        report.notes.extend(costs);
        ExperimentReport {
            answer,
            parameters: vec![
                parameter("downloads through ours", count),
                parameter("at once", options.at_once),
                parameter("smallest", size(1024)),
                parameter("largest", size(largest)),
            ],
            figures: self.figures(),
            cases: self.cases,
            ..report
        }
    }

    fn figures(&self) -> Vec<ExperimentFigure> {
        let (x, y) = (Axis::new("bytes").log(), Axis::new("Mbit/s").log());
        let title = "Rate by size";
        let rates = ExperimentFigure::new("rates", title, x, y).caption("Each dot is a download.");
        let rates =
            self.rates.iter().enumerate().fold(rates, |figure, (nth, (placement, dots))| {
                figure.with(Series::dots(placement.word(), Role::Nth(nth), dots.clone()))
            });
        let groups = self.first_bytes_ms.iter();
        let groups = groups.map(|(placement, all)| (placement.word(), all));
        let title = "Time to the first byte";
        let first = ExperimentFigure::distributions("first-byte", title, "milliseconds", groups)
            .caption("Includes the set-up of the circuit if none was ready.");
        vec![rates, first]
    }
}

fn mbit_per_s(received: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes(received) * 8.0 / 1e6 / seconds } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "rounded for display")]
fn bytes(len: u64) -> f64 {
    len as f64
}

/// A size for people.
fn size(len: u64) -> String {
    match len {
        0..10_000 => format!("{len} B"),
        10_000..10_000_000 => format!("{} KB", len / 1_000),
        _ => format!("{} MB", len / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let options = Options { count: None, largest: None, at_once: 4 };
        let report = |results: Results| results.report(&options, 4, 1 << 20, &[]);
        let path = [[1; 20], [2; 20], [3; 20]];
        let mut good = Results::default();
        let case = good.add(Placement::Guard, done(2_000_000, 2_000_000, true));
        assert_eq!((case.verdict, case.detail.as_str()), (CaseVerdict::Held, "16.0 Mbit/s"));
        good.add_paths(Placement::Guard, path, &[path.to_vec()], 1);
        let good = report(good);
        assert!(good.held() && good.answer.starts_with("1 of 1 "), "{}", good.answer);

        let mut altered = Results::default();
        altered.add(Placement::Exit, done(1_000, 1_000, false));
        assert!(!report(altered).held());
        let mut failed = Results::default();
        let content = Content { len: 1, seed: 1 };
        failed.add(Placement::Exit, Done { content, result: Err(io::Error::other("broken")) });
        assert!(!report(failed).held());
        let mut elsewhere = Results::default();
        elsewhere.add(Placement::Exit, done(1_000, 1_000, true));
        elsewhere.add_paths(Placement::Exit, path, &[vec![[9; 20]; 3]], 1);
        assert!(!report(elsewhere).held());
    }
}
