//! The record of a finished measurement: the one account of it that all others are made from.

use crate::allocation::{Allocation, MeasurerId};
use crate::bottleneck::MeasurerBottleneck;
use crate::failure::{Blame, Failure};
use crate::measurer_path::PathSeen;
use crate::mode::Mode;
use crate::outcome::{Bounds, Inconclusive, Outcome, ProcessorTime, tell_failure};
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
/// Plain data, from which tables, pages, JSON, lines of bandwidth files and rows of databases follow.
/// It is made once, by [`Record::new`], and what throws doubt on the result is in it from then on, so
/// that no two of those can contradict each other. Measurers are numbered as in the team that measured;
/// see [`in_team`](Self::in_team).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Who was measured.
    pub relay: Subject,
    /// When it ended, in Unix seconds.
    pub ended_unix_s: u64,
    /// How the relay was loaded.
    pub mode: Mode,
    /// The parameters that it was measured with.
    pub params: Params,
    /// All rounds, in their order; the first is number 1, and none is left out.
    pub rounds: Vec<RoundRecord>,
    /// What the relay's process used of the processors in its last round, where that was watched.
    pub processor: Option<ProcessorTime>,
    /// What it shares with others, if its estimate is its part of that ([`share_machine`](crate::share_machine)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Shared>,
    /// How it ended.
    pub end: End,
}

/// The relay that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// What it calls itself: not trusted, not unique.
    pub nickname: String,
    /// What it has proved to be.
    pub ids: RelayIds,
    /// Where it was measured.
    pub address: SocketAddr,
    /// The limit that it is known to have, if it is.
    pub limit: Option<Rate>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// Counted from one.
    pub number: u32,
    /// *z₀*: the capacity that it expected.
    pub guess: Rate,
    /// Who took part, with how much.
    pub allocation: Allocation,
    /// Which of its seconds count, and when its sockets began.
    #[serde(default = "plain")]
    pub schedule: Schedule,
    /// When it started, in Unix seconds; `None` if it did not, or if nobody looked.
    pub started_unix_s: Option<u64>,
    /// Cells whose content was checked and found right, over all measurers.
    pub checked_cells: u64,
    /// Measurers that something of their own held back, in a round of full length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hindered: Vec<MeasurerBottleneck>,
    /// The seconds, in their order, up to the last of which anything was said.
    pub seconds: Vec<SecondRecord>,
}

/// Of records that were made before there was any other.
const fn plain() -> Schedule {
    Schedule::PLAIN
}

/// How a measurement ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With an estimate.
    Measured {
        /// *z*, as in [`Estimate::capacity`](crate::Estimate).
        capacity: Rate,
        /// The round that it is of.
        round: u32,
        /// Why it is but a lower bound; `None` if it is conclusive.
        inconclusive: Option<Inconclusive>,
    },
    /// Without; the fields are those of [`Outcome::Failed`].
    Failed {
        /// Why.
        reason: Failure,
        /// The measurer concerned, if one is.
        measurer: Option<MeasurerId>,
        /// The round that was on.
        round: u32,
        /// The second that was on; `None` while the round was being prepared.
        second: Option<u32>,
    },
}

/// What is to be thought of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'r> {
    /// The capacity is known within its bounds.
    Conclusive,
    /// There is a lower bound, and why it is no more than that.
    LowerBound(&'r Inconclusive),
    /// There is nothing, and why.
    Failed(&'r Failure),
}

/// What the state machine knows of a measurement besides its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundHistory {
    /// How the relay was loaded.
    pub mode: Mode,
    /// The parameters.
    pub params: Params,
    /// The rounds that are over.
    pub rounds: Vec<RoundRecord>,
}

/// What a shell observed of a measurement, which the state machine was not told.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Who was measured.
    pub relay: Subject,
    /// When it ended, in Unix seconds.
    pub ended_unix_s: u64,
    /// What the relay's process used of the processors in its last round, where it was watched.
    pub processor: Option<ProcessorTime>,
    /// Rounds by number, and when they started, in Unix seconds.
    pub starts: Vec<(u32, u64)>,
    /// What the relay told somebody else of single seconds.
    pub hearsay: Vec<RelaySelfReport>,
}

/// What a relay told somebody else of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelaySelfReport {
    /// The round, counted from one.
    pub round: u32,
    /// The second, counted from zero.
    pub second: u32,
    /// What it passed on.
    pub rate: Rate,
}

impl RoundHistory {
    /// As [`Record::hindered`].
    #[must_use]
    pub fn hindered(&self) -> Vec<MeasurerBottleneck> {
        hindered(&self.rounds)
    }
}

impl Record {
    /// Whether the relay took all that it was given, so that another turn was to follow: the estimate is a bound for the time until
    /// then.
    #[must_use]
    pub const fn wants_another_turn(&self) -> bool {
        match &self.end {
            End::Measured { inconclusive: Some(reason), .. } => reason.next_turn().is_some(),
            End::Measured { inconclusive: None, .. } | End::Failed { .. } => false,
        }
    }

    /// The record of a measurement that has ended so. A conclusive estimate of a relay that its machine
    /// starved becomes a lower bound.
    #[must_use]
    pub fn new(facts: Facts, course: RoundHistory, outcome: &Outcome) -> Self {
        let RoundHistory { mode, params, rounds } = course;
        let Facts { relay, ended_unix_s, processor, starts, hearsay } = facts;
        let end = match outcome {
            Outcome::Measured(estimate) => End::Measured {
                capacity: estimate.capacity,
                round: estimate.rounds,
                inconclusive: estimate
                    .inconclusive
                    .or_else(|| doubt(estimate.capacity, relay.limit, processor?)),
            },
            Outcome::Failed { reason, measurer, round, second } => End::Failed {
                reason: reason.clone(),
                measurer: *measurer,
                round: *round,
                second: *second,
            },
        };
        let shared = None;
        let mut this = Self { relay, ended_unix_s, mode, params, rounds, processor, shared, end };
        for (number, unix_s) in starts {
            if let Some(round) = this.rounds.iter_mut().find(|it| it.number == number) {
                round.started_unix_s = Some(unix_s);
            }
        }
        for RelaySelfReport { round, second, rate } in hearsay {
            let mut seconds = this.rounds.iter_mut().filter(|it| it.number == round);
            let found = seconds.find_map(|it| it.seconds.iter_mut().find(|it| it.second == second));
            if let Some(found) = found {
                found.relay_said = Some(rate);
            }
        }
        this
    }

    /// The record of a turn, told of the team of which `allocation` was a share. Before, measurers were
    /// numbered by their places in it, and the share seemed to be all that the team had left.
    #[must_use]
    pub fn in_team(mut self, allocation: &Allocation) -> Self {
        let number = |id: &mut MeasurerId| *id = allocation.member(*id).unwrap_or(*id);
        for round in &mut self.rounds {
            round.allocation.available = allocation.available;
            round.allocation.assignments.iter_mut().for_each(|it| number(&mut it.measurer));
            round.hindered.iter_mut().for_each(|it| number(&mut it.measurer));
        }
        match &mut self.end {
            End::Measured { inconclusive, .. } => {
                if let Some(Inconclusive::MeasurerHindered { hindered, .. }) = inconclusive {
                    number(&mut hindered.measurer);
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

    /// This record of some rounds, and `later`, that of the same relay's following ones, as one. The
    /// later one says how it ended; but if the relay only did not want another round, the estimate stands
    /// that there was.
    #[must_use]
    pub fn followed_by(self, later: Self) -> Self {
        let Self { mut rounds, .. } = self;
        let is_refused = matches!(&later.end, End::Failed { reason, .. } if reason.is_not_now());
        let stands = is_refused && matches!(self.end, End::Measured { .. });
        rounds.extend(later.rounds);
        if stands { Self { rounds, ..self } } else { Self { rounds, ..later } }
    }

    /// The judgement.
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

    /// Why there is no estimate, if there is none.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        match &self.end {
            End::Measured { .. } => None,
            End::Failed { reason, .. } => Some(reason),
        }
    }

    /// Who is to blame for a failure.
    #[must_use]
    pub fn blame(&self) -> Option<Blame> {
        self.failure().map(Failure::blame)
    }

    /// Within which limits the true capacity lies, if there is an estimate; see
    /// [`Estimate::bounds`](crate::Estimate::bounds).
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        let is_conclusive = self.verdict() == Verdict::Conclusive;
        self.capacity().map(|capacity| Bounds::of(capacity, is_conclusive, &self.params))
    }

    /// The round that the estimate is of, if there is an estimate.
    #[must_use]
    pub fn decisive_round(&self) -> Option<&RoundRecord> {
        let End::Measured { round, .. } = self.end else { return None };
        self.rounds.iter().find(|it| it.number == round)
    }

    /// Below which estimate the decisive round's load was conclusive: Σ*aᵢ*(1−ε₁)/*m*.
    #[must_use]
    pub fn conclusive_limit(&self) -> Option<Rate> {
        let allocated = self.decisive_round()?.allocation.total();
        Some(self.params.conclusive_limit(allocated))
    }

    /// The seconds of a round that count and of which all have said all they had to, in order.
    pub fn totals<'r>(
        &self,
        round: &'r RoundRecord,
    ) -> impl Iterator<Item = SecondTotals> + use<'r> {
        let (mode, ratio) = (self.mode, self.params.ratio);
        let counted = round.seconds.iter().filter(|it| round.schedule.counts(it.second));
        counted.filter_map(move |second| second.totals(mode, ratio, &round.allocation.assignments))
    }

    /// How far the seconds of the decisive round lie apart, in bytes per second.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        let seconds = self.totals(self.decisive_round()?);
        let mut totals: Vec<u64> = seconds.map(|it| it.total()).collect();
        totals.sort_unstable();
        Spread::of(&totals)
    }

    /// What the decisive round's sockets brought back by halves, if every other one began later.
    #[must_use]
    pub fn halves(&self) -> Option<SocketRampTest> {
        let round = self.decisive_round()?;
        round.schedule.halves(&self.totals(round).collect::<Vec<_>>())
    }

    /// The measurers that something of their own held back, each by the first round in which it did: later ones ask
    /// them for no more than they can do.
    #[must_use]
    pub fn hindered(&self) -> Vec<MeasurerBottleneck> {
        hindered(&self.rounds)
    }

    /// What those who took part have seen of their paths to the relay.
    #[must_use]
    pub fn paths(&self) -> BTreeMap<MeasurerId, PathSeen> {
        PathSeen::in_rounds(&self.rounds, &self.params)
    }

    /// The median of what the relay told somebody else of the decisive round's seconds.
    #[must_use]
    pub fn relay_said(&self) -> Option<Rate> {
        median_rate(self.decisive_round()?.seconds.iter().filter_map(|it| it.relay_said))
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            End::Measured { capacity, inconclusive, .. } => match inconclusive {
                None => {
                    write!(f, "{capacity}")?;
                    self.hindered().iter().try_for_each(|it| write!(f, "; {it}"))
                }
                Some(reason) => write!(f, "at least {capacity}: {reason}"),
            }
            .and_then(|()| self.shared.iter().try_for_each(|it| write!(f, "; {it}"))),
            End::Failed { reason, measurer, round, second } => {
                tell_failure(f, reason, *measurer, *round, *second)
            }
        }
    }
}

fn hindered(rounds: &[RoundRecord]) -> Vec<MeasurerBottleneck> {
    let mut all: Vec<MeasurerBottleneck> = Vec::new();
    for it in rounds.iter().flat_map(|round| &round.hindered) {
        if all.iter().all(|known| known.measurer != it.measurer) {
            all.push(*it);
        }
    }
    all
}

/// Why not to believe that a relay's capacity was seen: on a machine that it shares with others, a
/// relay that came neither to its limit nor to the end of a processor was held back by something else.
fn doubt(seen: Rate, limit: Option<Rate>, processor: ProcessorTime) -> Option<Inconclusive> {
    /// Stock tor passes some nine tenths of its limit; with less than this it does not come near.
    const LIMIT_REACHED: f64 = 0.75;
    const PROCESSOR_REACHED: f64 = 0.9;
    let is_at_limit = limit.is_some_and(|limit| seen > limit.scaled(LIMIT_REACHED));
    let is_busy = processor.share() > PROCESSOR_REACHED;
    (!is_at_limit && !is_busy).then_some(Inconclusive::RelayStarved { processor })
}

#[cfg(test)]
mod tests;
