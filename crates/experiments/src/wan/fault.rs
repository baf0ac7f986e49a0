//! Faults of paths and relays.

use clap::ValueEnum;
use coordinator::{Blame, Failure};
use lab::wan::{Jitter, Reordering, WanPath};
use measurer::Progress;
use onion::Duration;
use serde::{Serialize, Serializer};

/// How long a path is gone that comes back.
const GONE: Duration = Duration::from_secs(2);

/// A fault of a path, or of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    /// Each packet takes a time of its own, up to twice that of the others.
    Reorders,
    /// One packet in twenty arrives twice, and one in twenty is delayed.
    Duplicates,
    /// From some moment on (--fault-at) nothing arrives for two seconds, in either direction.
    Returns,
    /// From some moment on nothing arrives.
    Breaks,
    /// From some moment on nothing arrives at the relay.
    BreaksOut,
    /// From some moment on nothing arrives from the relay.
    BreaksBack,
    /// All packets are lost, before the measurement begins and while it lasts.
    LosesAll,
    /// From some moment on the relay's process is stopped (SIGSTOP). The path works, and the relay's kernel still answers.
    Stops,
}

/// When a fault begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Moment {
    /// While sockets and circuits are opened.
    SetUp,
    /// When all is ready, just before the load begins.
    Lead,
    /// In the middle of the seconds that count.
    #[default]
    Middle,
    /// After three quarters of them.
    Late,
}

impl Moment {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::SetUp => "during set-up",
            Self::Lead => "before the load",
            Self::Middle => "in the middle",
            Self::Late => "after three quarters",
        }
    }

    /// Whether it has come, in a round of `seconds` that count after `lead_s` that do not.
    pub(super) fn has_come(self, progress: &Progress, seconds: u32, lead_s: u32) -> bool {
        let have_counted = |share: f64| {
            matches!(progress, Progress::Second { index, .. }
                if f64::from(index + 1) >= f64::from(lead_s) + share * f64::from(seconds))
        };
        match self {
            Self::SetUp => true,
            Self::Lead => !matches!(progress, Progress::Preparing { .. }),
            Self::Middle => have_counted(0.5),
            Self::Late => have_counted(0.75),
        }
    }
}

/// What happens at that moment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are two of them")]
pub(super) enum Act {
    /// The ways out and back become these.
    Ways([WanPath; 2]),
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
            Self::BreaksOut => "breaks in the forward direction",
            Self::BreaksBack => "breaks in the return direction",
            Self::LosesAll => "loses all",
            Self::Stops => "the relay stops",
        }
    }

    /// Whether there can be no estimate.
    pub(super) const fn is_fatal(self) -> bool {
        match self {
            Self::Breaks | Self::BreaksOut | Self::BreaksBack | Self::LosesAll | Self::Stops => {
                true
            }
            Self::Reorders | Self::Duplicates | Self::Returns => false,
        }
    }

    /// Whether it begins at some moment.
    pub(super) fn has_moment(self) -> bool {
        !self.acts(WanPath::default()).is_empty()
    }

    /// A path with the faults that last all the time.
    pub(super) fn all_the_time(self, way: WanPath) -> WanPath {
        match self {
            Self::Reorders => {
                WanPath { jitter: Jitter { up_to: way.latency, reorders: true }, ..way }
            }
            Self::Duplicates => {
                let reordering = Reordering { share: 0.05, held_back: Duration::from_millis(5) };
                WanPath { duplicate_share: 0.05, reordering, ..way }
            }
            Self::LosesAll => way.with_loss(1.0),
            Self::Returns | Self::Breaks | Self::BreaksOut | Self::BreaksBack | Self::Stops => way,
        }
    }

    /// What happens at its moment, each with the delay after the previous one.
    pub(super) fn acts(self, way: WanPath) -> Vec<(Duration, Act)> {
        let at_once = |act| vec![(Duration::ZERO, act)];
        match self {
            Self::Reorders | Self::Duplicates | Self::LosesAll => Vec::new(),
            Self::Returns => {
                vec![
                    (Duration::ZERO, Act::Ways([way.blackholed(); 2])),
                    (GONE, Act::Ways([way; 2])),
                ]
            }
            Self::Breaks => at_once(Act::Ways([way.blackholed(); 2])),
            Self::BreaksOut => at_once(Act::Ways([way.blackholed(), way])),
            Self::BreaksBack => at_once(Act::Ways([way, way.blackholed()])),
            Self::Stops => at_once(Act::Stop),
        }
    }

    /// Whether the wrong one is blamed: the relay for the path, or the path for the relay. A relay that cannot be reached looks like
    /// a path that is gone for all measurers.
    pub(super) const fn is_blamed_wrongly(self, reason: &Failure) -> bool {
        let is_relay = matches!(reason.blame(), Blame::Relay);
        match self {
            Self::Stops => !is_relay,
            _ => is_relay && !matches!(reason, Failure::RelayUnreachable { .. }),
        }
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.words())
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;

    #[test]
    fn a_moment_comes_when_the_measurement_is_that_far() {
        let preparing =
            Progress::Preparing { round: 1, allocated: Rate::ZERO, sockets: 8, circuits: 8 };
        let started = Progress::Started { round: 1, unix_time_s: 0 };
        let second = |index| Progress::Second { round: 1, index, measured: Rate::ZERO };
        let moments = [Moment::SetUp, Moment::Lead, Moment::Middle, Moment::Late];
        // Two seconds of lead, and sixteen that count: the middle is when ten are over, three quarters when fourteen are.
        let come = |progress| moments.map(|it| it.has_come(&progress, 16, 2));
        assert_eq!(come(preparing), [true, false, false, false]);
        assert_eq!(come(started), [true, true, false, false]);
        assert_eq!(come(second(8)), [true, true, false, false]);
        assert_eq!(come(second(9)), [true, true, true, false]);
        assert_eq!(come(second(12)), [true, true, true, false]);
        assert_eq!(come(second(13)), [true; 4]);
    }
}
