//! The events that a period handles, and the actions that it requests.

use super::{Bounds, PublishedRelay};
use crate::allocation::MeasurerId;
use crate::campaign::RelayIndex;
use crate::consent::ConsentError;
use crate::history::{History, HistoryPolicy};
use crate::journal::{Entry, Past};
use crate::params::{Params, PathParams};
use crate::plan::{Seed, TeamRoom};
use crate::record::Record;
use crate::round::RoundOrder;
use crate::slot_schedule::Counts;
use crate::team_measurement::{OrderTerms, Progress};
use crate::worker_load::WorkerLoad;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use onion::identity::RsaId;
use onion::measure::load::Target;
use onion::measure::protocol::MeasurerKey;
use onion::{Duration, Rate};

/// A measurement of a period: one launch of one relay. Its number is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeasurementId(pub u32);

/// A configured measurer.
#[derive(Clone, Debug)]
pub struct MeasurerConfig {
    /// Its public key, as the store names it.
    pub name: String,
    /// Its public key, as relays get it.
    pub key: MeasurerKey,
    /// Its address.
    pub address: SocketAddr,
    /// Its assumed maximum capacity.
    pub limit: Rate,
}

/// A measurer's reported abilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its send and receive rate.
    pub capacity: Rate,
    /// The number of relays that it can help to measure at once.
    pub at_once_max: u32,
}

/// The schedule of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// As early as possible, the largest first; the period ends when all are done.
    Greedy,
    /// In slots that are drawn from a secret seed, at times that no relay can predict from its earlier measurements
    /// ([`Plan::memoryless`](crate::plan::Plan::memoryless)). The period ends at its [end](Bounds::end_unix_s).
    Slots,
    /// Each in one such slot, and new relays in the first slot with room (paper, §4.3).
    PaperSlots,
}

impl Timing {
    /// Whether the period has slots.
    #[must_use]
    pub const fn has_slots(self) -> bool {
        matches!(self, Self::Slots | Self::PaperSlots)
    }
}

/// The seed of a period's slots, and the teams that plan by it.
#[derive(Clone, Debug)]
pub struct SlotSeed {
    /// The seed.
    pub seed: Seed,
    /// The capacity of each team, in the agreed order. The own team's is replaced by the measurers' reports.
    pub teams: Vec<TeamRoom>,
    /// The index of the own team.
    pub own: usize,
}

/// The configuration of a period.
#[derive(Clone, Debug)]
pub struct PeriodConfig {
    /// The bounds.
    pub bounds: Bounds,
    /// The schedule.
    pub timing: Timing,
    /// Parameters of the measurements.
    pub params: Params,
    /// The policy for earlier results.
    pub policy: HistoryPolicy,
    /// The team.
    pub measurers: Vec<MeasurerConfig>,
    /// The operator's limit on the number of relays that are measured at once, if any.
    pub at_once_max: Option<u32>,
    /// The number of rounds that participating relays allow in a period.
    pub echo_rounds: u32,
    /// Whether measurers authenticate their links as a relay does, even where that is not needed.
    pub always_authenticate: bool,
    /// The requirements of all paths; derived from the round trip to each relay if `None`.
    pub path: Option<PathParams>,
    /// The minimum number of measurers of a relay's first turn, if the team has them. Relays that are known to be far from
    /// the measurers have at least two in any case.
    pub measurers_min: u32,
    /// Whether a measurement that failed by a measurer's fault is repeated.
    pub repeats_failures: bool,
    /// Pairs of relays that share a host, as declared by the operator.
    pub certain: Vec<(RsaId, RsaId)>,
    /// The interval at which the consensus is read and results are published.
    pub refresh: Duration,
    /// Fresh random bytes, from which the nonces of all orders are derived.
    pub secret: [u8; 32],
}

/// The state before the period, or before the coordinator restarted.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// The results of earlier periods, and of this one so far.
    pub history: History,
    /// The progress of relays in this period.
    pub pasts: BTreeMap<RsaId, Past>,
}

/// Whether a host answered a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// It accepted, after this time.
    Connected(Duration),
    /// It refused, so the path works.
    Refused,
    /// It did not answer in time.
    Silent,
}

/// An action for the shell.
#[derive(Clone, Debug)]
pub enum Action {
    /// Read the consensus; answer by [`Period::handle_network`](super::Period::handle_network) or [`Period::handle_network_failed`](super::Period::handle_network_failed).
    FetchNetwork,
    /// Query a measurer's abilities; answer by [`Period::handle_measurer`](super::Period::handle_measurer).
    AskMeasurer(MeasurerId),
    /// Open a TCP connection to a relay and close it; answer by [`Period::handle_probe`](super::Period::handle_probe).
    Probe {
        /// The measurement.
        measurement: MeasurementId,
        /// The address.
        address: SocketAddr,
        /// The timeout.
        timeout: Duration,
    },
    /// Ask a participating relay to accept an order, on a separate link that replaces an earlier one; answer by
    /// [`Period::handle_order_event`](super::Period::handle_order_event).
    GiveOrder {
        /// The measurement.
        measurement: MeasurementId,
        /// The relay.
        target: Target,
        /// The order.
        terms: OrderTerms,
    },
    /// Give a measurer its order for a round; it answers by [`Period::handle_report`](super::Period::handle_report).
    Prepare {
        /// The measurement.
        measurement: MeasurementId,
        /// The measurer.
        measurer: MeasurerId,
        /// The round.
        round: u32,
        /// The order.
        order: RoundOrder,
    },
    /// Have the measurers of a measurement send after `delay`.
    Start {
        /// The measurement.
        measurement: MeasurementId,
        /// The delay, the same for all. The latency of the message is deducted from it.
        delay: Duration,
    },
    /// Have the measurers of a measurement end their round, then close the link on which the relay got its order.
    Stop {
        /// The measurement.
        measurement: MeasurementId,
    },
    /// Record this before any later action.
    Journal(Entry),
    /// Write a bandwidth file.
    Publish(Vec<PublishedRelay>),
    /// A progress event for observers.
    Event(Event),
    /// The period is over; nothing follows.
    Ended(Ending),
}

/// A progress event for observers.
#[derive(Clone, Debug)]
pub enum Event {
    /// A measurer has reported its capacity, or cannot be queried.
    Measurer(MeasurerId, Result<Rate, String>),
    /// A measurer that had failed is back.
    MeasurerBack(MeasurerId, Rate),
    /// A measurer has failed in the measurement of this record, and gets no work until it answers again.
    MeasurerLost(MeasurerId, Box<Record>),
    /// In the measurement of this record a measurer was left out for this relay.
    MeasurerLeftOut(MeasurerId, Box<Record>),
    /// The period is ready to begin.
    Planned {
        /// Relays that are to be measured.
        relays: usize,
        /// The maximum number at once; `u32::MAX` without a limit.
        at_once_max: u32,
    },
    /// The progress of the period.
    Counts(Counts),
    /// The progress of a measurement.
    Progress(RelayIndex, Progress),
    /// The loads of the measurers that finished the round of the measurement that has just ended.
    Loads(RelayIndex, Vec<WorkerLoad>),
    /// A measurement has ended.
    MeasurementEnded(Box<Record>),
    /// A relay is done: all its measurements of the period, as one record.
    RelayDone(Box<Record>),
    /// The plan had a measurement of this relay now, but consent or a policy does not permit it, for this reason.
    LeftOut(RelayIndex, String),
    /// A newer consensus cannot be used, for this reason: the known one stays in use.
    ConsensusRefused(String),
    /// No measurer is left; the number of relays that are not measured.
    NotMeasured(usize),
}

/// The reason why a period ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is complete.
    Complete,
    /// [`Period::wind_up`](super::Period::wind_up) was called.
    Interrupted,
    /// It could not begin: the consensus is unavailable. The shell has the reason.
    NoNetwork,
    /// It could not begin: no measurer answers.
    NoMeasurer,
    /// It could not begin: no relay of the consensus, which is described, may be measured. If there is a measurement policy,
    /// with its first refusal.
    NoRelay(String, Option<ConsentError>),
    /// It could not begin: a relay that the operator names has not consented.
    NoConsent(ConsentError),
}
