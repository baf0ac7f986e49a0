//! Whether clients are served no worse.

use super::scene::Who;
use super::{Case, Plan};
use crate::telling::{median, pair};
use lab::Download;
use report::experiment::{self, CaseVerdict, ExperimentReport, Promise};
use std::io;

pub(super) const TITLE: &str = "What do clients feel of a relay of ours that is far away?";
pub(super) const QUESTION: &str = "Are downloads of a stock client through a relay of ours nowhere slower than through a stock relay at \
                                   the same place, at any round trip and loss?";

/// What downloads of one case came to, in Mbit/s from the start to the end.
#[derive(Default)]
pub(super) struct Rates {
    stock: Vec<f64>,
    ours: Vec<f64>,
    /// Times to the first byte, in seconds.
    stock_first_s: Vec<f64>,
    ours_first_s: Vec<f64>,
    failed: Vec<String>,
}

impl Rates {
    pub(super) fn add(&mut self, who: Who, done: io::Result<Download>) {
        let (rates, first) = match who {
            Who::Stock => (&mut self.stock, &mut self.stock_first_s),
            Who::Ours => (&mut self.ours, &mut self.ours_first_s),
        };
        match done {
            Ok(done) if done.is_right => {
                rates.push(done.received as f64 * 8e-6 / done.took.as_secs_f64());
                first.push(done.to_first_byte.as_secs_f64());
            }
            Ok(done) => {
                self.failed.push(format!("{}: {} bytes came", who.word(), done.received));
            }
            Err(error) => self.failed.push(format!("{}: {error}", who.word())),
        }
    }

    /// How many downloads there were.
    pub(super) const fn count(&self) -> u64 {
        (self.stock.len() + self.ours.len() + self.failed.len()) as u64
    }
}

fn range(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    Some((low, values.iter().copied().reduce(f64::max)?))
}

pub(super) struct Judged {
    pub(super) case: experiment::Case,
}

impl Judged {
    pub(super) fn new(of: &Case, rates: &Rates) -> Self {
        let medians = [&rates.stock, &rates.ours].map(|it| median(it.iter().copied()));
        let ranges = [&rates.stock, &rates.ours].map(|it| range(it));
        let case = experiment::Case::new(of.to_string(), medians[0], medians[1]);
        let case = match (medians, ranges) {
            _ if !rates.failed.is_empty() => {
                case.ended(CaseVerdict::Failed, rates.failed.join("; "))
            }
            ([Some(stock), Some(ours)], [Some(stocks), Some(all_ours)]) => {
                let is_no_slower = ours >= stock || all_ours.1 >= stocks.0;
                let verdict = if is_no_slower { CaseVerdict::Held } else { CaseVerdict::Missed };
                case.ended(
                    verdict,
                    if is_no_slower { "" } else { "each of ours is slower than any other" },
                )
            }
            _ => case.ended(CaseVerdict::Failed, "nothing was downloaded"),
        };
        let [stock, ours] = ranges.map(Option::unzip);
        let case = case
            .column("place", of.place.word())
            .column("rtt_ms", of.rtt_ms)
            .column("loss_percent", of.loss_percent)
            .column("stock_low_mbit_per_s", stock.0)
            .column("stock_high_mbit_per_s", stock.1)
            .column("ours_low_mbit_per_s", ours.0)
            .column("ours_high_mbit_per_s", ours.1)
            .column("stock_to_first_byte_s", median(rates.stock_first_s.iter().copied()))
            .column("ours_to_first_byte_s", median(rates.ours_first_s.iter().copied()));
        Self { case }
    }
}

pub(super) fn report(plan: &Plan, judged: Vec<Judged>, base: ExperimentReport) -> ExperimentReport {
    let cases: Vec<_> = judged.into_iter().map(|it| it.case).collect();
    let held = cases.iter().filter(|it| it.verdict == CaseVerdict::Held).count();
    let ratio = median(cases.iter().filter_map(|it| it.ratio));
    let answer = format!(
        "In {held} of {} cases downloads through ours were not slower; in the median case their rate was {:.2} of that \
         through the stock relay.",
        cases.len(),
        ratio.unwrap_or(f64::NAN),
    );
    let parameters = vec![
        pair("downloads through each, for a case", plan.runs.to_string()),
        pair("bytes of each", plan.bytes.to_string()),
        pair("congestion control", plan.congestion.to_string()),
        pair("seed", plan.seed.to_string()),
    ];
    let notes = vec![
        "Truth is the median rate through the stock relay, from the request to the last byte; estimate that through \
         ours. The circuit is built in that time, too."
            .to_owned(),
    ];
    let promise = Promise::Decided {
        held: !cases.is_empty() && held == cases.len(),
        rule:
            "no case in which each download through ours is slower than any through the stock relay"
                .to_owned(),
    };
    ExperimentReport { answer, promise, parameters, cases, notes, ..base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::felt::Place;
    use std::time::Duration;

    fn verdict(stock: &[f64], ours: &[f64]) -> CaseVerdict {
        let of = Case { place: Place::Guard, rtt_ms: 20, loss_percent: 0.0 };
        let mut rates = Rates::default();
        for (who, all) in [(Who::Stock, stock), (Who::Ours, ours)] {
            for mbit in all {
                let took = Duration::from_secs_f64(8.0 / mbit);
                let to_first_byte = Duration::ZERO;
                let done =
                    Download { to_first_byte, took, received: 1_000_000, is_right: *mbit < 99.0 };
                rates.add(who, Ok(done));
            }
        }
        Judged::new(&of, &rates).case.verdict
    }

    #[test]
    fn slower_is_what_lies_below_all_others() {
        assert_eq!(verdict(&[10.0, 11.0, 12.0], &[12.0, 13.0, 14.0]), CaseVerdict::Held);
        assert_eq!(verdict(&[10.0, 11.0, 12.0], &[8.0, 9.0, 10.5]), CaseVerdict::Held, "by chance");
        assert_eq!(verdict(&[10.0, 11.0, 12.0], &[8.0, 9.0, 9.5]), CaseVerdict::Missed);
        assert_eq!(verdict(&[10.0], &[]), CaseVerdict::Failed);
        assert_eq!(verdict(&[10.0], &[10.0, 99.0]), CaseVerdict::Failed, "one came broken");
    }
}
