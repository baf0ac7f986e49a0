//! Paths: which relays may be in one together, and the draw.

use crate::guards::may_guard;
use crate::strategy::{Position, Strategy};
use crate::view::{RelayInfo, View};
use netdoc::Fingerprint;
use netdoc::consensus::Flag;
use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;

/// Ports of sessions that last, for which relays must be stable: C tor's default for `LongLivedPorts`.
const LONG_LIVED_PORTS: [u16; 11] = [21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697];

/// What holds for all paths, besides that no relay is in one twice and none with its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// No two relays of one network, of 16 bits by IPv4 or 32 by IPv6. Not where all relays are on one machine.
    pub distinct_subnets: bool,
}

impl Rules {
    /// Whether both may be in one path.
    #[must_use]
    pub fn allow_both(self, a: &RelayInfo, b: &RelayInfo) -> bool {
        let are_near = self.distinct_subnets && a.is_near(b);
        a.fingerprint != b.fingerprint && !a.is_family_of(b) && !are_near
    }
}

/// What a path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A question to the domain name system: any exit will do.
    Lookup,
    /// A stream.
    Port {
        /// To this port.
        port: u16,
        /// Of an IPv6 address. A name is not one.
        is_ipv6: bool,
    },
}

impl Need {
    /// Whether a last hop serves it.
    #[must_use]
    pub fn is_served_by(self, exit: &RelayInfo) -> bool {
        match self {
            Self::Lookup => exit.is_exit(),
            Self::Port { port, is_ipv6 } => exit.allows(port, is_ipv6),
        }
    }

    /// Whether the path's relays should be stable.
    #[must_use]
    pub fn is_long_lived(self) -> bool {
        matches!(self, Self::Port { port, .. } if LONG_LIVED_PORTS.contains(&port))
    }
}

/// Why there is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPath {
    /// No relay lets such a stream out.
    #[error("no exit of the network lets such a stream out")]
    Exit,
    /// No guard may be used with that exit.
    #[error("no guard can be used now with any such exit")]
    Guard,
    /// No other relay may be used with guard and exit.
    #[error("no relay is left for the middle of a path")]
    Middle,
    /// The strategy goes by measurements, and has none of the network's relays.
    #[error(
        "no relay of the consensus has a measurement in the bandwidth file: the file is of another network or another time"
    )]
    Unmeasured,
}

/// Draws a relay for a position among those that `may_be`. Those with the flags `Fast` and, if asked for, `Stable` come
/// first; if there is none, any will do.
pub fn draw<'v>(
    view: &'v View,
    strategy: &dyn Strategy,
    position: Position,
    chosen: &[&RelayInfo],
    is_long_lived: bool,
    rng: &mut impl Rng,
    may_be: impl Fn(&RelayInfo) -> bool,
) -> Option<&'v RelayInfo> {
    let candidates = candidates(view, strategy, position, chosen, is_long_lived, may_be);
    let place = match WeightedIndex::new(candidates.iter().map(|(_, weight)| *weight)) {
        Ok(weighted) => weighted.sample(rng),
        // All weigh nothing, or there is none.
        Err(_) if candidates.is_empty() => return None,
        Err(_) => rand::RngExt::random_range(rng, 0..candidates.len()),
    };
    candidates.get(place).map(|(relay, _)| *relay)
}

/// The relays that [`draw`] draws one of, and how much each weighs; if all weigh nothing, all are equal.
pub fn candidates<'v>(
    view: &'v View,
    strategy: &dyn Strategy,
    position: Position,
    chosen: &[&RelayInfo],
    is_long_lived: bool,
    may_be: impl Fn(&RelayInfo) -> bool,
) -> Vec<(&'v RelayInfo, f64)> {
    let admits = |relay: &RelayInfo| strategy.admits(view, relay, position, chosen);
    let all: Vec<&RelayInfo> =
        view.relays().iter().filter(|relay| may_be(relay) && admits(relay)).collect();
    let is_fit = |relay: &RelayInfo| {
        relay.flags.contains(Flag::Fast) && (!is_long_lived || relay.flags.contains(Flag::Stable))
    };
    let fit: Vec<&RelayInfo> = all.iter().copied().filter(|relay| is_fit(relay)).collect();
    let fit = if fit.is_empty() { all } else { fit };
    let weighed = fit.into_iter().map(|relay| {
        let weight = strategy.weight(view, relay, position, chosen);
        (relay, if weight.is_finite() { weight.max(0.0) } else { 0.0 })
    });
    weighed.collect()
}

/// How often an exit is drawn before there is no guard that may go with one.
const EXITS_TRIED: usize = 8;

/// Chooses a path of three: first the exit, then the guard, of which `guard` says which is to be used among those that may be,
/// then the middle.
///
/// # Errors
/// [`NoPath`] says which position cannot be filled.
pub fn choose<'v>(
    view: &'v View,
    strategy: &dyn Strategy,
    rules: Rules,
    need: Need,
    rng: &mut impl Rng,
    guard: impl Fn(&dyn Fn(&RelayInfo) -> bool) -> Option<Fingerprint>,
) -> Result<[&'v RelayInfo; 3], NoPath> {
    strategy.check(view)?;
    let lasts = need.is_long_lived();
    let mut problem = NoPath::Exit;
    for _ in 0..EXITS_TRIED {
        let serves = |relay: &RelayInfo| need.is_served_by(relay);
        let exit = draw(view, strategy, Position::Exit, &[], lasts, rng, serves);
        let exit = exit.ok_or(NoPath::Exit)?;
        let admits = |relay: &RelayInfo| strategy.admits(view, relay, Position::Guard, &[exit]);
        let first = guard(&|relay| rules.allow_both(relay, exit) && admits(relay));
        let first = first.and_then(|it| view.find(&it));
        let Some(first) = first else {
            problem = NoPath::Guard;
            continue;
        };
        let may_be = |it: &RelayInfo| rules.allow_both(it, exit) && rules.allow_both(it, first);
        let chosen = [first, exit];
        let middle = draw(view, strategy, Position::Middle, &chosen, lasts, rng, may_be);
        match middle {
            Some(middle) => return Ok([first, middle, exit]),
            None => problem = NoPath::Middle,
        }
    }
    Err(problem)
}

/// Chooses paths for circuits that are to be linked at their common exit: no two have the same guard, nor the same middle
/// (proposal 329 §2.2), and as long as there are relays enough they have no relay but the exit in common. `taken` are the
/// paths of legs that there are already; the exit is theirs.
///
/// # Errors
/// [`NoPath`] says which position cannot be filled: of all legs, or there are none.
pub fn choose_legs<'v>(
    view: &'v View,
    strategy: &dyn Strategy,
    rules: Rules,
    need: Need,
    (count, taken): (usize, &[[Fingerprint; 3]]),
    rng: &mut impl Rng,
    guard: impl Fn(&dyn Fn(&RelayInfo) -> bool) -> Option<Fingerprint>,
) -> Result<Vec<[&'v RelayInfo; 3]>, NoPath> {
    strategy.check(view)?;
    let lasts = need.is_long_lived();
    let mut problem = NoPath::Exit;
    let exits_tried = if taken.is_empty() { EXITS_TRIED } else { 1 };
    for _ in 0..exits_tried {
        let serves = |relay: &RelayInfo| {
            let links = relay.has_conflux && relay.has_congestion_control;
            let is_theirs = taken.iter().all(|path| path[2] == relay.fingerprint);
            links && is_theirs && need.is_served_by(relay)
        };
        let exit = draw(view, strategy, Position::Exit, &[], lasts, rng, serves);
        let exit = exit.ok_or(NoPath::Exit)?;
        for may_share in [false, true] {
            let mut paths = taken.to_vec();
            let mut chosen = Vec::new();
            while chosen.len() < count {
                // Whether a relay is free for a position: in no other leg, or at least not there.
                let is_free = |relay: &RelayInfo, place: usize| {
                    let is_it = |path: &[Fingerprint; 3]| match may_share {
                        true => path[place] == relay.fingerprint,
                        false => path[..2].contains(&relay.fingerprint),
                    };
                    rules.allow_both(relay, exit) && !paths.iter().any(is_it)
                };
                let admits =
                    |relay: &RelayInfo| strategy.admits(view, relay, Position::Guard, &[exit]);
                let first = guard(&|relay| is_free(relay, 0) && admits(relay));
                let first = first.and_then(|it| view.find(&it));
                let Some(first) = first else {
                    problem = NoPath::Guard;
                    break;
                };
                let may_be = |it: &RelayInfo| is_free(it, 1) && rules.allow_both(it, first);
                let known = [first, exit];
                let middle = draw(view, strategy, Position::Middle, &known, lasts, rng, may_be);
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

/// Draws a path of so many hops, at least one, for probes and studies: as [`choose`], but the first hop is drawn anew each time
/// among those that may be guards, if there are any. Without a `need` any relay may be the last hop.
///
/// # Errors
/// [`NoPath`] says which position cannot be filled.
pub fn draw_path<'v>(
    view: &'v View,
    strategy: &dyn Strategy,
    rules: Rules,
    need: Option<Need>,
    hops: usize,
    rng: &mut impl Rng,
) -> Result<Vec<&'v RelayInfo>, NoPath> {
    strategy.check(view)?;
    let mut problem = NoPath::Exit;
    for _ in 0..EXITS_TRIED {
        let serves = |relay: &RelayInfo| need.is_none_or(|need| need.is_served_by(relay));
        let exit = draw(view, strategy, Position::Exit, &[], false, rng, serves);
        let exit = exit.ok_or(NoPath::Exit)?;
        if hops < 2 {
            return Ok(vec![exit]);
        }
        let first = {
            let may_be = |relay: &RelayInfo| rules.allow_both(relay, exit);
            let guard = |relay: &RelayInfo| may_be(relay) && may_guard(relay);
            draw(view, strategy, Position::Guard, &[exit], false, rng, guard)
                .or_else(|| draw(view, strategy, Position::Guard, &[exit], false, rng, may_be))
        };
        let Some(first) = first else {
            problem = NoPath::Guard;
            continue;
        };
        // First hop and exit, and then the middles, as they come.
        let mut chosen = vec![first, exit];
        while chosen.len() < hops {
            let may_be = |it: &RelayInfo| chosen.iter().all(|other| rules.allow_both(it, other));
            let middle = draw(view, strategy, Position::Middle, &chosen, false, rng, may_be);
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
