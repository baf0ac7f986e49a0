//! Summary of probed circuits.

use super::ms;
use client::probe::Probed;
use onion::Duration;
use serde_json::{Value, json};

/// Statistics of the circuits of one length.
pub(super) struct Summary {
    hops: u8,
    circuits: usize,
    failed: usize,
    setup: Figures,
    /// The part of each hop.
    steps: Vec<Figures>,
    rtt: Figures,
    throughput: Figures,
}

/// Statistics of several values.
struct Figures {
    median: Option<f64>,
    mean: Option<f64>,
    deviation: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
}

impl Figures {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let mean = (count > 0.0).then(|| values.iter().sum::<f64>() / count);
        let squares = mean.map(|mean| values.iter().map(|it| (it - mean).powi(2)).sum::<f64>());
        let deviation = squares.filter(|_| count > 1.0).map(|it| (it / (count - 1.0)).sqrt());
        let (least, most) = (values.first().copied(), values.last().copied());
        Self { median: values.get(values.len() / 2).copied(), mean, deviation, least, most }
    }

    fn value(&self) -> Value {
        json!({
            "median": self.median, "mean": self.mean, "deviation": self.deviation,
            "least": self.least, "most": self.most,
        })
    }
}

impl Summary {
    pub(super) fn of(hops: u8, all: &[Probed]) -> Self {
        let its = || all.iter().filter(|it| it.path.len() == usize::from(hops));
        let step = |place: usize| {
            let of = move |it: &Probed| {
                let before = place
                    .checked_sub(1)
                    .map_or(Some(&Duration::ZERO), |before| it.hop_times.get(before));
                Some(ms(it.hop_times.get(place)?.saturating_sub(*before?)))
            };
            Figures::of(its().filter_map(of))
        };
        Self {
            hops,
            circuits: its().count(),
            failed: its().filter(|it| it.setup().is_none()).count(),
            setup: Figures::of(its().filter_map(|it| it.setup().map(ms))),
            steps: (0..usize::from(hops)).map(step).collect(),
            rtt: Figures::of(its().filter_map(|it| it.mean_rtt().map(ms))),
            throughput: Figures::of(its().filter_map(|it| it.throughput_kb_s)),
        }
    }

    pub(super) fn in_words(&self) -> String {
        let or = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it:.1}"));
        format!(
            "{} hops: {} circuits, {} failed; set up in {} ms (median), round trip {} ms, {} kB/s",
            self.hops,
            self.circuits,
            self.failed,
            or(self.setup.median),
            or(self.rtt.median),
            or(self.throughput.median),
        )
    }

    pub(super) fn value(&self) -> Value {
        json!({
            "hops": self.hops, "circuits": self.circuits, "failed": self.failed,
            "setup_ms": self.setup.value(), "rtt_ms": self.rtt.value(),
            "throughput_kb_s": self.throughput.value(),
            "step_ms": self.steps.iter().map(Figures::value).collect::<Vec<_>>(),
        })
    }
}
