//! The thread that carries packets between the hosts' interfaces.

use super::counts::UnintendedLosses;
use super::fabric::{Action, Fabric, HostNumber, PacketRef};
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
    undelivered: AtomicU64,
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
            undelivered: AtomicU64::new(0),
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
    pub(super) fn unintended_losses(&self) -> UnintendedLosses {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        UnintendedLosses {
            device: read(&self.undelivered),
            no_room: read(&self.no_room),
            to_nobody: read(&self.to_nobody),
            worst_lateness_us: read(&self.worst_lateness_ns) / 1000,
        }
    }
}

/// Carries packets until the other end of `stop` is closed.
pub(super) struct Forwarder {
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
    packet: PacketRef,
}

impl Forwarder {
    pub(super) fn run(mut self) {
        let thread = rustix::thread::gettid();
        self.shared.thread.store(thread.as_raw_nonzero().get(), Ordering::Relaxed);
        // Timers with nanosecond resolution, and a priority above the tested programs; without that permission,
        // the default.
        let _late = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let _equal = rustix::process::setpriority_process(Some(thread), -15);
        let mut arrivals = Vec::with_capacity(BATCH * self.tuns.len());
        let mut actions = Vec::with_capacity(BATCH);
        loop {
            let is_more_to_read = self.read(&mut arrivals);
            // No packet arrived later than this, so none is early.
            let now = self.clock.now();
            let has_arrivals = !arrivals.is_empty();
            let next_due = self.decide(&mut arrivals, &mut actions, now);
            let is_idle = actions.is_empty() && !has_arrivals;
            let is_more = is_more_to_read || actions.len() == BATCH;
            self.write(&mut actions, now);
            if is_more {
                continue;
            }
            let is_end = if is_idle {
                self.wait(true, next_due.map(|due| due - self.clock.now()))
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
                // An error means that the interface no longer exists.
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
                arrivals.push(Arrival { from, to, packet: PacketRef { slot, len } });
            }
            is_more |= count == BATCH;
        }
        is_more
    }

    /// Decides about arrived packets and collects the actions that are due. Returns when the next action is due.
    fn decide(
        &mut self,
        arrivals: &mut Vec<Arrival>,
        actions: &mut Vec<Action>,
        now: Instant,
    ) -> Option<Instant> {
        let mut fabric = self.shared.fabric();
        for Arrival { from, to, packet } in arrivals.drain(..) {
            let copies = fabric.handle_packet(from, to, packet, now);
            self.pool.keep(packet.slot, copies);
        }
        actions.extend(std::iter::from_fn(|| fabric.poll(now)).take(BATCH));
        fabric.next_due()
    }

    fn write(&mut self, actions: &mut Vec<Action>, now: Instant) {
        for action in actions.drain(..) {
            let slot = match action {
                Action::Deliver { packet, to, due } => {
                    if self.tuns[to].send(self.pool.packet(packet.slot, packet.len)).is_err() {
                        self.shared.undelivered.fetch_add(1, Ordering::Relaxed);
                    }
                    let late = u64::try_from((now - due).as_nanos()).unwrap_or(u64::MAX);
                    self.shared.worst_lateness_ns.fetch_max(late, Ordering::Relaxed);
                    packet.slot
                }
                Action::Release { slot } => slot,
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

/// The destination of an IPv4 packet.
fn destination(packet: &[u8]) -> Option<[u8; 4]> {
    let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    is_v4.then(|| packet.get(16..20)?.try_into().ok()).flatten()
}
