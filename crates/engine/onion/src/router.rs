//! An onion router: the relay's side of links, circuits and streams.
//!
//! [`Core`] makes all decisions, over cells of any [`CellModel`](crate::cell_model::CellModel). [`Router`] adds
//! the link handshake and framing, and implements [`Node`](crate::node::Node).
//!
//! A router accepts links, answers CREATE_FAST and CREATE2 with ntor, extends circuits over one link to each
//! relay (whichever side dialled it), and relays cells in both directions with its layer of encryption removed
//! or added. On circuits that end at it, it opens streams: to destinations, if it is configured as an exit, and
//! to a directory server. As the target of a measurement it returns the cells of measurement circuits,
//! decrypted, and limits its clients to their share meanwhile (see
//! [`measure::target`](crate::measure::target)).
//!
//! # Streams
//!
//! A stream is a connection without TLS; its [`ConnId`](crate::node::ConnId) comes from the same number space
//! as those of links. Data from a destination becomes DATA cells at once, in the queue of its circuit. So the
//! router reads nothing that it cannot send: [`receive_limit`](crate::node::Node::receive_limit) is the minimum
//! of the circuit's window, the stream's window and the free space of the queue, and
//! [`poll_readable`](crate::node::Node::poll_readable) names the streams of a circuit in round-robin order when
//! there is space again. Towards the destination each stream has a buffer. The router controls its growth by
//! withholding SENDMEs or by XOFF (see [`flow`](crate::flow)). Where tor-spec is silent, the router follows C
//! tor.
//!
//! # Bounds
//!
//! | what | bound | beyond it |
//! |---|---|---|
//! | queued cells of a circuit, in each direction | [`RouterConfig::queue_limit_cells`] | the circuit is destroyed, reason 5 |
//! | data from destinations among them | 256 cells | destinations are not read until 10 are left |
//! | bytes for one destination | 500 cells; with congestion control 16 MiB | the circuit is destroyed; the stream ends |
//! | memory of all queues, circuits, streams and links | [`RouterConfig::held_bytes_max`] | the oldest queued data is dropped until a tenth is free |
//! | memory of circuits, streams and links alone | half of that | the longest idle circuits and links of the addresses that have most are closed, reason 5, until a tenth is free |
//! | links being dialled | 512; 256 to addresses that are not in the consensus | the oldest of the address that requested most is dropped |
//! | handshakes queued for another thread | 4,096 | the newest of the address that has most is dropped, reason 5 |
//! | time of a handshake in that queue | 1.75 s | refused, reason 5 |
//! | streams of a circuit | 1,024 | refused, "misc" |
//! | streams to destinations and lookups, of all circuits, and closed streams with unwritten data | three quarters of [`RouterConfig::streams_max`] | the circuit that has most loses its newest to one that has fewer; else refused, "resource limit" |
//! | streams to the directory server | a quarter of it, [`DIRECTORY_STREAMS_MAX`] at most | the same, among neighbours before circuits |
//! | reordering buffer of a Conflux set | 16,384 messages | the set is destroyed, reason 1 |
//! | circuits of a set | 8 | the next is destroyed, reason 1 |
//! | bytes read from links per second | the rate limit | not read: links of strangers wait first, those of measurers never |
//! | padding cells of a client's link in ten seconds | four times what padding-spec allows, and 32 | the link is closed |
//! | circuits of a link | 10,000 | refused, reason 5 |
//! | time for the remaining data of a closed stream | 15 s without progress | dropped |
//! | idle time of a link without circuits | 3 to 4.5 minutes; to a relay, about `nf_conntimeout_relays` | closed |
//! | time of a lookup | 300 s | the stream ends, "timeout" |
//!
//! A full table evicts by fairness instead of refusing newcomers: a bound that the first comer can fill would lock out everybody
//! else. So the address or circuit that has most gives way, and memory is reclaimed by age.
//!
//! # Threads
//! One thread decides; others do TLS, sockets and public-key operations (`link::ThreadedDriver`,
//! [`Action::Work`](crate::node::Action::Work)). What is left on the deciding thread is a layer of AES and two copies for each cell. The
//! alternative, a router on each thread, would need locks for everything that a relay has once: its rate limit, its
//! clients' share during a measurement, one link to each relay, and KIST's view of all sockets.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `face` | link handshakes and framing |
//! | `cells`, `transmit` | incoming cells and outgoing cells |
//! | `conns` | the table of all connections |
//! | `links` | peers, queued output, rate limits in both directions, padding, upkeep |
//! | `circuits` | CREATE, EXTEND, DESTROY, queues of cells |
//! | `schedule` | the order of links and circuits |
//! | `streams` | exit and directory streams |
//! | `feedback` | hop-by-hop windows: the FEEDBACK cell |
//! | `conflux` | linked circuits: LINK, reordering, the choice of a leg |
//! | `measurement` | the target's side of a measurement |
//! | `behavior` | the hooks by which tests make a relay dishonest |
//! | `memory` | the memory limit and the OOM handler |
//! | `eviction` | closing idle circuits to make space for new ones |

mod behavior;
mod cells;
mod circuits;
mod config;
mod conflux;
mod conns;
mod core;
#[cfg(test)]
mod costs;
mod dos;
mod event;
mod eviction;
mod face;
mod fair_queue;
mod feedback;
mod links;
mod measurement;
mod memory;
mod parameters;
mod queue_age;
pub mod schedule;
mod slab;
mod streams;
#[cfg(test)]
mod table_lookups;
mod transmit;
mod violation;

pub use self::core::Core;
pub use behavior::{Behavior, ForwardAction, Honest};
pub use circuits::{HandshakeDone, HandshakeJob, OnLink};
pub use config::{RateLimit, RouterConfig};
pub use dos::{CircuitLimit, ConnectionLimit, DosParams, Place, StreamLimit};
pub use event::{RouterEvent, RouterTotals};
pub use face::Router;
pub use fair_queue::FairQueue;
pub use links::{Control, LinkPeer, RelayLink};
pub use parameters::Parameters;
pub use streams::{
    Addresses, DIRECTORY_STREAMS_MAX, ExitConfig, ExitPolicy, ExitRule, KnownRelays, RuleError,
    is_private,
};
pub use violation::{Offender, Violation};
