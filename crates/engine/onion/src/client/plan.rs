use crate::cell::msg::{BeginFlags, DesiredUx};
use crate::circuit::NextHop;
use crate::crypto::ntor_v3::extension::Request;
use crate::tunnel::conflux::schedulers::{LegScheduler, MinRtt};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The path of a circuit, and how it is created.
#[derive(Clone, Debug)]
pub struct CircuitPlan {
    /// First hop first, at least one.
    pub hops: Vec<NextHop>,
    /// Creates the circuit with CREATE_FAST, as clients do to fetch directory documents; otherwise with
    /// CREATE2.
    pub is_fast: bool,
    /// Requests congestion control from the last hop, by ntor v3.
    pub has_congestion_control: bool,
    /// Requests Counter Galois Onion together with congestion control, from a last hop that announces
    /// `Relay=5-6`. Other relays may refuse the circuit.
    pub has_cgo: bool,
    /// Uses a new link for this circuit; otherwise it shares one with other circuits through the same relay.
    pub has_own_link: bool,
}

impl CircuitPlan {
    /// The request to the last hop in ntor v3; empty if ntor suffices.
    pub(super) fn request(&self) -> Option<Request> {
        let wants_cgo = self.has_cgo;
        let request = Request { wants_congestion_control: true, wants_cgo, ..Request::default() };
        self.has_congestion_control.then_some(request)
    }

    /// A path through these relays, on a shared link, with CREATE2.
    #[must_use]
    pub const fn new(hops: Vec<NextHop>) -> Self {
        Self {
            hops,
            is_fast: false,
            has_congestion_control: false,
            has_cgo: false,
            has_own_link: false,
        }
    }
}

/// A set of circuits to be linked (proposal 329).
#[derive(Clone, Debug)]
pub struct SetPlan {
    /// The circuits, which have only their last hop in common. It must announce `Conflux=1` and `FlowCtrl=2`.
    pub legs: Vec<CircuitPlan>,
    /// The scheduler that chooses the leg for the client's data.
    pub scheduler: &'static dyn LegScheduler,
    /// The scheduling requested from the last hop.
    pub desired: DesiredUx,
    /// Maximum number of out-of-order messages. With more, the set is closed: the last hop, or a relay that
    /// delays one leg, makes the client buffer them.
    pub early_max_cells: usize,
    /// Requests retransmission of messages that a lost leg did not deliver, in both directions: our relays
    /// support it, unmodified ones ignore the request. Both ends then keep unacknowledged messages. All legs
    /// must have the same format of cells.
    pub resumes: bool,
}

impl SetPlan {
    /// The default of [`early_max_cells`](Self::early_max_cells), 16 MiB: the data that a leg of 100 Mbit/s
    /// carries in 1.3 seconds, the difference in delay to another leg.
    pub const EARLY_MAX_CELLS: usize = 1 << 15;

    /// With C tor's scheduler for the client's data, and its request for throughput.
    #[must_use]
    pub fn new(legs: Vec<CircuitPlan>) -> Self {
        Self {
            legs,
            scheduler: &MinRtt,
            desired: DesiredUx::HighThroughput,
            early_max_cells: Self::EARLY_MAX_CELLS,
            resumes: true,
        }
    }
}

/// The destination of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The directory server of the last hop.
    Directory,
    /// A host, by name or address, and a port.
    Host(String, u16, BeginFlags),
    /// RESOLVE instead of a stream (tor-spec §6.4): queries the addresses of a name, or, for a name under
    /// `in-addr.arpa` or `ip6.arpa`, the name of an address.
    Lookup(String),
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        let flags = if address.is_ipv6() { BeginFlags::IPV6_OK } else { BeginFlags::default() };
        Self::Host(address.ip().to_string(), address.port(), flags)
    }
}
