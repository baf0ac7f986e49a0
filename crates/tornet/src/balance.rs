//! Load balancers: who gives the relays of a network their weights.
//!
//! Each is a [`Balancer`]. Those that measure do it *inside* the simulation, beside the network's users, on the network with the weights that it has; what they find depends on
//! what users do meanwhile.

mod capacities;
mod file;
mod flashflow;
mod torflow;

pub use capacities::Capacities;
pub use file::WeightsFile;
pub use flashflow::FlashFlow;
pub use torflow::{Scanned, TorFlow, scale_as_torflow};

use crate::error::Error;
use crate::network::Network;
use crate::run::Progress;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// Who gives relays their weights.
pub trait Balancer {
    /// In one word, as in names of files.
    fn name(&self) -> &'static str;

    /// Weighs the relays of a network.
    ///
    /// # Errors
    /// Where that cannot be done, or somebody has asked to stop.
    fn weigh(&self, network: &Network, how: &Conditions<'_>) -> Result<Weighing, Error>;
}

/// Under which conditions relays are weighed.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// Another seed gives another course.
    pub seed: u64,
    /// Threads: the result is the same with any number.
    pub threads: u16,
    /// Simulated seconds, at most.
    pub seconds_max: u32,
    /// Somebody asks to stop.
    pub stop: &'a AtomicBool,
    /// To be told of each second.
    pub progress: Progress<'a>,
}

/// What a balancer has come to. All lists are in the order of the network's relays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Weighing {
    /// The balancer's name.
    pub balancer: String,
    /// The weights.
    pub weights: Vec<u64>,
    /// What it takes for the relays' capacities, in bits per second, if it estimates any; `None` where it failed.
    pub estimates_bit_per_s: Option<Vec<Option<u64>>>,
    /// Simulated seconds that it took.
    pub simulated_s: f64,
    /// How many relays it could not measure: they keep the weight that they had.
    pub not_measured: usize,
    /// What there is to say of it, a sentence each.
    pub notes: Vec<String>,
}

/// Tor's unit of weights: 1,000 bytes per second, at least 1.
fn kilobytes(bit_per_s: u64) -> u64 {
    (bit_per_s / 8000).max(1)
}
