//! Whole Tor networks in virtual time: the inputs of [`sim::world`], and its results.
//!
//! | module | what is in it |
//! |---|---|
//! | [`network`] | the description of a network |
//! | [`shadow`] | reading networks that tornettools has sampled for Shadow |
//! | [`export`] | writing a network for Shadow, with C tor and TGen |
//! | [`scenario`] | networks and configurations written by hand, in TOML |
//! | [`sample`] | a network of any size, drawn from all relays of the Tor network |
//! | [`models`] | TGen's Markov models, in GraphML |
//! | [`places`] | countries, and what lies between them |
//! | [`map`] | latency and loss between hosts by a map in GML, as in Shadow |
//! | [`run`] | one run, on several threads |
//! | [`survey`] | measurements of circuits in a loaded network |
//! | [`truth`] | the TCP model compared with real sockets |
//! | [`results`] | results: files, statistics, a fingerprint |
//! | [`errors`] | errors of estimates and weights |
//! | [`balance`] | load balancers: ideal, TorFlow, FlashFlow, a file |
//! | [`flow_level`] | load balancers under attack, with a model of flows |

pub mod balance;
mod build;
mod error;
pub mod errors;
pub mod export;
pub mod flow_level;
mod graphml;
mod host_paths;
pub mod map;
pub mod models;
pub mod network;
pub mod places;
pub mod results;
pub mod run;
pub mod sample;
pub mod scenario;
pub mod shadow;
pub mod survey;
mod tgen;
mod torrc;
pub mod truth;
mod units;

pub use error::Error;
