//! Capacity tests of the measurers (paper §4.2): how much each can send and receive at once.
//!
//! All measurers of a team exchange UDP with each other, all pairs and both directions at once, so TCP's congestion
//! control has no effect. The bytes that each sent and received in each second go to the coordinator, whose
//! [`coordinator::team_capacities`] derives capacities from them.
//!
//! - [`Exchange`] is one measurer's part as a state machine, without sockets or clock;
//! - [`packet`] is the wire format;
//! - [`CapacityTest`] drives an [`Exchange`] over a real socket.
//!
//! # Permitted targets
//!
//! A measurer floods only addresses that its coordinator named, that the operator's [consent](CapacityTest::allowed)
//! covers, and that proved from that very address to know the test's [`Token`]. An answer is never longer than its
//! request. Each packet echoes the time of a packet that its sender has received. A peer whose last proof is a second
//! old gets only ten empty packets a second, and after five seconds not even these. Packets without the token have no
//! effect, but are counted.

mod exchange;
mod keys;
mod loopback;
pub mod packet;
mod peer;
mod replay;
mod report;
mod run;
mod socket;

pub use exchange::{Exchange, ExchangeConfig, ExchangeError, Transmit};
pub use keys::Token;
pub use loopback::LoopbackTest;
pub use report::{CapacityPeer, CapacityReport, Lost, PeerReport};
pub use run::{CapacityError, CapacityTest};
pub use socket::CapacitySocket;
