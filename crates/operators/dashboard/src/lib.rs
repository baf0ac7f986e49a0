//! A coordinator's store as web pages, JSON and Prometheus metrics.
//!
//! The dashboard opens the store read-only and is a separate process, so a failure never affects the
//! coordinator. It knows only what the store and the folder of bandwidth files contain. Future slots are not
//! stored, so nobody can learn them here.
//!
//! Pages are rendered on the server, load nothing from elsewhere, and work without scripts; with scripts
//! they update themselves. They support phones and screen readers: landmarks, table headings, and
//! keyboard navigation.
//!
//! | path | content |
//! |---|---|
//! | `/` | progress of the period, results, failures and their causes, capacity and weights |
//! | `/relays` | all relays; `search`, `sort`, `order`, `state`, `cause`, `page` |
//! | `/relays/FINGERPRINT` | the explanation of a relay's weight, its history, its seconds |
//! | `/measurers`, `/measurers/KEY` | the team, a measurer's paths |
//! | `/periods`, `/periods/BEGIN` | measurements by period |
//! | `/api/…` | the data of these pages as JSON |
//! | `/metrics` | metrics for Prometheus |
//! | `/health` | 200 if the coordinator has reported recently, else 503 |
//! | `/events` | an event after each write to the store |
//!
//! [`write_site`] writes pages of all relays that need no server.

mod api;
mod app;
mod bandwidth_line;
mod connections;
mod events;
mod figures;
mod format;
mod metrics;
mod pages;
mod response;
mod server;
mod site;
#[cfg(test)]
mod tests;

pub use self::metrics::gate_metrics;
pub use app::Options;
pub use bandwidth_line::weights;
pub use server::{DashboardError, Server};
pub use site::{Site, SiteError, SiteOptions, write_site};
