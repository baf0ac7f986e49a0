//! A whole Tor network in virtual time, made for scale: the engine itself at the seam of cells, on hosts with kernels that are models.
//!
//! Relays are [`router::Core`](onion::router::Core) and clients [`client::Core`](onion::client::Core), both over
//! [`HeaderOnly`](onion::cell_model::HeaderOnly) cells: what schedules, limits and windows decide here is what decides on real sockets. Around them:
//!
//! - A **host** has an up and a down rate that all its connections share. Connections have turns on the way up; on the way down they queue, and what
//!   would wait too long is dropped.
//! - A **connection** is TCP: slow start with an early exit, Cubic or Reno, fast retransmission, time-outs, send buffers that grow as Linux' do, and the state that KIST reads.
//!   Its unit is the flight: whole cells, at most a quarter of the congestion window, that share their fate.
//! - **FEEDBACK** (windows from hop to hop) takes the way of its link's cells: behind those that were written before, on the hosts' rates, and after what was lost has come again.
//! - Between **places** there are latency and loss ([`Net`]).
//! - A **team** measures relays as an echo: what it is told and what it tells passes between two windows ([`Part::order`]).
//! - **Users** fetch files, or do what TGen's Markov models say, over circuits that are chosen by weight and position ([`Paths`]).
//!
//! # Time
//!
//! Nothing that one host does is felt by another sooner than the least latency between places. So time passes in *windows* of that length: in a window each host
//! lives alone, with what was sent to it before. A [`Part`] holds some of the hosts and passes windows; whoever drives several parts gives each what the others have
//! sent to it, between windows. What comes to a host is sorted by time, sender and number, so that a run does not depend on how hosts are
//! distributed over parts and threads. There is no global order of events, and none is needed: the cost of an event does not depend on the size of the network.
//!
//! # What is not modelled
//!
//! Jitter; loss of acknowledgements and of FEEDBACK; delayed acknowledgements; segments that a flight loses alone; a path's own bottlenecks, other than those of its two hosts.

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
pub use config::{ClientConfig, HostConfig, RelayConfig, Role};
pub use direct::Direct;
pub use host::{Host, HostFigures};
pub use markov::{Delay, MarkovModel, Observation, Packets, State};
pub use message::{HostId, Mail};
pub use net::Net;
pub use part::Part;
pub use paths::{Candidate, Paths, PositionWeights};
pub use records::{Ending, Record};
pub use tcp::{Control, SEGMENT_MEMORY_BYTES};
pub use team::{TeamNews, TeamOrder, TeamReport, coordinator_key};
pub use users::{Fetch, Models, Probe, Scan, Size, Users};

#[cfg(test)]
mod tests;
