//! Self-tests of a relay before others depend on it, as in C tor.
//!
//! - **Reachability**: a circuit through two other relays back to the relay's own port. It proves
//!   that others reach the port at the published address, and that the listener has the relay's
//!   onion key. The last relay before this one must not have a link that this relay has dialled,
//!   because the circuit would use it.
//! - **Directory**: a request over that circuit, if the relay serves a directory.
//! - **Bandwidth**: padding through circuits with this relay in the middle, with the number of
//!   cells of C tor: ten seconds of the rate, but at most a circuit window. Otherwise an unused
//!   relay would announce zero bandwidth, get no weight, and stay unused.
//!
//! The tests run on a separate thread with a client that the rest of the network cannot distinguish
//! from others.

mod fetch;
mod paths;
mod tester;
#[cfg(test)]
mod tests;

pub(crate) use paths::Others;

use crate::engine::Engine;
use link::{Clock, NodeHandle};
use onion::Rate;
use onion::circuit::NextHop;
use rand::rngs::StdRng;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Weak;
use tester::{Failure, Tester};

/// The result of the reachability test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// A circuit through others was built.
    Reached {
        /// The tested address.
        address: SocketAddr,
        /// Whether its directory answered; `None` if it serves none.
        directory: Option<bool>,
    },
    /// No circuit was built. The test is repeated.
    Unreached {
        /// The tested address.
        address: SocketAddr,
        /// The reason for the last failure.
        problem: String,
        /// Whether a descriptor is published anyway (`assume_reachable`).
        is_published: bool,
    },
}

impl fmt::Display for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reached { address, directory } => {
                write!(f, "reachable at {address}: a circuit through other relays was built")?;
                match directory {
                    Some(false) => f.write_str(
                        ", but its directory did not answer: it is published without one",
                    ),
                    Some(true) | None => Ok(()),
                }
            }
            Self::Unreached { address, problem, is_published } => {
                let then = match is_published {
                    true => "the descriptor is published anyway, because of `assume_reachable`",
                    false => "no descriptor is published until one is built",
                };
                write!(
                    f,
                    "not reachable at {address}: {problem}; {then}. Check that `address` and `or_port` are those that \
                     others see, and that each firewall and router permits TCP to that port"
                )
            }
        }
    }
}

/// What a test needs.
pub(crate) struct Kit {
    /// This relay as a hop.
    pub(crate) own: NextHop,
    /// Relays for the paths.
    pub(crate) others: Others,
    pub(crate) is_directory: bool,
    /// Limits the padding; `None` for no padding.
    pub(crate) padding: Option<Rate>,
    pub(crate) clock: Clock,
    pub(crate) rng: StdRng,
    pub(crate) engine: NodeHandle<Engine>,
    /// Dropping it ends the test.
    pub(crate) relay: Weak<()>,
}

/// A result of a part of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The relay was reached; whether its directory was, if it has one.
    Reached(Option<bool>),
    /// The relay was not reached, with the reason.
    Unreached(String),
    /// The padding test is complete.
    Done {
        /// Whether padding has passed.
        is_padded: bool,
    },
}

/// Performs the test. Stops without a result if the relay ends.
pub(crate) fn run(kit: Kit, report: &dyn Fn(Report)) {
    let padding = kit.padding;
    let mut tester = match Tester::new(kit) {
        Ok(tester) => tester,
        Err(problem) => return report(Report::Unreached(format!("machine: {problem}"))),
    };
    let reached = match tester.reach() {
        Ok(reached) => reached,
        Err(Failure::Ended) => return,
        Err(Failure::Problem(problem)) => return report(Report::Unreached(problem)),
    };
    let directory = tester.ask_directory(reached);
    let Ok(directory) = directory else { return };
    report(Report::Reached(directory));
    let padded = padding.map_or(Ok(false), |rate| tester.pad(rate));
    if let Ok(is_padded) = padded {
        report(Report::Done { is_padded });
    }
}
