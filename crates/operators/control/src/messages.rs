//! The messages between a coordinator and a measurer.
//!
//! A connection serves one purpose, which its first message names: [`FromCoordinator::Session`] opens a session,
//! [`FromCoordinator::Capacity`] orders a capacity test. The measurer answers a session with [`FromMeasurer::Hello`].
//!
//! Messages are JSON objects in frames (`frames`). Times are relative. Yet both sides check certificates of relays by their own
//! clocks, so the measurer says in its greeting what its clock shows, and a measurer with another time is not used. The receiver
//! checks the ranges of all values (`check`).

use crate::RefusalCode;
use crate::capacity::{CapacityAnswer, CapacityOrder, CapacityStart};
use measurer::member::{MemberReport, RoundOrder};
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// Maximum length of a message, except for the report of a capacity test. Valid messages have about 1,000 bytes.
pub(crate) const MESSAGE_MAX_BYTES: usize = 8192;

/// A message from a coordinator to a measurer.
///
/// `round` numbers the rounds of a session. Each [`Prepare`](Self::Prepare) has a higher number than all before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromCoordinator {
    /// Opens a session. The first message of a connection.
    Session,
    /// Orders a capacity test. The first message of a connection.
    Capacity(CapacityOrder),
    /// Starts the test: answers [`FromMeasurer::CapacityListening`]. The last message.
    CapacityStart(CapacityStart),
    /// A part of the coordinator's opt-in list, for measurers that take it ([`Hello::takes_opt_in`]).
    OptIn {
        /// Lines of the list.
        lines: Vec<String>,
        /// Whether the list is complete; from then on it replaces the previous one.
        is_last: bool,
    },
    /// Open sockets and circuits, and do not send yet.
    Prepare {
        /// The new round.
        round: u64,
        /// The order.
        order: RoundOrder,
    },
    /// Start sending.
    Start {
        /// A round that has reported [`MemberReport::Ready`].
        round: u64,
        /// Time from the arrival of this message, at most a minute.
        delay: Duration,
    },
    /// End a round. Has no effect on a round that has ended.
    Stop {
        /// The round.
        round: u64,
    },
}

/// A message from a measurer to a coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromMeasurer {
    /// The session is open. Its first message.
    Hello(Hello),
    /// A report on a round.
    Report {
        /// The round.
        round: u64,
        /// The report.
        report: MemberReport,
    },
    /// The measurer does not carry out an order. The session and its other rounds continue.
    Refused {
        /// The round that the order named.
        round: u64,
        /// The reason as a number.
        code: RefusalCode,
        /// The reason in words.
        reason: String,
    },
    /// The measurer takes part in a capacity test.
    CapacityListening {
        /// The ports on which it listens for the other members' load, at most 16.
        ports: Vec<u16>,
    },
    /// The result of a capacity test.
    Capacity(CapacityAnswer),
    /// The measurer closes the connection. Its last message.
    End(End),
}

/// A measurer's abilities, over the rounds of all coordinators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its version of FlashFlow.
    pub version: String,
    /// Its send and receive rate.
    pub capacity: Rate,
    /// Maximum number of simultaneous rounds.
    pub rounds_max: u32,
    /// Maximum number of sockets to relays.
    pub sockets_max: u32,
    /// Whether it takes the coordinator's opt-in list in addition to its own.
    #[serde(default)]
    pub takes_opt_in: bool,
    /// Its time since 1970. Older versions do not send it.
    #[serde(default)]
    pub unix_time_s: Option<u64>,
}

/// The reason why a measurer closes a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// In words.
    pub reason: String,
    /// Whether another attempt within a second may succeed.
    pub is_transient: bool,
}

impl End {
    pub(crate) fn lasting(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_transient: false }
    }
}
