//! What else goes wrong on a path.

use clap::ValueEnum;
use coordinator::{Blame, Failure};
use lab::wan::{Jitter, Reordering, Way};
use onion::Duration;

/// How long a path is gone that comes back.
const GONE: Duration = Duration::from_secs(2);

/// What else goes wrong on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    /// Each packet takes a time of its own, up to twice that of the others.
    Reorders,
    /// One packet in twenty arrives twice, and one in twenty is held back.
    Duplicates,
    /// In the middle of the measurement nothing arrives for two seconds, either way.
    Returns,
    /// In the middle of the measurement nothing arrives any more.
    Breaks,
    /// In the middle nothing gets to the relay any more.
    BreaksOut,
    /// In the middle nothing comes back any more.
    BreaksBack,
    /// All packets are lost, before the measurement begins and while it lasts.
    LosesAll,
    /// In the middle the relay's process stands still. The path is well, and the relay's kernel still answers.
    Stops,
}

/// What happens in the middle of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are two of them")]
pub(super) enum Act {
    /// The ways out and back become these.
    Ways([Way; 2]),
    /// The relay's process is stopped.
    Stop,
}

impl Fault {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Reorders => "reordered",
            Self::Duplicates => "duplicated",
            Self::Returns => "gone for two seconds",
            Self::Breaks => "breaks",
            Self::BreaksOut => "breaks on the way out",
            Self::BreaksBack => "breaks on the way back",
            Self::LosesAll => "loses all",
            Self::Stops => "the relay stops",
        }
    }

    /// Whether no estimate can be had.
    pub(super) const fn is_fatal(self) -> bool {
        match self {
            Self::Breaks | Self::BreaksOut | Self::BreaksBack | Self::LosesAll | Self::Stops => {
                true
            }
            Self::Reorders | Self::Duplicates | Self::Returns => false,
        }
    }

    /// A way with what is wrong all the time.
    pub(super) fn all_the_time(self, way: Way) -> Way {
        match self {
            Self::Reorders => Way { jitter: Jitter { up_to: way.latency, reorders: true }, ..way },
            Self::Duplicates => {
                let reordering = Reordering { share: 0.05, held_back: Duration::from_millis(5) };
                Way { duplicate_share: 0.05, reordering, ..way }
            }
            Self::LosesAll => way.losing(1.0),
            Self::Returns | Self::Breaks | Self::BreaksOut | Self::BreaksBack | Self::Stops => way,
        }
    }

    /// What happens in the middle of the measurement, one after the other, each with the time from the one before; nothing if nothing does.
    pub(super) fn acts(self, way: Way) -> Vec<(Duration, Act)> {
        let at_once = |act| vec![(Duration::ZERO, act)];
        match self {
            Self::Reorders | Self::Duplicates | Self::LosesAll => Vec::new(),
            Self::Returns => {
                vec![(Duration::ZERO, Act::Ways([way.broken(); 2])), (GONE, Act::Ways([way; 2]))]
            }
            Self::Breaks => at_once(Act::Ways([way.broken(); 2])),
            Self::BreaksOut => at_once(Act::Ways([way.broken(), way])),
            Self::BreaksBack => at_once(Act::Ways([way, way.broken()])),
            Self::Stops => at_once(Act::Stop),
        }
    }

    /// Whether somebody else is blamed for this than who it was: the relay for the path, or the path for the relay. That a relay cannot be reached, which is told of those that are gone as
    /// well, nobody can tell from a path that is gone for all measurers.
    pub(super) const fn is_blamed_wrongly(self, reason: &Failure) -> bool {
        let is_relay = matches!(reason.blame(), Blame::Relay);
        match self {
            Self::Stops => !is_relay,
            _ => is_relay && !matches!(reason, Failure::RelayUnreachable { .. }),
        }
    }
}
