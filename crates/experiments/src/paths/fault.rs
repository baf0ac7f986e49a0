//! What else goes wrong on a path.

use clap::ValueEnum;
use lab::wan::{Jitter, Reordering, Way};
use onion::Duration;

/// What else goes wrong on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    /// Each packet takes a time of its own, up to twice that of the others.
    Reorders,
    /// One packet in twenty arrives twice, and one in twenty is held back.
    Duplicates,
    /// In the middle of the measurement nothing arrives any more.
    Breaks,
    /// In the middle nothing comes back any more.
    BreaksBack,
}

impl Fault {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Reorders => "reordered",
            Self::Duplicates => "duplicated",
            Self::Breaks => "breaks",
            Self::BreaksBack => "breaks on the way back",
        }
    }

    /// Whether no estimate can be had.
    pub(super) const fn is_fatal(self) -> bool {
        matches!(self, Self::Breaks | Self::BreaksBack)
    }

    /// A way with what is wrong all the time.
    pub(super) fn all_the_time(self, way: Way) -> Way {
        match self {
            Self::Reorders => Way { jitter: Jitter { up_to: way.latency, reorders: true }, ..way },
            Self::Duplicates => {
                let reordering = Reordering { share: 0.05, held_back: Duration::from_millis(5) };
                Way { duplicate_share: 0.05, reordering, ..way }
            }
            Self::Breaks | Self::BreaksBack => way,
        }
    }

    /// The ways out and back as they are from the middle of the measurement on, if they change.
    pub(super) fn once_broken(self, way: Way) -> Option<[Way; 2]> {
        match self {
            Self::Reorders | Self::Duplicates => None,
            Self::Breaks => Some([way.broken(), way.broken()]),
            Self::BreaksBack => Some([way, way.broken()]),
        }
    }
}
