//! Measuring relays for real: who may be measured, with how many sockets, by which threads.
//!
//! - [`Consent`] decides whether a relay may be flooded at all;
//! - [`Defences`] reads from the consensus what a relay lets one address do, and [`Load`] plans
//!   within it;
//! - a [`Member`] is one measurer, here or elsewhere; a [`LocalMember`] is threads of this process,
//!   each driving an [`onion::measure::load::LoadGenerator`] over real sockets;
//! - [`Team`] runs a [`coordinator::Measurement`] with its members, and where the relay takes part
//!   gives it the order.
//! - [`capacity`] finds out what the measurers themselves can send and receive.

pub mod capacity;
mod consent;
mod defences;
mod gate;
mod load;
mod local;
pub mod member;
mod plan;
mod team;

pub use consent::{Consent, ConsentError};
pub use defences::Defences;
pub use gate::{Gate, Pass};
pub use load::WorkerLoad;
pub use local::{LocalMember, LocalOptions, Site, SiteError, free_cores};
pub use member::Member;
pub use plan::Load;
pub use team::{
    Approach, Coordinator, Progress, Request, Team, TeamError, TeamOptions, TeamResult, Teammate,
};
