//! Summary of probed circuits.

use super::ms;
use client::probe::Probed;
use onion::Duration;
use schemars::JsonSchema;
use serde::Serialize;

/// Statistics of the circuits of one length.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Summary {
    /// Their length.
    hops: u8,
    /// Their number.
    circuits: usize,
    /// Those that could not be built.
    failed: usize,
    /// Time until they were built.
    setup_ms: Figures,
    /// The part of each hop in it.
    step_ms: Vec<Figures>,
    /// Mean round trips to the last hop.
    rtt_ms: Figures,
    /// Throughput of the downloads, in 1,000 bytes a second.
    throughput_kb_s: Figures,
}

/// Statistics of several values.
#[derive(Debug, Serialize, JsonSchema)]
struct Figures {
    /// Median.
    median: Option<f64>,
    /// Mean.
    mean: Option<f64>,
    /// Standard deviation.
    deviation: Option<f64>,
    /// Minimum.
    least: Option<f64>,
    /// Maximum.
    most: Option<f64>,
}

impl Figures {
    fn from_values(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let mean = (count > 0.0).then(|| values.iter().sum::<f64>() / count);
        let squares =
            mean.map(|mean| values.iter().map(|value| (value - mean).powi(2)).sum::<f64>());
        let deviation =
            squares.filter(|_| count > 1.0).map(|square| (square / (count - 1.0)).sqrt());
        let (least, most) = (values.first().copied(), values.last().copied());
        Self { median: values.get(values.len() / 2).copied(), mean, deviation, least, most }
    }
}

impl Summary {
    pub(super) fn new(hops: u8, all: &[Probed]) -> Self {
        let its = || all.iter().filter(|circuit| circuit.path.len() == usize::from(hops));
        let step = |place: usize| {
            let of = move |circuit: &Probed| {
                let before = place
                    .checked_sub(1)
                    .map_or(Some(&Duration::ZERO), |before| circuit.hop_times.get(before));
                Some(ms(circuit.hop_times.get(place)?.saturating_sub(*before?)))
            };
            Figures::from_values(its().filter_map(of))
        };
        Self {
            hops,
            circuits: its().count(),
            failed: its().filter(|circuit| circuit.setup().is_none()).count(),
            setup_ms: Figures::from_values(its().filter_map(|circuit| circuit.setup().map(ms))),
            step_ms: (0..usize::from(hops)).map(step).collect(),
            rtt_ms: Figures::from_values(its().filter_map(|circuit| circuit.mean_rtt().map(ms))),
            throughput_kb_s: Figures::from_values(
                its().filter_map(|circuit| circuit.throughput_kb_s),
            ),
        }
    }

    pub(super) fn in_words(&self) -> String {
        let or = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        format!(
            "{} hops: {} circuits, {} failed; set up in {} ms (median), round trip {} ms, {} kB/s",
            self.hops,
            self.circuits,
            self.failed,
            or(self.setup_ms.median),
            or(self.rtt_ms.median),
            or(self.throughput_kb_s.median),
        )
    }
}
