//! Measuring relays for real: who may be measured, with how many sockets, by which threads.
//!
//! - [`Consent`] decides whether a relay may be flooded at all;
//! - [`Defences`] reads from the consensus what a relay lets one address do, and [`Load`] plans
//!   within it;
//! - [`Team`] runs a [`coordinator::Measurement`] with measurers that are threads of this process,
//!   each driving an [`onion::measure::pump::Pump`] over real sockets.

mod consent;
pub mod member;
mod plan;
mod team;
mod worker;

pub use consent::{Consent, ConsentError};
pub use member::Member;
pub use plan::{Defences, Load};
pub use team::{Progress, Request, Team, TeamError, TeamOptions, TeamResult};
pub use worker::WorkerLoad;
