//! Where something is narrow.

use crate::mode::Mode;
use clap::ValueEnum;
use coordinator::Params;
use lab::wan::{Access, Congestion, Narrow, Queue};
use measurer::TeamOptions;
use onion::{Duration, Rate};

/// What may wait at a narrow place.
const QUEUE: Duration = Duration::from_millis(100);

/// What may wait at one that drops the rest: a few packets, for less than what counts as a queue.
const NO_QUEUE: Duration = Duration::from_millis(4);

/// Where something is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Place {
    /// Nothing but the relay.
    Nowhere,
    /// The relay's own link.
    Relay,
    /// The link of the second measurer.
    Measurer,
    /// The same, but it drops what it does not let through, and keeps no queue.
    Policer,
    /// The link of the second measurer in the direction to it: the way back from the relay.
    Back,
    /// The link of a host with two measurers, beside a third at a host of its own.
    Host,
    /// The processor of the second measurer.
    Processor,
    /// The path of the second measurer, on which nothing arrives any more from a quarter of the round on.
    Breaks,
    /// The path of the second measurer, on which nothing arrives at all.
    Gone,
    /// The paths of all measurers, on which nothing arrives any more from a quarter of the round on. The coordinator's is well.
    All,
    /// The coordinator's own path, on which nothing arrives any more from a quarter of the round on. It has none to a relay that does not take part.
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
            Self::Back => "a measurer's way back",
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
}

pub(super) struct Plan {
    pub(super) seconds: u32,
    pub(super) rtts_ms: Vec<u32>,
    pub(super) congestions: Vec<Congestion>,
    pub(super) modes: Vec<Mode>,
    pub(super) places: Vec<Place>,
    /// The relay's limit.
    pub(super) limit: Rate,
    /// What its link lets through where that is narrow.
    pub(super) link: Rate,
    /// The same of a measurer's.
    pub(super) measurer: Rate,
}

impl Plan {
    pub(super) fn runs(&self) -> usize {
        let places = self.modes.iter().map(|mode| self.places_of(*mode).count()).sum::<usize>();
        self.rtts_ms.len() * self.congestions.len() * places
    }

    /// Where something is narrow when a relay is measured like this.
    pub(super) fn places_of(&self, mode: Mode) -> impl Iterator<Item = Place> {
        self.places.iter().copied().filter(move |place| place.is_there(mode))
    }

    /// A place that there is in none of the modes.
    pub(super) fn place_without_mode(&self) -> Option<Place> {
        let is_nowhere = |place: &Place| !self.modes.iter().any(|mode| place.is_there(*mode));
        self.places.iter().copied().find(is_nowhere)
    }

    pub(super) fn params(&self) -> Params {
        Params { seconds: self.seconds, ..TeamOptions::default().params }
    }

    /// What each measurer has: enough for one of them to measure the relay alone.
    pub(super) fn capacity(&self) -> Rate {
        self.limit.scaled(4.0)
    }

    /// The link of the second measurer's host.
    pub(super) fn access(&self, place: Place) -> Access {
        let narrow = |queue| Narrow { rate: self.measurer, queue: Queue::Time(queue) };
        match place {
            Place::Nowhere
            | Place::Relay
            | Place::Processor
            | Place::Breaks
            | Place::Gone
            | Place::All
            | Place::Coordinator => Access::default(),
            Place::Measurer | Place::Host => Access::both(narrow(QUEUE)),
            Place::Policer => Access { out: Some(narrow(NO_QUEUE)), into: None },
            Place::Back => Access { out: None, into: Some(narrow(QUEUE)) },
        }
    }

    /// Bytes that may wait where the relay's link is narrow.
    pub(super) fn link_queue_bytes(&self) -> u64 {
        self.link.bytes_in(QUEUE)
    }
}
