//! The verdict on whether downloads are slower.

use super::scene::Software;
use crate::factor::Factor;
use crate::reporting::median;
use lab::Download;
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;
use std::io;

/// An interval of the ratio that contains 1 and exceeds its middle by more than this factor decides nothing.
pub(super) const WIDEST: f64 = 1.25;

/// The ratio of rates of paired downloads, FlashFlow over C tor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    factor: Factor,
    pairs: usize,
}

impl Ratio {
    fn from_rates(rates: &Rates) -> Self {
        let pairs = || rates.ours.iter().copied().zip(rates.c_tor.iter().copied());
        Self { factor: Factor::of_pairs(pairs()), pairs: pairs().count() }
    }

    fn judged(self) -> (CaseVerdict, String) {
        let Self { factor: Factor { value: middle, interval }, pairs } = self;
        let Some((low, high)) = interval else {
            let detail = "fewer than two pairs of downloads have no interval: use more --runs";
            return (CaseVerdict::Inconclusive, detail.to_owned());
        };
        let detail =
            format!("our relay over C tor {middle:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
        if high < 1.0 {
            (CaseVerdict::Missed, format!("our relay is slower: {detail}"))
        } else if low <= 1.0 && high / middle > WIDEST {
            (
                CaseVerdict::Inconclusive,
                format!(
                    "too few downloads, or too much variance, to decide: {detail}; use more --runs"
                ),
            )
        } else {
            (CaseVerdict::Held, detail)
        }
    }
}

/// The downloads of one case, in Mbit/s from the request to the last byte.
#[derive(Default)]
pub(super) struct Rates {
    c_tor: Vec<f64>,
    ours: Vec<f64>,
    /// Times to the first byte, in seconds.
    c_tor_first_s: Vec<f64>,
    ours_first_s: Vec<f64>,
    failed: Vec<String>,
}

impl Rates {
    pub(super) fn add(&mut self, software: Software, download: io::Result<Download>) {
        let (rates, first) = match software {
            Software::CTor => (&mut self.c_tor, &mut self.c_tor_first_s),
            Software::Ours => (&mut self.ours, &mut self.ours_first_s),
        };
        match download {
            Ok(download) if download.is_right => {
                rates.push(download.received as f64 * 8e-6 / download.took.as_secs_f64());
                first.push(download.to_first_byte.as_secs_f64());
            }
            Ok(download) => {
                let problem = format!("{}: received {} bytes", software.name(), download.received);
                self.failed.push(problem);
            }
            Err(error) => self.failed.push(format!("{}: {error}", software.name())),
        }
    }

    /// The number of downloads.
    pub(super) const fn count(&self) -> u64 {
        (self.c_tor.len() + self.ours.len() + self.failed.len()) as u64
    }

    pub(super) fn case(&self, name: String) -> Case {
        let medians = [&self.c_tor, &self.ours].map(|rates| median(rates.iter().copied()));
        let ratio = Ratio::from_rates(self);
        let case = Case::new(name, medians[0], medians[1]);
        let case = match medians {
            _ if !self.failed.is_empty() => case.ended(CaseVerdict::Failed, self.failed.join("; ")),
            [Some(_), Some(_)] => {
                let (verdict, detail) = ratio.judged();
                case.ended(verdict, detail)
            }
            _ => case.ended(CaseVerdict::Failed, "nothing was downloaded"),
        };
        let [c_tor, ours] = [&self.c_tor, &self.ours].map(|rates| range(rates).unzip());
        case.with(&Columns {
            tor_low_mbit_per_s: c_tor.0,
            tor_high_mbit_per_s: c_tor.1,
            ours_low_mbit_per_s: ours.0,
            ours_high_mbit_per_s: ours.1,
            pairs: ratio.pairs,
            paired_ratio: ratio.factor.value,
            paired_ratio_low: ratio.factor.interval.map(|interval| interval.0),
            paired_ratio_high: ratio.factor.interval.map(|interval| interval.1),
            tor_to_first_byte_s: median(self.c_tor_first_s.iter().copied()),
            ours_to_first_byte_s: median(self.ours_first_s.iter().copied()),
        })
    }
}

/// Columns of a case besides its cell.
#[derive(Serialize)]
struct Columns {
    tor_low_mbit_per_s: Option<f64>,
    tor_high_mbit_per_s: Option<f64>,
    ours_low_mbit_per_s: Option<f64>,
    ours_high_mbit_per_s: Option<f64>,
    pairs: usize,
    paired_ratio: f64,
    paired_ratio_low: Option<f64>,
    paired_ratio_high: Option<f64>,
    tor_to_first_byte_s: Option<f64>,
    ours_to_first_byte_s: Option<f64>,
}

fn range(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    Some((low, values.iter().copied().reduce(f64::max)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn verdict(c_tor: &[f64], ours: &[f64]) -> CaseVerdict {
        let mut rates = Rates::default();
        for (software, all) in [(Software::CTor, c_tor), (Software::Ours, ours)] {
            for mbit in all {
                let took = Duration::from_secs_f64(8.0 / mbit);
                let to_first_byte = Duration::ZERO;
                let done =
                    Download { to_first_byte, took, received: 1_000_000, is_right: *mbit < 99.0 };
                rates.add(software, Ok(done));
            }
        }
        rates.case("guard".to_owned()).verdict
    }

    #[test]
    fn our_relay_is_slower_if_the_whole_interval_is_below_1() {
        use CaseVerdict::{Failed, Held, Inconclusive, Missed};
        let c_tor = [10.0, 12.0, 11.0, 13.0, 10.0];
        let times = |factors: [f64; 5]| -> Vec<f64> {
            c_tor.iter().zip(factors).map(|(rate, factor)| rate * factor).collect()
        };
        assert_eq!(verdict(&c_tor, &times([1.2, 1.3, 1.25, 1.2, 1.3])), Held);
        assert_eq!(verdict(&c_tor, &times([0.97, 1.04, 0.99, 1.03, 0.98])), Held, "equal");
        // Ranges overlap, but in each pair our relay is slightly slower.
        assert_eq!(verdict(&c_tor, &times([0.93, 0.95, 0.94, 0.96, 0.92])), Missed);
        assert_eq!(
            verdict(&c_tor, &times([0.5, 1.6, 0.7, 1.4, 0.6])),
            Inconclusive,
            "too much variance"
        );
        assert_eq!(verdict(&[10.0], &[9.0]), Inconclusive, "a single pair");
        assert_eq!(verdict(&[10.0, 10.0], &[30.0, 31.0]), Held, "wide, but entirely above 1");
        assert_eq!(verdict(&[10.0], &[]), Failed);
        assert_eq!(verdict(&[10.0], &[10.0, 99.0]), Failed, "one has wrong content");
    }

    #[test]
    fn the_interval_is_of_log_ratios_by_students_distribution() {
        let rates = Rates { c_tor: vec![10.0, 10.0], ours: vec![5.0, 20.0], ..Rates::default() };
        let ratio = Ratio::from_rates(&rates).factor;
        assert!((ratio.value - 1.0).abs() < 1e-9, "half and twice cancel out: {ratio:?}");
        let (low, high) = ratio.interval.expect("two pairs");
        // 12.706 with one degree of freedom, and the standard error of ln ½ and ln 2 is ln 2.
        assert!((high.ln() - 12.706 * 2f64.ln()).abs() < 1e-3, "{ratio:?}");
        assert!((low * high - 1.0).abs() < 1e-9, "{ratio:?}");
    }
}
