use super::TeamRoom;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use onion::Rate;
use onion::identity::RsaId;

/// A candidate for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The relay.
    pub relay: RsaId,
    /// *z₀*: the capacity to expect.
    pub guess: Rate,
    /// Its address.
    pub address: IpAddr,
}

/// Relays that are measured at the same instant, since they share the capacity of a machine. Most machines have one
/// relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// By identity; never empty.
    relays: BTreeMap<RsaId, Rate>,
    first: RsaId,
}

impl Machine {
    /// One with a single relay.
    #[must_use]
    pub fn single(relay: RsaId, guess: Rate) -> Self {
        Self { relays: BTreeMap::from([(relay, guess)]), first: relay }
    }

    /// With another relay.
    #[must_use]
    pub fn with(mut self, relay: RsaId, guess: Rate) -> Self {
        self.relays.insert(relay, guess);
        self.first = self.first.min(relay);
        self
    }

    /// Its relays, in the order of their identities.
    pub fn relays(&self) -> impl Iterator<Item = RsaId> {
        self.relays.keys().copied()
    }

    /// The number of relays.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.relays.len()).unwrap_or(u32::MAX)
    }

    /// The expected capacity of all of them together.
    #[must_use]
    pub fn guess(&self) -> Rate {
        self.relays.values().copied().sum()
    }

    /// The expected capacity of one of them.
    #[must_use]
    pub fn guess_of(&self, relay: RsaId) -> Option<Rate> {
        self.relays.get(&relay).copied()
    }

    /// The first of its relays.
    #[must_use]
    pub const fn key(&self) -> RsaId {
        self.first
    }

    pub(super) fn expect(&mut self, relay: RsaId, guess: Rate) {
        if let Some(known) = self.relays.get_mut(&relay) {
            *known = guess;
        }
    }

    pub(super) fn add(&mut self, others: &Self) {
        self.relays.extend(&others.relays);
    }

    /// The other relays, if any.
    pub(super) fn without(&self, is_left_out: impl Fn(RsaId) -> bool) -> Option<Self> {
        let mut others = self.relays.iter().filter(|(relay, _)| !is_left_out(**relay));
        let (relay, guess) = others.next()?;
        let first = Self::single(*relay, *guess);
        Some(others.fold(first, |machine, (relay, guess)| machine.with(*relay, *guess)))
    }
}

/// Groups relays at one address, and relays that `together` names in pairs, transitively, into machines. A pair with a
/// relay that is not a candidate is ignored. So is a loopback address: private test networks use it, and their relays have
/// the capacities of their configurations.
#[must_use]
pub fn machines(candidates: &[Candidate], together: &[(RsaId, RsaId)]) -> Vec<Machine> {
    machines_within(candidates, together, &[], TeamRoom::of(Rate::ZERO))
}

/// Groups relays like [`machines`], and also pairs that are measured together without certainty that they share a
/// machine. Such a pair counts only if the joined group fits in `most`, both by number and by expected capacity: a team
/// that could not load them at once would measure less of each than its capacity. Addresses and `together` always
/// count: each relay of a shared machine is expected to have all of it.
#[must_use]
pub fn machines_within(
    candidates: &[Candidate],
    together: &[(RsaId, RsaId)],
    perhaps: &[(RsaId, RsaId)],
    most: TeamRoom,
) -> Vec<Machine> {
    let place_of: BTreeMap<RsaId, usize> =
        candidates.iter().enumerate().map(|(place, candidate)| (candidate.relay, place)).collect();
    let mut groups = Groups::new(candidates.iter().map(|candidate| candidate.guess).collect());
    let mut at: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (place, candidate) in candidates.iter().enumerate() {
        if !candidate.address.is_loopback() {
            groups.join(*at.entry(candidate.address).or_insert(place), place);
        }
    }
    let places = |(one, other): &(RsaId, RsaId)| Some((*place_of.get(one)?, *place_of.get(other)?));
    for (one, other) in together.iter().filter_map(places) {
        groups.join(one, other);
    }
    for (one, other) in perhaps.iter().filter_map(places) {
        let GroupSize { guess, relays } = groups.joint_size(one, other);
        if guess <= most.capacity && relays <= most.at_once_max as usize {
            groups.join(one, other);
        }
    }
    let mut found: BTreeMap<usize, Machine> = BTreeMap::new();
    for (place, Candidate { relay, guess, .. }) in candidates.iter().enumerate() {
        let root = groups.root(place);
        let machine = match found.remove(&root) {
            Some(machine) => machine.with(*relay, *guess),
            None => Machine::single(*relay, *guess),
        };
        found.insert(root, machine);
    }
    found.into_values().collect()
}

/// A disjoint-set forest with path halving. Each root has the expected capacity of its set, and the number of its
/// relays.
struct Groups {
    above: Vec<usize>,
    sizes: Vec<GroupSize>,
}

#[derive(Clone, Copy)]
struct GroupSize {
    guess: Rate,
    relays: usize,
}

impl Groups {
    fn new(guesses: Vec<Rate>) -> Self {
        let above = (0..guesses.len()).collect();
        let size = |guess| GroupSize { guess, relays: 1 };
        Self { above, sizes: guesses.into_iter().map(size).collect() }
    }

    fn root(&mut self, mut place: usize) -> usize {
        while self.above[place] != place {
            self.above[place] = self.above[self.above[place]];
            place = self.above[place];
        }
        place
    }

    /// The size of the group that joining these two would make.
    fn joint_size(&mut self, one: usize, other: usize) -> GroupSize {
        let (one, other) = (self.root(one), self.root(other));
        if one == other { self.sizes[one] } else { self.sizes[one].plus(self.sizes[other]) }
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        if one == other {
            return;
        }
        let (first, second) = (one.min(other), one.max(other));
        self.sizes[first] = self.sizes[first].plus(self.sizes[second]);
        self.above[second] = first;
    }
}

impl GroupSize {
    fn plus(self, other: Self) -> Self {
        Self { guess: self.guess + other.guess, relays: self.relays + other.relays }
    }
}
