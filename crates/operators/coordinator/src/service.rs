//! Detection of relays that do not serve clients as they are measured, from ordinary circuits through them.
//!
//! Measurements alone do not reveal a relay that drops all other traffic. So a prober builds circuits through random relays of the
//! consensus, as clients do: their cells do not differ from a client's, and only the first hop sees the prober's address. The test uses
//! nothing but their outcomes:
//!
//! 1. A circuit is *bad* if it failed, or if its download was slower than [`SLOW`] of yesterday's median and of the smallest estimate of
//!    its relays: a relay may be slow if it was measured as slow. Without estimates, rates do not count.
//! 2. It counts for a relay only if no other relay of it is in doubt: most of that relay's last circuits were bad. Thus a relay that
//!    drops everything soon stops affecting the results of others. It also counts only outside of the relay's measurements, at most once in
//!    [`SPACING_S`] for each position, since an outage makes all circuits of an hour bad, and if some of the prober's last four circuits
//!    worked, since otherwise the prober may be to blame. All of that is known before the circuit's outcome.
//! 3. Let *b* be the share of bad circuits among those of the last week without a relay in doubt. A circuit of an honest relay is bad with
//!    a probability of at most *p₀* = *b* + (1−*b*)·[`FRAMED`]. A relay that drops a share *d* of its circuits has
//!    *p₁* = *b* + (1−*b*)·*d*. The log likelihood ratios of a relay's circuits are added up, from the start of any day on.
//! 4. This is done for relays that drop nearly all or half of their circuits, in every position of a path or in one of three. The
//!    likelihood ratio of an honest relay is a nonnegative supermartingale, so it ever reaches *c* with a probability of at most 1/*c*
//!    (Ville's inequality). Over the [`ALTERNATIVES`] and the 365 starts in a year, the bound is 365·8/*c*. A relay is suspected if that is
//!    at most [`FALSE_ALARM`], and until its sum is negative at the start of a day.
//!
//! The bound assumes nothing about how relays fail or how circuits depend on each other, except *p₀*. Two colluding shares of the relays
//! that the prober chooses, each 10 %, as the other two hops, could make 19 % of a victim's circuits fail: that is less than [`FRAMED`].
//!
//! A suspicion is no proof, and has no effect by itself.

mod network;
mod relay;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use network::NetworkState;
use onion::Rate;
use onion::identity::RsaId;
use relay::RelayState;

/// The probability, in a year, that an honest relay is suspected.
const FALSE_ALARM: f64 = 0.001;

/// The share of an honest relay's circuits that others may spoil in order to frame it.
const FRAMED: f64 = 0.2;

/// A download is bad below this share of the median, and of the smallest estimate of the circuit's relays.
const SLOW: f64 = 0.1;

/// The minimum time between two circuits that count for a relay, in seconds: a consensus drops a relay that is down after an hour or two.
const SPACING_S: u64 = 2 * 3600;

const DAY_S: u64 = 24 * 3600;

/// What a relay may do instead of serving: the position in which it drops circuits, and their share.
const ALTERNATIVES: [(Option<HopPosition>, f64); 8] = [
    (None, 0.95),
    (Some(HopPosition::First), 0.95),
    (Some(HopPosition::Middle), 0.95),
    (Some(HopPosition::Last), 0.95),
    (None, 0.5),
    (Some(HopPosition::First), 0.5),
    (Some(HopPosition::Middle), 0.5),
    (Some(HopPosition::Last), 0.5),
];

/// A position in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopPosition {
    /// The first hop, which sees the address of the client.
    First,
    /// Between the first and the last hop.
    Middle,
    /// The last hop of several, which sees the destinations.
    Last,
}

impl HopPosition {
    const fn from_place(place: usize, hops: usize) -> Self {
        match place {
            0 => Self::First,
            place if place + 1 == hops => Self::Last,
            _ => Self::Middle,
        }
    }

    /// The position in words, such as "first hop".
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::First => "first hop",
            Self::Middle => "middle hop",
            Self::Last => "last hop",
        }
    }
}

/// The outcome of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitOutcome {
    /// It was not built, broke, or did not answer in time.
    Failed,
    /// It worked, with this rate of its download, if there was one.
    Worked {
        /// The rate.
        download: Option<Rate>,
    },
}

/// An ordinary circuit that a prober has built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedCircuit<'c> {
    /// When its outcome was known, in Unix seconds.
    pub ended_unix_s: u64,
    /// Its relays, first hop first.
    pub path: &'c [RsaId],
    /// Its outcome.
    pub outcome: CircuitOutcome,
    /// The smallest estimate of its relays; `None` if one has none, and then the rate of its download does not count.
    pub slowest_estimate: Option<Rate>,
}

/// The suspicion that a relay serves measurements and not clients, with its evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceSuspicion {
    /// The relay.
    pub relay: RsaId,
    /// The position in which its circuits are bad; `None` for all.
    pub position: Option<HopPosition>,
    /// When the first of the circuits ended, in Unix seconds.
    pub since_unix_s: u64,
    /// When the last of them ended, in Unix seconds.
    pub until_unix_s: u64,
    /// Circuits that count, from then on, in this position.
    pub circuits: u32,
    /// Those of them that were bad: they failed, or were too slow.
    pub bad: u32,
    /// Different other relays of the bad circuits; at most 64 are counted.
    pub neighbours: u32,
    /// The share of bad circuits in the network, *b*.
    pub network_bad_share: f64,
    /// The probability, at most, that an honest relay ever looks like that in a year.
    pub by_chance: f64,
}

/// The circuits of a relay that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbedRelay {
    /// Circuits that count.
    pub circuits: u64,
    /// Those of them that were bad: they failed, or were too slow.
    pub bad: u64,
}

/// The outcomes of ordinary circuits, in the order of time. See the beginning of its source file.
///
/// A relay takes less than a KB, without the other relays of its bad circuits, of which it keeps at most 64 for each of eight cases.
#[derive(Clone, Debug, Default)]
pub struct ServiceTest {
    network: NetworkState,
    relays: BTreeMap<RsaId, RelayState>,
    last_unix_s: u64,
}

impl ServiceTest {
    /// Adds a circuit. One that ended before an earlier one counts as if it had ended at the same time. Circuits do not count for relays
    /// for which `is_measured` returns true.
    pub fn add(&mut self, circuit: &ProbedCircuit<'_>, is_measured: impl Fn(RsaId) -> bool) {
        self.last_unix_s = self.last_unix_s.max(circuit.ended_unix_s);
        let now_unix_s = self.last_unix_s;
        self.network.begin_day(now_unix_s / DAY_S);
        let is_bad = self.network.is_bad(circuit);
        let works = self.network.prober_works();
        let is_doubtful = |relay| self.relays.get(relay).is_some_and(RelayState::is_doubtful);
        let doubtful: Vec<bool> = circuit.path.iter().map(is_doubtful).collect();
        let in_doubt = doubtful.iter().filter(|is_doubtful| **is_doubtful).count();
        for (place, (relay, is_doubtful)) in circuit.path.iter().zip(doubtful).enumerate() {
            let others_in_doubt = in_doubt - usize::from(is_doubtful);
            if !works || others_in_doubt > 0 || is_measured(*relay) {
                continue;
            }
            let position = HopPosition::from_place(place, circuit.path.len());
            let others = circuit.path.iter().filter(|other| *other != relay);
            let state = self.relays.entry(*relay).or_default();
            state.add(now_unix_s, position, is_bad.then_some(others), self.network.steps());
        }
        self.network.add(circuit.outcome, is_bad, works && in_doubt == 0);
    }

    /// What its circuits show about a relay, if it is suspected.
    #[must_use]
    pub fn suspicion(&self, relay: RsaId) -> Option<ServiceSuspicion> {
        self.relays.get(&relay)?.suspicion(relay, self.network.bad_share())
    }

    /// All suspected relays, in the order of their identities.
    pub fn suspicions(&self) -> impl Iterator<Item = ServiceSuspicion> {
        let bad_share = self.network.bad_share();
        self.relays.iter().filter_map(move |(relay, state)| state.suspicion(*relay, bad_share))
    }

    /// The circuits of a relay that count.
    #[must_use]
    pub fn probed(&self, relay: RsaId) -> ProbedRelay {
        self.relays.get(&relay).map(RelayState::probed).unwrap_or_default()
    }
}
