//! Where the bottleneck is.

use crate::mode::Mode;
use clap::ValueEnum;
use lab::wan::{Access, Bottleneck, Queue};
use onion::{Duration, Rate};
use serde::{Serialize, Serializer};

/// The queue of a narrow link.
pub(super) const QUEUE: Duration = Duration::from_millis(100);

/// That of a link that drops the rest: a few packets, for less than what counts as a queue.
const NO_QUEUE: Duration = Duration::from_millis(4);

/// Where the bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Place {
    /// Nothing but the relay.
    Nowhere,
    /// The relay's own link.
    Relay,
    /// The link of the second measurer.
    Measurer,
    /// The link of the second measurer, which drops what it does not let through, and keeps no queue.
    Policer,
    /// The link of the second measurer in the direction from the relay.
    Back,
    /// The link of a host with two measurers, with a third at a host of its own.
    Host,
    /// The processor of the second measurer.
    Processor,
    /// The path of the second measurer, on which nothing arrives after a quarter of the round.
    Breaks,
    /// The path of the second measurer, on which nothing arrives at all.
    Gone,
    /// The paths of all measurers, on which nothing arrives after a quarter of the round. The coordinator's path works.
    All,
    /// The coordinator's own path, on which nothing arrives after a quarter of the round. It has none to a relay that does not take part.
    Coordinator,
}

impl Place {
    pub(super) const ALL: [Self; 11] = [
        Self::Nowhere,
        Self::Relay,
        Self::Measurer,
        Self::Policer,
        Self::Back,
        Self::Host,
        Self::Processor,
        Self::Breaks,
        Self::Gone,
        Self::All,
        Self::Coordinator,
    ];

    pub(super) const fn words(self) -> &'static str {
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

    /// Whether the second measurer can't do its part at all: its measurement fails, and the relay is measured again without it.
    pub(super) const fn is_lost(self) -> bool {
        matches!(self, Self::Breaks | Self::Gone)
    }

    /// Whether a measurement fails there, and there is another.
    pub(super) const fn fails(self) -> bool {
        self.is_lost() || matches!(self, Self::All | Self::Coordinator)
    }

    /// Whether there is such a place when a relay is measured like this.
    pub(super) const fn is_there(self, mode: Mode) -> bool {
        !matches!((self, mode), (Self::Coordinator, Mode::Transit))
    }

    /// The link of the second measurer's host, if it lets through this rate where it is narrow.
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
        serializer.serialize_str(self.words())
    }
}
