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
mod local;
pub mod member;
mod opt_in;
mod plan;
mod team;

pub use coordinator::{Consent, ConsentError, Defences, WorkerLoad};
pub use local::{LocalMember, LocalOptions, Site, SiteError, free_cores};
pub use member::Member;
pub use opt_in::{OptInError, read_opt_in};
pub use plan::{Load, probe};
pub use team::ordering::{OrderReport, give as give_order};
pub use team::{
    Approach, Coordinator, Progress, Request, Team, TeamError, TeamOptions, TeamResult, Teammate,
};
