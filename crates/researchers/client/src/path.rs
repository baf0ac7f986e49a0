//! Path selection: which relays may share a path, and drawing them by a strategy's weights.

use crate::netdir::{NetDir, RelayInfo};
pub use crate::strategy::NoPath;
use crate::strategy::{Position, Strategy};
use netdoc::RsaId;
use netdoc::consensus::Flag;
use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;

/// Ports of long-lived sessions, which need stable relays: C tor's default for `LongLivedPorts`.
const LONG_LIVED_PORTS: [u16; 11] = [21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697];

/// Restrictions on all paths, in addition to distinct relays of distinct families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// No two relays in one IPv4 /16 or IPv6 /32 network. Disable it if all relays share a host.
    pub distinct_subnets: bool,
}

impl PathRules {
    /// Whether both may be in one path.
    #[must_use]
    pub fn allow_both(self, a: &RelayInfo, b: &RelayInfo) -> bool {
        let are_near = self.distinct_subnets && a.is_near(b);
        a.fingerprint != b.fingerprint && !a.is_family_of(b) && !are_near
    }
}

/// The purpose of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A DNS query: any exit will do.
    Lookup,
    /// A stream.
    Port {
        /// The destination port.
        port: u16,
        /// Whether the destination is an IPv6 address. False for host names.
        is_ipv6: bool,
    },
}

impl Need {
    /// Whether the exit serves it.
    #[must_use]
    pub fn is_served_by(self, exit: &RelayInfo) -> bool {
        match self {
            Self::Lookup => exit.is_exit(),
            Self::Port { port, is_ipv6 } => exit.allows(port, is_ipv6),
        }
    }

    /// Whether the relays of the path should be stable.
    #[must_use]
    pub fn is_long_lived(self) -> bool {
        matches!(self, Self::Port { port, .. } if LONG_LIVED_PORTS.contains(&port))
    }
}

/// Draws a relay for a position among those for which `may_be` returns true. Relays with the flags
/// `Fast` and, if `is_long_lived`, `Stable` are preferred.
pub fn select_relay<'v>(
    netdir: &'v NetDir,
    strategy: &dyn Strategy,
    position: Position,
    chosen: &[&RelayInfo],
    is_long_lived: bool,
    rng: &mut impl Rng,
    may_be: impl Fn(&RelayInfo) -> bool,
) -> Option<&'v RelayInfo> {
    let candidates = candidates(netdir, strategy, position, chosen, is_long_lived, may_be);
    let place = match WeightedIndex::new(candidates.iter().map(|(_, weight)| *weight)) {
        Ok(weighted) => weighted.sample(rng),
        // All weights are zero, or there are no candidates.
        Err(_) if candidates.is_empty() => return None,
        Err(_) => rand::RngExt::random_range(rng, 0..candidates.len()),
    };
    candidates.get(place).map(|(relay, _)| *relay)
}

/// The relays from which [`select_relay`] draws, with their weights.
pub fn candidates<'v>(
    netdir: &'v NetDir,
    strategy: &dyn Strategy,
    position: Position,
    chosen: &[&RelayInfo],
    is_long_lived: bool,
    may_be: impl Fn(&RelayInfo) -> bool,
) -> Vec<(&'v RelayInfo, f64)> {
    let admits = |relay: &RelayInfo| strategy.admits(netdir, relay, position, chosen);
    let all: Vec<&RelayInfo> =
        netdir.relays().iter().filter(|relay| may_be(relay) && admits(relay)).collect();
    let is_fit = |relay: &RelayInfo| {
        relay.flags.contains(Flag::Fast) && (!is_long_lived || relay.flags.contains(Flag::Stable))
    };
    let fit: Vec<&RelayInfo> = all.iter().copied().filter(|relay| is_fit(relay)).collect();
    let fit = if fit.is_empty() { all } else { fit };
    let weighed = fit.into_iter().map(|relay| {
        let weight = strategy.weight(netdir, relay, position, chosen);
        (relay, if weight.is_finite() { weight.max(0.0) } else { 0.0 })
    });
    weighed.collect()
}

/// Exits that are drawn before selection fails for lack of a guard.
const EXITS_TRIED: usize = 8;

/// Selects a path of three hops: first the exit, then the guard that `guard` returns among those
/// permitted, then the middle.
///
/// # Errors
/// [`NoPath`] names the position that cannot be filled.
pub fn select_path<'v>(
    netdir: &'v NetDir,
    strategy: &dyn Strategy,
    rules: PathRules,
    need: Need,
    rng: &mut impl Rng,
    guard: impl Fn(&dyn Fn(&RelayInfo) -> bool) -> Option<RsaId>,
) -> Result<[&'v RelayInfo; 3], NoPath> {
    strategy.check(netdir)?;
    let lasts = need.is_long_lived();
    let mut problem = NoPath::Exit;
    for _ in 0..EXITS_TRIED {
        let serves = |relay: &RelayInfo| need.is_served_by(relay);
        let exit = select_relay(netdir, strategy, Position::Exit, &[], lasts, rng, serves);
        let exit = exit.ok_or(NoPath::Exit)?;
        let admits = |relay: &RelayInfo| strategy.admits(netdir, relay, Position::Guard, &[exit]);
        let first = guard(&|relay| rules.allow_both(relay, exit) && admits(relay));
        let first = first.and_then(|fingerprint| netdir.find(&fingerprint));
        let Some(first) = first else {
            problem = NoPath::Guard;
            continue;
        };
        let may_be =
            |relay: &RelayInfo| rules.allow_both(relay, exit) && rules.allow_both(relay, first);
        let chosen = [first, exit];
        let middle = select_relay(netdir, strategy, Position::Middle, &chosen, lasts, rng, may_be);
        match middle {
            Some(middle) => return Ok([first, middle, exit]),
            None => problem = NoPath::Middle,
        }
    }
    Err(problem)
}

/// The legs to add to a set of linked circuits.
#[derive(Clone, Copy, Debug)]
pub struct WantedLegs<'a> {
    /// The number of paths to select.
    pub count: usize,
    /// The paths of existing legs, whose exit the new ones share.
    pub taken: &'a [[RsaId; 3]],
}

/// Selects paths for circuits that are linked at their common exit. No two have the same guard or the
/// same middle (proposal 329 §2.2); while there are enough relays, they share none but the exit.
///
/// # Errors
/// [`NoPath`] names the position that cannot be filled for all wanted legs. No path is selected then.
pub fn select_legs<'v>(
    netdir: &'v NetDir,
    strategy: &dyn Strategy,
    rules: PathRules,
    need: Need,
    wanted: WantedLegs<'_>,
    rng: &mut impl Rng,
    guard: impl Fn(&dyn Fn(&RelayInfo) -> bool) -> Option<RsaId>,
) -> Result<Vec<[&'v RelayInfo; 3]>, NoPath> {
    strategy.check(netdir)?;
    let lasts = need.is_long_lived();
    let mut problem = NoPath::Exit;
    let WantedLegs { count, taken } = wanted;
    let exits_tried = if taken.is_empty() { EXITS_TRIED } else { 1 };
    for _ in 0..exits_tried {
        let serves = |relay: &RelayInfo| {
            let links = relay.has_conflux && relay.has_congestion_control;
            let is_theirs = taken.iter().all(|path| path[2] == relay.fingerprint);
            links && is_theirs && need.is_served_by(relay)
        };
        let exit = select_relay(netdir, strategy, Position::Exit, &[], lasts, rng, serves);
        let exit = exit.ok_or(NoPath::Exit)?;
        for may_share in [false, true] {
            let mut paths = taken.to_vec();
            let mut chosen = Vec::new();
            while chosen.len() < count {
                // Whether a relay is in no other leg, or at least not at this position.
                let is_free = |relay: &RelayInfo, place: usize| {
                    let is_it = |path: &[RsaId; 3]| match may_share {
                        true => path[place] == relay.fingerprint,
                        false => path[..2].contains(&relay.fingerprint),
                    };
                    rules.allow_both(relay, exit) && !paths.iter().any(is_it)
                };
                let admits =
                    |relay: &RelayInfo| strategy.admits(netdir, relay, Position::Guard, &[exit]);
                let first = guard(&|relay| is_free(relay, 0) && admits(relay));
                let first = first.and_then(|fingerprint| netdir.find(&fingerprint));
                let Some(first) = first else {
                    problem = NoPath::Guard;
                    break;
                };
                let may_be =
                    |relay: &RelayInfo| is_free(relay, 1) && rules.allow_both(relay, first);
                let known = [first, exit];
                let middle =
                    select_relay(netdir, strategy, Position::Middle, &known, lasts, rng, may_be);
                let Some(middle) = middle else {
                    problem = NoPath::Middle;
                    break;
                };
                paths.push([first.fingerprint, middle.fingerprint, exit.fingerprint]);
                chosen.push([first, middle, exit]);
            }
            if chosen.len() == count {
                return Ok(chosen);
            }
        }
    }
    Err(problem)
}

/// Selects a path of `hops` hops, at least one, for probes and studies. Unlike in [`select_path`],
/// the first hop is drawn each time among possible guards, if there are any. Without a `need` any
/// relay may be the last hop.
///
/// # Errors
/// [`NoPath`] names the position that cannot be filled.
pub fn select_probe_path<'v>(
    netdir: &'v NetDir,
    strategy: &dyn Strategy,
    rules: PathRules,
    need: Option<Need>,
    hops: usize,
    rng: &mut impl Rng,
) -> Result<Vec<&'v RelayInfo>, NoPath> {
    strategy.check(netdir)?;
    let mut problem = NoPath::Exit;
    for _ in 0..EXITS_TRIED {
        let serves = |relay: &RelayInfo| need.is_none_or(|need| need.is_served_by(relay));
        let exit = select_relay(netdir, strategy, Position::Exit, &[], false, rng, serves);
        let exit = exit.ok_or(NoPath::Exit)?;
        if hops < 2 {
            return Ok(vec![exit]);
        }
        let first = {
            let may_be = |relay: &RelayInfo| rules.allow_both(relay, exit);
            let guard = |relay: &RelayInfo| may_be(relay) && relay.may_be_guard();
            select_relay(netdir, strategy, Position::Guard, &[exit], false, rng, guard).or_else(
                || select_relay(netdir, strategy, Position::Guard, &[exit], false, rng, may_be),
            )
        };
        let Some(first) = first else {
            problem = NoPath::Guard;
            continue;
        };
        // First hop and exit, then the middles in order.
        let mut chosen = vec![first, exit];
        while chosen.len() < hops {
            let may_be =
                |relay: &RelayInfo| chosen.iter().all(|other| rules.allow_both(relay, other));
            let middle =
                select_relay(netdir, strategy, Position::Middle, &chosen, false, rng, may_be);
            let Some(middle) = middle else { break };
            chosen.push(middle);
        }
        if chosen.len() == hops {
            let exit = chosen.remove(1);
            chosen.push(exit);
            return Ok(chosen);
        }
        problem = NoPath::Middle;
    }
    Err(problem)
}

#[cfg(test)]
mod tests;
