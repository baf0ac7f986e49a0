//! Capacity tests of the measurers (paper §4.2): how much each can send and receive at once.
//!
//! All measurers of a team load each other, all pairs and both directions at once, over TLS connections like those of a
//! measurement: the same driver, number of sockets and records. The bytes that each sent and received in each second go
//! to the coordinator, whose [`coordinator::team_capacities`] derives capacities from them.
//!
//! - `Exchange` is the part of one pump as a state machine at the seam of bytes;
//! - [`CapacityTest`] runs the pumps of one measurer over real sockets;
//! - [`LoopbackTest`] runs several measurers in this process.
//!
//! # Permitted targets
//!
//! A measurer loads only addresses that its coordinator named and its operator permits, and sends load over a connection
//! only after the other side has proved to know the test's [`Token`]. A proof is bound to its TLS session. Connections
//! from other addresses, or without a proof, have no effect, but are counted.

mod exchange;
mod loopback;
mod report;
mod run;
mod token;

pub use loopback::LoopbackTest;
pub use report::{CapacityPeer, CapacityReport, Lost, PeerReport};
pub use run::{CapacityError, CapacityTest, PORTS_MAX, TestError, ports};
pub use token::Token;

/// The number of sockets over which all others of a team load a member: the paper's number of sockets to a relay (§4.1).
pub const SOCKETS_PER_MEMBER: u16 = 160;
