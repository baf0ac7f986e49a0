//! The thread that carries packets between the hosts' interfaces.

use super::counts::Unordered;
use super::fabric::{Deed, Fabric, HostNumber, Parcel};
use super::pool::Pool;
use link::{Clock, Tun};
use onion::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of packets read from one host, and written to all, before others are served.
const BATCH: usize = 256;

/// Under traffic, packets are gathered for this long: a wake-up costs more than carrying a packet. It bounds
/// the lateness of a delivery on a machine that is fast enough.
const TICK: Duration = Duration::from_micros(200);

/// The state shared by the thread and its users.
pub(super) struct Shared {
    fabric: Mutex<Fabric>,
    no_room: AtomicU64,
    to_nobody: AtomicU64,
    refused: AtomicU64,
    worst_lateness_ns: AtomicU64,
    /// Its thread ID, once it runs.
    thread: AtomicI32,
}

impl Shared {
    pub(super) fn new(fabric: Fabric) -> Self {
        Self {
            fabric: Mutex::new(fabric),
            no_room: AtomicU64::new(0),
            to_nobody: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            worst_lateness_ns: AtomicU64::new(0),
            thread: AtomicI32::new(0),
        }
    }

    pub(super) fn fabric(&self) -> MutexGuard<'_, Fabric> {
        // Counters and decisions are consistent at every moment: a panic elsewhere does not corrupt them.
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processor time of the thread.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let thread = self.thread.load(Ordering::Relaxed);
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        Some(Duration::from_nanos(text.split_ascii_whitespace().next()?.parse().ok()?))
    }

    /// Unintended losses; the interfaces' drops are added.
    pub(super) fn unordered(&self) -> Unordered {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Unordered {
            device: read(&self.refused),
            no_room: read(&self.no_room),
            to_nobody: read(&self.to_nobody),
            worst_lateness_us: read(&self.worst_lateness_ns) / 1000,
        }
    }
}

/// Carries packets until the other end of `stop` is closed.
pub(super) struct Ferry {
    pub(super) tuns: Vec<Tun>,
    /// The host of an address.
    pub(super) hosts: BTreeMap<[u8; 4], HostNumber>,
    pub(super) pool: Pool,
    pub(super) shared: Arc<Shared>,
    pub(super) stop: UnixStream,
    pub(super) clock: Clock,
}

/// A packet that has been read.
struct Arrival {
    from: HostNumber,
    to: HostNumber,
    parcel: Parcel,
}

impl Ferry {
    pub(super) fn run(mut self) {
        let thread = rustix::thread::gettid();
        self.shared.thread.store(thread.as_raw_nonzero().get(), Ordering::Relaxed);
        // Timers with nanosecond resolution, and a priority above the tested programs; without that permission,
        // the default.
        let _late = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let _equal = rustix::process::setpriority_process(Some(thread), -15);
        let mut arrivals = Vec::with_capacity(BATCH * self.tuns.len());
        let mut deeds = Vec::with_capacity(BATCH);
        loop {
            let is_more_to_read = self.read(&mut arrivals);
            // No packet arrived later than this, so none is early.
            let now = self.clock.now();
            let next_due = self.decide(&mut arrivals, &mut deeds, now);
            let is_idle = deeds.is_empty() && next_due.idle;
            let is_more = is_more_to_read || deeds.len() == BATCH;
            self.write(&mut deeds, now);
            if is_more {
                continue;
            }
            let is_end = if is_idle {
                self.wait(true, next_due.at.map(|due| due - self.clock.now()))
            } else {
                self.wait(false, Some(TICK))
            };
            if is_end {
                return;
            }
        }
    }

    /// Reads packets of the hosts; returns whether there may be more.
    fn read(&mut self, arrivals: &mut Vec<Arrival>) -> bool {
        let mut is_more = false;
        for (from, tun) in self.tuns.iter().enumerate() {
            let mut count = 0;
            while count < BATCH {
                let Some(slot) = self.pool.peek() else {
                    // It must not delay packets that arrive when there is space.
                    match tun.receive(&mut [0; 1]) {
                        Ok(Some(_)) => self.shared.no_room.fetch_add(1, Ordering::Relaxed),
                        _ => break,
                    };
                    count += 1;
                    continue;
                };
                // An error means that the interface is gone: nothing comes from it.
                let Ok(Some(len)) = tun.receive(self.pool.slot_mut(slot)) else { break };
                count += 1;
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                let Some(&to) = destination(self.pool.packet(slot, len))
                    .and_then(|address| self.hosts.get(&address))
                else {
                    self.shared.to_nobody.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                self.pool.take();
                arrivals.push(Arrival { from, to, parcel: Parcel { slot, len } });
            }
            is_more |= count == BATCH;
        }
        is_more
    }

    /// Decides about arrived packets, and performs actions that are due.
    fn decide(&mut self, arrivals: &mut Vec<Arrival>, deeds: &mut Vec<Deed>, now: Instant) -> Next {
        let mut fabric = self.shared.fabric();
        let idle = arrivals.is_empty();
        for Arrival { from, to, parcel } in arrivals.drain(..) {
            let copies = fabric.handle_packet(from, to, parcel, now);
            self.pool.keep(parcel.slot, copies);
        }
        deeds.extend(std::iter::from_fn(|| fabric.poll(now)).take(BATCH));
        Next { at: fabric.next_due(), idle }
    }

    fn write(&mut self, deeds: &mut Vec<Deed>, now: Instant) {
        for deed in deeds.drain(..) {
            let slot = match deed {
                Deed::Deliver { parcel, to, due } => {
                    if self.tuns[to].send(self.pool.packet(parcel.slot, parcel.len)).is_err() {
                        self.shared.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    let late = u64::try_from((now - due).as_nanos()).unwrap_or(u64::MAX);
                    self.shared.worst_lateness_ns.fetch_max(late, Ordering::Relaxed);
                    parcel.slot
                }
                Deed::Forget { slot } => slot,
            };
            self.pool.end_copy(slot);
        }
    }

    /// Waits for this long, or until a host sends a packet if requested; returns whether to end.
    fn wait(&self, until_sent: bool, longest: Option<Duration>) -> bool {
        let mut watched = vec![PollFd::new(&self.stop, PollFlags::IN)];
        if until_sent {
            watched.extend(self.tuns.iter().map(|tun| PollFd::new(tun, PollFlags::IN)));
        }
        let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
        // Interrupted or not: readiness is detected again.
        let _ready = poll(&mut watched, longest.as_ref());
        watched.first().is_some_and(|stop| !stop.revents().is_empty())
    }
}

/// The next action.
struct Next {
    at: Option<Instant>,
    /// No packet has arrived.
    idle: bool,
}

/// The destination of an IPv4 packet.
fn destination(packet: &[u8]) -> Option<[u8; 4]> {
    let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    is_v4.then(|| packet.get(16..20)?.try_into().ok()).flatten()
}
