//! What else goes wrong on a path.

use clap::ValueEnum;
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
        }
    }

    /// Whether no estimate can be had.
    pub(super) const fn is_fatal(self) -> bool {
        match self {
            Self::Breaks | Self::BreaksOut | Self::BreaksBack | Self::LosesAll => true,
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
            Self::Returns | Self::Breaks | Self::BreaksOut | Self::BreaksBack => way,
        }
    }

    /// What the ways out and back become in the middle of the measurement, one after the other, each with the time from the one before;
    /// nothing if they do not change.
    pub(super) fn changes(self, way: Way) -> Vec<(Duration, [Way; 2])> {
        let at_once = |ways| vec![(Duration::ZERO, ways)];
        match self {
            Self::Reorders | Self::Duplicates | Self::LosesAll => Vec::new(),
            Self::Returns => {
                vec![(Duration::ZERO, [way.broken(); 2]), (GONE, [way; 2])]
            }
            Self::Breaks => at_once([way.broken(); 2]),
            Self::BreaksOut => at_once([way.broken(), way]),
            Self::BreaksBack => at_once([way, way.broken()]),
        }
    }
}
