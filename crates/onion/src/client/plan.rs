use crate::cell::msg::BeginFlags;
use crate::circuit::NextHop;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The relays of a circuit, and how it begins.
#[derive(Clone, Debug)]
pub struct CircuitPlan {
    /// First hop first, at least one.
    pub hops: Vec<NextHop>,
    /// Opens the circuit with CREATE_FAST, as clients do to fetch directories; otherwise with CREATE2.
    pub is_fast: bool,
    /// Asks the last hop for congestion control, by ntor of version 3.
    pub has_congestion_control: bool,
    /// Gets a link of its own; otherwise it shares one with other circuits through the same relay.
    pub has_own_link: bool,
}

impl CircuitPlan {
    /// Through these relays, on a link that is shared, with CREATE2.
    #[must_use]
    pub const fn new(hops: Vec<NextHop>) -> Self {
        Self { hops, is_fast: false, has_congestion_control: false, has_own_link: false }
    }
}

/// Where a stream leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The directory of the last hop.
    Directory,
    /// A host, by name or address, and a port.
    Host(String, u16, BeginFlags),
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        let flags = if address.is_ipv6() { BeginFlags::IPV6_OK } else { BeginFlags::default() };
        Self::Host(address.ip().to_string(), address.port(), flags)
    }
}
