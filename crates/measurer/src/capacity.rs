//! Measuring the measurers (paper §4.2): how much each can send and receive at once.
//!
//! All measurers of a team exchange UDP with each other, all pairs and both directions at once, so
//! that no congestion control of TCP has a say. What each sent and received in each second goes to
//! the coordinator, whose [`coordinator::team_capacities`] makes capacities of it.
//!
//! - [`Exchange`] is one measurer's part as a state machine, without sockets or clock;
//! - [`packet`] is what goes over the wire;
//! - [`CapacityTest`] drives an [`Exchange`] over a real socket.
//!
//! # Whom a measurer floods
//!
//! Only addresses that its coordinator named, that the operator's [consent](CapacityTest::allowed)
//! covers, and that proved from that very address to know the test's [`Token`]. An answer is never
//! longer than its question. Each packet echoes the time of a packet that its sender has received:
//! a peer whose last proof is a second old gets nothing but ten empty packets a second, and after
//! five seconds not even these. Whoever does not know the token changes nothing; that somebody
//! tried is counted.

mod exchange;
mod keys;
pub mod packet;
mod peer;
mod replay;
mod report;
mod run;
mod socket;

pub use exchange::{Exchange, ExchangeConfig, ExchangeError, Transmit};
pub use keys::Token;
pub use report::{CapacityPeer, CapacityReport, Lost, PeerReport};
pub use run::{CapacityError, CapacityTest};
pub use socket::CapacitySocket;
