//! The tests that a relay makes of itself before others rely on it, as C tor does.
//!
//! - **Reachability**: a circuit through two other relays back to its own port. That it comes to stand proves that
//!   others reach the port under the address that the descriptor will name, and that who answers there has our
//!   onion key. The relay before us must not be one that we have a link to of our own making: it would use that.
//! - **Directory**: a request over that circuit, if the relay serves a directory.
//! - **Bandwidth**: padding through circuits that have us in the middle, so that we really relay it: as many cells as C tor
//!   sends, ten seconds' worth of the rate and at most a circuit window. A relay that nobody uses yet would otherwise
//!   announce that it has carried nothing, get no weight, and never be used.
//!
//! All of it runs on a thread of its own, with a client of its own: to the rest of the network that is a stranger.

mod fetch;
mod paths;
mod tester;
#[cfg(test)]
mod tests;

pub(crate) use paths::Others;

use crate::driving::Engine;
use link::{Clock, Teller};
use onion::Rate;
use onion::circuit::NextHop;
use rand::rngs::StdRng;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Weak;
use tester::{Failure, Tester};

/// What has come of the test of reachability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// A circuit through others has come back.
    Reached {
        /// Where the relay is reached.
        address: SocketAddr,
        /// Whether its directory answered; `None` if it serves none.
        directory: Option<bool>,
    },
    /// None has. It is tried again.
    Unreached {
        /// Where it should be.
        address: SocketAddr,
        /// What was wrong with the last attempt.
        problem: String,
        /// Whether a descriptor is published all the same (`assume_reachable`).
        is_published: bool,
    },
}

impl fmt::Display for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reached { address, directory } => {
                write!(f, "reachable at {address}: a circuit through other relays came back")?;
                match directory {
                    Some(false) => f.write_str(
                        ", but its directory did not answer: it is published without one",
                    ),
                    Some(true) | None => Ok(()),
                }
            }
            Self::Unreached { address, problem, is_published } => {
                let then = match is_published {
                    true => "the descriptor is published all the same, as `assume_reachable` says",
                    false => "no descriptor is published until one does",
                };
                write!(
                    f,
                    "not reachable at {address}: {problem}; {then}. Are `address` and `or_port` what others \
                     see, and does every firewall and router before it let TCP in to that port?"
                )
            }
        }
    }
}

/// What a test is made with.
pub(crate) struct Kit {
    /// Ourselves as others find us.
    pub(crate) own: NextHop,
    /// Whom it may go through.
    pub(crate) others: Others,
    pub(crate) is_directory: bool,
    /// For as much padding as this lets through; `None` for no padding.
    pub(crate) padding: Option<Rate>,
    pub(crate) clock: Clock,
    pub(crate) rng: StdRng,
    pub(crate) engine: Teller<Engine>,
    /// Its end ends the test.
    pub(crate) relay: Weak<()>,
}

/// A part of the test is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The relay was reached; whether its directory was, if it has one.
    Reached(Option<bool>),
    /// It was not, and why.
    Unreached(String),
    /// Padding has gone through it, or can't: nothing more will come.
    Done {
        /// Whether it has.
        is_padded: bool,
    },
}

/// Makes the whole test. Gives up in the middle, without a word, if the relay ends.
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
