//! Decides where each packet goes, and when. Without sockets and clocks.

use super::counts::Counts;
use super::fate::Fates;
use super::narrow::Bottleneck;
use super::spec::Access;
use super::way::Way;
use onion::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number of a host, in the order of the specification.
pub(super) type HostNumber = usize;

/// A reference to a packet that the caller stores, with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parcel {
    pub(super) slot: u32,
    pub(super) len: u32,
}

impl Parcel {
    fn len(self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }
}

/// An action for a packet. Each ends one of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Deliver it to this host; it was due at this time.
    Deliver { parcel: Parcel, to: HostNumber, due: Instant },
    /// It has been dropped.
    Forget { slot: u32 },
}

/// A packet in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    due: Instant,
    /// The order of scheduling: packets due at the same time stay in order.
    number: u64,
    parcel: Parcel,
    way: u32,
    /// Whether it has passed the receiver's access link.
    is_let_in: bool,
}

struct Lane {
    way: Way,
    fates: Fates,
    bottleneck: Bottleneck,
    /// When the last of the packets that stay in order arrives.
    last_due: Instant,
    counts: Counts,
}

struct Port {
    access: Access,
    out: Bottleneck,
    into: Bottleneck,
}

/// All paths between some hosts, and the packets in flight.
pub(super) struct Fabric {
    ports: Vec<Port>,
    /// From the first host to each, then from the second, and so on.
    lanes: Vec<Lane>,
    air: BinaryHeap<Reverse<Flying>>,
    next_number: u64,
}

impl Fabric {
    /// `way` returns the path from one host to another.
    pub(super) fn new(
        seed: u64,
        accesses: &[Access],
        way: impl Fn(HostNumber, HostNumber) -> Way,
    ) -> Self {
        let count = accesses.len();
        let lanes = (0..count * count).map(|number| {
            let (from, to) = (number / count, number % count);
            Lane {
                way: way(from, to),
                fates: Fates::new(seed, from, to),
                bottleneck: Bottleneck::new(),
                last_due: Instant::ORIGIN,
                counts: Counts::default(),
            }
        });
        let port = |&access| Port { access, out: Bottleneck::new(), into: Bottleneck::new() };
        Self {
            lanes: lanes.collect(),
            ports: accesses.iter().map(port).collect(),
            air: BinaryHeap::new(),
            next_number: 0,
        }
    }

    fn number(&self, from: HostNumber, to: HostNumber) -> usize {
        from * self.ports.len() + to
    }

    pub(super) fn way_mut(&mut self, from: HostNumber, to: HostNumber) -> &mut Way {
        let number = self.number(from, to);
        &mut self.lanes[number].way
    }

    pub(super) fn access_mut(&mut self, host: HostNumber) -> &mut Access {
        &mut self.ports[host].access
    }

    pub(super) fn counts(&self, from: HostNumber, to: HostNumber) -> Counts {
        self.lanes[self.number(from, to)].counts
    }

    /// A packet has arrived from a host, for another. Returns how many copies of it are in flight now: zero if
    /// it is lost. `now` never decreases.
    pub(super) fn handle_packet(
        &mut self,
        from: HostNumber,
        to: HostNumber,
        parcel: Parcel,
        now: Instant,
    ) -> u8 {
        let number = self.number(from, to);
        let port = &mut self.ports[from];
        let lane = &mut self.lanes[number];
        let way = &lane.way;
        let counts = &mut lane.counts;
        counts.packets += 1;
        counts.bytes += u64::from(parcel.len);
        let fate = lane.fates.next(way);
        let sent = match port.access.out {
            Some(narrow) => port.out.pass(narrow, parcel.len(), now),
            None => Some(now),
        };
        let Some(sent) = sent else {
            counts.dropped_by_access += 1;
            return 0;
        };
        if way.is_blackhole {
            counts.blackholed += 1;
            return 0;
        }
        if fate.is_lost {
            counts.lost_by_chance += 1;
            return 0;
        }
        let passed = match way.narrow {
            Some(narrow) => lane.bottleneck.pass(narrow, parcel.len(), sent),
            None => Some(sent),
        };
        let Some(passed) = passed else {
            counts.dropped_by_queue += 1;
            return 0;
        };
        let delay = if way.jitter.reorders {
            fate.own_delay
        } else {
            lane.fates.wandering_delay(way.jitter.up_to, passed)
        };
        let mut due = passed + way.latency + delay;
        if fate.is_held_back {
            counts.held_back += 1;
            due += way.reordering.held_back;
        } else if !way.jitter.reorders {
            // Also if the latency has just been reduced.
            due = due.max(lane.last_due);
            lane.last_due = due;
        }
        let way = u32::try_from(number).unwrap_or(u32::MAX);
        let flying = Flying { due, number: 0, parcel, way, is_let_in: false };
        self.fly(flying);
        if !fate.is_duplicated {
            return 1;
        }
        self.lanes[number].counts.duplicated += 1;
        self.fly(flying);
        2
    }

    fn fly(&mut self, flying: Flying) {
        let number = self.next_number;
        self.next_number += 1;
        self.air.push(Reverse(Flying { number, ..flying }));
    }

    /// The next action that is due; `None` if none is.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Deed> {
        loop {
            let &Reverse(flying) = self.air.peek().filter(|flying| flying.0.due <= now)?;
            self.air.pop();
            let Flying { due, parcel, way, .. } = flying;
            let number = usize::try_from(way).unwrap_or(usize::MAX);
            let to = number % self.ports.len();
            let port = &mut self.ports[to];
            let counts = &mut self.lanes[number].counts;
            if !flying.is_let_in
                && let Some(narrow) = port.access.into
            {
                let Some(due) = port.into.pass(narrow, parcel.len(), due) else {
                    counts.dropped_by_access += 1;
                    return Some(Deed::Forget { slot: parcel.slot });
                };
                self.fly(Flying { due, is_let_in: true, ..flying });
                continue;
            }
            counts.delivered_packets += 1;
            counts.delivered_bytes += u64::from(parcel.len);
            return Some(Deed::Deliver { parcel, to, due });
        }
    }

    /// When the next action is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.air.peek().map(|flying| flying.0.due)
    }
}

#[cfg(test)]
mod tests;
