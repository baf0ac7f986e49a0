//! Load balancers, which assign weights to the relays of a network.
//!
//! Each is a [`Balancer`]. Those that measure do it *inside* the simulation, together with the network's users,
//! on the network with its current weights; the results depend on the users' traffic.

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

/// The country of [`TorFlow`]'s scanner.
pub const SCANNER_COUNTRY: &str = "US";

/// Assigns weights to relays.
pub trait Balancer {
    /// Its name, used in file names.
    fn name(&self) -> &'static str;

    /// Assigns weights to the relays of a network.
    ///
    /// # Errors
    /// If it fails or was interrupted.
    fn weigh(&self, network: &Network, how: &Conditions<'_>) -> Result<Weighing, Error>;
}

/// The conditions of a run.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// The random seed.
    pub seed: u64,
    /// Threads: the result does not depend on their number.
    pub threads: u16,
    /// Maximum simulated seconds.
    pub seconds_max: u32,
    /// Requests interruption.
    pub stop: &'a AtomicBool,
    /// Called after each simulated second.
    pub progress: Progress<'a>,
}

/// The result of a balancer. All lists are in the order of the network's relays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Weighing {
    /// The balancer's name.
    pub balancer: String,
    /// The weights.
    pub weights: Vec<u64>,
    /// Estimated capacities in bits per second, if it estimates any; `None` for relays that it could not
    /// measure.
    pub estimates_bit_per_s: Option<Vec<Option<u64>>>,
    /// Simulated seconds of the run.
    pub simulated_s: f64,
    /// The number of relays that it could not measure: they keep their weight.
    pub not_measured: usize,
    /// Remarks, one sentence each.
    pub notes: Vec<String>,
}

/// Tor's unit of weights: 1,000 bytes per second, at least 1.
fn kilobytes(bit_per_s: u64) -> u64 {
    (bit_per_s / 8000).max(1)
}
