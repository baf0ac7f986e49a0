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

#[path = "scenes/agreement.rs"]
mod agreement;
#[path = "scenes/bounds.rs"]
mod bounds;
#[path = "scenes/circuits.rs"]
mod circuits;
#[path = "scenes/floods.rs"]
mod floods;
#[path = "scenes/hop_windows.rs"]
mod hop_windows;
#[path = "scenes/linked.rs"]
mod linked;
#[path = "scenes/modelled.rs"]
mod modelled;
#[path = "scenes/transfers.rs"]
mod transfers;
