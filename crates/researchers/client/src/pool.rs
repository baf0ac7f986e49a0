//! The circuits of a client, and how streams are attached to them.

use crate::netdir::RelayInfo;
use crate::path::Need;
use netdoc::RsaId;
use onion::{Duration, Instant};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Time after its first stream when a circuit gets no new ones: C tor's `MaxCircuitDirtiness`.
pub(crate) const DIRTY_MAX: Duration = Duration::from_secs(600);
/// Time after which an unused circuit is closed: C tor's `CircuitsAvailableTimeout`.
const UNUSED_MAX: Duration = Duration::from_secs(1800);
/// Circuits kept ready for future streams.
pub(crate) const SPARE: usize = 2;
/// Limit on circuits: a program may isolate each stream.
pub(crate) const CIRCUITS_MAX: usize = 256;

/// Streams of different isolation never share a circuit: C tor's defaults (`IsolateSOCKSAuth`,
/// `IsolateClientAddr`, `IsolateClientProtocol`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isolation {
    /// The version of SOCKS: 4 or 5.
    pub version: u8,
    /// The program's address, if known.
    pub from: Option<IpAddr>,
    /// The SOCKS user name, or empty.
    pub user: Vec<u8>,
    /// The SOCKS password, or empty.
    pub password: Vec<u8>,
}

/// A circuit of the pool.
#[derive(Clone, Debug)]
pub(crate) struct Circuit {
    /// Its number, for display.
    pub(crate) number: u64,
    /// The path, first hop first; for a set, that of its first leg.
    pub(crate) path: [RsaId; 3],
    /// For a set: the paths of its legs, by their numbers.
    pub(crate) legs: BTreeMap<u8, [RsaId; 3]>,
    /// For a set: since when its open legs have been open.
    pub(crate) legs_since: BTreeMap<u8, Instant>,
    /// For a set: replacement legs attempted before all were linked.
    pub(crate) retries: u32,
    /// For a set: replacement legs attempted since then.
    pub(crate) retries_linked: u32,
    pub(crate) exit: RelayInfo,
    pub(crate) began: Instant,
    pub(crate) took: Option<Duration>,
    /// Its build timeout has passed; it is still built to learn from.
    pub(crate) is_late: bool,
    /// The strategy has been informed of its failure.
    has_failed: bool,
    /// It is open but gets no more streams.
    is_retired: bool,
    /// The isolation group that owns it, if any.
    owner: Option<Isolation>,
    /// When its first stream was attached.
    first_used: Option<Instant>,
    pub(crate) streams: usize,
    /// The latency of its last hop at the last probe.
    latency: Option<Duration>,
    asked_at: Option<Instant>,
}

impl Circuit {
    pub(crate) const fn new(
        number: u64,
        path: [RsaId; 3],
        exit: RelayInfo,
        began: Instant,
    ) -> Self {
        Self {
            number,
            path,
            legs: BTreeMap::new(),
            legs_since: BTreeMap::new(),
            retries: 0,
            retries_linked: 0,
            exit,
            began,
            took: None,
            is_late: false,
            has_failed: false,
            is_retired: false,
            owner: None,
            first_used: None,
            streams: 0,
            latency: None,
            asked_at: None,
        }
    }

    pub(crate) const fn guard(&self) -> &RsaId {
        &self.path[0]
    }

    const fn is_built(&self) -> bool {
        self.took.is_some()
    }

    /// Whether it failed to be built in time, and was not counted before: each failure counts once.
    pub(crate) const fn fails_now(&mut self) -> bool {
        !self.is_built() && !std::mem::replace(&mut self.has_failed, true)
    }

    /// Paths that have failed, each returned once: the circuit's, or those of a set's legs that are
    /// not open.
    pub(crate) fn take_failing(&mut self) -> Vec<[RsaId; 3]> {
        match (self.fails_now(), self.legs.is_empty()) {
            (false, _) => vec![],
            (true, true) => vec![self.path],
            (true, false) => {
                let legs = self.legs.iter();
                let legs = legs.filter(|(leg, _)| !self.legs_since.contains_key(leg));
                legs.map(|(_, path)| *path).collect()
            }
        }
    }

    /// Whether it is being built within its timeout.
    pub(crate) const fn is_hoped_for(&self) -> bool {
        !self.has_failed
    }

    /// Whether it is open, and was built in time.
    pub(crate) const fn has_succeeded(&self) -> bool {
        self.is_built() && !self.has_failed
    }

    /// Whether a stream may be attached: it is not too old, and its exit permits the stream.
    fn serves(&self, need: Need, now: Instant) -> bool {
        let is_young = self.first_used.is_none_or(|first| now < first + DIRTY_MAX);
        !self.is_late && !self.is_retired && is_young && need.is_served_by(&self.exit)
    }
}

/// Result of a search for a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice<K> {
    /// This open circuit.
    Use(K),
    /// A circuit for it is being built.
    Wait,
    /// None: a new one must be built.
    Open,
}

/// The circuits of a client, by `K`.
#[derive(Debug)]
pub(crate) struct Pool<K> {
    circuits: BTreeMap<K, Circuit>,
    /// Streams are attached to the circuit with the least latency.
    by_latency: bool,
}

impl<K: Copy + Ord> Pool<K> {
    /// Creates a pool without circuits. With `by_latency`, a stream is attached to the open circuit
    /// with the least latency among those of its isolation group and unowned ones.
    pub(crate) const fn new(by_latency: bool) -> Self {
        Self { circuits: BTreeMap::new(), by_latency }
    }

    /// Open circuits that may get streams and whose latency probe is due. They count as probed.
    /// Queueing by their own streams is part of the latency, since the next stream would wait as
    /// long.
    pub(crate) fn take_due(&mut self, now: Instant, again: Duration) -> Vec<K> {
        let mut due = Vec::new();
        for (name, circuit) in &mut self.circuits {
            let is_of_use = circuit.is_built() && !circuit.is_late && !circuit.is_retired;
            if is_of_use && circuit.asked_at.is_none_or(|at| now >= at + again) {
                circuit.asked_at = Some(now);
                due.push(*name);
            }
        }
        due
    }

    /// Records the result of a latency probe.
    pub(crate) fn set_latency(&mut self, name: K, latency: Option<Duration>) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.latency = latency;
        }
    }

    pub(crate) fn add(&mut self, name: K, circuit: Circuit) {
        self.circuits.insert(name, circuit);
    }

    pub(crate) fn get(&self, name: K) -> Option<&Circuit> {
        self.circuits.get(&name)
    }

    /// All circuits.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> Vec<K> {
        self.circuits.keys().copied().collect()
    }

    pub(crate) fn get_mut(&mut self, name: K) -> Option<&mut Circuit> {
        self.circuits.get_mut(&name)
    }

    pub(crate) fn remove(&mut self, name: K) -> Option<Circuit> {
        self.circuits.remove(&name)
    }

    pub(crate) fn len(&self) -> usize {
        self.circuits.len()
    }

    /// Selects a circuit for a stream: of the same isolation group rather than unowned, and open
    /// rather than being built. The group then owns the selected circuit. On `Open` the
    /// caller passes the new circuit to [`reserve`](Self::reserve).
    pub(crate) fn choose(&mut self, need: Need, isolation: &Isolation, now: Instant) -> Choice<K> {
        let rank = |circuit: &Circuit| match (circuit.is_built(), circuit.owner.as_ref()) {
            (true, Some(owner)) if owner == isolation => Some(0),
            (true, None) if self.by_latency => Some(0),
            (true, None) => Some(1),
            (false, Some(owner)) if owner == isolation => Some(2),
            (false, None) => Some(3),
            _ => None,
        };
        let fit = self.circuits.iter_mut().filter(|(_, circuit)| circuit.serves(need, now));
        let ranked = fit.filter_map(|(name, circuit)| Some((rank(circuit)?, *name, circuit)));
        // Without probes all count as equally fast.
        let best = ranked.min_by_key(|(rank, name, circuit)| {
            (*rank, circuit.latency.unwrap_or(Duration::MAX), *name)
        });
        let Some((_, name, circuit)) = best else {
            return Choice::Open;
        };
        circuit.owner = Some(isolation.clone());
        if !circuit.is_built() {
            return Choice::Wait;
        }
        // A circuit that is being built for the stream is released.
        for (other, circuit) in &mut self.circuits {
            let is_its = circuit.owner.as_ref() == Some(isolation);
            if *other != name && is_its && circuit.first_used.is_none() {
                circuit.owner = None;
            }
        }
        Choice::Use(name)
    }

    /// Assigns a circuit to an isolation group.
    pub(crate) fn reserve(&mut self, name: K, isolation: &Isolation) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.owner = Some(isolation.clone());
        }
    }

    /// Counts a stream attached to a circuit.
    pub(crate) fn handle_begun(&mut self, name: K, now: Instant) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.first_used.get_or_insert(now);
            circuit.streams += 1;
        }
    }

    /// Counts the end of a stream.
    pub(crate) fn handle_over(&mut self, name: K) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.streams = circuit.streams.saturating_sub(1);
        }
    }

    /// The number of unowned circuits for such streams, including those being built.
    pub(crate) fn spare(&self, need: Need, now: Instant) -> usize {
        let is_spare = |circuit: &&Circuit| circuit.owner.is_none() && circuit.serves(need, now);
        self.circuits.values().filter(is_spare).count()
    }

    /// The number of circuits being built within their timeout.
    pub(crate) fn building(&self) -> usize {
        self.circuits.values().filter(|circuit| !circuit.is_built() && !circuit.is_late).count()
    }

    /// Circuits whose build timeout has just passed, and circuits to close.
    pub(crate) fn overdue(
        &mut self,
        now: Instant,
        timeout: Duration,
        close_timeout: Duration,
    ) -> (Vec<K>, Vec<K>) {
        let (mut late, mut over) = (Vec::new(), Vec::new());
        for (name, circuit) in &mut self.circuits {
            let is_over = match (circuit.took, circuit.first_used) {
                (None, _) => now >= circuit.began + close_timeout,
                (Some(_), Some(first)) => circuit.streams == 0 && now >= first + DIRTY_MAX,
                (Some(took), None) => now >= circuit.began + took + UNUSED_MAX,
            };
            if is_over {
                over.push(*name);
            } else if !circuit.is_built() && !circuit.is_late && now >= circuit.began + timeout {
                circuit.is_late = true;
                late.push(*name);
            }
        }
        (late, over)
    }

    /// Retires a circuit: a stream through it has failed in a manner that would affect others.
    pub(crate) fn retire(&mut self, name: K) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.is_retired = true;
        }
    }
}

#[cfg(test)]
mod tests;
