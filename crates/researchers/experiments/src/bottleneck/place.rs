//! Places of a bottleneck.

use crate::mode::Mode;
use clap::ValueEnum;
use lab::wan::{Access, Bottleneck, Queue};
use onion::{Duration, Rate};
use serde::{Serialize, Serializer};

/// The queue of a narrow link.
pub(super) const QUEUE: Duration = Duration::from_millis(100);

/// The queue of a link that drops excess packets: a few packets, too short to count as a queue.
const NO_QUEUE: Duration = Duration::from_millis(4);

/// A place of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Place {
    /// No bottleneck but the relay.
    Nowhere,
    /// The relay's own link.
    Relay,
    /// The link of the second measurer.
    Measurer,
    /// The link of the second measurer, which has no queue and drops excess packets.
    Policer,
    /// The return path of the second measurer's link.
    Back,
    /// The link of a host with two measurers; a third is at another host.
    Host,
    /// The processor of the second measurer.
    Processor,
    /// The path of the second measurer, which breaks after a quarter of the round.
    Breaks,
    /// The path of the second measurer, which carries nothing at all.
    Gone,
    /// The paths of all measurers, which break after a quarter of the round. The coordinator's path works.
    All,
    /// The coordinator's own path, which breaks after a quarter of the round. It has none to a relay that does not take part.
    Coordinator,
}

impl Place {
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::Nowhere => "nothing narrow",
            Self::Relay => "the relay's link",
            Self::Measurer => "a measurer's link",
            Self::Policer => "a measurer's link without a queue",
            Self::Back => "a measurer's return path",
            Self::Host => "the link of two measurers",
            Self::Processor => "a measurer's processor",
            Self::Breaks => "a measurer's path that breaks",
            Self::Gone => "a measurer's path that carries nothing",
            Self::All => "all measurers' paths that break",
            Self::Coordinator => "the coordinator's path that breaks",
        }
    }

    /// Whether the second measurer cannot take part: its measurement fails, and the relay is measured again without it.
    pub(super) const fn is_lost(self) -> bool {
        matches!(self, Self::Breaks | Self::Gone)
    }

    /// Whether the first measurement fails, so that another follows.
    pub(super) const fn fails(self) -> bool {
        self.is_lost() || matches!(self, Self::All | Self::Coordinator)
    }

    /// Whether this place exists in this kind of measurement.
    pub(super) const fn exists_in(self, mode: Mode) -> bool {
        !matches!((self, mode), (Self::Coordinator, Mode::Transit))
    }

    /// The link of the second measurer's host, with this rate where it is narrow.
    pub(super) fn access(self, rate: Rate) -> Access {
        let narrow = |queue| Bottleneck { rate, queue: Queue::Time(queue) };
        match self {
            Self::Nowhere
            | Self::Relay
            | Self::Processor
            | Self::Breaks
            | Self::Gone
            | Self::All
            | Self::Coordinator => Access::default(),
            Self::Measurer | Self::Host => Access::both(narrow(QUEUE)),
            Self::Policer => Access { upload: Some(narrow(NO_QUEUE)), download: None },
            Self::Back => Access { upload: None, download: Some(narrow(QUEUE)) },
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.description())
    }
}
