//! Networks in virtual time.

use super::{Download, Measured, Measuring, Observed, RelayStats, RunConditions, World};
use crate::error::Result;
use onion::cell::CELL_LEN;
use onion::{Duration, Rate};
use sim::world::Ending;
use std::sync::atomic::Ordering;
use tornet::balance::{Balancer, Conditions, FlashFlow};
use tornet::network::Network;
use tornet::run::{Plan, run};

/// `sim::world`, as in `flashflow-lab sim run`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl World for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn run(&self, network: &Network, conditions: &RunConditions<'_>) -> Result<Observed> {
        let RunConditions { seconds_max: seconds, seed, stop } = *conditions;
        let plan = Plan { seconds, warm_up_s: 0, threads: 1, seed };
        let outcome = run(network, &plan, stop, &|_, _| ())?;
        stop_if_asked(conditions)?;
        let first_client = network.relays.len() + network.servers.len();
        let download = |record: &sim::world::Record| Download {
            client: record.client.0 as usize - first_client,
            begun: Duration::from_nanos(record.begun.as_nanos()),
            bytes: record.bytes,
            first_byte: record.first_byte,
            last_byte: record.last_byte.filter(|_| record.ending == Ending::Complete),
        };
        let relay = |host: &sim::world::HostFigures| RelayStats {
            cells: host.relayed_bytes / CELL_LEN as u64,
            waited_cell_s: host.waited_cell_s,
        };
        Ok(Observed {
            downloads: outcome.records.iter().map(download).collect(),
            relays: outcome.figures.iter().take(network.relays.len()).map(relay).collect(),
            late: Duration::ZERO,
            lost_packets: 0,
        })
    }

    fn measure(&self, measuring: &Measuring, conditions: &RunConditions<'_>) -> Result<Measured> {
        let (country, rate) = &measuring.measurer;
        let flashflow = FlashFlow {
            params: measuring.params,
            measurers: vec![((*country).to_owned(), *rate)],
            ..FlashFlow::default()
        };
        let how = Conditions {
            seed: conditions.seed,
            threads: 1,
            seconds_max: conditions.seconds_max,
            stop: conditions.stop,
            progress: &|_, _| (),
        };
        let weighing = flashflow.weigh(&measuring.network(), &how)?;
        let estimates = weighing.estimates_bit_per_s.unwrap_or_default();
        let estimate = estimates.first().copied().flatten().map(Rate::from_bit_per_s);
        // The first note counts rounds. The others report failures and inconclusive estimates.
        let doubt = weighing.notes.get(1).cloned();
        Ok(Measured { estimate, doubt, late: Duration::ZERO })
    }
}

pub(super) fn stop_if_asked(conditions: &RunConditions<'_>) -> Result<()> {
    if conditions.stop.load(Ordering::Relaxed) {
        return Err(tornet::Error::Interrupted.into());
    }
    Ok(())
}
