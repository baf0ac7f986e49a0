//! Sets of linked circuits: their paths, and what becomes of their legs.

use super::Proxy;
use super::pipe::StreamEnd;
use crate::event::{Event, LegTraffic};
use crate::path::{self, Need};
use crate::pool::Circuit;
use crate::view::RelayInfo;
use onion::client::{CircuitNumber, CircuitPlan, Client, Loss, SetPlan};
use onion::{Duration, Instant};
use rand::Rng;

/// Legs that are tried for others of their set that have failed, at most: C tor's `cfx_max_unlinked_leg_retry`. An exit that
/// lets legs fail would see guard after guard.
const RETRIES_MAX: u32 = 3;
/// The same once the set stands, and may for hours: an own bound.
const RETRIES_LINKED_MAX: u32 = 8;
/// A link that breaks after so long says little of its guard: that is tried again at once.
const STOOD_LONG: Duration = Duration::from_secs(600);

/// The circuit of a leg.
fn plan(relays: &[&RelayInfo; 3]) -> CircuitPlan {
    CircuitPlan {
        has_congestion_control: true,
        ..CircuitPlan::new(relays.iter().map(|relay| relay.hop).collect())
    }
}

impl Proxy {
    /// Has a set of circuits built for such streams. None if there are no paths for one now: then one circuit must do.
    pub(super) fn open_set(&mut self, now: Instant, need: Need) -> Option<CircuitNumber> {
        let Self { view, choices, state, rng, .. } = self;
        let guard = |allowed: &dyn Fn(&_) -> bool| state.guards.choose(view, now, allowed);
        let (strategy, rules) = (&*choices.strategy, choices.rules);
        let wanted = (choices.legs, &[][..]);
        let legs = match path::choose_legs(view, strategy, rules, need, wanted, rng, guard) {
            Ok(legs) => legs,
            Err(problem) => {
                if !std::mem::replace(&mut self.has_told_no_set, true) {
                    let count = self.choices.legs;
                    self.tell(Event::Trouble(format!(
                        "no {count} circuits can be linked, and one is used instead: {problem}"
                    )));
                }
                return None;
            }
        };
        self.has_told_no_set = false;
        let set = SetPlan {
            scheduler: choices.leg_scheduler,
            desired: choices.desired,
            ..SetPlan::new(legs.iter().map(plan).collect())
        };
        let paths: Vec<_> = legs.iter().map(|leg| leg.map(|it| it.fingerprint)).collect();
        let (first, exit) = (*paths.first()?, legs.first()?[2].clone());
        self.circuits_opened += 1;
        let mut circuit = Circuit::new(self.circuits_opened, first, exit, now);
        circuit.legs = (0..).zip(paths).collect();
        let number = self.client.open_set(now, &set);
        self.pool.add(number, circuit);
        Some(number)
    }

    /// A leg stands; its exit is still to link it.
    pub(super) fn handle_leg_built(
        &mut self,
        now: Instant,
        number: CircuitNumber,
        leg: u8,
        took: Duration,
    ) {
        let unix_time_s = self.unix_time_s(now);
        let Some(circuit) = self.pool.get_mut(number) else { return };
        let (name, path) = (circuit.number, circuit.legs.get(&leg).copied());
        let Some(path) = path else { return };
        circuit.legs_since.insert(leg, now);
        if circuit.is_hoped_for() {
            self.choices.strategy.handle_outcome(&path, true);
        }
        self.has_state_changed |= self.state.guards.handle_success(&path[0], unix_time_s);
        self.state.build_times.handle_built(took);
        let path = self.hops(&path);
        self.tell(Event::LegBuilt { circuit: name, leg, path, took });
    }

    /// A leg is gone, and its set goes on. Another is tried, as long as it can be of use.
    pub(super) fn handle_leg_lost(
        &mut self,
        now: Instant,
        number: CircuitNumber,
        leg: u8,
        cause: &Loss,
    ) {
        let Some(circuit) = self.pool.get_mut(number) else { return };
        let Some(path) = circuit.legs.remove(&leg) else { return };
        let since = circuit.legs_since.remove(&leg);
        let name = circuit.number;
        // What was silent may have been so by the exit's wish, on a way that it wants to be given up.
        if since.is_none() && circuit.is_hoped_for() && !matches!(cause, Loss::Silent) {
            self.choices.strategy.handle_outcome(&path, false);
        }
        let stood_long = since.is_some_and(|since| now - since >= STOOD_LONG);
        // It would be the first to be chosen for the next leg. Silence is nobody's in particular: an exit could have its client give up guard after guard by it, until
        // there comes one that is its own.
        if matches!(cause, Loss::Link(_) | Loss::Channel(_)) && !stood_long {
            self.state.guards.handle_failure(&path[0], now);
        }
        let reason = cause.to_string();
        let path = self.hops(&path);
        self.tell(Event::LegLost { circuit: name, leg, path, reason });
        // Where nothing is sent again, a leg that joins later has no use for what is under way.
        if !self.client.is_built(number) || self.client.resumes(number) {
            self.replace_leg(now, number);
        }
    }

    fn replace_leg(&mut self, now: Instant, number: CircuitNumber) {
        let Self { view, choices, state, rng, pool, client, last_need, .. } = self;
        let Some(circuit) = pool.get_mut(number) else { return };
        let (retries, most) = match circuit.took {
            None => (&mut circuit.retries, RETRIES_MAX),
            Some(_) => (&mut circuit.retries_linked, RETRIES_LINKED_MAX),
        };
        if *retries >= most {
            return;
        }
        *retries += 1;
        let taken: Vec<_> = circuit.legs.values().copied().collect();
        let guard = |allowed: &dyn Fn(&_) -> bool| state.guards.choose(view, now, allowed);
        // The exit is known to serve what the set is for.
        let need = last_need.filter(|need| need.is_served_by(&circuit.exit));
        let need = need.unwrap_or(Need::Lookup);
        let (strategy, rules) = (&*choices.strategy, choices.rules);
        let wanted = (1, &taken[..]);
        let found = path::choose_legs(view, strategy, rules, need, wanted, rng, guard);
        let Some(relays) = found.ok().and_then(|legs| legs.first().copied()) else { return };
        if let Some(leg) = client.add_leg(now, number, &plan(&relays)) {
            circuit.legs.insert(leg, relays.map(|relay| relay.fingerprint));
        }
    }
}

/// What the legs of a set have carried until now; nothing of one circuit.
pub(super) fn leg_traffic<R: Rng>(
    client: &Client<R, StreamEnd>,
    number: CircuitNumber,
) -> Vec<LegTraffic> {
    let legs = client.legs(number).into_iter();
    legs.map(|it| LegTraffic {
        leg: it.leg,
        received_messages: it.received,
        sent_messages: it.sent,
        rtt: it.rtt,
    })
    .collect()
}

#[cfg(test)]
mod tests;
