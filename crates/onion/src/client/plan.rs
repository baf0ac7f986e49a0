use crate::cell::msg::{BeginFlags, DesiredUx};
use crate::circuit::NextHop;
use crate::crypto::ntor_v3::extension::Request;
use crate::tunnel::conflux::schedulers::{LegScheduler, MinRtt};
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
    /// Asks for Counter Galois Onion with congestion control, of a last hop that announces `Relay=5-6`. One
    /// that does not may refuse the circuit.
    pub has_cgo: bool,
    /// Gets a link of its own; otherwise it shares one with other circuits through the same relay.
    pub has_own_link: bool,
}

impl CircuitPlan {
    /// What the last hop is asked for, in ntor of version 3; nothing if none is needed.
    pub(super) fn request(&self) -> Option<Request> {
        let wants_cgo = self.has_cgo;
        let request = Request { wants_congestion_control: true, wants_cgo, ..Request::default() };
        self.has_congestion_control.then_some(request)
    }

    /// Through these relays, on a link that is shared, with CREATE2.
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

/// Several circuits that are to be one (proposal 329).
#[derive(Clone, Debug)]
pub struct SetPlan {
    /// The circuits, with nothing in common but their last hop, which announces `Conflux=1` and `FlowCtrl=2`.
    pub legs: Vec<CircuitPlan>,
    /// Which of them carries what we send.
    pub scheduler: &'static dyn LegScheduler,
    /// How the last hop is asked to send: it chooses its scheduler by that.
    pub desired: DesiredUx,
    /// Messages that may wait for others that come before them. With more the set is closed: the last hop, or a relay that
    /// holds one leg back, has us hold them.
    pub early_max_cells: usize,
    /// Asks the last hop to send again what a lost leg has not brought, and does the same: relays of ours can, stock ones take no
    /// notice. Either end then keeps what is not acknowledged. All legs must have layers of one kind.
    pub resumes: bool,
}

impl SetPlan {
    /// A default for [`early_max_cells`](Self::early_max_cells), 16 MiB: what a leg of 100 Mbit/s carries while another
    /// is 1.3 seconds slower.
    pub const EARLY_MAX_CELLS: usize = 1 << 15;

    /// Over these circuits; we send as C tor's clients do, and ask for throughput as they do.
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

/// Where a stream leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The directory of the last hop.
    Directory,
    /// A host, by name or address, and a port.
    Host(String, u16, BeginFlags),
    /// No stream, but a question (RESOLVE, tor-spec §6.4): for the addresses of a name, or, by a name under `in-addr.arpa` or
    /// `ip6.arpa`, for the name of an address.
    Lookup(String),
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        let flags = if address.is_ipv6() { BeginFlags::IPV6_OK } else { BeginFlags::default() };
        Self::Host(address.ip().to_string(), address.port(), flags)
    }
}
