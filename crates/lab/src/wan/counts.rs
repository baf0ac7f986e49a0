//! What became of packets.

use serde::Serialize;

/// What became of the packets of one way so far.
///
/// All that came are `packets`; with those in the air, `packets + duplicated == delivered + ` all that
/// did not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that the host has sent this way.
    pub packets: u64,
    /// Their length, IP header included.
    pub bytes: u64,
    /// Packets that the other host has received, second copies included.
    pub delivered_packets: u64,
    /// Their length.
    pub delivered_bytes: u64,
    /// Lost by chance, as asked for.
    pub lost_by_chance: u64,
    /// Found the queue of the way's narrow place too full.
    pub dropped_by_queue: u64,
    /// Found the queue of the access link of either host too full.
    pub dropped_by_access: u64,
    /// Sent while the way was a blackhole.
    pub blackholed: u64,
    /// Held back, so that others overtook them.
    pub held_back: u64,
    /// Second copies.
    pub duplicated: u64,
}

/// What was lost although nobody asked for it: a machine that is too slow, or programs that send to
/// where nobody is. All should be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unordered {
    /// The kernel's queue towards us was full, or its other end refused what we delivered.
    pub device: u64,
    /// More packets were in the air than we have room for.
    pub no_room: u64,
    /// Packets to an address that no host has, or that are not IPv4.
    pub to_nobody: u64,
    /// The highest lateness of a delivery beyond what was due, in microseconds: no loss, but a sign of a machine
    /// that is too slow.
    pub worst_lateness_us: u64,
}

impl Unordered {
    /// Packets that were lost so.
    #[must_use]
    pub const fn losses(&self) -> u64 {
        self.device + self.no_room + self.to_nobody
    }
}
