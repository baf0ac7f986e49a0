//! Relays with clients and destinations: streams, abusive clients, and impaired paths.
//!
//! Scenes without a network model run in virtual time and on real sockets, with the same code; the module
//! `modelled` is for virtual time only.

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
