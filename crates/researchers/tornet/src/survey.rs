//! Measurements of given circuits, and downloads without Tor, while users load a network.

use crate::build::Guests;
use crate::error::Error;
use crate::network::{Network, Site};
use crate::run::{Director, News, Outcome, Plan, Progress, run_with};
use sim::world::{Direct, HostId, Scan, TeamOrder};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The hosts that measure.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Clients that measure circuits. A relay's [`HostId`] is its index in the network.
    pub scanners: Vec<(Site, Arc<Scan>)>,
    /// Hosts that download without Tor. A server's [`HostId`] is its index plus the number of relays.
    pub direct: Vec<(Site, Vec<Direct>)>,
}

impl Survey {
    /// Runs a network with these hosts until all circuits are measured, or for the planned time if there are none.
    ///
    /// # Errors
    /// If the network cannot work.
    pub fn run(
        self,
        network: &Network,
        plan: &Plan,
        stop: &AtomicBool,
        progress: Progress<'_>,
    ) -> Result<Outcome, Error> {
        let left: u64 = self.scanners.iter().map(|(_, scan)| scan.probes.len() as u64).sum();
        let mut end = UntilAll { left };
        let director = (left > 0).then_some(&mut end as &mut dyn Director);
        let guests = Guests { scanners: self.scanners, direct: self.direct, team: Vec::new() };
        run_with(network, plan, &guests, director, stop, progress)
    }
}

/// A run ends when all probes have ended.
struct UntilAll {
    left: u64,
}

impl Director for UntilAll {
    fn direct(&mut self, _: u64, news: News, _: &mut Vec<(HostId, TeamOrder)>) {
        self.left = self.left.saturating_sub(news.ended_probes);
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }
}
