//! Relays that lie to those who measure them: what a [`Router`](onion::router::Router) does amiss.
//!
//! All are the router with another [`Behavior`](onion::router::Behavior): a [`TransitLiar`] betrays those who send
//! through it, as any relay can; an [`EchoLiar`] takes part in its own measurement and betrays it.
//! [`TransitLie`] and [`EchoLie`] say what they may do, and what is in it for them. [`LiarRelay`] runs an
//! [`EchoLiar`] on real sockets, for experiments, and [`Forgers`] many in virtual time. [`Caller`] is a
//! coordinator or measurer that says what it must not.

mod caller;
mod echo;
mod forgers;
mod relay;
mod transit;

pub use caller::Caller;
pub use echo::{EchoLiar, EchoLie};
pub use forgers::{ForgerRun, Forgers};
pub use relay::{LiarError, LiarRelay, LiarSetup};
pub use transit::{LiedAt, TransitLiar, TransitLie};

use rand::Rng;

/// Lies whose places are remembered.
const LIES_MAX: usize = 4096;

/// A number from zero to one, one excluded.
fn chance(rng: &mut impl Rng) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}
