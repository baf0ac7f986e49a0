//! A relay that takes part in its measurement: what an honest one gets, what lies gain, and what
//! strangers can do.
//!
//! Each scenario is played in virtual time and on real sockets, by the same body.

#[path = "common/echo_play.rs"]
mod echo_play;
#[path = "common/echo_report.rs"]
mod echo_report;
#[path = "common/echo_scenario.rs"]
mod echo_scenario;
#[path = "common/echo_scene.rs"]
mod echo_scene;
#[path = "common/escapes.rs"]
mod escapes;
#[path = "common/found.rs"]
mod found;
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
