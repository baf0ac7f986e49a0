//! A relay that takes part in its measurement: the estimate of an honest one, the gain of lies, and attacks by
//! strangers.
//!
//! Each scenario runs in virtual time and on real sockets, with the same code.

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
