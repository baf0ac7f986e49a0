//! Section 7 of the paper over a series of networks: how long a team needs to measure each network, and how long new relays wait.
//!
//! The series are the views of a dataset (one network per day), and networks staged by tornettools. [`coordinator::plan`] assigns slots,
//! as it does for the coordinator's daemon. This module determines the relays of each network and their expected capacities.

mod capacities;
mod replay;
mod report;
#[cfg(test)]
mod tests;

pub use replay::series;
pub use report::{Line, lines, report};

use crate::dataset::Dataset;
use crate::error::ArchiveError;
use crate::rows::{Origin, Relays, Staged};
use crate::staging::PARTS;
use coordinator::plan::{Machine, Plan, TeamRoom};
use onion::Rate;
use onion::identity::RsaId;
use schemars::JsonSchema;
use serde::Serialize;

/// Options of planning.
#[derive(Clone, Debug)]
pub struct ScheduleOptions {
    /// The origin of the views; by default the only one that the dataset has.
    pub origin: Option<Origin>,
    /// Time of the first planned view, in Unix seconds. Earlier views only determine which relays are old.
    pub from_unix_s: i64,
    /// Views from this time on are left out.
    pub until_unix_s: i64,
    /// The team.
    pub team: TeamRoom,
    /// Allocated capacity divided by the expected capacity of a relay.
    pub excess_factor: f64,
    /// Length of a slot.
    pub slot_s: u32,
    /// A relay's capacity is the largest bandwidth that it published within this time before or after.
    pub around_s: i64,
    /// A relay is new if no view listed it for this time.
    pub unseen_s: i64,
    /// Expected capacity of new relays; by default the 75th percentile of the bandwidths that were published in the 30 days before.
    pub new_relay: Option<Rate>,
}

impl Default for ScheduleOptions {
    /// Section 7: three measurers of 1 Gbit/s, *f* = 2.84, slots of 30 s, the largest bandwidth of three months, a month unseen.
    fn default() -> Self {
        Self {
            origin: None,
            from_unix_s: i64::MIN,
            until_unix_s: i64::MAX,
            team: TeamRoom::of(Rate::from_bit_per_s(3_000_000_000)),
            excess_factor: 2.84,
            slot_s: 30,
            around_s: 46 * crate::times::DAY_S,
            unseen_s: 30 * crate::times::DAY_S,
            new_relay: None,
        }
    }
}

/// A relay and its expected capacity.
pub(crate) type Expected = (RsaId, Rate);

/// A network, and the shortest plan that measures all its relays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PlannedNetwork {
    /// The time of the view, or the beginning of the staged span, in Unix seconds.
    pub unix_s: i64,
    /// Relays.
    pub relays: usize,
    /// Number of relays of unknown capacity among them, which have the expected capacity of new relays.
    pub unknown_relays: usize,
    /// The sum of their capacities, Gbit/s.
    pub capacity_gbit_per_s: f64,
    /// The largest capacity, Mbit/s.
    pub largest_mbit_per_s: f64,
    /// Number of relays that exceed the team, so that their results would be lower bounds.
    pub lower_bound_relays: usize,
    /// Slots of the greedy plan.
    pub slots: u32,
    /// Duration of these slots, in hours.
    pub hours: f64,
}

/// The new relays of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Arrivals {
    /// The time of the view, in Unix seconds.
    pub unix_s: i64,
    /// Number of relays that no view listed for [`ScheduleOptions::unseen_s`].
    pub new_relays: usize,
    /// Time until all of them are measured, if each gets the first slot with room (section 4.3); 0 without new relays.
    pub measured_after_s: u32,
    /// Time until all of them are measured by the daemon's plan, which draws a slot within a 24th of the period.
    pub measured_by_daemon_after_s: u32,
    /// Number of new relays for which the period has no slot left in either plan.
    pub put_off_relays: usize,
}

/// Plans of a series of networks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleSeries {
    /// One network a day: its first view.
    pub days: Vec<PlannedNetwork>,
    /// The new relays of each view but the first.
    pub arrivals: Vec<Arrivals>,
    /// For each new relay, the time until it is measured in the first slot with room, in seconds, ascending.
    pub waits_s: Vec<u32>,
}

/// The shortest plan of a network.
pub(crate) fn plan(
    unix_s: i64,
    relays: &[Expected],
    unknown_relays: usize,
    options: &ScheduleOptions,
) -> PlannedNetwork {
    let machines: Vec<Machine> =
        relays.iter().map(|(id, capacity)| Machine::single(*id, *capacity)).collect();
    let plan = Plan::greedy(&[options.team], options.excess_factor, machines);
    let slots = plan.used_slots();
    let needs_more =
        |relay: &&Expected| relay.1.scaled(options.excess_factor) > options.team.capacity;
    let capacity: Rate = relays.iter().map(|relay| relay.1).sum();
    PlannedNetwork {
        unix_s,
        relays: relays.len(),
        unknown_relays,
        capacity_gbit_per_s: capacity.as_mbit_per_s() / 1e3,
        largest_mbit_per_s: relays.iter().map(|relay| relay.1.as_mbit_per_s()).fold(0.0, f64::max),
        lower_bound_relays: relays.iter().filter(needs_more).count(),
        slots,
        hours: f64::from(slots) * f64::from(options.slot_s) / 3600.0,
    }
}

/// The staged networks of a dataset: each span's [`PARTS`].
///
/// # Errors
/// The dataset cannot be read.
pub fn staged(
    dataset: &Dataset,
    options: &ScheduleOptions,
) -> Result<Vec<[PlannedNetwork; 2]>, ArchiveError> {
    let mut relays = Relays::default();
    let rows: Vec<Staged> = dataset.read_all(&mut relays)?;
    let mut spans: Vec<u32> = rows.iter().map(|row| row.from_unix_s).collect();
    spans.sort_unstable();
    spans.dedup();
    let network = |span: u32, least: f64| {
        let of_span =
            rows.iter().filter(|row| row.from_unix_s == span && row.running_share >= least);
        let expected: Vec<Expected> = of_span
            .filter_map(|row| Some((relays.fingerprint(row.relay)?, capacities::of_staged(row))))
            .collect();
        plan(span.into(), &expected, 0, options)
    };
    Ok(spans.into_iter().map(|span| PARTS.map(|(_, least)| network(span, least))).collect())
}
