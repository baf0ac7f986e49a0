use super::Batch;
use crate::common::Session;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tornet::network::Network;
use tornet::results::{Transfers, finish, transfers};
use tornet::run::{Plan, run};

/// Identifies a run of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunKey {
    pub(crate) variant: String,
    pub(crate) load_percent: u32,
    pub(crate) seed: u64,
}

impl RunKey {
    pub(crate) fn name(&self) -> String {
        format!("{}, load {} %, seed {}", self.variant, self.load_percent, self.seed)
    }

    /// The name of its file, without the ending.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{}-{}", self.variant, self.load_percent, self.seed)
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunResult {
    /// Common to all runs of a folder.
    pub(crate) conditions: String,
    #[serde(rename = "point")]
    pub(crate) key: RunKey,
    pub(crate) network_weight_error: f64,
    pub(crate) sizes: Vec<Transfers>,
    /// What all relays together sent, in each second after the warm-up.
    pub(crate) sent_mbit_per_s: Vec<f64>,
    pub(crate) goodput_mbit_per_s: f64,
    pub(crate) utilisation: f64,
    pub(crate) queue_ms: f64,
    /// Absent from older results.
    #[serde(default)]
    pub(crate) kernel_queue_ms: Option<f64>,
    pub(crate) wall_s: f64,
    pub(crate) fingerprint: String,
}

impl RunResult {
    /// A run at a load of 100 % without downloads, for tests.
    #[cfg(test)]
    pub(crate) fn blank(variant: &str, seed: u64) -> Self {
        Self {
            conditions: String::new(),
            key: RunKey { variant: variant.to_owned(), load_percent: 100, seed },
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
        self.sizes.iter().find(|size| size.bytes == bytes)
    }

    /// NaN if the run has no seconds after the warm-up.
    pub(crate) fn sent_median_mbit_per_s(&self) -> f64 {
        crate::reporting::median(self.sent_mbit_per_s.iter().copied()).unwrap_or(f64::NAN)
    }

    /// The mean time of a cell in a relay, in its queues and in its kernel, in milliseconds.
    pub(crate) fn congestion_ms(&self) -> Option<f64> {
        Some(self.queue_ms + self.kernel_queue_ms?)
    }

    /// The share of all ended downloads that failed.
    #[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
    pub(crate) fn failed_share(&self) -> Option<f64> {
        let failed: usize = self.sizes.iter().map(Transfers::failed).sum();
        let completed: usize = self.sizes.iter().map(|size| size.last_byte_s.len()).sum();
        let all = failed + completed;
        (all > 0).then(|| failed as f64 / all as f64)
    }
}

/// Simulates a run. `None` if the user has interrupted.
#[expect(clippy::cast_precision_loss, reason = "bytes are far below 2⁵³")]
pub(crate) fn simulate(
    batch: &Batch,
    network: &Network,
    key: &RunKey,
    session: Session<'_>,
) -> Result<Option<RunResult>> {
    let Session { output, interrupt, .. } = session;
    let warm_up_s = batch.warm_up_s();
    let plan = Plan { seconds: batch.seconds, warm_up_s, threads: batch.threads, seed: key.seed };
    let name = key.name();
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
        relays.iter().map(|relay| relay.sent_bytes.get(second).copied().unwrap_or(0)).sum()
    };
    let after_warm_up = warm_up_s as usize..plan.seconds as usize;
    Ok(Some(RunResult {
        conditions: batch.conditions.clone(),
        key: key.clone(),
        network_weight_error: summary.network_weight_error,
        sizes: transfers(network, &outcome, warm_up_s),
        sent_mbit_per_s: after_warm_up.map(|second| sent(second) as f64 * 8e-6).collect(),
        goodput_mbit_per_s: summary.goodput_gbit_per_s * 1e3,
        utilisation: summary.utilisation,
        queue_ms: summary.queue_ms,
        kernel_queue_ms: Some(summary.kernel_queue_ms),
        wall_s: summary.wall_s,
        fingerprint: summary.fingerprint,
    }))
}
