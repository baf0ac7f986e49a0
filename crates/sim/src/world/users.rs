//! What users do.

use super::markov::MarkovModel;
use super::message::{HostId, Job};
use crate::split_mix::SplitMix64;
use alloc::sync::Arc;
use alloc::vec::Vec;
use onion::Duration;

/// Bytes by which a benchmark asks for its download.
const FETCH_REQUEST_BYTES: u64 = 1000;

/// Bytes by which a stream of the packet model begins: about those of TGen's header.
const PACKETS_REQUEST_BYTES: u64 = 150;

/// Models of many users together, as TGen has them.
#[derive(Clone, Debug, Default)]
pub struct Models {
    /// How often a user begins a flow.
    pub flow: MarkovModel,
    /// How streams follow each other in a flow.
    pub stream: MarkovModel,
    /// What a stream carries.
    pub packet: MarkovModel,
}

impl Models {
    pub(super) const fn request_bytes(job: Job) -> u64 {
        match job {
            Job::Fetch(_) => FETCH_REQUEST_BYTES,
            Job::Packets(_) => PACKETS_REQUEST_BYTES,
        }
    }
}

/// A size that is fetched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// How often, among the others.
    pub weight: f64,
    /// Bytes of the download.
    pub bytes: u32,
    /// A download that is not complete by then is given up; `None` for no limit.
    pub timeout: Option<Duration>,
    /// A download that has received nothing for this long is given up; `None` for no limit.
    pub stallout: Option<Duration>,
}

/// A client that fetches, and fetches again.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// Time from one beginning to the next. If there are several, each has the same chance, each time.
    pub pauses: Vec<Duration>,
    /// How often in all; no end if `None`.
    pub count: Option<u32>,
    /// What is fetched.
    pub sizes: Vec<Size>,
}

impl Fetch {
    /// The time until the next download begins. No random number is drawn where there is no choice.
    pub(super) fn draw_pause(&self, rng: &mut SplitMix64) -> Duration {
        match self.pauses[..] {
            [] => Duration::MAX,
            [only] => only,
            _ => {
                let place = rng.below(self.pauses.len() as u64);
                self.pauses[usize::try_from(place).unwrap_or(0)]
            }
        }
    }
}

/// A download over a circuit of two hops, to see how fast it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The hops; the second lets streams out.
    pub path: [HostId; 2],
    /// Bytes of the download.
    pub bytes: u32,
    /// From its beginning, on a circuit that stands.
    pub timeout: Duration,
}

/// Who measures relays by downloads through them.
#[derive(Clone, Debug)]
pub struct Scan {
    /// In their order.
    pub probes: Vec<Probe>,
    /// How many are under way at a time.
    pub at_once: u16,
}

/// Who uses a client.
#[derive(Clone, Debug)]
pub enum Users {
    /// Many, as models say. Each flow has circuits of its own. Pauses between flows are divided by the scale.
    Markov(Arc<Models>, f64),
    /// A benchmark. Each download has a circuit of its own.
    Fetch(Arc<Fetch>),
    /// A scanner.
    Scan(Arc<Scan>),
}
