//! The paper's claims about downloads and throughput (figure 9).

use super::judge::Results;
use super::{FLASHFLOW, TORFLOW};
use crate::columns::rounded;
use crate::reporting::claim_case;
use crate::simulated::{self, Change, Interval, RunResult, mean_over_seeds, size_text};
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;
use statrs::statistics::Statistics as _;
use std::collections::BTreeSet;

/// The paper's change of median transfer times with FlashFlow, by size, at its usual load.
const PAPER: [(u32, f64); 3] = [(50 << 10, -0.15), (1 << 20, -0.29), (5 << 20, -0.37)];

/// Columns of a comparison of times.
#[derive(Serialize)]
struct Times {
    load_percent: u32,
    flashflow_s: Option<f64>,
    torflow_s: Option<f64>,
    change_percent: Option<f64>,
    change_half_width_percent: Option<f64>,
    /// The change of the standard deviation of completed downloads.
    deviation_change_percent: Option<f64>,
}

/// Columns of a comparison of failures or growth.
#[derive(Serialize)]
struct Percents {
    load_percent: u32,
    flashflow_percent: Option<f64>,
    torflow_percent: Option<f64>,
}

impl Percents {
    fn new(load_percent: u32, flashflow: Interval, torflow: Interval) -> Self {
        let [flashflow_percent, torflow_percent] =
            [flashflow, torflow].map(|interval| rounded(interval.mean * 100.0, 3));
        Self { load_percent, flashflow_percent, torflow_percent }
    }
}

/// The standard deviation of completed downloads of this size, in seconds; `None` for fewer than two.
fn deviation(run: &RunResult, bytes: u32) -> Option<f64> {
    let deviation = (&run.size(bytes)?.last_byte_s).std_dev();
    deviation.is_finite().then_some(deviation)
}

impl Results {
    /// All claims, load by load. The paper's numbers are those of the lowest load.
    pub(super) fn download_claims(&self, loads: &[u32]) -> Vec<Case> {
        let mut cases = Vec::new();
        let lowest = loads.iter().copied().min().unwrap_or_default();
        for load in loads.iter().copied() {
            for (bytes, paper) in PAPER {
                cases.extend(self.faster(load, bytes, (load == lowest).then_some(paper)));
            }
            cases.push(self.more_reliable(load));
            if load != lowest {
                cases.push(self.grows_more([lowest, load]));
            }
        }
        cases
    }

    /// Whether the median time to the last byte is lower with FlashFlow. No case if the network has no downloads
    /// of this size.
    fn faster(&self, load: u32, bytes: u32, paper: Option<f64>) -> Option<Case> {
        if !self.runs.iter().any(|run| run.size(bytes).is_some()) {
            return None;
        }
        let last_byte = |run: &RunResult| run.size(bytes)?.last_byte().median();
        let of = |name| mean_over_seeds(&self.runs, name, load, last_byte);
        let (ours, theirs) = (of(FLASHFLOW), of(TORFLOW));
        let change = Change::between(&self.runs, TORFLOW, FLASHFLOW, load, last_byte).percent;
        let deviations =
            Change::between(&self.runs, TORFLOW, FLASHFLOW, load, |run| deviation(run, bytes));
        let mut detail =
            format!("{ours:.2} s with FlashFlow, {theirs:.2} s with TorFlow: {change:+.0} %");
        if let Some(paper) = paper {
            detail.push_str(&format!("; paper: {:+.0} %", paper * 100.0));
        }
        // Seeds without a median are the slowest: the mean of the others would be too low.
        let mut is_partial = false;
        for (balancer, interval) in [(FLASHFLOW, ours), (TORFLOW, theirs)] {
            let seeds = simulated::runs(&self.runs, balancer, load).count();
            if interval.count < seeds {
                is_partial = true;
                let count = interval.count;
                detail
                    .push_str(&format!("; {count} of {seeds} seeds have a median with {balancer}"));
            }
        }
        let name = format!("{} download faster at a load of {load} %", size_text(bytes));
        let case = if is_partial {
            Case::named(name).ended(CaseVerdict::Inconclusive, detail)
        } else {
            claim_case(name, change.mean.is_finite().then_some(change.mean < 0.0), detail)
        };
        Some(case.with(&Times {
            load_percent: load,
            flashflow_s: rounded(ours.mean, 3),
            torflow_s: rounded(theirs.mean, 3),
            change_percent: rounded(change.mean, 2),
            change_half_width_percent: change.half_width.and_then(|half| rounded(half, 2)),
            deviation_change_percent: rounded(deviations.percent.mean, 2),
        }))
    }

    /// A claim about means over seeds: inconclusive if a seed was run with one of the two only, since seeds differ.
    fn paired_case(&self, loads: &[u32], name: String, held: Option<bool>, detail: String) -> Case {
        let seeds = |balancer, load| -> BTreeSet<u64> {
            simulated::runs(&self.runs, balancer, load).map(|run| run.key.seed).collect()
        };
        let is_paired = loads.iter().all(|load| seeds(FLASHFLOW, *load) == seeds(TORFLOW, *load));
        match held {
            Some(_) if !is_paired => Case::named(name).ended(CaseVerdict::Inconclusive, detail),
            held => claim_case(name, held, detail),
        }
    }

    fn more_reliable(&self, load: u32) -> Case {
        let of = |name| mean_over_seeds(&self.runs, name, load, RunResult::failed_share);
        let (ours, theirs) = (of(FLASHFLOW), of(TORFLOW));
        let both = ours.mean.is_finite() && theirs.mean.is_finite();
        self.paired_case(
            &[load],
            format!("No more downloads fail at a load of {load} %"),
            both.then_some(ours.mean <= theirs.mean),
            format!(
                "{:.2} % with FlashFlow, {:.2} % with TorFlow",
                ours.times(100.0),
                theirs.times(100.0)
            ),
        )
        .with(&Percents::new(load, ours, theirs))
    }

    /// Whether relays carry more of an additional load with FlashFlow.
    fn grows_more(&self, [lowest, load]: [u32; 2]) -> Case {
        let growth = |name| {
            let of_seed = simulated::runs(&self.runs, name, load).filter_map(|run| {
                let mut usual = simulated::runs(&self.runs, name, lowest);
                let usual = usual.find(|usual| usual.key.seed == run.key.seed)?;
                Some(run.sent_median_mbit_per_s() / usual.sent_median_mbit_per_s() - 1.0)
            });
            Interval::of(of_seed)
        };
        let (ours, theirs) = (growth(FLASHFLOW), growth(TORFLOW));
        let both = ours.mean.is_finite() && theirs.mean.is_finite();
        self.paired_case(
            &[lowest, load],
            format!("Throughput grows more from a load of {lowest} % to {load} %"),
            both.then_some(ours.mean >= theirs.mean),
            format!(
                "{:+.1} % with FlashFlow, {:+.1} % with TorFlow",
                ours.times(100.0),
                theirs.times(100.0)
            ),
        )
        .with(&Percents::new(load, ours, theirs))
    }

    /// Times, failures and throughput of each balancer at each load, means over seeds.
    pub(super) fn download_cases(&self, names: &[&str], loads: &[u32]) -> Vec<Case> {
        let keys = names.iter().flat_map(|name| loads.iter().map(move |load| (*name, *load)));
        keys.filter(|(name, load)| simulated::runs(&self.runs, name, *load).next().is_some())
            .map(|(name, load)| self.downloads(name, load))
            .collect()
    }

    fn downloads(&self, name: &str, load: u32) -> Case {
        let mean = |figure: &dyn Fn(&RunResult) -> Option<f64>| {
            rounded(mean_over_seeds(&self.runs, name, load, figure).mean, 4)
        };
        let mut case = Case::reported(format!("downloads with {name} at a load of {load} %"), "")
            .column("balancer", name)
            .column("load_percent", load)
            .column("failed_percent", mean(&|run| Some(run.failed_share()? * 100.0)))
            .column("sent_mbit_per_s", mean(&|run| Some(run.sent_median_mbit_per_s())))
            .column("utilisation", mean(&|run| Some(run.utilisation)));
        for (bytes, _) in PAPER {
            let kib = bytes / 1024;
            case = case
                .column(
                    &format!("first_byte_{kib}_kib_s"),
                    mean(&|run| run.size(bytes)?.first_byte().median()),
                )
                .column(
                    &format!("last_byte_{kib}_kib_s"),
                    mean(&|run| run.size(bytes)?.last_byte().median()),
                )
                .column(&format!("deviation_{kib}_kib_s"), mean(&|run| deviation(run, bytes)));
        }
        case
    }
}
