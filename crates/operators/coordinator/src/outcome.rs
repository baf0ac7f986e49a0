//! The outcome of a relay's measurement.

use crate::account::Waited;
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

/// The outcome of a relay's measurement.
#[expect(clippy::large_enum_variant, reason = "a measurement has one at a time")]
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// There is an estimate.
    Measured(Estimate),
    /// There is no estimate.
    Failed {
        /// The reason.
        reason: Failure,
        /// The measurer that failed or reported the failure; `None` if no measurer is concerned.
        measurer: Option<MeasurerId>,
        /// The round of the failure, counted from one.
        round: u32,
        /// The second of the failure, counted from zero; `None` if the round was being prepared.
        second: Option<u32>,
    },
}

impl Outcome {
    /// The estimate, if any.
    #[must_use]
    pub const fn estimate(&self) -> Option<&Estimate> {
        match self {
            Self::Measured(estimate) => Some(estimate),
            Self::Failed { .. } => None,
        }
    }

    /// The component to blame for a failure.
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
                fmt_failure(f, reason, *measurer, *round, *second)
            }
        }
    }
}

pub(crate) fn fmt_failure(
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

/// The capacity of a relay, as far as the team could determine it.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// *z*: the median over the seconds of a round (§4.1), or their mean if that is less, so that a relay gains nothing
    /// if it serves only the seconds that decide. Never zero. Of several complete rounds, the largest: C tor is slower
    /// over more sockets, which later rounds have.
    ///
    /// For a round that ended early ([`Inconclusive::LoadTooSmall`]), the value that it would certainly have reached.
    pub capacity: Rate,
    /// The reason why the estimate is only a lower bound; `None` if it is conclusive (§4.2).
    pub inconclusive: Option<Inconclusive>,
    /// The number of rounds, including the last.
    pub rounds: u32,
    /// Σ*aᵢ* of the last round.
    pub allocated: Rate,
    /// The seconds of the last round.
    pub seconds: Vec<SecondTotals>,
    /// The spread of the seconds' totals, in bytes per second.
    pub spread: Spread,
    /// The number of cells of the last round whose content was checked and correct.
    pub checked_cells: u64,
    /// How the relay was loaded. [`Mode::Transit`] does not count client traffic, so an estimate in transit is conclusive
    /// only if the relay is known to have no clients ([`Params::may_have_clients`]).
    pub mode: Mode,
    /// The parameters of the measurement.
    pub params: Params,
}

/// The processor time that a process used during an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorTime {
    /// Processor time, over all its threads.
    pub used: Duration,
    /// The duration of the observation, above zero.
    pub passed: Duration,
}

impl ProcessorTime {
    /// Processor time within a duration; `None` if the duration is zero.
    #[must_use]
    pub fn within(used: Duration, passed: Duration) -> Option<Self> {
        (passed > Duration::ZERO).then_some(Self { used, passed })
    }

    /// The share of one core that it used, from zero to one, or slightly more with several threads.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.used.as_secs_f64() / self.passed.as_secs_f64()
    }
}

/// The bounds of a true capacity, exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The lower bound.
    pub lower: Rate,
    /// The upper bound; `None` if there is none.
    pub upper: Option<Rate>,
}

impl Bounds {
    pub(crate) fn new(capacity: Rate, is_conclusive: bool, params: &Params) -> Self {
        let upper = capacity.scaled(1.0 / (1.0 - params.epsilon_below));
        Self {
            lower: capacity.scaled(1.0 / (1.0 + params.epsilon_above)),
            upper: is_conclusive.then_some(upper),
        }
    }
}

impl Estimate {
    /// Whether the load was large enough to rule out any other capacity.
    #[must_use]
    pub const fn is_conclusive(&self) -> bool {
        self.inconclusive.is_none()
    }

    /// The true capacity lies between *z*/(1+ε₂) and *z*/(1−ε₁) (§4.2). An inconclusive estimate has no upper bound.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds::new(self.capacity, self.is_conclusive(), &self.params)
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

/// The reason why an estimate is not conclusive. It is still a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inconclusive {
    /// All of the team's capacity was in use.
    #[error(
        "the team is too small: at least {needed} of measurers are needed, {available} are available"
    )]
    TeamTooSmall {
        /// *f·z*: the minimum team capacity to measure a relay with the observed rate.
        needed: Rate,
        /// The team's remaining capacity for this relay.
        available: Rate,
    },
    /// A measurer was held back by a cause of its own, and the load of the others was too small to show the relay's
    /// limit.
    #[error("{bottleneck}, and no other could show the relay's limit")]
    #[serde(alias = "measurer_hindered")]
    MeasurerLimited {
        /// The first such measurer.
        #[serde(alias = "hindered")]
        bottleneck: MeasurerBottleneck,
        /// The turn that was to follow, with more of the other measurers; `None` if there are no more of them, or no
        /// other round.
        next: Option<Attempt>,
    },
    /// A single measurer took part, and there was a queue on its path or it is far from the relay. A second measurer
    /// would show whether the bottleneck was the relay's.
    #[error(
        "packets waited {queue_ms} ms on the path of the only measurer, and the queue may be the \
         relay's"
    )]
    QueueOfOne {
        /// The queueing delay, in whole milliseconds.
        queue_ms: u32,
        /// The turn that was to follow, with two measurers; `None` if there may be no other round.
        next: Option<Attempt>,
    },
    /// The last permitted round was also inconclusive.
    #[error("still inconclusive after {rounds} rounds, the permitted maximum")]
    RoundLimit {
        /// [`Params::max_rounds`].
        rounds: u32,
    },
    /// The round's load was too small, and the relay's next turn, which would have had a larger load, had no result.
    #[error("the load was too small, and no round with a larger one followed")]
    LoadTooSmall {
        /// The turn that was to follow.
        next: Attempt,
    },
    /// More came back as soon as there were more sockets. The path to or from the relay limited the round, or other circuits
    /// had a share of the relay that more circuits of the measurement got.
    #[error(
        "the path to the relay, or clients that competed, held it back: with all {sockets} sockets {growth_percent} % more \
         came back than with half of them"
    )]
    PathLimited {
        /// The increase, in percent.
        growth_percent: u32,
        /// The number of sockets of the round.
        sockets: u32,
        /// The turn that was to follow, with more sockets; `None` if there may be no more, or no other round.
        next: Option<Attempt>,
    },
    /// The returned rate rose or fell although nothing changed. The path's flows had not reached their steady rate, so
    /// the effect of additional flows is unknown.
    #[error(
        "the path to the relay had not settled: the returned rate changed by {change_percent} %, with no more sockets than \
         before or with all {sockets} instead of half of them"
    )]
    PathSettling {
        /// The change, in percent.
        change_percent: u32,
        /// The number of sockets of the round.
        sockets: u32,
        /// The turn that was to follow, with more sockets; `None` if there may be no more, or no other round.
        next: Option<Attempt>,
    },
    /// A measurer is far from the relay, and the round could not show whether the path held it back.
    #[error(
        "a measurer is {rtt_ms} ms from the relay, and the round could not show whether the path to it held it back"
    )]
    PathUnknown {
        /// The round-trip time, in whole milliseconds.
        rtt_ms: u32,
        /// The turn that was to follow, which would show it; `None` if there may be no other round.
        next: Option<Attempt>,
    },
    /// The relay served only some of the seconds.
    #[error(
        "it was unsteady: the mean second had {}, and the median second {}",
        Rate::from_byte_per_s(*mean), Rate::from_byte_per_s(*median)
    )]
    Unsteady {
        /// The mean of the seconds, in bytes per second.
        mean: u64,
        /// The median of the seconds, in bytes per second.
        median: u64,
    },
    /// The middle half of the seconds ranged too far for one capacity to explain them.
    #[error("it was unsteady: the middle half of the seconds ranged from {low} to {high}")]
    Scattered {
        /// The first quartile of the seconds.
        low: Rate,
        /// The third quartile.
        high: Rate,
    },
    /// A cause on the team's side held most seconds back.
    #[error(
        "most cells waited for {} in {seconds} of {of} seconds, so the relay's limit did not show", by.in_words()
    )]
    HeldBack {
        /// The cause.
        by: Waited,
        /// The number of seconds that it held back.
        seconds: u32,
        /// The number of seconds that count and have an account.
        of: u32,
        /// The turn that was to follow, with a larger load; `None` if there may be no other round.
        next: Option<Attempt>,
    },
    /// Other circuits used the relay: more circuits of the measurement got a larger share of it. Or its rate fell between
    /// the seconds with few circuits and those that count.
    #[error(
        "{few} came back over few circuits and {all} over all of them: clients competed for the relay, or it was unsteady"
    )]
    Contended {
        /// The median second over few circuits.
        few: Rate,
        /// The median second over all circuits.
        all: Rate,
    },
    /// The relay forwarded much less than in its recent measurements. It is measured again at another secret time of the
    /// period, and the largest result is used.
    #[error(
        "it is more than a third below the {recent} of recent measurements, and no other one followed"
    )]
    BelowRecent {
        /// The largest recent estimate.
        recent: Rate,
        /// The turn that was to follow.
        next: Attempt,
    },
    /// The relay was measured in transit, where clients' traffic is not counted, and nothing shows that it had no clients.
    /// The load was large enough, so no round with a larger one follows.
    #[error("its clients, whose traffic is not counted in transit, may have used the rest")]
    ClientsUnknown,
    /// The relay's process, on a shared machine, reached neither its configured limit nor the limit of a processor.
    #[error(
        "the relay's process got only {:.0} % of a core: this machine, not the relay, was the \
         bottleneck",
        processor.share() * 100.0
    )]
    RelayStarved {
        /// The share that it got.
        processor: ProcessorTime,
    },
}

/// If the mean is below this share of the median, the relay did not serve all seconds. A relay that fails three of
/// thirty seconds has this ratio. C tor with a rate limit has 0.98 or more.
const STEADY_SHARE: f64 = 0.9;

impl Inconclusive {
    /// The turn that was to follow, if any.
    #[must_use]
    pub const fn next_turn(&self) -> Option<Attempt> {
        match self {
            Self::LoadTooSmall { next } | Self::BelowRecent { next, .. } => Some(*next),
            Self::PathLimited { next, .. }
            | Self::PathSettling { next, .. }
            | Self::PathUnknown { next, .. }
            | Self::MeasurerLimited { next, .. }
            | Self::HeldBack { next, .. }
            | Self::QueueOfOne { next, .. } => *next,
            _ => None,
        }
    }

    /// The doubt about a relay that did not serve all seconds alike. `median` and `mean` are in bytes per second.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn unsteadiness(median: u64, mean: u64) -> Option<Self> {
        let is_steady = mean as f64 >= STEADY_SHARE * median as f64;
        (!is_steady).then_some(Self::Unsteady { mean, median })
    }
}
