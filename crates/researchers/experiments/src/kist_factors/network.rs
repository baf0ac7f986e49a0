//! A run of the busy network.

use crate::common::Session;
use crate::error::Result;
use crate::reporting::median;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tornet::network::Network;
use tornet::results::{finish, transfers};
use tornet::run::{Plan, run as simulate};

/// The size of a page.
const PAGE_BYTES: u32 = 320 << 10;

/// The figures of a run after its warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figures {
    /// The median time to the first byte of pages; `None` if too few had one.
    pub(super) first_byte_s: Option<f64>,
    /// The median time to the last byte of pages.
    pub(super) last_byte_s: Option<f64>,
    /// What all relays sent in the median second.
    pub(super) sent_mbit_per_s: Option<f64>,
    /// The mean time of a cell in a relay's queues, and in its kernel.
    pub(super) queue_ms: f64,
    /// See `queue_ms`.
    pub(super) kernel_ms: f64,
    /// The share of relays' upload capacity that was used.
    pub(super) utilisation: f64,
}

/// Simulates; `None` if the user has interrupted.
#[expect(clippy::cast_precision_loss, reason = "bytes of a second are far below 2⁵³")]
pub(super) fn run(
    network: &Network,
    seconds: u32,
    seed: u64,
    session: Session<'_>,
) -> Result<Option<Figures>> {
    let plan = Plan { seconds, warm_up_s: seconds / 3, threads: 1, seed };
    let progress = |_: u32, _: Duration| {};
    let outcome = simulate(network, &plan, session.interrupt.requested(), &progress)?;
    if session.interrupt.is_requested() {
        return Ok(None);
    }
    let summary = finish(network, &plan, &outcome, None)?;
    let sizes = transfers(network, &outcome, plan.warm_up_s);
    let pages = sizes.iter().find(|size| size.bytes == PAGE_BYTES);
    let relays = &outcome.figures[..network.relays.len()];
    let sent = |second: usize| -> u64 {
        relays.iter().map(|relay| relay.sent_bytes.get(second).copied().unwrap_or(0)).sum()
    };
    let seconds = plan.warm_up_s as usize..seconds as usize;
    Ok(Some(Figures {
        first_byte_s: pages.and_then(|pages| pages.first_byte().median()),
        last_byte_s: pages.and_then(|pages| pages.last_byte().median()),
        sent_mbit_per_s: median(seconds.map(|second| sent(second) as f64 * 8e-6)),
        queue_ms: summary.queue_ms,
        kernel_ms: summary.kernel_queue_ms,
        utilisation: summary.utilisation,
    }))
}
