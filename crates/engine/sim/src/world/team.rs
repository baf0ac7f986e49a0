//! Orders to and reports of a team's hosts: the interface between a coordinator's decisions, which are made
//! outside of the world, and its hosts.

use super::message::HostId;
use super::net::ids;
use alloc::string::String;
use alloc::vec::Vec;
use onion::Rate;
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order as SignedFields,
};

/// The key by which relays know a coordinator host (see [`RelayConfig`](super::RelayConfig)).
#[must_use]
pub fn coordinator_key(host: HostId) -> CoordinatorKey {
    CoordinatorKey::of_seed(&key_seed(host.0))
}

pub(super) fn key_seed(host: u32) -> [u8; 32] {
    let mut seed = [0x33; 32];
    seed[..4].copy_from_slice(&host.to_be_bytes());
    seed
}

pub(super) fn nonce(measurement: u32) -> Nonce {
    let mut nonce = [0x44; 32];
    nonce[..4].copy_from_slice(&measurement.to_be_bytes());
    Nonce(nonce)
}

/// The keying material of a link, for signatures: there is no TLS here, so it consists of the two hosts.
pub(super) fn exported(from: u32, to: u32) -> [u8; 32] {
    let mut exported = [0x55; 32];
    exported[..4].copy_from_slice(&from.to_be_bytes());
    exported[4..8].copy_from_slice(&to.to_be_bytes());
    exported
}

/// An order to a team's host. Each measurement has a unique number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TeamOrder {
    /// The coordinator orders a relay to be measured.
    Ask {
        /// The measurement.
        measurement: u32,
        /// The relay.
        target: HostId,
        /// The measurers.
        measurers: Vec<HostId>,
        /// *t*, in seconds.
        seconds: u16,
        /// Links of all measurers together.
        sockets: u16,
    },
    /// A measurer opens its sockets and circuits, and sends nothing yet.
    Prepare {
        /// The measurement.
        measurement: u32,
        /// The relay.
        target: HostId,
        /// *aᵢ*: its maximum rate.
        rate: Rate,
        /// Its links.
        sockets: u32,
        /// The length of the load: *t*, and the seconds before those that count.
        seconds: u32,
        /// The second at which every other link begins; all begin at once if `None`.
        held_back_s: Option<u32>,
    },
    /// A measurer starts its load.
    Start {
        /// The measurement.
        measurement: u32,
    },
    /// A measurer or the coordinator closes its links.
    Stop {
        /// The measurement.
        measurement: u32,
    },
}

/// A report of a team's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamReport {
    /// The host.
    pub from: HostId,
    /// The measurement.
    pub measurement: u32,
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// The content.
    pub content: ReportContent,
}

/// The content of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportContent {
    /// The relay has accepted the coordinator's order: measurers may connect.
    Accepted,
    /// It has refused the order or ended the measurement, or it is unreachable.
    Refused(String),
    /// The number of a measurer's sockets with an open circuit; the others have failed.
    Ready(u32),
    /// The number that is left, after [`Ready`](Self::Ready).
    Sockets(u32),
    /// The bytes returned to a measurer in a second.
    Second {
        /// Counted from zero.
        second: u32,
        /// Bytes of cells.
        bytes: u64,
    },
    /// The relay's report of a second.
    Client {
        /// Counted from zero.
        second: u32,
        /// Bytes sent for its clients.
        sent_bytes: u64,
        /// Bytes returned to each measurer, in the order of the order's measurers.
        sent_back_bytes: Vec<u64>,
    },
}

/// The content of an order, before it is signed.
pub(super) fn fields(
    coordinator: u32,
    measurement: u32,
    target: HostId,
    measurers: &[HostId],
    seconds: u16,
    sockets: u16,
    unix_time_s: u64,
) -> SignedFields {
    let key = |host: &HostId| MeasurerKey::of_seed(&key_seed(host.0));
    SignedFields {
        coordinator: coordinator_key(HostId(coordinator)),
        target: ids(target.0),
        measurers: measurers.iter().map(key).collect(),
        seconds,
        client_share: ClientShare::DEFAULT,
        sockets,
        expires_unix_s: unix_time_s + 60,
        nonce: nonce(measurement),
    }
}
