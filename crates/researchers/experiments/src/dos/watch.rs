//! The kernel's counters of the relay: its memory over time, and the bytes that it receives from attackers.

use crate::error::{Error, Result};
use crate::process;
use lab::Background;
use lab::attacks::ATTACKERS;
use link::Clock;
use onion::{Duration, Instant};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The interval at which the relay's sockets are read.
const STEP: Duration = Duration::from_millis(400);

/// The memory of the relay.
///
/// # Errors
/// The relay has ended.
pub(super) fn memory(pid: u32) -> Result<process::Memory> {
    let ended = || Error::Witness(format!("the relay's process {pid} has ended"));
    process::Memory::of(pid).ok_or_else(ended)
}

/// Samples the memory of a process once a second, until it is dropped.
pub(super) struct Sampler {
    samples: Arc<Mutex<Vec<(f64, f64)>>>,
    _thread: Background,
}

impl Sampler {
    pub(super) fn start(pid: u32, clock: Clock) -> Result<Self> {
        let samples = Arc::<Mutex<Vec<_>>>::default();
        let shared = Arc::clone(&samples);
        let thread = Background::start("memory", move || {
            // A process that has ended has no memory.
            if let Some(memory) = process::Memory::of(pid) {
                let at_s = (clock.now() - Instant::ORIGIN).as_secs_f64();
                shared.lock().unwrap_or_else(PoisonError::into_inner).push((at_s, memory.now_mib));
            }
            Duration::from_secs(1)
        })
        .map_err(Error::clients)?;
        Ok(Self { samples, _thread: thread })
    }

    /// The samples up to now: seconds of the clock, MiB.
    pub(super) fn samples(&self) -> Vec<(f64, f64)> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts the bytes that a relay's sockets receive from attackers' addresses, until it is dropped.
pub(super) struct Witness {
    counts: Arc<Mutex<Counts>>,
    _thread: Background,
}

#[derive(Default)]
struct Counts {
    /// The last counter of each socket, by inode. Bytes received between the last reading and the end of a socket are missing.
    received: BTreeMap<u64, u64>,
    max_connections: usize,
}

impl Witness {
    /// Starts counting.
    pub(super) fn start(pid: u32) -> Result<Self> {
        let counts = Arc::<Mutex<Counts>>::default();
        let shared = Arc::clone(&counts);
        let step = move || {
            shared.lock().unwrap_or_else(PoisonError::into_inner).update(pid);
            STEP
        };
        Ok(Self { counts, _thread: Background::start("witness", step).map_err(Error::clients)? })
    }

    /// A lower bound of the bytes received from attackers, and the maximum number of their simultaneous connections.
    pub(super) fn counts(&self, pid: u32) -> (u64, usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.update(pid);
        (counts.received.values().sum(), counts.max_connections)
    }
}

impl Counts {
    fn update(&mut self, pid: u32) {
        // A relay that has ended has no connections.
        let all = lab::connections(pid).unwrap_or_default();
        let attackers = all.iter().filter(|connection| is_attacker(connection.peer.ip()));
        self.max_connections = self.max_connections.max(attackers.clone().count());
        for connection in attackers {
            let received = self.received.entry(connection.inode).or_default();
            *received = (*received).max(connection.bytes.received);
        }
    }
}

fn is_attacker(ip: IpAddr) -> bool {
    matches!(ip.to_canonical(), IpAddr::V4(v4) if v4.octets()[..2] == ATTACKERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attackers_are_identified_by_their_network() {
        assert!(is_attacker(IpAddr::from([127, 66, 3, 4])));
        assert!(is_attacker("::ffff:127.66.0.0".parse().expect("an address")));
        assert!(!is_attacker(IpAddr::from([127, 0, 0, 1])));
    }
}
