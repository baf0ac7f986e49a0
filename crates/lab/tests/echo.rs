//! A relay that takes part in its measurement: what an honest one gets, what lies gain, and what
//! strangers can do.
//!
//! Each scenario is played in virtual time and on real sockets, by the same body.

#[path = "common/echo_scene.rs"]
mod echo_scene;
#[path = "common/echo_worlds.rs"]
mod echo_worlds;
#[path = "common/party.rs"]
mod party;
#[path = "common/stage.rs"]
mod stage;

#[path = "echo/circuits.rs"]
mod circuits;
#[path = "echo/honest.rs"]
mod honest;
#[path = "echo/links.rs"]
mod links;
#[path = "echo/measurers.rs"]
mod measurers;
#[path = "echo/orders.rs"]
mod orders;
#[path = "echo/relays.rs"]
mod relays;

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
