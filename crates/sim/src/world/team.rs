//! What those who measure relays are told, and what they tell: the seam between a coordinator's decisions, which are made outside of the world, and its hosts.

use super::message::HostId;
use super::net::ids;
use alloc::string::String;
use alloc::vec::Vec;
use onion::Rate;
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order as SignedFields,
};

/// The key by which relays know a host that is a coordinator (see [`RelayConfig`](super::RelayConfig)).
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

/// What the TLS session of a link exports, for signatures: there is no TLS here, so it is who has dialled whom.
pub(super) fn exported(from: u32, to: u32) -> [u8; 32] {
    let mut exported = [0x55; 32];
    exported[..4].copy_from_slice(&from.to_be_bytes());
    exported[4..8].copy_from_slice(&to.to_be_bytes());
    exported
}

/// What a host of a team is told. Each measurement has a number of its own: no two may have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TeamOrder {
    /// The coordinator orders a relay to be measured.
    Ask {
        /// Which measurement.
        measurement: u32,
        /// The relay.
        target: HostId,
        /// Who will measure.
        measurers: Vec<HostId>,
        /// *t*, in seconds.
        seconds: u16,
        /// Links of all measurers together.
        sockets: u16,
    },
    /// A measurer opens its sockets and circuits, and sends nothing yet.
    Prepare {
        /// Which measurement.
        measurement: u32,
        /// The relay.
        target: HostId,
        /// *aᵢ*: what it sends at most.
        rate: Rate,
        /// Its links.
        sockets: u32,
        /// How long it floods: *t*, and the seconds before those that count.
        seconds: u32,
        /// The second with which every other link begins; all begin at once if there is none.
        held_back_s: Option<u32>,
    },
    /// A measurer floods.
    Start {
        /// Which measurement.
        measurement: u32,
    },
    /// A measurer, or the coordinator, closes its links.
    Stop {
        /// Which measurement.
        measurement: u32,
    },
}

/// What a host of a team tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamReport {
    /// Who.
    pub from: HostId,
    /// Of which measurement.
    pub measurement: u32,
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// What.
    pub news: TeamNews,
}

/// What is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TeamNews {
    /// The relay has accepted the coordinator's order: measurers may come.
    Accepted,
    /// It has refused it, or ended the measurement; or it cannot be reached.
    Refused(String),
    /// So many of a measurer's sockets have a circuit that works; the others have none and will have none.
    Ready(u32),
    /// So many still have, after [`Ready`](Self::Ready).
    Sockets(u32),
    /// What came back to a measurer in a second.
    Second {
        /// Counted from zero.
        second: u32,
        /// Bytes of cells.
        bytes: u64,
    },
    /// What the relay says of a second.
    Client {
        /// Counted from zero.
        second: u32,
        /// Bytes that it has sent for its clients.
        sent_bytes: u64,
        /// Bytes that it has sent back to each measurer, in the order of those that it was told of.
        sent_back_bytes: Vec<u64>,
    },
}

/// What an order asks for, before it is signed.
pub(super) fn fields(
    coordinator: u32,
    (measurement, target): (u32, HostId),
    measurers: &[HostId],
    (seconds, sockets): (u16, u16),
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
