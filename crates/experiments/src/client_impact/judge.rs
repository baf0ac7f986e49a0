//! Whether clients are served no worse.

use super::scene::Who;
use super::{Case, Plan};
use crate::factor::Factor;
use crate::telling::{median, pair};
use lab::Download;
use report::experiment::{self, CaseVerdict, ExperimentReport, Promise};
use std::io;

pub(super) const TITLE: &str = "What do clients feel of a relay of ours that is far away?";
pub(super) const QUESTION: &str = "Are downloads of a stock client through a relay of ours nowhere slower than through a stock relay at \
                                   the same place, at any round trip and loss?";

/// An interval of the ratio that reaches farther than this factor to either side of its middle decides nothing where it holds 1.
const WIDEST: f64 = 1.25;

/// Ours over stock, of downloads one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    factor: Factor,
    pairs: usize,
}

impl Ratio {
    fn of(rates: &Rates) -> Self {
        let pairs = || rates.ours.iter().copied().zip(rates.stock.iter().copied());
        Self { factor: Factor::of_pairs(pairs()), pairs: pairs().count() }
    }

    fn judged(self) -> (CaseVerdict, String) {
        let Self { factor: Factor { value: middle, interval }, pairs } = self;
        let Some((low, high)) = interval else {
            let detail = "fewer than two pairs of downloads have no interval: more --runs";
            return (CaseVerdict::Inconclusive, detail.to_owned());
        };
        let detail = format!("ours over stock {middle:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
        if high < 1.0 {
            (CaseVerdict::Missed, format!("ours is slower: {detail}"))
        } else if low <= 1.0 && high / middle > WIDEST {
            (
                CaseVerdict::Inconclusive,
                format!("too few or too unlike to tell: {detail}; more --runs"),
            )
        } else {
            (CaseVerdict::Held, detail)
        }
    }
}

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
        let ratio = Ratio::of(rates);
        let case = match medians {
            _ if !rates.failed.is_empty() => {
                case.ended(CaseVerdict::Failed, rates.failed.join("; "))
            }
            [Some(_), Some(_)] => {
                let (verdict, detail) = ratio.judged();
                case.ended(verdict, detail)
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
            .column("pairs", ratio.pairs)
            .column("paired_ratio", ratio.factor.value)
            .column("paired_ratio_low", ratio.factor.interval.map(|it| it.0))
            .column("paired_ratio_high", ratio.factor.interval.map(|it| it.1))
            .column("stock_to_first_byte_s", median(rates.stock_first_s.iter().copied()))
            .column("ours_to_first_byte_s", median(rates.ours_first_s.iter().copied()));
        Self { case }
    }
}

pub(super) fn report(plan: &Plan, judged: Vec<Judged>, base: ExperimentReport) -> ExperimentReport {
    let cases: Vec<_> = judged.into_iter().map(|it| it.case).collect();
    let count = |verdict| cases.iter().filter(|it| it.verdict == verdict).count();
    let (held, open) = (count(CaseVerdict::Held), count(CaseVerdict::Inconclusive));
    let ratio = median(cases.iter().filter_map(|it| it.ratio));
    let answer = format!(
        "In {held} of {} cases downloads through ours were not slower, and {open} decide nothing; in the median case their \
         rate was {:.2} of that through the stock relay.",
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
        format!(
            "Downloads through the two take turns, and each two in a row are a pair. The interval is of the mean of ln(ours/stock), 95 % by \
             Student's distribution: ours is slower where all of it is below 1. Where it holds 1, and reaches more than {:.0} % above its \
             middle, it decides nothing.",
            (WIDEST - 1.0) * 100.0
        ),
    ];
    let promise = Promise::Decided {
        held: held > 0 && held + open == cases.len(),
        rule: "no case in which the whole interval of ours over stock is below 1".to_owned(),
    };
    ExperimentReport { answer, promise, parameters, cases, notes, ..base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_impact::Place;
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
    fn slower_is_what_is_slower_in_the_whole_interval() {
        use CaseVerdict::{Failed, Held, Inconclusive, Missed};
        let stock = [10.0, 12.0, 11.0, 13.0, 10.0];
        let times = |factors: [f64; 5]| -> Vec<f64> {
            stock.iter().zip(factors).map(|(it, factor)| it * factor).collect()
        };
        assert_eq!(verdict(&stock, &times([1.2, 1.3, 1.25, 1.2, 1.3])), Held);
        assert_eq!(verdict(&stock, &times([0.97, 1.04, 0.99, 1.03, 0.98])), Held, "alike");
        // Ranges overlap, but in each pair ours is a little slower: paired runs tell.
        assert_eq!(verdict(&stock, &times([0.93, 0.95, 0.94, 0.96, 0.92])), Missed);
        assert_eq!(verdict(&stock, &times([0.5, 1.6, 0.7, 1.4, 0.6])), Inconclusive, "too unlike");
        assert_eq!(verdict(&[10.0], &[9.0]), Inconclusive, "one says nothing");
        assert_eq!(verdict(&[10.0, 10.0], &[30.0, 31.0]), Held, "wide, but all of it above");
        assert_eq!(verdict(&[10.0], &[]), Failed);
        assert_eq!(verdict(&[10.0], &[10.0, 99.0]), Failed, "one came broken");
    }

    #[test]
    fn the_interval_is_of_ratios_and_by_students_distribution() {
        let rates = Rates { stock: vec![10.0, 10.0], ours: vec![5.0, 20.0], ..Rates::default() };
        let ratio = Ratio::of(&rates).factor;
        assert!((ratio.value - 1.0).abs() < 1e-9, "half and twice are as far: {ratio:?}");
        let (low, high) = ratio.interval.expect("two pairs");
        // 12.706 with one degree of freedom, and the standard error of ln ½ and ln 2 is ln 2.
        assert!((high.ln() - 12.706 * 2f64.ln()).abs() < 1e-3, "{ratio:?}");
        assert!((low * high - 1.0).abs() < 1e-9, "{ratio:?}");
    }
}
