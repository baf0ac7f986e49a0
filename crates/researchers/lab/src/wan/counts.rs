//! Packet counters.

use schemars::JsonSchema;
use serde::Serialize;

/// The counters of the packets of one path.
///
/// `packets` counts all packets sent; with those in flight, `packets + duplicated == delivered + ` all losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Packets that the host has sent on this path.
    pub packets: u64,
    /// Their length, including IP headers.
    pub bytes: u64,
    /// Packets that the other host has received, including duplicates.
    pub delivered_packets: u64,
    /// Their length.
    pub delivered_bytes: u64,
    /// Lost at random, as specified.
    pub lost_by_chance: u64,
    /// Dropped by the queue of the path's bottleneck.
    pub dropped_by_queue: u64,
    /// Dropped by the queue of either host's access link.
    pub dropped_by_access: u64,
    /// Sent while the path was a blackhole.
    pub blackholed: u64,
    /// Delayed, so that others overtook them.
    pub held_back: u64,
    /// Duplicates.
    pub duplicated: u64,
}

/// Losses that the specification does not ask for: the machine is too slow, or programs send to unknown
/// addresses. All counters should be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnintendedLosses {
    /// The kernel's queue towards this process was full, or an interface refused a delivery.
    pub device: u64,
    /// More packets were in flight than there was memory for.
    pub no_room: u64,
    /// Packets to an address without host, or other packets than IPv4.
    pub to_nobody: u64,
    /// The maximum lateness of a delivery, in microseconds: not a loss, but a sign of a slow machine.
    pub worst_lateness_us: u64,
}

impl UnintendedLosses {
    /// The number of packets lost for these reasons.
    #[must_use]
    pub const fn losses(&self) -> u64 {
        self.device + self.no_room + self.to_nobody
    }
}
