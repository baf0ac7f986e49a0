//! Real measurements of relays: consent, sockets and threads.
//!
//! - [`Consent`] decides whether a relay may be flooded at all;
//! - [`Defences`] reads a relay's limits for a single address from the consensus, and [`Load`] plans within them;
//! - a [`Member`] is one measurer, local or remote; a [`LocalMember`] is threads of this process, each driving an
//!   [`onion::measure::load::LoadGenerator`] over real sockets;
//! - a [`LocalTeam`] is some of those, for a [`coordinator::period::Period`];
//! - [`give_order`] orders a participating relay to be measured;
//! - [`capacity`] measures the send and receive rates of the measurers themselves.

pub mod capacity;
mod local;
mod local_team;
pub mod member;
mod opt_in;
mod order;
mod plan;
mod ports;

pub use coordinator::{Consent, ConsentError, Defences, WorkerLoad};
pub use local::{LocalMember, LocalOptions, Site, SiteError, free_cores};
pub use local_team::{LocalTeam, TeamError, TeamOptions};
pub use member::Member;
pub use opt_in::{OptInError, read_opt_in};
pub use order::{OrderReport, give as give_order};
pub use plan::{Load, probe};
pub use ports::{BadPortRange, PortRange};
