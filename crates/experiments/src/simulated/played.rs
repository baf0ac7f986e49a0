use super::Batch;
use crate::common::Session;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tornet::network::Network;
use tornet::results::{Transfers, finish, transfers};
use tornet::run::{Plan, run};

/// A run: which, at what load, with which seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) variant: String,
    pub(crate) load_percent: u32,
    pub(crate) seed: u64,
}

impl Point {
    pub(crate) fn name(&self) -> String {
        format!("{}, load {} %, seed {}", self.variant, self.load_percent, self.seed)
    }

    /// Without the ending.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{}-{}", self.variant, self.load_percent, self.seed)
    }
}

/// What came out of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Played {
    /// What all runs of a folder have in common.
    pub(crate) conditions: String,
    pub(crate) point: Point,
    pub(crate) network_weight_error: f64,
    pub(crate) sizes: Vec<Transfers>,
    /// What relays sent, all together, in each second that counts.
    pub(crate) sent_mbit_per_s: Vec<f64>,
    pub(crate) goodput_mbit_per_s: f64,
    pub(crate) utilisation: f64,
    pub(crate) queue_ms: f64,
    /// Older runs do not contain it.
    #[serde(default)]
    pub(crate) kernel_queue_ms: Option<f64>,
    pub(crate) wall_s: f64,
    pub(crate) fingerprint: String,
}

impl Played {
    /// A run at a load of 100 % of which nothing is known, for tests.
    #[cfg(test)]
    pub(crate) fn blank(variant: &str, seed: u64) -> Self {
        Self {
            conditions: String::new(),
            point: Point { variant: variant.to_owned(), load_percent: 100, seed },
            network_weight_error: 0.0,
            sizes: Vec::new(),
            sent_mbit_per_s: Vec::new(),
            goodput_mbit_per_s: 1.0,
            utilisation: 0.5,
            queue_ms: 1.0,
            kernel_queue_ms: None,
            wall_s: 1.0,
            fingerprint: String::new(),
        }
    }

    pub(crate) fn size(&self, bytes: u32) -> Option<&Transfers> {
        self.sizes.iter().find(|it| it.bytes == bytes)
    }

    /// NaN of a run without seconds that count.
    pub(crate) fn sent_median_mbit_per_s(&self) -> f64 {
        crate::reporting::median(self.sent_mbit_per_s.iter().copied()).unwrap_or(f64::NAN)
    }

    /// Milliseconds for which a cell is in a relay on average: in its queues, and in its kernel behind them.
    pub(crate) fn congestion_ms(&self) -> Option<f64> {
        Some(self.queue_ms + self.kernel_queue_ms?)
    }

    /// Of all downloads that are over, so large a share failed.
    #[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
    pub(crate) fn failed_share(&self) -> Option<f64> {
        let failed: usize = self.sizes.iter().map(Transfers::failed).sum();
        let whole: usize = self.sizes.iter().map(|it| it.last_byte_s.len()).sum();
        let all = failed + whole;
        (all > 0).then(|| failed as f64 / all as f64)
    }
}

/// Plays one. `None` if somebody has asked to stop.
#[expect(clippy::cast_precision_loss, reason = "bytes are far below 2⁵³")]
pub(crate) fn play(
    batch: &Batch,
    network: &Network,
    point: &Point,
    session: Session<'_>,
) -> Result<Option<Played>> {
    let Session { output, interrupt, .. } = session;
    let warm_up_s = batch.warm_up_s();
    let plan = Plan { seconds: batch.seconds, warm_up_s, threads: batch.threads, seed: point.seed };
    let name = point.name();
    let progress = |second: u32, wall: Duration| {
        let left_s = wall.as_secs_f64() / f64::from(second.max(1))
            * f64::from(plan.seconds.saturating_sub(second));
        output.doing(format!("{name}: {second} of {} s, {left_s:.0} s to go", plan.seconds));
    };
    let outcome = run(network, &plan, interrupt.requested(), &progress)?;
    if interrupt.is_requested() {
        return Ok(None);
    }
    let summary = finish(network, &plan, &outcome, None)?;
    let relays = &outcome.figures[..network.relays.len()];
    let sent = |second: usize| -> u64 {
        relays.iter().map(|it| it.sent_bytes.get(second).copied().unwrap_or(0)).sum()
    };
    let counting = warm_up_s as usize..plan.seconds as usize;
    Ok(Some(Played {
        conditions: batch.conditions.clone(),
        point: point.clone(),
        network_weight_error: summary.network_weight_error,
        sizes: transfers(network, &outcome, warm_up_s),
        sent_mbit_per_s: counting.map(|second| sent(second) as f64 * 8e-6).collect(),
        goodput_mbit_per_s: summary.goodput_gbit_per_s * 1e3,
        utilisation: summary.utilisation,
        queue_ms: summary.queue_ms,
        kernel_queue_ms: Some(summary.kernel_queue_ms),
        wall_s: summary.wall_s,
        fingerprint: summary.fingerprint,
    }))
}
