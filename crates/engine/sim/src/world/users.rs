//! Users and their traffic.

use super::markov::MarkovModel;
use super::message::{HostId, Job};
use crate::split_mix::SplitMix64;
use alloc::sync::Arc;
use alloc::vec::Vec;
use onion::Duration;

/// The length of a benchmark's request.
const FETCH_REQUEST_BYTES: u64 = 1000;

/// The length of the first message of a stream of the packet model: about that of TGen's header.
const PACKETS_REQUEST_BYTES: u64 = 150;

/// Models of many users together, as in TGen.
#[derive(Clone, Debug, Default)]
pub struct Models {
    /// The rate of flows.
    pub flow: MarkovModel,
    /// The streams of a flow.
    pub stream: MarkovModel,
    /// The packets of a stream.
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

/// A download size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Its weight among the others.
    pub weight: f64,
    /// Its size in bytes.
    pub bytes: u32,
    /// The timeout of the download; `None` for none.
    pub timeout: Option<Duration>,
    /// The timeout without received data; `None` for none.
    pub stallout: Option<Duration>,
}

/// A client that downloads repeatedly.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// The time from one beginning to the next; one of several with equal probability.
    pub pauses: Vec<Duration>,
    /// The number of downloads; unlimited if `None`.
    pub count: Option<u32>,
    /// The sizes.
    pub sizes: Vec<Size>,
}

impl Fetch {
    /// The time until the next download begins. No random number is drawn if there is no choice.
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

/// A circuit to measure: its set-up time, round trips to its hops, and the speed of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The hops; the last is an exit.
    pub path: Vec<HostId>,
    /// The hops whose round trips are measured, one after the other, counted from 0. Each is asked for a stream that no relay opens. If there
    /// are any, the scanner first closes its idle links, so that the set-up time has that of a link.
    pub round_trips: Vec<u8>,
    /// The size of the download in bytes; 0 for none.
    pub bytes: u32,
    /// The timeout of all round trips together, and that of the download.
    pub timeout: Duration,
}

/// A scanner: measures circuits.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The probes, in order.
    pub probes: Vec<Probe>,
    /// The number of simultaneous probes.
    pub at_once: u16,
}

/// The users of a client.
#[derive(Clone, Debug)]
pub enum Users {
    /// Many, by models. Each flow has its own circuits. Pauses between flows are divided by the scale.
    Markov(Arc<Models>, f64),
    /// A benchmark. Each download has its own circuit.
    Fetch(Arc<Fetch>),
    /// A scanner.
    Scan(Arc<Scan>),
}
