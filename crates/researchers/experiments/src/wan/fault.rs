//! Faults of paths and relays.

use clap::ValueEnum;
use coordinator::{Blame, Failure, Progress};
use lab::wan::{Jitter, Reordering, WanPath};
use onion::Duration;
use serde::{Serialize, Serializer};

/// The length of a temporary outage.
const OUTAGE: Duration = Duration::from_secs(2);

/// A fault of a path, or of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    /// Each packet has a random delay, up to twice the shortest, so that packets are reordered.
    Reorders,
    /// One packet in twenty is duplicated, and one in twenty is delayed.
    Duplicates,
    /// At the moment --fault-at, nothing arrives for two seconds in either direction.
    Returns,
    /// From the moment --fault-at on, nothing arrives.
    Breaks,
    /// From that moment on, nothing arrives at the relay.
    BreaksOut,
    /// From that moment on, nothing arrives from the relay.
    BreaksBack,
    /// All packets are lost, from before the measurement to its end.
    LosesAll,
    /// At that moment, the relay's process is stopped (SIGSTOP). The path works, and the relay's kernel still answers.
    Stops,
}

/// When a fault begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Moment {
    /// While sockets and circuits are opened.
    SetUp,
    /// After set-up, just before the load begins.
    Lead,
    /// In the middle of the measured seconds.
    #[default]
    Middle,
    /// After three quarters of the measured seconds.
    Late,
}

impl Moment {
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::SetUp => "during set-up",
            Self::Lead => "before the load",
            Self::Middle => "in the middle",
            Self::Late => "after three quarters",
        }
    }

    /// Whether a round has reached this moment. It has `seconds` measured seconds after a lead of `lead_s`.
    pub(super) fn is_reached(self, progress: &Progress, seconds: u32, lead_s: u32) -> bool {
        let have_passed = |share: f64| {
            matches!(progress, Progress::Second { index, .. }
                if f64::from(index + 1) >= f64::from(lead_s) + share * f64::from(seconds))
        };
        match self {
            Self::SetUp => true,
            Self::Lead => !matches!(progress, Progress::Preparing { .. }),
            Self::Middle => have_passed(0.5),
            Self::Late => have_passed(0.75),
        }
    }
}

/// What happens when a fault begins.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are at most two values")]
pub(super) enum FaultAction {
    /// Sets the directions of the path, forward first.
    SetPath([WanPath; 2]),
    /// Stops the relay's process.
    Stop,
}

impl Fault {
    pub(super) const fn description(self) -> &'static str {
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

    /// Whether the fault makes an estimate impossible.
    pub(super) const fn is_fatal(self) -> bool {
        match self {
            Self::Breaks | Self::BreaksOut | Self::BreaksBack | Self::LosesAll | Self::Stops => {
                true
            }
            Self::Reorders | Self::Duplicates | Self::Returns => false,
        }
    }

    /// Whether it begins at a moment of the measurement.
    pub(super) fn has_moment(self) -> bool {
        !self.actions(WanPath::default()).is_empty()
    }

    /// The path with the faults that last the whole measurement.
    pub(super) fn permanent(self, path: WanPath) -> WanPath {
        match self {
            Self::Reorders => {
                WanPath { jitter: Jitter { up_to: path.latency, reorders: true }, ..path }
            }
            Self::Duplicates => {
                let reordering = Reordering { share: 0.05, held_back: Duration::from_millis(5) };
                WanPath { duplicate_share: 0.05, reordering, ..path }
            }
            Self::LosesAll => path.with_loss(1.0),
            Self::Returns | Self::Breaks | Self::BreaksOut | Self::BreaksBack | Self::Stops => path,
        }
    }

    /// What happens at the moment of the fault, each with its delay after the previous action.
    pub(super) fn actions(self, path: WanPath) -> Vec<(Duration, FaultAction)> {
        let at_once = |action| vec![(Duration::ZERO, action)];
        match self {
            Self::Reorders | Self::Duplicates | Self::LosesAll => Vec::new(),
            Self::Returns => {
                vec![
                    (Duration::ZERO, FaultAction::SetPath([path.blackholed(); 2])),
                    (OUTAGE, FaultAction::SetPath([path; 2])),
                ]
            }
            Self::Breaks => at_once(FaultAction::SetPath([path.blackholed(); 2])),
            Self::BreaksOut => at_once(FaultAction::SetPath([path.blackholed(), path])),
            Self::BreaksBack => at_once(FaultAction::SetPath([path, path.blackholed()])),
            Self::Stops => at_once(FaultAction::Stop),
        }
    }

    /// Whether the failure blames the relay for the path, or the path for the relay. An unreachable relay looks like a broken path of
    /// all measurers.
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
        serializer.serialize_str(self.description())
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.description())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;

    #[test]
    fn a_moment_is_reached_when_the_measurement_has_progressed_that_far() {
        let preparing = Progress::Preparing { round: 1, allocated: Rate::ZERO, sockets: 8 };
        let started = Progress::Started { round: 1 };
        let second = |index| Progress::Second { round: 1, index, of: 3, measured: Rate::ZERO };
        let moments = [Moment::SetUp, Moment::Lead, Moment::Middle, Moment::Late];
        // Two seconds of lead, and sixteen measured: the middle is after ten, three quarters after fourteen.
        let reached = |progress| moments.map(|moment| moment.is_reached(&progress, 16, 2));
        assert_eq!(reached(preparing), [true, false, false, false]);
        assert_eq!(reached(started), [true, true, false, false]);
        assert_eq!(reached(second(8)), [true, true, false, false]);
        assert_eq!(reached(second(9)), [true, true, true, false]);
        assert_eq!(reached(second(12)), [true, true, true, false]);
        assert_eq!(reached(second(13)), [true; 4]);
    }
}
