//! Whole Tor networks in virtual time: what [`sim::world`] needs from outside, and what comes out of it.
//!
//! | module | what is in it |
//! |---|---|
//! | [`network`] | what a network consists of, whoever describes it |
//! | [`shadow`] | networks as tornettools samples them for Shadow |
//! | [`export`] | the same network for Shadow, with stock tor and TGen |
//! | [`scenario`] | networks and choices by hand, in TOML |
//! | [`sample`] | a network of any size, drawn from all relays of the Tor network |
//! | [`models`] | TGen's Markov models, in GraphML |
//! | [`places`] | countries, and what lies between them |
//! | [`map`] | what lies between hosts by a map in GML, as Shadow has it |
//! | [`run`] | one run, on some threads |
//! | [`truth`] | the model of TCP held beside real sockets |
//! | [`results`] | what came out: files, figures, a fingerprint |
//! | [`errors`] | how far estimates and weights are from what is true |
//! | [`balance`] | who gives relays their weights: ideal, TorFlow, FlashFlow, a file |

pub mod balance;
mod build;
mod error;
pub mod errors;
pub mod export;
mod graphml;
pub mod map;
pub mod models;
pub mod network;
pub mod places;
pub mod results;
pub mod run;
pub mod sample;
pub mod scenario;
pub mod shadow;
mod tgen;
mod torrc;
pub mod truth;
mod units;
mod ways;

pub use error::Error;
