//! Relays with clients and destinations: streams through them, what bad clients can do, and what a
//! bad path does.
//!
//! Scenes that do not depend on a model of the network are played in virtual time and on real sockets,
//! by the same body; the module `modelled` is virtual time's alone.

#[path = "common/network.rs"]
mod network;
#[path = "common/party.rs"]
#[allow(dead_code, reason = "other test crates use the rest")]
mod party;
#[path = "common/stage.rs"]
mod stage;

#[path = "scenes/bounds.rs"]
mod bounds;
#[path = "scenes/circuits.rs"]
mod circuits;
#[path = "scenes/floods.rs"]
mod floods;
#[path = "scenes/modelled.rs"]
mod modelled;
#[path = "scenes/transfers.rs"]
mod transfers;

/// Plays each body in both worlds.
macro_rules! in_both_worlds {
    ($($claim:ident)*) => {
        mod in_virtual_time {
            use crate::stage::VirtualTime;
            $(#[test] fn $claim() { super::$claim(VirtualTime::new(1, Some(3000))); })*
        }
        mod on_real_sockets {
            use crate::stage::RealSockets;
            $(#[test] fn $claim() { super::$claim(RealSockets::new()); })*
        }
    };
}
use in_both_worlds;
