//! The kernel's counters of the relay: memory, processor time, and bytes from the attackers.

use crate::error::{Error, Result};
use lab::Background;
use lab::attacks::ATTACKERS;
use link::Clock;
use onion::{Duration, Instant};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// How often the relay's sockets are looked at.
const STEP: Duration = Duration::from_millis(400);

/// Memory of a process, in MiB: now, and the most it ever had (`VmRSS` and `VmHWM`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Memory {
    pub(super) now_mib: f64,
    pub(super) peak_mib: f64,
}

impl Memory {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        Self::parse(&status).ok_or_else(|| {
            Error::Witness(format!("the relay's process {pid} has ended, or shows no memory"))
        })
    }

    fn parse(status: &str) -> Option<Self> {
        let mib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            let kib: u32 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(f64::from(kib) / 1024.0)
        };
        Some(Self { now_mib: mib("VmRSS:")?, peak_mib: mib("VmHWM:")? })
    }
}

/// Looks at a process' memory once a second, until it is dropped.
pub(super) struct Sampler {
    taken: Arc<Mutex<Vec<(f64, f64)>>>,
    _thread: Background,
}

impl Sampler {
    pub(super) fn start(pid: u32, clock: Clock) -> Result<Self> {
        let taken = Arc::<Mutex<Vec<_>>>::default();
        let theirs = Arc::clone(&taken);
        let thread = Background::start("memory", move || {
            // A process that has ended has no memory.
            if let Ok(memory) = Memory::of(pid) {
                let at_s = (clock.now() - Instant::ORIGIN).as_secs_f64();
                theirs.lock().unwrap_or_else(PoisonError::into_inner).push((at_s, memory.now_mib));
            }
            Duration::from_secs(1)
        })
        .map_err(Error::clients)?;
        Ok(Self { taken, _thread: thread })
    }

    /// All so far: seconds of the clock, MiB.
    pub(super) fn taken(&self) -> Vec<(f64, f64)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts what a relay's sockets receive from attackers' addresses, for as long as it lives.
pub(super) struct Witness {
    seen: Arc<Mutex<Seen>>,
    _thread: Background,
}

#[derive(Default)]
struct Seen {
    /// The most of each socket. What a socket received since the last look before its end is not seen.
    received: BTreeMap<u64, u64>,
    most_connections: usize,
}

impl Witness {
    /// Begins to count.
    pub(super) fn start(pid: u32) -> Result<Self> {
        let seen = Arc::<Mutex<Seen>>::default();
        let theirs = Arc::clone(&seen);
        let look = move || {
            theirs.lock().unwrap_or_else(PoisonError::into_inner).look(pid);
            STEP
        };
        Ok(Self { seen, _thread: Background::start("witness", look).map_err(Error::clients)? })
    }

    /// Bytes that came from attackers, at least, and their most connections at a time.
    pub(super) fn seen(&self, pid: u32) -> (u64, usize) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.look(pid);
        (seen.received.values().sum(), seen.most_connections)
    }
}

impl Seen {
    fn look(&mut self, pid: u32) {
        // A relay that has ended has no connections.
        let all = lab::connections(pid).unwrap_or_default();
        let mut count = 0;
        for connection in all.iter().filter(|it| is_attacker(it.peer.ip())) {
            count += 1;
            let most = self.received.entry(connection.inode).or_default();
            *most = (*most).max(connection.bytes.received);
        }
        self.most_connections = self.most_connections.max(count);
    }
}

fn is_attacker(ip: IpAddr) -> bool {
    matches!(ip.to_canonical(), IpAddr::V4(v4) if v4.octets()[..2] == ATTACKERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_kernel_tells_it() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let memory = Memory { now_mib: 1.0, peak_mib: 2.0 };
        assert_eq!(Memory::parse(status), Some(memory));
        assert_eq!(Memory::parse("VmRSS: 12 kB"), None);
        assert!(Memory::of(std::process::id()).expect("this process").peak_mib > 1.0);
    }

    #[test]
    fn attackers_are_known_by_their_network() {
        assert!(is_attacker(IpAddr::from([127, 66, 3, 4])));
        assert!(is_attacker("::ffff:127.66.0.0".parse().expect("an address")));
        assert!(!is_attacker(IpAddr::from([127, 0, 0, 1])));
    }
}
