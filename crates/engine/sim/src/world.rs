//! A whole Tor network in virtual time, built for scale: the engine on cells, on hosts with modelled kernels.
//!
//! Relays are [`router::Core`](onion::router::Core) and clients [`client::Core`](onion::client::Core), both
//! over [`HeaderOnly`](onion::cell_model::HeaderOnly) cells: schedulers, limits and windows are the code that
//! runs on real sockets. Around them:
//!
//! - A **host** has an upload and a download rate that all its connections share. Connections are served
//!   round-robin upwards; downwards they queue, and packets that would wait too long are dropped.
//! - A **connection** is TCP: slow start with HyStart, Cubic or Reno, fast retransmit, RTO, send buffers with
//!   Linux' autotuning, and the state that KIST reads. Its unit is the flight: whole cells, at most a quarter
//!   of the congestion window, with the same fate.
//! - **FEEDBACK** (hop-by-hop windows) is part of its link's byte stream: behind cells written before, subject
//!   to the hosts' rates, and after retransmissions.
//! - Between **places** there are latency and loss ([`Net`]).
//! - A **team** measures relays by echo: orders and reports pass between two windows ([`Part::order`]).
//! - **Users** fetch files, or follow TGen's Markov models, over circuits that are chosen by weight and
//!   position ([`Paths`]).
//!
//! # Time
//!
//! No event on one host affects another before the minimum latency between places has passed. So time advances
//! in *windows* of that length (conservative look-ahead): within a window each host runs independently, with
//! the mail sent to it before. A [`Part`] has some of the hosts and advances by windows; the driver of several
//! parts delivers their mail between windows. Mail to a host is sorted by time, sender and number, so a run
//! does not depend on the distribution of hosts over parts and threads. There is no global event queue: the
//! cost of an event does not depend on the size of the network.
//!
//! # Not modelled
//!
//! Jitter; loss of acknowledgements and of FEEDBACK; delayed acknowledgements; loss of single segments of a
//! flight; bottlenecks of a path other than those of its two hosts.

mod client;
mod config;
mod conns;
mod direct;
mod host;
mod host_scratch;
mod jobs;
mod kernel;
mod markov;
mod member;
mod message;
mod net;
mod part;
mod paths;
mod records;
mod relay;
mod server;
mod socket;
mod tcp;
mod team;
mod timing_wheel;
mod unsent;
mod users;

pub use crate::split_mix::SplitMix64;
pub use config::{ClientConfig, Egress, HostConfig, RelayConfig, Role};
pub use direct::Direct;
pub use host::{Host, HostFigures};
pub use markov::{Delay, MarkovModel, Observation, Packets, State};
pub use message::{HostId, Mail};
pub use net::Net;
pub use part::Part;
pub use paths::{Candidate, Paths, PositionWeights};
pub use records::{CircuitTimes, Ending, Record};
pub use tcp::{Control, SEGMENT_MEMORY_BYTES};
pub use team::{ReportContent, TeamOrder, TeamReport, coordinator_key};
pub use users::{Fetch, Models, Probe, Scan, Size, Users};

#[cfg(test)]
mod tests;
