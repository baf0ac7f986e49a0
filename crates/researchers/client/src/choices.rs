//! How a client selects relays and serves programs.

use crate::path::PathRules;
use crate::strategy::{Strategy, Weighted};
use onion::cell::msg::DesiredUx;
use onion::tunnel::conflux::LegScheduler;
use onion::tunnel::conflux::schedulers::MinRtt;

/// How a client selects relays and serves programs.
#[derive(Debug)]
pub struct Choices {
    /// How relays are selected.
    pub strategy: Box<dyn Strategy>,
    /// Restrictions on all paths.
    pub rules: PathRules,
    /// Legs of a Conflux set (proposal 329), if the network has enough relays and a suitable exit;
    /// 1 for single circuits. At most [`LEGS_MAX`](onion::tunnel::conflux::LEGS_MAX).
    pub legs: usize,
    /// Schedules data of programs over the legs.
    pub leg_scheduler: &'static dyn LegScheduler,
    /// The scheduling that exits are asked for.
    pub desired: DesiredUx,
    /// Probes the latency of circuits, busy or idle, and attaches streams to the fastest. Programs
    /// of one isolation group then use several circuits, and so several exits see them.
    pub by_latency: bool,
    /// Rejects streams to and DNS queries about addresses of this host and of private networks, and
    /// drops such answers: C tor's `ClientRejectInternalAddresses` and
    /// `ClientDNSRejectInternalAddresses`. For the public network.
    pub rejects_internal: bool,
    /// Events contain destinations. Otherwise they contain `[scrubbed]` or nothing.
    pub names_destinations: bool,
}

impl Default for Choices {
    /// Relays by weight, several of which may be on one host; no linked circuits.
    fn default() -> Self {
        Self {
            strategy: Box::new(Weighted),
            rules: PathRules { distinct_subnets: false },
            legs: 1,
            leg_scheduler: &MinRtt,
            desired: DesiredUx::HighThroughput,
            by_latency: false,
            rejects_internal: false,
            names_destinations: true,
        }
    }
}
