//! How the measurement of a relay ended.

use crate::allocation::MeasurerId;
use crate::bottleneck::MeasurerBottleneck;
use crate::failure::{Blame, Failure};
use crate::mode::Mode;
use crate::params::Params;
use crate::second::SecondTotals;
use crate::stats::Spread;
use crate::turn::Attempt;
use alloc::vec::Vec;
use core::fmt;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// How the measurement of a relay ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With an estimate.
    Measured(Estimate),
    /// Without.
    Failed {
        /// Why.
        reason: Failure,
        /// The measurer that said so, or that failed; `None` if none is concerned.
        measurer: Option<MeasurerId>,
        /// The round that was on, counted from one.
        round: u32,
        /// The second that was on, counted from zero; `None` while the round was being prepared.
        second: Option<u32>,
    },
}

impl Outcome {
    /// The estimate, if there is one.
    #[must_use]
    pub const fn estimate(&self) -> Option<&Estimate> {
        match self {
            Self::Measured(estimate) => Some(estimate),
            Self::Failed { .. } => None,
        }
    }

    /// Who is to blame for a failure.
    #[must_use]
    pub const fn blame(&self) -> Option<Blame> {
        match self {
            Self::Measured(_) => None,
            Self::Failed { reason, .. } => Some(reason.blame()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(estimate) => estimate.fmt(f),
            Self::Failed { reason, measurer, round, second } => {
                tell_failure(f, reason, *measurer, *round, *second)
            }
        }
    }
}

pub(crate) fn tell_failure(
    f: &mut fmt::Formatter<'_>,
    reason: &Failure,
    measurer: Option<MeasurerId>,
    round: u32,
    second: Option<u32>,
) -> fmt::Result {
    write!(f, "failed in round {round}")?;
    if let Some(second) = second {
        write!(f, ", second {second}")?;
    }
    if let Some(measurer) = measurer {
        write!(f, ", {measurer}")?;
    }
    write!(f, ": {reason}")
}

/// What a relay can carry, as far as the team could find out.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// *z*: the median over the seconds of a round (§4.1), or their mean if that is less, so that
    /// nobody has more for serving only the seconds that decide. Never zero. Of several complete rounds it is the most: a stock relay
    /// is slower over more sockets, which later rounds have.
    ///
    /// Of a round that ended early ([`Inconclusive::LoadTooSmall`]), what it would have reached for
    /// certain.
    pub capacity: Rate,
    /// Why the estimate is but a lower bound; `None` if it is conclusive (§4.2).
    pub inconclusive: Option<Inconclusive>,
    /// Rounds it took, the last one included.
    pub rounds: u32,
    /// Σ*aᵢ* of the last round.
    pub allocated: Rate,
    /// The last round, second by second, as far as it went.
    pub seconds: Vec<SecondTotals>,
    /// How far the seconds' totals lie apart, in bytes per second.
    pub spread: Spread,
    /// Cells of the last round whose content was checked and found right.
    pub checked_cells: u64,
    /// How the relay was loaded. In [`Mode::Transit`] client traffic is not counted, so a
    /// conclusive estimate too is a lower bound of the capacity of a relay that has clients.
    pub mode: Mode,
    /// The parameters it was measured with.
    pub params: Params,
}

/// What a process used of the processors while it was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorTime {
    /// Processor time, over all its threads.
    pub used: Duration,
    /// The time that passed meanwhile, above zero.
    pub passed: Duration,
}

impl ProcessorTime {
    /// Processor time within a time; `None` if none passed.
    #[must_use]
    pub fn within(used: Duration, passed: Duration) -> Option<Self> {
        (passed > Duration::ZERO).then_some(Self { used, passed })
    }

    /// The share of one core that it used, from zero to one or a little more, with several threads.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.used.as_secs_f64() / self.passed.as_secs_f64()
    }
}

/// Within which limits a true capacity lies, ends excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// It is more than this.
    pub lower: Rate,
    /// It is less than this; `None` if nothing is known.
    pub upper: Option<Rate>,
}

impl Bounds {
    pub(crate) fn of(capacity: Rate, is_conclusive: bool, params: &Params) -> Self {
        let upper = capacity.scaled(1.0 / (1.0 - params.epsilon_below));
        Self {
            lower: capacity.scaled(1.0 / (1.0 + params.epsilon_above)),
            upper: is_conclusive.then_some(upper),
        }
    }
}

impl Estimate {
    /// Whether the load was large enough that no other capacity could have looked like this one.
    #[must_use]
    pub const fn is_conclusive(&self) -> bool {
        self.inconclusive.is_none()
    }

    /// The true capacity lies between *z*/(1+ε₂) and *z*/(1−ε₁) (§4.2); an inconclusive estimate
    /// has no upper bound. In transit mode this is about the capacity that clients left unused.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds::of(self.capacity, self.is_conclusive(), &self.params)
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inconclusive {
            None => write!(f, "{}", self.capacity)?,
            Some(reason) => write!(f, "at least {} ({reason})", self.bounds().lower)?,
        }
        match self.mode {
            Mode::Echo => Ok(()),
            Mode::Transit => f.write_str(", client traffic not counted"),
        }
    }
}

/// Why an estimate is not conclusive. It still is a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inconclusive {
    /// All of the team's capacity was in use.
    #[error(
        "the team is too small: it takes at least {needed} of measurers, there are {available}"
    )]
    TeamTooSmall {
        /// *f·z*: at least this takes it to measure a relay that is as fast as was seen.
        needed: Rate,
        /// What the team had left for this relay.
        available: Rate,
    },
    /// Something of a measurer's own held it back, and what the others sent was too little to show the relay's
    /// limit.
    #[error("{hindered}, and no other could show the relay's limit")]
    MeasurerHindered {
        /// The first of them.
        hindered: MeasurerBottleneck,
        /// What was to follow, with more of the others; `None` where there is no more of them, or no other
        /// round.
        next: Option<Attempt>,
    },
    /// A single measurer took part, and a queue stood on its path, or it is far from the relay. With another it would show
    /// whether what was narrow was the relay's.
    #[error(
        "packets waited {queue_ms} ms on the path of the only measurer, and nobody could tell whether what is narrow \
         is the relay's"
    )]
    QueueOfOne {
        /// How long they waited, in whole milliseconds.
        queue_ms: u32,
        /// What was to follow, with two measurers; `None` where there may be no other round.
        next: Option<Attempt>,
    },
    /// The last permitted round was not conclusive either.
    #[error("still inconclusive after {rounds} rounds, the most permitted")]
    RoundLimit {
        /// [`Params::max_rounds`].
        rounds: u32,
    },
    /// The round's load was too small, and the relay's next turn, which would have had more, did not
    /// come to anything.
    #[error("the load was too small to tell, and a round with more of it did not come about")]
    LoadTooSmall {
        /// What was to follow.
        next: Attempt,
    },
    /// More came back as soon as there were more sockets: the path to the relay or back, and not the relay,
    /// held the round back.
    #[error(
        "the path to the relay held it back: with all {sockets} sockets {growth_percent} % more came \
         back than with half of them"
    )]
    PathLimited {
        /// How much more, in percent.
        growth_percent: u32,
        /// Sockets of the round.
        sockets: u32,
        /// What was to follow, with more of them; `None` where there may be no more, or no other round.
        next: Option<Attempt>,
    },
    /// What came back rose or fell while nothing changed: the path's flows were not yet as fast as the path lets them be, or
    /// still faster, so that what came back with more of them tells nothing.
    #[error(
        "the path to the relay had not settled: what came back changed by {change_percent} %, with no more sockets than \
         before or with all {sockets} instead of half of them"
    )]
    PathSettling {
        /// By how much, in percent.
        change_percent: u32,
        /// Sockets of the round.
        sockets: u32,
        /// What was to follow, with more of them; `None` where there may be no more, or no other round.
        next: Option<Attempt>,
    },
    /// Some measurer is far from the relay, and the round was not made to show whether the path held it back.
    #[error(
        "a measurer is {rtt_ms} ms from the relay, and the round could not show whether the path to it held it back"
    )]
    PathUnknown {
        /// The round trip, in whole milliseconds.
        rtt_ms: u32,
        /// What was to follow, which would show it; `None` where there may be no other round.
        next: Option<Attempt>,
    },
    /// The relay served some seconds and not others.
    #[error(
        "it was unsteady: {} of {} in the middle second came in the mean of all",
        Rate::from_byte_per_s(*mean), Rate::from_byte_per_s(*median)
    )]
    Unsteady {
        /// The mean of the seconds, bytes per second.
        mean: u64,
        /// Their median, bytes per second.
        median: u64,
    },
    /// The relay's own process, on a machine that it shares with others, came neither near its
    /// configured limit nor near the end of a processor.
    #[error(
        "the relay's process got only {:.0} % of a core: this machine, not the relay, was the \
         bottleneck",
        processor.share() * 100.0
    )]
    RelayStarved {
        /// What it got.
        processor: ProcessorTime,
    },
}

/// A mean below this share of the median is that of a relay that did not serve all seconds. One that fails
/// three of thirty has it; stock relays with a rate limit have 0.98 or more.
const STEADY_SHARE: f64 = 0.9;

impl Inconclusive {
    /// The turn that was to follow, if one was.
    #[must_use]
    pub const fn next_turn(&self) -> Option<Attempt> {
        match self {
            Self::LoadTooSmall { next } => Some(*next),
            Self::PathLimited { next, .. }
            | Self::PathSettling { next, .. }
            | Self::PathUnknown { next, .. }
            | Self::MeasurerHindered { next, .. }
            | Self::QueueOfOne { next, .. } => *next,
            _ => None,
        }
    }

    /// The doubt about a relay that did not serve all seconds alike, of which `median` and `mean` are in
    /// bytes per second.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn unsteadiness(median: u64, mean: u64) -> Option<Self> {
        let is_steady = mean as f64 >= STEADY_SHARE * median as f64;
        (!is_steady).then_some(Self::Unsteady { mean, median })
    }
}
