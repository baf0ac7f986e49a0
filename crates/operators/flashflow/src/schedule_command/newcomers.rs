//! Relays that are new in a later consensus.

use super::network::{Network, Relay, relays};
use super::settings::Settings;
use cli::Error;
use coordinator::plan::{Admission, Plan};
use coordinator::{Percentile, Priority};
use link::unix_time_s;
use onion::Rate;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// The waiting times of new relays.
pub(super) struct Newcomers {
    /// Relays that the first consensus did not have.
    new: usize,
    /// Relays that only the first one has.
    gone: usize,
    /// The first guess of a new relay's capacity.
    guess: Rate,
    /// From the later consensus to the last team's slot, in seconds, ascending.
    waits_s: Vec<u64>,
    /// Measured with the machine that they share.
    joined: usize,
    /// Not in this period.
    next_period: usize,
    slot_s: u32,
    /// Measurements of old relays that have another slot now.
    moved: usize,
}

/// How long new relays wait.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NewcomersLine {
    /// Relays that the first consensus did not have.
    new: usize,
    /// Relays that only the first one has.
    gone: usize,
    /// The expected capacity of a new relay.
    guess_mbit_per_s: f64,
    /// New relays with a slot.
    placed: usize,
    /// New relays that are measured with the machine that they share.
    joined: usize,
    /// New relays without a slot in this period.
    next_period: usize,
    /// The median time until the slot begins.
    wait_median_s: Option<u64>,
    /// The longest time until the slot begins.
    wait_max_s: Option<u64>,
    /// The median time until the slot ends.
    measured_after_median_s: Option<u64>,
    /// The longest time until the slot ends.
    measured_after_max_s: Option<u64>,
    /// Measurements of old relays that have another slot now.
    moved: usize,
}

impl Newcomers {
    /// Admits the new relays of a later consensus, as in section 7 of the paper.
    pub(super) fn admit(
        plan: &mut Plan,
        network: &Network,
        next: &Path,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let (valid_after, later) = relays(
            &documents::consensus(next, unix_time_s())?,
            format_args!("the consensus in {}", next.display()),
        )?;
        let Some(passed_s) = valid_after.checked_sub(network.valid_after) else {
            let problem = format!("{} is older than the consensus before it", next.display());
            return Err(Error::Usage(problem));
        };
        let from = u32::try_from(passed_s.div_ceil(u64::from(settings.slot_s))).unwrap_or(u32::MAX);
        plan.extend_to(settings.period_s / settings.slot_s);
        let mut known: Vec<Rate> = network.relays.iter().map(|relay| relay.guess).collect();
        known.sort_unstable();
        let guess = Percentile::P75.of(&known).unwrap_or_default();
        let here: BTreeSet<_> = later.iter().map(|relay| relay.id).collect();
        let is_new = |relay: &Relay| network.relay(relay.id).is_none();
        let new: BTreeSet<_> =
            later.iter().filter(|relay| is_new(relay)).map(|relay| relay.id).collect();
        let all: Vec<Relay> = later
            .iter()
            .map(|relay| {
                network.relay(relay.id).map_or(Relay { guess, ..relay.clone() }, Relay::clone)
            })
            .collect();
        let before = plan.places();
        let mut found = Self {
            new: new.len(),
            gone: network.relays.iter().filter(|relay| !here.contains(&relay.id)).count(),
            guess,
            waits_s: Vec::new(),
            joined: 0,
            next_period: 0,
            slot_s: settings.slot_s,
            moved: 0,
        };
        for machine in network.together(&all) {
            let news = machine.relays().filter(|relay| new.contains(relay)).count();
            if news > 0 {
                found.count(plan.admit(&machine, Priority::New, from), news, from);
            }
        }
        let after: BTreeSet<_> = plan.places().into_iter().collect();
        found.moved = before.iter().filter(|place| !after.contains(place)).count();
        found.waits_s.sort_unstable();
        Ok(found)
    }

    fn count(&mut self, admission: Admission, news: usize, from: u32) {
        match admission {
            Admission::Placed(slot) => {
                let wait_s = u64::from(slot.saturating_sub(from)) * u64::from(self.slot_s);
                self.waits_s.extend(std::iter::repeat_n(wait_s, news));
            }
            Admission::Joined => self.joined += news,
            Admission::NextPeriod => self.next_period += news,
        }
    }

    fn median_s(&self) -> Option<u64> {
        self.waits_s.get(self.waits_s.len().checked_sub(1)? / 2).copied()
    }

    pub(super) fn line(&self) -> NewcomersLine {
        let done_after = |wait_s: Option<u64>| wait_s.map(|wait_s| wait_s + u64::from(self.slot_s));
        NewcomersLine {
            new: self.new,
            gone: self.gone,
            guess_mbit_per_s: self.guess.as_mbit_per_s(),
            placed: self.waits_s.len(),
            joined: self.joined,
            next_period: self.next_period,
            wait_median_s: self.median_s(),
            wait_max_s: self.waits_s.last().copied(),
            measured_after_median_s: done_after(self.median_s()),
            measured_after_max_s: done_after(self.waits_s.last().copied()),
            moved: self.moved,
        }
    }
}

impl fmt::Display for Newcomers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize, thing: &str| report::plural(count as u64, thing);
        write!(f, "{}, {} gone; ", plural(self.new, "new relay"), self.gone)?;
        match (self.median_s(), self.waits_s.last()) {
            (Some(median_s), Some(most_s)) => write!(
                f,
                "with {:.1} Mbit/s each, {} are measured within {} s in the median, {} s at most",
                self.guess.as_mbit_per_s(),
                self.waits_s.len(),
                median_s + u64::from(self.slot_s),
                most_s + u64::from(self.slot_s),
            )?,
            _ => f.write_str("none has a slot in this period")?,
        }
        write!(
            f,
            "; with a machine that is planned: {}, in the next period: {}; {} of old ones moved",
            self.joined,
            self.next_period,
            plural(self.moved, "measurement")
        )
    }
}
