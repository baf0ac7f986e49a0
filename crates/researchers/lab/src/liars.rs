//! Relays that cheat in their measurement: a [`Router`](onion::router::Router) with another
//! [`Behavior`](onion::router::Behavior).
//!
//! A [`TransitLiar`] cheats clients and measurers that send through it, as any relay can. An [`EchoLiar`] takes part in
//! its own measurement and cheats in it. [`TransitLie`] and [`EchoLie`] list the lies and their gain. [`LiarRelay`] runs
//! an [`EchoLiar`] on real sockets, for experiments, and [`Forgers`] many in virtual time.

mod echo;
mod forgers;
mod relay;
mod transit;

pub use echo::{EchoLiar, EchoLie};
pub use forgers::{ForgerRun, Forgers};
pub use relay::{LiarError, LiarRelay, LiarSetup};
pub use transit::{LiedAt, TransitLiar, TransitLie};

use rand::Rng;

/// Maximum number of recorded lies.
const LIES_MAX: usize = 4096;

/// A random number in [0, 1).
fn chance(rng: &mut impl Rng) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}
