//! Conflux sets: their paths, and the outcomes of their legs.

use super::Proxy;
use super::pipe::StreamEnd;
use crate::event::{Event, LegTraffic};
use crate::netdir::RelayInfo;
use crate::path::{self, Need, WantedLegs};
use crate::pool::Circuit;
use onion::client::{CircuitNumber, CircuitPlan, Client, Loss, SetPlan};
use onion::{Duration, Instant};
use rand::Rng;

/// Limit on replacement legs of a set before it is linked: C tor's `cfx_max_unlinked_leg_retry`.
/// Otherwise an exit that makes legs fail would observe guard after guard.
const RETRIES_MAX: u32 = 3;
/// Limit on replacement legs after linking, when the set may last for hours. Not in C tor.
const RETRIES_LINKED_MAX: u32 = 8;
/// A link that breaks after this time does not count against its guard.
const STOOD_LONG: Duration = Duration::from_secs(600);

/// The circuit of a leg.
fn plan(relays: &[&RelayInfo; 3]) -> CircuitPlan {
    CircuitPlan {
        has_congestion_control: true,
        ..CircuitPlan::new(relays.iter().map(|relay| relay.hop).collect())
    }
}

impl Proxy {
    /// Builds a set for such streams. Does nothing if there are no paths for one; a single circuit
    /// must do.
    pub(super) fn open_set(&mut self, now: Instant, need: Need) -> Option<CircuitNumber> {
        let Self { netdir, choices, state, rng, .. } = self;
        let guard = |allowed: &dyn Fn(&_) -> bool| state.guards.choose(netdir, now, allowed);
        let (strategy, rules) = (&*choices.strategy, choices.rules);
        let wanted = WantedLegs { count: choices.legs, taken: &[] };
        let legs = match path::select_legs(netdir, strategy, rules, need, wanted, rng, guard) {
            Ok(legs) => legs,
            Err(problem) => {
                if !std::mem::replace(&mut self.has_reported_no_set, true) {
                    let count = self.choices.legs;
                    let reason = format!(
                        "no {count} circuits can be linked, and one is used instead: {problem}"
                    );
                    self.emit(Event::Trouble { reason });
                }
                return None;
            }
        };
        self.has_reported_no_set = false;
        let set = SetPlan {
            scheduler: choices.leg_scheduler,
            desired: choices.desired,
            ..SetPlan::new(legs.iter().map(plan).collect())
        };
        let paths: Vec<_> = legs.iter().map(|leg| leg.map(|leg| leg.fingerprint)).collect();
        let (first, exit) = (*paths.first()?, legs.first()?[2].clone());
        self.circuits_opened += 1;
        let mut circuit = Circuit::new(self.circuits_opened, first, exit, now);
        circuit.legs = (0..).zip(paths).collect();
        let number = self.client.open_set(now, &set);
        self.pool.add(number, circuit);
        Some(number)
    }

    /// Handles an open leg, which its exit has not linked yet.
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
        self.emit(Event::LegBuilt { circuit: name, leg, path, took });
    }

    /// Handles a closed leg of a set that stays open. Builds a replacement while one is useful.
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
        // A leg timeout may be caused by the exit, to make the client abandon that path.
        if since.is_none() && circuit.is_hoped_for() && !matches!(cause, Loss::Silent) {
            self.choices.strategy.handle_outcome(&path, false);
        }
        let stood_long = since.is_some_and(|since| now - since >= STOOD_LONG);
        // The guard would be selected first for the next leg. A timeout is not attributed to it:
        // otherwise an exit could make its client abandon guards until it uses one of the exit's
        // own.
        if matches!(cause, Loss::Link(_) | Loss::Channel(_)) && !stood_long {
            self.state.guards.handle_failure(&path[0], now);
        }
        let reason = cause.to_string();
        let path = self.hops(&path);
        self.emit(Event::LegLost { circuit: name, leg, path, reason });
        // Without retransmission a leg that joins later is of no use for data in flight.
        if !self.client.is_built(number) || self.client.resumes(number) {
            self.replace_leg(now, number);
        }
    }

    fn replace_leg(&mut self, now: Instant, number: CircuitNumber) {
        let Self { netdir, choices, state, rng, pool, client, last_need, .. } = self;
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
        let guard = |allowed: &dyn Fn(&_) -> bool| state.guards.choose(netdir, now, allowed);
        // The exit is known to serve this purpose.
        let need = last_need.filter(|need| need.is_served_by(&circuit.exit));
        let need = need.unwrap_or(Need::Lookup);
        let (strategy, rules) = (&*choices.strategy, choices.rules);
        let wanted = WantedLegs { count: 1, taken: &taken };
        let found = path::select_legs(netdir, strategy, rules, need, wanted, rng, guard);
        let Some(relays) = found.ok().and_then(|legs| legs.first().copied()) else { return };
        if let Some(leg) = client.add_leg(now, number, &plan(&relays)) {
            circuit.legs.insert(leg, relays.map(|relay| relay.fingerprint));
        }
    }
}

/// Traffic of the legs of a set so far; empty for a single circuit.
pub(super) fn leg_traffic<R: Rng>(
    client: &Client<R, StreamEnd>,
    number: CircuitNumber,
) -> Vec<LegTraffic> {
    let legs = client.legs(number).into_iter();
    legs.map(|leg| LegTraffic {
        leg: leg.leg,
        received_messages: leg.received,
        sent_messages: leg.sent,
        rtt: leg.rtt,
    })
    .collect()
}

#[cfg(test)]
mod tests;
