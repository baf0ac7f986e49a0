//! An onion router: what a relay does with cells.
//!
//! [`Core`] decides, over cells of any [`CellModel`](crate::cell_model::CellModel); [`Router`] is its face on links of bytes,
//! a [`Node`](crate::node::Node).
//!
//! It accepts links, answers CREATE_FAST and CREATE2 with ntor, extends circuits over one link to each
//! relay, whoever of the two dialled it, and passes relay cells both ways with its layer taken off or
//! put on. Where a circuit ends it opens streams: to destinations, if it is configured as an exit, and
//! to a directory server. As the target of a measurement it sends the cells of measurement circuits
//! back, decrypted, and holds its clients to their share meanwhile (see
//! [`measure::target`](crate::measure::target)).
//!
//! # Streams
//!
//! A stream is a connection without TLS; its [`ConnId`](crate::node::ConnId) is from the same numbers as those of links. What a
//! destination sends becomes DATA cells at once, in the queue of its circuit. So nothing is read that
//! cannot be sent: [`receive_limit`](crate::node::Node::receive_limit) is the least of the circuit's window, the
//! stream's, and the queue's room, and [`poll_readable`](crate::node::Node::poll_readable) names the streams of a
//! circuit in turn when there is room again. The other way each stream has a buffer. How far it may
//! grow the client is told: by SENDMEs that stay out, or by XOFF
//! (see [`flow`](crate::flow)). What tor leaves open is done as C tor does it.
//!
//! # Bounds
//!
//! | what | bound | beyond it |
//! |---|---|---|
//! | cells of a circuit that wait, each way | [`RouterConfig::queue_limit_cells`] | the circuit is destroyed, reason 5 |
//! | data among them that destinations have sent | 256 cells | destinations are not read until 10 are left |
//! | bytes for one destination | 500 cells; with congestion control 16 MiB | the circuit is destroyed; the stream ends |
//! | all that waits, and circuits, streams, links | [`RouterConfig::held_bytes_max`] | what has waited longest goes, until a tenth is free |
//! | circuits, streams and links without it | half of that | the longest idle circuits and links of the neighbours that have most are ended, reason 5, until a tenth is free |
//! | links that are dialled at once | 512; 256 to places unknown to the consensus | the oldest goes of the neighbour that asked for most |
//! | handshakes that wait to be answered by another thread | 4,096 | the newest goes of the address that has most, reason 5 |
//! | time that a handshake waits | 1.75 s | refused, reason 5 |
//! | streams of a circuit | 1,024 | refused, "misc" |
//! | streams to destinations and lookups, of all circuits, and connections that are still to be written out | three quarters of [`RouterConfig::streams_max`] | the circuit that has most gives up its newest for one that has less; else refused, "resource limit" |
//! | streams to the directory server | a quarter of it | the same |
//! | messages of linked circuits that wait for others before them | 16,384 a set | the set is destroyed, reason 1 |
//! | circuits of a set | 8 | the next is destroyed, reason 1 |
//! | circuits of a link | 10,000 | refused, reason 5 |
//! | time for what is left of a stream that is over | 15 s without progress | dropped |
//! | time of a link without circuits | 3 to 4.5 minutes; to a relay, about `nf_conntimeout_relays` | closed |
//! | time for a lookup | 300 s | the stream ends, "timeout" |

//!
//! # Rooms
//!
//! | room | what is in it |
//! |---|---|
//! | `face` | bytes: handshakes of links, framing |
//! | `cells`, `transmit` | the way of a cell in, and out |
//! | `conns` | the table of all connections |
//! | `links` | who is at the other end, what waits to be written, rate limit, padding, upkeep |
//! | `circuits` | CREATE, EXTEND, DESTROY, queues of cells |
//! | `schedule` | which link and which circuit goes first |
//! | `streams` | streams of exits and of the directory |
//! | `feedback` | windows from hop to hop: what the next hop says it has passed on, and what we say |
//! | `conflux` | circuits that are linked here: LINK, the order of what comes, the leg of what goes |
//! | `measurement` | the target's part |
//! | `behavior` | what an honest relay does not do |
//! | `memory` | what is held in all, and what goes when it is too much |
//! | `eviction` | which circuits end so that others can begin |

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
mod feedback;
mod links;
#[cfg(test)]
mod looks;
mod measurement;
mod memory;
mod parameters;
mod queue_age;
pub mod schedule;
mod slab;
mod streams;
mod transmit;

pub use self::core::Core;
pub use behavior::{Behavior, ForwardAction, Honest};
pub use circuits::{HandshakeDone, HandshakeJob, OnLink};
pub use config::{RateLimit, RouterConfig};
pub use dos::{CircuitLimit, ConnectionLimit, DosParams, Place, StreamLimit};
pub use event::{RouterEvent, RouterTotals};
pub use face::Router;
pub use links::{Control, LinkPeer, RelayLink};
pub use parameters::Parameters;
pub use streams::{
    Addresses, DIRECTORY_STREAMS_MAX, ExitConfig, ExitPolicy, ExitRule, KnownRelays, RuleError,
    is_private,
};
