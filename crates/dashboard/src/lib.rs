//! What a coordinator's store tells: pages for people, JSON and metrics for programs.
//!
//! It reads and changes nothing. It is a process of its own, so that whatever happens to it is nothing to the coordinator, and it
//! knows only what the store holds: no coming slot is in there, so none can be asked out of it.
//!
//! Pages are made here, need nothing from elsewhere, and work without scripts; with them they follow what happens. They are for
//! phones and screen readers, too: landmarks, tables with headings, an order that a keyboard can follow.
//!
//! | path | what |
//! |---|---|
//! | `/` | how far the period is, what was measured, what failed and why |
//! | `/relays` | all relays; `search`, `sort`, `order`, `state`, `cause`, `page` |
//! | `/relays/FINGERPRINT` | why one has its weight, its history, its seconds |
//! | `/measurers` | the team |
//! | `/periods`, `/periods/BEGIN` | what was measured when |
//! | `/api/…` | the same as JSON |
//! | `/metrics` | for Prometheus |
//! | `/health` | 200 if the coordinator has said something lately, else 503 |
//! | `/events` | an event whenever something was written |

mod answer;
mod api;
mod connections;
mod figures;
mod line;
mod metrics;
mod pages;
mod read;
mod server;
#[cfg(test)]
mod tests;
mod words;

pub use line::weights;
pub use server::{DashboardError, Options, Server};
