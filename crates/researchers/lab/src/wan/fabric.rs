//! Decides where each packet goes, and when. Without sockets and clocks.

use super::bottleneck::BottleneckState;
use super::counts::Counts;
use super::fate::Fates;
use super::path::WanPath;
use super::spec::Access;
use onion::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number of a host, in the order of the specification.
pub(super) type HostNumber = usize;

/// A reference to a packet that the caller stores, with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketRef {
    pub(super) slot: u32,
    pub(super) len: u32,
}

impl PacketRef {
    fn len(self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }
}

/// What to do with a packet. Each action ends one of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Deliver it to this host; it was due at this time.
    Deliver { packet: PacketRef, to: HostNumber, due: Instant },
    /// Free the memory of a dropped copy.
    Release { slot: u32 },
}

/// A packet in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    due: Instant,
    /// The order of scheduling: packets due at the same time stay in order.
    number: u64,
    packet: PacketRef,
    /// The index of its path.
    path: usize,
    /// Whether it has passed the receiver's access link.
    has_passed_access: bool,
}

struct PathState {
    config: WanPath,
    fates: Fates,
    bottleneck: BottleneckState,
    /// When the last of the packets that stay in order arrives.
    last_due: Instant,
    counts: Counts,
}

struct AccessState {
    config: Access,
    upload: BottleneckState,
    download: BottleneckState,
}

/// All paths between some hosts, and the packets in flight.
pub(super) struct Fabric {
    accesses: Vec<AccessState>,
    /// From the first host to each, then from the second, and so on.
    paths: Vec<PathState>,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    next_number: u64,
}

impl Fabric {
    /// `path` returns the configuration of the path from one host to another.
    pub(super) fn new(
        seed: u64,
        accesses: &[Access],
        path: impl Fn(HostNumber, HostNumber) -> WanPath,
    ) -> Self {
        let count = accesses.len();
        let paths = (0..count * count).map(|number| {
            let (from, to) = (number / count, number % count);
            PathState {
                config: path(from, to),
                fates: Fates::new(seed, from, to),
                bottleneck: BottleneckState::new(),
                last_due: Instant::ORIGIN,
                counts: Counts::default(),
            }
        });
        let idle = BottleneckState::new();
        let access = |&access| AccessState { config: access, upload: idle, download: idle };
        Self {
            paths: paths.collect(),
            accesses: accesses.iter().map(access).collect(),
            in_flight: BinaryHeap::new(),
            next_number: 0,
        }
    }

    fn number(&self, from: HostNumber, to: HostNumber) -> usize {
        from * self.accesses.len() + to
    }

    pub(super) fn path_mut(&mut self, from: HostNumber, to: HostNumber) -> &mut WanPath {
        let number = self.number(from, to);
        &mut self.paths[number].config
    }

    pub(super) fn access_mut(&mut self, host: HostNumber) -> &mut Access {
        &mut self.accesses[host].config
    }

    pub(super) fn counts(&self, from: HostNumber, to: HostNumber) -> Counts {
        self.paths[self.number(from, to)].counts
    }

    /// Handles a packet that a host has sent to another. Returns the number of its copies that are now in flight:
    /// zero if it is lost. `now` never decreases.
    pub(super) fn handle_packet(
        &mut self,
        from: HostNumber,
        to: HostNumber,
        packet: PacketRef,
        now: Instant,
    ) -> u8 {
        let number = self.number(from, to);
        let access = &mut self.accesses[from];
        let path = &mut self.paths[number];
        let (config, counts) = (&path.config, &mut path.counts);
        counts.packets += 1;
        counts.bytes += u64::from(packet.len);
        let fate = path.fates.next(config);
        let Some(sent) = access.upload.pass(access.config.upload, packet.len(), now) else {
            counts.dropped_by_access += 1;
            return 0;
        };
        if config.is_blackhole {
            counts.blackholed += 1;
            return 0;
        }
        if fate.is_lost {
            counts.lost_by_chance += 1;
            return 0;
        }
        let Some(passed) = path.bottleneck.pass(config.bottleneck, packet.len(), sent) else {
            counts.dropped_by_queue += 1;
            return 0;
        };
        let delay = if config.jitter.reorders {
            fate.own_delay
        } else {
            path.fates.correlated_delay(config.jitter.up_to, passed)
        };
        let mut due = passed + config.latency + delay;
        if fate.is_held_back {
            counts.held_back += 1;
            due += config.reordering.held_back;
        } else if !config.jitter.reorders {
            // Also if the latency has just been reduced.
            due = due.max(path.last_due);
            path.last_due = due;
        }
        let in_flight = InFlight { due, number: 0, packet, path: number, has_passed_access: false };
        self.schedule(in_flight);
        if !fate.is_duplicated {
            return 1;
        }
        self.paths[number].counts.duplicated += 1;
        self.schedule(in_flight);
        2
    }

    fn schedule(&mut self, in_flight: InFlight) {
        let number = self.next_number;
        self.next_number += 1;
        self.in_flight.push(Reverse(InFlight { number, ..in_flight }));
    }

    /// The next action that is due; `None` if none is.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Action> {
        loop {
            let &Reverse(next) = self.in_flight.peek().filter(|next| next.0.due <= now)?;
            self.in_flight.pop();
            let InFlight { due, packet, path, .. } = next;
            let to = path % self.accesses.len();
            let access = &mut self.accesses[to];
            let counts = &mut self.paths[path].counts;
            if !next.has_passed_access && access.config.download.is_some() {
                let Some(due) = access.download.pass(access.config.download, packet.len(), due)
                else {
                    counts.dropped_by_access += 1;
                    return Some(Action::Release { slot: packet.slot });
                };
                self.schedule(InFlight { due, has_passed_access: true, ..next });
                continue;
            }
            counts.delivered_packets += 1;
            counts.delivered_bytes += u64::from(packet.len);
            return Some(Action::Deliver { packet, to, due });
        }
    }

    /// When the next action is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.in_flight.peek().map(|next| next.0.due)
    }
}

#[cfg(test)]
mod tests;
