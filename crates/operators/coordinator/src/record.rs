//! The record of a finished measurement, from which all other representations are derived.

use crate::allocation::{Allocation, MeasurerId};
use crate::bottleneck::MeasurerBottleneck;
use crate::failure::{Blame, Failure};
use crate::measurer_path::PathSeen;
use crate::mode::Mode;
use crate::outcome::{Bounds, Estimate, Inconclusive, Outcome, ProcessorTime, fmt_failure};
use crate::params::Params;
use crate::second::{SecondRecord, SecondTotals};
use crate::shared::Shared;
use crate::socket_ramp::{Schedule, SocketRampTest};
use crate::stats::{Spread, median_rate};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use onion::Rate;
use onion::identity::RelayIds;
use serde::{Deserialize, Serialize};

/// A finished measurement of a relay.
///
/// Plain data, from which tables, pages, JSON, lines of bandwidth files and database rows are derived. [`Record::new`]
/// makes it once and includes all doubts about the result, so that no two of those representations contradict each
/// other. Measurers are numbered as in the team that measured; see [`in_team`](Self::in_team).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The measured relay.
    pub relay: Subject,
    /// The end of the measurement, in Unix seconds.
    pub ended_unix_s: u64,
    /// How the relay was loaded.
    pub mode: Mode,
    /// The parameters of the measurement.
    pub params: Params,
    /// All rounds, in order, from number 1 without gaps.
    pub rounds: Vec<RoundRecord>,
    /// The processor time of the relay's process in the last round, if observed.
    pub processor: Option<ProcessorTime>,
    /// The machine that it shares, if its estimate is its share of that machine
    /// ([`share_machine`](crate::share_machine)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Shared>,
    /// The outcome.
    pub end: End,
}

/// The measured relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The relay's nickname: neither trusted nor unique.
    pub nickname: String,
    /// The identities that it has proved.
    pub ids: RelayIds,
    /// The address at which it was measured.
    pub address: SocketAddr,
    /// Its known limit, if any.
    pub limit: Option<Rate>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// Counted from one.
    pub number: u32,
    /// *z₀*: the capacity that it expected.
    pub guess: Rate,
    /// The measurers that took part, each with its share.
    pub allocation: Allocation,
    /// The seconds that count, and when the sockets started.
    #[serde(default = "plain")]
    pub schedule: Schedule,
    /// The start, in Unix seconds; `None` if it did not start or if the start was not observed.
    pub started_unix_s: Option<u64>,
    /// The number of cells whose content was checked and correct, over all measurers.
    pub checked_cells: u64,
    /// Measurers that were held back by a cause of their own, in a round of full length.
    #[serde(default, alias = "hindered", skip_serializing_if = "Vec::is_empty")]
    pub bottlenecks: Vec<MeasurerBottleneck>,
    /// The seconds, in order, up to the last with any report.
    pub seconds: Vec<SecondRecord>,
}

/// For records that predate the other variants.
const fn plain() -> Schedule {
    Schedule::PLAIN
}

/// The outcome of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// There is an estimate.
    Measured {
        /// *z*, as in [`Estimate::capacity`](crate::Estimate).
        capacity: Rate,
        /// The round of the estimate.
        round: u32,
        /// The reason why it is only a lower bound; `None` if it is conclusive.
        inconclusive: Option<Inconclusive>,
    },
    /// There is no estimate. The fields are those of [`Outcome::Failed`].
    Failed {
        /// The reason.
        reason: Failure,
        /// The measurer concerned, if any.
        measurer: Option<MeasurerId>,
        /// The round of the failure.
        round: u32,
        /// The second of the failure; `None` if the round was being prepared.
        second: Option<u32>,
    },
}

/// The verdict on a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'r> {
    /// The capacity is known within its bounds.
    Conclusive,
    /// There is a lower bound, and the reason why it is not conclusive.
    LowerBound(&'r Inconclusive),
    /// There is no estimate, and the reason.
    Failed(&'r Failure),
}

/// The state machine's data about a measurement, besides its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundHistory {
    /// How the relay was loaded.
    pub mode: Mode,
    /// The parameters.
    pub params: Params,
    /// The finished rounds.
    pub rounds: Vec<RoundRecord>,
}

/// The relay and the times of a measurement, which its state machine does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The measured relay.
    pub relay: Subject,
    /// The end of the measurement, in Unix seconds.
    pub ended_unix_s: u64,
    /// Round numbers, and when each round started, in Unix seconds.
    pub starts: Vec<(u32, u64)>,
}

/// What a witness other than the measurers saw of a relay while it was measured, such as its control port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations {
    /// The relay's known limit, if any.
    pub limit: Option<Rate>,
    /// The processor time of the relay's process in the last round, if observed.
    pub processor: Option<ProcessorTime>,
    /// The relay's reports about single seconds to another party.
    pub hearsay: Vec<RelaySelfReport>,
}

/// A relay's report about a second to another party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelaySelfReport {
    /// The round, counted from one.
    pub round: u32,
    /// The second, counted from zero.
    pub second: u32,
    /// The traffic that it forwarded.
    pub rate: Rate,
}

impl RoundHistory {
    /// As [`Record::bottlenecks`].
    #[must_use]
    pub fn bottlenecks(&self) -> Vec<MeasurerBottleneck> {
        bottlenecks(&self.rounds)
    }
}

impl Record {
    /// Whether the relay took all of the load, so that another turn was to follow. Until then the estimate is a lower
    /// bound.
    #[must_use]
    pub const fn wants_another_turn(&self) -> bool {
        match &self.end {
            End::Measured { inconclusive: Some(reason), .. } => reason.next_turn().is_some(),
            End::Measured { inconclusive: None, .. } | End::Failed { .. } => false,
        }
    }

    /// The record of a measurement with this outcome.
    #[must_use]
    pub fn new(facts: Facts, course: RoundHistory, outcome: &Outcome) -> Self {
        let RoundHistory { mode, params, rounds } = course;
        let Facts { relay, ended_unix_s, starts } = facts;
        let end = match outcome {
            Outcome::Measured(estimate) => End::Measured {
                capacity: estimate.capacity,
                round: estimate.rounds,
                inconclusive: estimate.inconclusive,
            },
            Outcome::Failed { reason, measurer, round, second } => End::Failed {
                reason: reason.clone(),
                measurer: *measurer,
                round: *round,
                second: *second,
            },
        };
        let (processor, shared) = (None, None);
        let mut this = Self { relay, ended_unix_s, mode, params, rounds, processor, shared, end };
        for (number, unix_s) in starts {
            if let Some(round) = this.rounds.iter_mut().find(|round| round.number == number) {
                round.started_unix_s = Some(unix_s);
            }
        }
        this
    }

    /// The record with what a witness saw. If other processes on the relay's machine left it too little processor time,
    /// a conclusive estimate becomes a lower bound.
    #[must_use]
    pub fn observed(mut self, observations: Observations) -> Self {
        let Observations { limit, processor, hearsay } = observations;
        self.relay.limit = limit;
        self.processor = processor;
        if let (End::Measured { capacity, inconclusive, .. }, Some(processor)) =
            (&mut self.end, processor)
        {
            *inconclusive = inconclusive.take().or_else(|| doubt(*capacity, limit, processor));
        }
        for RelaySelfReport { round, second, rate } in hearsay {
            let mut seconds = self.rounds.iter_mut().filter(|record| record.number == round);
            let found = seconds
                .find_map(|record| record.seconds.iter_mut().find(|entry| entry.second == second));
            if let Some(found) = found {
                found.relay_reported = Some(rate);
            }
        }
        self
    }

    /// Converts the record of a turn to the team of which `allocation` was a share. Before the call, measurers are
    /// numbered by their places in the allocation, and the share counts as the team's whole remaining capacity.
    #[must_use]
    pub fn in_team(mut self, allocation: &Allocation) -> Self {
        let number = |id: &mut MeasurerId| *id = allocation.member(*id).unwrap_or(*id);
        for round in &mut self.rounds {
            round.allocation.available = allocation.available;
            round
                .allocation
                .assignments
                .iter_mut()
                .for_each(|assignment| number(&mut assignment.measurer));
            round.bottlenecks.iter_mut().for_each(|bottleneck| number(&mut bottleneck.measurer));
        }
        match &mut self.end {
            End::Measured { inconclusive, .. } => {
                if let Some(Inconclusive::MeasurerLimited { bottleneck, .. }) = inconclusive {
                    number(&mut bottleneck.measurer);
                }
            }
            End::Failed { measurer, .. } => {
                if let Some(measurer) = measurer {
                    number(measurer);
                }
            }
        }
        self
    }

    /// Joins this record and `later`, that of the same relay's following rounds. The outcome is that of `later`; but if
    /// the relay only declined another round, the existing estimate remains valid.
    #[must_use]
    pub fn followed_by(self, later: Self) -> Self {
        let Self { mut rounds, .. } = self;
        let is_refused = matches!(&later.end, End::Failed { reason, .. } if reason.is_not_now());
        let remains_valid = is_refused && matches!(self.end, End::Measured { .. });
        rounds.extend(later.rounds);
        if remains_valid { Self { rounds, ..self } } else { Self { rounds, ..later } }
    }

    /// The outcome, with the seconds of the last round.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match &self.end {
            End::Measured { capacity, round, inconclusive } => {
                let decisive = self.decisive_round();
                Outcome::Measured(Estimate {
                    capacity: *capacity,
                    inconclusive: *inconclusive,
                    rounds: *round,
                    allocated: decisive.map_or(Rate::ZERO, |round| round.allocation.total()),
                    seconds: decisive.into_iter().flat_map(|round| self.totals(round)).collect(),
                    spread: self.spread().unwrap_or_default(),
                    checked_cells: decisive.map_or(0, |round| round.checked_cells),
                    mode: self.mode,
                    params: self.params,
                })
            }
            End::Failed { reason, measurer, round, second } => Outcome::Failed {
                reason: reason.clone(),
                measurer: *measurer,
                round: *round,
                second: *second,
            },
        }
    }

    /// The verdict.
    #[must_use]
    pub const fn verdict(&self) -> Verdict<'_> {
        match &self.end {
            End::Measured { inconclusive: None, .. } => Verdict::Conclusive,
            End::Measured { inconclusive: Some(reason), .. } => Verdict::LowerBound(reason),
            End::Failed { reason, .. } => Verdict::Failed(reason),
        }
    }

    /// *z*, if there is an estimate.
    #[must_use]
    pub const fn capacity(&self) -> Option<Rate> {
        match self.end {
            End::Measured { capacity, .. } => Some(capacity),
            End::Failed { .. } => None,
        }
    }

    /// The reason why there is no estimate, if there is none.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        match &self.end {
            End::Measured { .. } => None,
            End::Failed { reason, .. } => Some(reason),
        }
    }

    /// The component to blame for a failure.
    #[must_use]
    pub fn blame(&self) -> Option<Blame> {
        self.failure().map(Failure::blame)
    }

    /// The bounds of the true capacity, if there is an estimate; see [`Estimate::bounds`](crate::Estimate::bounds).
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        let is_conclusive = self.verdict() == Verdict::Conclusive;
        self.capacity().map(|capacity| Bounds::new(capacity, is_conclusive, &self.params))
    }

    /// The round of the estimate, if there is one.
    #[must_use]
    pub fn decisive_round(&self) -> Option<&RoundRecord> {
        let End::Measured { round, .. } = self.end else { return None };
        self.rounds.iter().find(|record| record.number == round)
    }

    /// The largest estimate for which the decisive round's load is conclusive: Σ*aᵢ*(1−ε₁)/*m*.
    #[must_use]
    pub fn conclusive_limit(&self) -> Option<Rate> {
        let allocated = self.decisive_round()?.allocation.total();
        Some(self.params.conclusive_limit(allocated))
    }

    /// The seconds of a round that count and for which all reports have arrived, in order.
    pub fn totals<'r>(
        &self,
        round: &'r RoundRecord,
    ) -> impl Iterator<Item = SecondTotals> + use<'r> {
        let (mode, ratio) = (self.mode, self.params.ratio);
        let counted = round.seconds.iter().filter(|second| round.schedule.counts(second.second));
        counted.filter_map(move |second| second.totals(mode, ratio, &round.allocation.assignments))
    }

    /// The spread of the decisive round's seconds, in bytes per second.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        let seconds = self.totals(self.decisive_round()?);
        let mut totals: Vec<u64> = seconds.map(|seconds| seconds.total()).collect();
        totals.sort_unstable();
        Spread::from_sorted(&totals)
    }

    /// The rates of both halves of the decisive round, if every other socket started later.
    #[must_use]
    pub fn halves(&self) -> Option<SocketRampTest> {
        let round = self.decisive_round()?;
        round.schedule.halves(&self.totals(round).collect::<Vec<_>>())
    }

    /// The measurers that were held back by a cause of their own, each with the first round in which it was. Later
    /// rounds assign them no more than they can carry.
    #[must_use]
    pub fn bottlenecks(&self) -> Vec<MeasurerBottleneck> {
        bottlenecks(&self.rounds)
    }

    /// The participating measurers' observations of their paths to the relay.
    #[must_use]
    pub fn paths(&self) -> BTreeMap<MeasurerId, PathSeen> {
        PathSeen::in_rounds(&self.rounds, &self.params)
    }

    /// The median of the relay's reports to another party about the decisive round's seconds.
    #[must_use]
    pub fn relay_reported(&self) -> Option<Rate> {
        median_rate(
            self.decisive_round()?.seconds.iter().filter_map(|second| second.relay_reported),
        )
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            End::Measured { capacity, inconclusive, .. } => match inconclusive {
                None => {
                    write!(f, "{capacity}")?;
                    self.bottlenecks().iter().try_for_each(|bottleneck| write!(f, "; {bottleneck}"))
                }
                Some(reason) => write!(f, "at least {capacity}: {reason}"),
            }
            .and_then(|()| self.shared.iter().try_for_each(|shared| write!(f, "; {shared}"))),
            End::Failed { reason, measurer, round, second } => {
                fmt_failure(f, reason, *measurer, *round, *second)
            }
        }
    }
}

fn bottlenecks(rounds: &[RoundRecord]) -> Vec<MeasurerBottleneck> {
    let mut all: Vec<MeasurerBottleneck> = Vec::new();
    for bottleneck in rounds.iter().flat_map(|round| &round.bottlenecks) {
        if all.iter().all(|known| known.measurer != bottleneck.measurer) {
            all.push(*bottleneck);
        }
    }
    all
}

/// The doubt about the estimate of a relay that shares its machine and reached neither its limit nor the limit of a
/// processor. Something else held it back.
fn doubt(seen: Rate, limit: Option<Rate>, processor: ProcessorTime) -> Option<Inconclusive> {
    /// C tor forwards about nine tenths of its limit. A relay below this share has not reached the limit.
    const LIMIT_REACHED: f64 = 0.75;
    const PROCESSOR_REACHED: f64 = 0.9;
    let is_at_limit = limit.is_some_and(|limit| seen > limit.scaled(LIMIT_REACHED));
    let is_busy = processor.share() > PROCESSOR_REACHED;
    (!is_at_limit && !is_busy).then_some(Inconclusive::RelayStarved { processor })
}

#[cfg(test)]
mod tests;
