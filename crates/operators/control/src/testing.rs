//! Common parts of this crate's tests.

use measurer::Defences;
use measurer::member::{RoundMode, RoundOrder, Target};
use onion::identity::{RelayIds, RsaId};
use onion::{Duration, Rate};
use std::net::SocketAddr;
use std::num::NonZeroU32;

/// An order for a relay on loopback.
pub(crate) fn order() -> RoundOrder {
    let ids = RelayIds { rsa: RsaId([7; 20]), ed25519: None };
    RoundOrder {
        target: Target { address: SocketAddr::from(([127, 0, 0, 1], 9001)), ids },
        mode: RoundMode::Transit { always_authenticate: false },
        defences: Defences::default(),
        sockets: 8,
        rate: Rate::from_mbit_per_s(100.0),
        seconds: 2,
        held_back_s: None,
        few_circuits_s: 3,
        check_one_in: NonZeroU32::new(125).unwrap(),
        rtt: None,
        sharing: 1,
        setup_timeout: Duration::from_secs(20),
        stall_timeout: Duration::from_secs(5),
    }
}
