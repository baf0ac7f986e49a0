use crate::flow::QUEUE_LIMIT_CELLS;
use crate::identity::{OwnIdentity, RelayIds};
use crate::measure::protocol::Nonce;
use crate::rate::Rate;
use crate::time::Duration;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::num::NonZeroU32;

/// The relay to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Target {
    /// Its OR address.
    pub address: SocketAddr,
    /// The identities that its certificates must prove.
    pub ids: RelayIds,
}

/// A temporary relay of the measurer, at which circuits end.
///
/// A relay keeps one connection to each identity, so the number of return relays is the number of sockets out
/// of the target.
#[derive(Clone, Debug)]
pub struct ReturnRelay {
    /// Its temporary identity.
    pub identity: Arc<OwnIdentity>,
    /// Its address, for the target.
    pub address: SocketAddr,
}

/// How fast connections may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pace {
    /// Connections at once, after a pause.
    pub burst: u32,
    /// Connections per second after that.
    pub per_s: NonZeroU32,
}

/// How cells return from the target.
#[derive(Clone)]
pub enum ReturnPath {
    /// Through a target that does not know of the measurement, over circuits of two hops that end at the
    /// measurer's return relays. So any relay can be measured.
    Transit {
        /// The return relays; their indexes are the driver's [`ListenerId`](crate::node::ListenerId)s.
        landings: Vec<ReturnRelay>,
        /// Identities that the sockets prove, like a relay's, round-robin; empty for anonymous links like
        /// clients'. They must differ from those of the return relays.
        authenticate_as: Vec<Arc<OwnIdentity>>,
    },
    /// On the same circuit of one hop, by a target that has accepted an order
    /// ([`measure::protocol`](crate::measure::protocol)).
    Echo {
        /// The nonce of the measurement.
        nonce: Nonce,
        /// The seed of the Ed25519 key by which the order names this measurer.
        key_seed: [u8; 32],
    },
}

impl ReturnPath {
    pub(super) const fn is_echo(&self) -> bool {
        matches!(self, Self::Echo { .. })
    }

    /// The return relays, if there are any.
    pub(super) fn landings(&self) -> &[ReturnRelay] {
        match self {
            Self::Transit { landings, .. } => landings,
            Self::Echo { .. } => &[],
        }
    }

    /// Cells of a circuit's forward keystream that were used before the first cell that counts.
    pub(super) const fn cells_before(&self) -> u64 {
        match self {
            Self::Transit { .. } => 1, // the one that extended it
            Self::Echo { .. } => 0,
        }
    }
}

impl fmt::Debug for ReturnPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transit { landings, authenticate_as } => f
                .debug_struct("Transit")
                .field("landings", landings)
                .field("authenticate_as", authenticate_as)
                .finish(),
            // The seed is secret.
            Self::Echo { nonce, .. } => {
                f.debug_struct("Echo").field("nonce", nonce).finish_non_exhaustive()
            }
        }
    }
}

/// Sockets that begin to send later than the others, to show the effect of more sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// How much later than the start.
    pub after: Duration,
    /// Sockets of other load generators of this measurer before the first of this one: over all of them, every
    /// other socket is held back, beginning with the second.
    pub sockets_before: u32,
}

/// The few circuits that send from the start, on some of the sockets, to show whether other circuits and links compete for
/// the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewCircuits {
    /// The number of such sockets of the measurer, over all its load generators.
    pub sockets: u32,
    /// One in this number is such a socket, beginning with the first.
    pub one_socket_in: NonZeroU32,
    /// Sockets of other load generators of this measurer before the first of this one.
    pub sockets_before: u32,
    /// Their number on each of these sockets.
    pub per_socket: u32,
    /// How long only they send.
    pub time: Duration,
}

impl FewCircuits {
    /// Whether a socket of the measurer has such circuits.
    pub(super) fn includes(self, socket: u32) -> bool {
        socket % self.one_socket_in == 0 && socket / self.one_socket_in < self.sockets
    }
}

/// The configuration of one load generator.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// The relay to measure.
    pub target: Target,
    /// How cells return from it.
    pub return_path: ReturnPath,
    /// Sockets to the target.
    pub sockets: u32,
    /// Circuits on each of them.
    pub circuits_per_socket: u32,
    /// How fast the sockets may be opened.
    pub pace: Pace,
    /// Circuits that may be retried if the target destroys them as idle: each counts for the target's limit on
    /// circuit creation.
    pub second_tries: u32,
    /// Length of the measurement, in seconds.
    pub seconds: u32,
    /// Sockets that begin later; `None` if all begin at once.
    pub held_back: Option<HeldBack>,
    /// Circuits that begin later; `None` if all begin with their sockets.
    pub few_circuits: Option<FewCircuits>,
    /// Its share of the allocation a_i, which limits what it sends.
    pub rate: Rate,
    /// Maximum number of cells in flight on one circuit. Strictly below the relay's queue limit.
    pub window_cap_cells: u32,
    /// One cell in this number has its content checked.
    pub check_one_in: NonZeroU32,
    /// Time for opening sockets and circuits.
    pub setup_timeout: Duration,
    /// Maximum silence of the target under load.
    pub stall_timeout: Duration,
    /// The Unix time in seconds, for the validity of certificates.
    pub unix_time_s: u64,
}

impl LoadConfig {
    /// Maximum number of cells in flight on one circuit. A target that takes part has our relays' queue limit,
    /// whatever the consensus says of other relays.
    pub(super) fn window_cells(&self) -> u32 {
        const OWN_CAP: u32 = QUEUE_LIMIT_CELLS - QUEUE_LIMIT_CELLS / 10 - 1;
        let own = if self.return_path.is_echo() { OWN_CAP } else { u32::MAX };
        self.window_cap_cells.min(own)
    }

    /// The place of a circuit's return relay among `landings`.
    ///
    /// With few circuits, all circuits of a socket return over one link: a relay divides its rate limit among the links that it sends
    /// to, and few sockets must show the share of as few links.
    pub(super) fn landing_of(&self, circuit: u32, landings: usize) -> usize {
        let per_socket = self.circuits_per_socket.max(1);
        let place = if self.few_circuits.is_some() { circuit / per_socket } else { circuit };
        place as usize % landings.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn config(few_circuits: Option<FewCircuits>) -> LoadConfig {
        LoadConfig {
            target: Target {
                address: ([127, 0, 0, 1], 9001).into(),
                ids: RelayIds { rsa: crate::identity::RsaId([1; 20]), ed25519: None },
            },
            return_path: ReturnPath::Transit { landings: Vec::new(), authenticate_as: Vec::new() },
            sockets: 8,
            circuits_per_socket: 16,
            pace: Pace { burst: 8, per_s: NonZeroU32::MIN },
            second_tries: 0,
            seconds: 30,
            held_back: None,
            few_circuits,
            rate: Rate::ZERO,
            window_cap_cells: 100,
            check_one_in: NonZeroU32::MIN,
            setup_timeout: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(1),
            unix_time_s: 0,
        }
    }

    #[test]
    fn few_circuits_return_over_as_few_links_as_sockets_and_all_circuits_over_all() {
        let few = FewCircuits {
            sockets: 2,
            one_socket_in: NonZeroU32::MIN.saturating_add(3),
            sockets_before: 0,
            per_socket: 3,
            time: Duration::from_secs(3),
        };
        let links = |config: &LoadConfig, is_sending: &dyn Fn(u32) -> bool| {
            let circuits = (0..8 * 16_u32).filter(|circuit| is_sending(*circuit));
            circuits.map(|circuit| config.landing_of(circuit, 8)).collect::<BTreeSet<_>>().len()
        };
        let is_few = |circuit: u32| few.includes(circuit / 16) && circuit % 16 < few.per_socket;
        assert_eq!(links(&config(Some(few)), &is_few), 2);
        assert_eq!(links(&config(Some(few)), &|_| true), 8);
        // Half of the sockets, as far away, use all links: only the way to the relay is tested.
        let is_first_half = |circuit: u32| (circuit / 16).is_multiple_of(2);
        assert_eq!(links(&config(None), &is_first_half), 8);
    }
}
