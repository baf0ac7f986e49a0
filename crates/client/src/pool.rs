//! The circuits that a client has, and which of them a stream gets.

use crate::path::Need;
use crate::view::RelayInfo;
use netdoc::Fingerprint;
use onion::{Duration, Instant};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A circuit gets no new streams so long after its first: C tor's `MaxCircuitDirtiness`.
pub(crate) const DIRTY_MAX: Duration = Duration::from_secs(600);
/// A circuit that nobody has used for so long is closed: C tor's `CircuitsAvailableTimeout`.
const UNUSED_MAX: Duration = Duration::from_secs(1800);
/// Circuits that are kept ready for streams that nobody has asked for yet.
pub(crate) const SPARE: usize = 2;
/// Circuits at once, at most: what a program that isolates each stream can have.
pub(crate) const CIRCUITS_MAX: usize = 256;

/// Streams of different isolation never share a circuit: what C tor isolates by default (`IsolateSOCKSAuth`,
/// `IsolateClientAddr`, `IsolateClientProtocol`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isolation {
    /// The version of SOCKS: 4 or 5.
    pub version: u8,
    /// Where the program has connected from, if that is known.
    pub from: Option<IpAddr>,
    /// The user that it gives with SOCKS; empty if it gives none.
    pub user: Vec<u8>,
    /// The password; empty if it gives none.
    pub password: Vec<u8>,
}

/// A circuit of the pool.
#[derive(Clone, Debug)]
pub(crate) struct Circuit {
    /// Its number, for people.
    pub(crate) number: u64,
    /// First hop first; of a set, its first leg's.
    pub(crate) path: [Fingerprint; 3],
    /// Of a set: the paths of its legs, by their numbers.
    pub(crate) legs: BTreeMap<u8, [Fingerprint; 3]>,
    /// Of a set: since when its legs stand that do.
    pub(crate) legs_since: BTreeMap<u8, Instant>,
    /// Of a set: legs that were tried for others that failed before all were linked.
    pub(crate) retries: u32,
    /// The same after that.
    pub(crate) retries_linked: u32,
    pub(crate) exit: RelayInfo,
    pub(crate) began: Instant,
    pub(crate) took: Option<Duration>,
    /// Nobody waits for it any longer; it is built on to learn from.
    pub(crate) is_late: bool,
    /// Its strategy has been told that it does not come to stand.
    has_failed: bool,
    /// It stands, and gets no more streams.
    is_retired: bool,
    /// For whom it is; nobody's yet, if none.
    owner: Option<Isolation>,
    /// When it got its first stream.
    first_used: Option<Instant>,
    pub(crate) streams: usize,
    /// How fast its last hop answered when it was last asked.
    latency: Option<Duration>,
    asked_at: Option<Instant>,
}

impl Circuit {
    pub(crate) const fn new(
        number: u64,
        path: [Fingerprint; 3],
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

    pub(crate) const fn guard(&self) -> &Fingerprint {
        &self.path[0]
    }

    const fn is_built(&self) -> bool {
        self.took.is_some()
    }

    /// Whether it has not come to stand, be it late, too late or lost, and nobody has asked before: a failure counts once.
    pub(crate) const fn fails_now(&mut self) -> bool {
        !self.is_built() && !std::mem::replace(&mut self.has_failed, true)
    }

    /// The ways that fail now, which they do once: the circuit's, or those of a set's legs that do not stand.
    pub(crate) fn take_failing(&mut self) -> Vec<[Fingerprint; 3]> {
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

    /// Whether nobody has given it up yet.
    pub(crate) const fn is_hoped_for(&self) -> bool {
        !self.has_failed
    }

    /// Whether it stands, and in time.
    pub(crate) const fn has_succeeded(&self) -> bool {
        self.is_built() && !self.has_failed
    }

    /// Whether it may get a stream: it is not too old, and its last hop lets the stream out.
    fn serves(&self, need: Need, now: Instant) -> bool {
        let is_young = self.first_used.is_none_or(|first| now < first + DIRTY_MAX);
        !self.is_late && !self.is_retired && is_young && need.is_served_by(&self.exit)
    }
}

/// What a stream gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice<K> {
    /// This circuit, which stands.
    Use(K),
    /// One that is being built for it.
    Wait,
    /// There is none: one is to be built.
    Open,
}

/// The circuits that a client has, by its names for them.
#[derive(Debug)]
pub(crate) struct Pool<K> {
    circuits: BTreeMap<K, Circuit>,
    /// Streams go to the circuit that answers fastest now.
    by_latency: bool,
}

impl<K: Copy + Ord> Pool<K> {
    /// Without circuits. `by_latency`: a stream gets the circuit that answers fastest, of those that stand and are its isolation's or
    /// nobody's.
    pub(crate) const fn new(by_latency: bool) -> Self {
        Self { circuits: BTreeMap::new(), by_latency }
    }

    /// Circuits that stand, may get streams, and were not asked for so long how fast they answer. They count as asked now. What streams that they
    /// have make others wait is part of the answer: the next stream would wait as long.
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

    /// How fast a circuit answered, if it did.
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

    /// Those that there are.
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

    /// Chooses for a stream: a circuit of the same isolation before one that is nobody's, and one that stands before one that
    /// is being built. What is chosen belongs to this isolation from now on. With `Open` the caller gives what it opens to
    /// [`reserve`](Self::reserve).
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
        // Without a question, all are equally fast.
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
        // What was being built for it is not needed any more.
        for (other, circuit) in &mut self.circuits {
            let is_its = circuit.owner.as_ref() == Some(isolation);
            if *other != name && is_its && circuit.first_used.is_none() {
                circuit.owner = None;
            }
        }
        Choice::Use(name)
    }

    /// Gives a circuit to an isolation alone.
    pub(crate) fn reserve(&mut self, name: K, isolation: &Isolation) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.owner = Some(isolation.clone());
        }
    }

    /// A circuit has got a stream.
    pub(crate) fn handle_begun(&mut self, name: K, now: Instant) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.first_used.get_or_insert(now);
            circuit.streams += 1;
        }
    }

    /// A stream of a circuit is over.
    pub(crate) fn handle_over(&mut self, name: K) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.streams = circuit.streams.saturating_sub(1);
        }
    }

    /// Circuits that are nobody's, and that such a stream could get, also those that are being built.
    pub(crate) fn spare(&self, need: Need, now: Instant) -> usize {
        let is_spare = |it: &&Circuit| it.owner.is_none() && it.serves(need, now);
        self.circuits.values().filter(is_spare).count()
    }

    /// Circuits that are being built and still waited for.
    pub(crate) fn building(&self) -> usize {
        self.circuits.values().filter(|circuit| !circuit.is_built() && !circuit.is_late).count()
    }

    /// Circuits whose time is over: those that nobody waits for any longer, from now on, and those to be closed.
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

    /// Lets a circuit have no more streams: one through it has failed in a way that others would, too.
    pub(crate) fn retire(&mut self, name: K) {
        if let Some(circuit) = self.circuits.get_mut(&name) {
            circuit.is_retired = true;
        }
    }
}

#[cfg(test)]
mod tests;
