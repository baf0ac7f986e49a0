//! What a period is told, and what it asks for.

use super::{Bounds, PublishedRelay};
use crate::allocation::MeasurerId;
use crate::campaign::RelayIndex;
use crate::consent::ConsentError;
use crate::history::{History, HistoryPolicy};
use crate::journal::{Entry, Past};
use crate::params::Params;
use crate::plan::{Seed, TeamRoom};
use crate::record::Record;
use crate::round::RoundOrder;
use crate::slot_schedule::Counts;
use crate::team_measurement::{OrderTerms, Progress};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use onion::identity::RsaId;
use onion::measure::load::Target;
use onion::measure::protocol::MeasurerKey;
use onion::{Duration, Rate};

/// A measurement of a period: one launch of one relay. No two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeasurementId(pub u32);

/// A measurer, by the configuration.
#[derive(Clone, Debug)]
pub struct MeasurerConfig {
    /// Its public key, as the store names it.
    pub name: String,
    /// Its public key, as relays are given it.
    pub key: MeasurerKey,
    /// Where it listens.
    pub address: SocketAddr,
    /// The most that it is believed to have.
    pub limit: Rate,
}

/// What a measurer says that it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it can send and receive.
    pub capacity: Rate,
    /// How many relays it can help to measure at once.
    pub at_once_max: u32,
}

/// When relays are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// As early as the team can, the largest first; the period ends when all are done.
    Greedy,
    /// Each in a slot that is drawn from a secret seed; the period ends at its [end](Bounds::end_unix_s).
    Slots,
}

/// The seed of a period's slots, and the teams that plan by it.
#[derive(Clone, Debug)]
pub struct SlotSeed {
    /// The seed.
    pub seed: Seed,
    /// What each team has, in the order that all agree on. For the own team, what its measurers answer counts.
    pub teams: Vec<TeamRoom>,
    /// Which of them is this one.
    pub own: usize,
}

/// How to measure in a period.
#[derive(Clone, Debug)]
pub struct PeriodConfig {
    /// The bounds.
    pub bounds: Bounds,
    /// When relays are measured in it.
    pub timing: Timing,
    /// Parameters of the measurements.
    pub params: Params,
    /// What is made of the past.
    pub policy: HistoryPolicy,
    /// The team.
    pub measurers: Vec<MeasurerConfig>,
    /// Relays that are measured at once at most, if the operator says so.
    pub at_once_max: Option<u32>,
    /// Rounds that relays which take part allow in a period.
    pub echo_rounds: u32,
    /// Relays that share a host by the operator's word, in pairs.
    pub certain: Vec<(RsaId, RsaId)>,
    /// How often the consensus is read, and results are published.
    pub refresh: Duration,
    /// Fresh random bytes, from which the nonces of all orders follow.
    pub secret: [u8; 32],
}

/// What was known before the period, or before its coordinator was started again.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// What earlier periods found out, and this one so far.
    pub history: History,
    /// What has become of relays in this period.
    pub pasts: BTreeMap<RsaId, Past>,
}

/// Whether a host answered a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// It accepted, after this time.
    Connected(Duration),
    /// It refused, so there is a path to it.
    Refused,
    /// It did not answer in time.
    Silent,
}

/// What the shell has to do now.
#[derive(Clone, Debug)]
pub enum Action {
    /// Read the consensus; answer by [`Period::handle_network`] or [`Period::handle_network_failed`].
    FetchNetwork,
    /// Ask a measurer what it can do; answer by [`Period::handle_measurer`].
    AskMeasurer(MeasurerId),
    /// Open a TCP connection to a relay and close it; answer by [`Period::handle_probe`].
    Probe {
        /// For which measurement.
        measurement: MeasurementId,
        /// Where.
        address: SocketAddr,
        /// How long to try.
        timeout: Duration,
    },
    /// Ask a relay that takes part to accept an order, on a link of its own that replaces an earlier one; answer by
    /// [`Period::handle_order_event`].
    GiveOrder {
        /// For which measurement.
        measurement: MeasurementId,
        /// The relay.
        target: Target,
        /// The order.
        terms: OrderTerms,
    },
    /// Give a measurer its order for a round; it answers by [`Period::handle_report`].
    Prepare {
        /// For which measurement.
        measurement: MeasurementId,
        /// The measurer.
        measurer: MeasurerId,
        /// The round.
        round: u32,
        /// The order.
        order: RoundOrder,
    },
    /// Have the measurers of a measurement send, `delay` from now on.
    Start {
        /// Which measurement.
        measurement: MeasurementId,
        /// The delay, the same for all: messages that take time are given less of it.
        delay: Duration,
    },
    /// Have the measurers of a measurement end their round; then close the link on which the relay was given its order.
    Stop {
        /// Which measurement.
        measurement: MeasurementId,
    },
    /// Write this down before anything that follows is done.
    Journal(Entry),
    /// Write a bandwidth file.
    Publish(Vec<PublishedRelay>),
    /// For whoever watches.
    Event(Event),
    /// The period is over; nothing follows.
    Ended(Ending),
}

/// News for whoever watches.
#[derive(Clone, Debug)]
pub enum Event {
    /// A measurer has answered with its capacity, or cannot be asked.
    Measurer(MeasurerId, Result<Rate, String>),
    /// A measurer that had failed is back.
    MeasurerBack(MeasurerId, Rate),
    /// A measurer has failed in the measurement of this record, and gets no work until it answers again.
    MeasurerLost(MeasurerId, Box<Record>),
    /// In the measurement of this record a measurer was left out for this relay.
    MeasurerLeftOut(MeasurerId, Box<Record>),
    /// All is known that it takes to begin: relays that are to be measured, and how many at once at most.
    Planned {
        /// Relays that are to be measured.
        relays: usize,
        /// How many at once at most; `u32::MAX` without a bound.
        at_once_max: u32,
    },
    /// How far the period is.
    Counts(Counts),
    /// How far a measurement is.
    Progress(RelayIndex, Progress),
    /// A measurement has ended.
    MeasurementEnded(Box<Record>),
    /// A relay is done: all its measurements of the period, as one record.
    RelayDone(Box<Record>),
    /// No measurer is left, and so many relays are not measured.
    NotMeasured(usize),
}

/// How a period ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In order.
    Complete,
    /// By [`Period::wind_up`].
    Interrupted,
    /// It could not begin: the consensus cannot be had. The shell knows why.
    NoNetwork,
    /// It could not begin: no measurer answers.
    NoMeasurer,
    /// It could not begin: no relay of this consensus may be measured.
    NoRelay(String),
    /// It could not begin: a relay that the operator names has not agreed.
    NoConsent(ConsentError),
}
