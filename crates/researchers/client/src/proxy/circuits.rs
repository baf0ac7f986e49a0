//! Circuits: their paths, those kept ready, and their outcomes.

use super::Proxy;
use crate::event::{Event, Hop};
use crate::path::{self, Need};
use crate::pool::{CIRCUITS_MAX, Circuit, SPARE};
use netdoc::RsaId;
use onion::client::{CircuitNumber, CircuitPlan, Loss};
use onion::{Duration, Instant};

/// Limit on circuits built in advance at a time.
const PREBUILDING_MAX: usize = 2;
/// The pause after a failed circuit. It doubles with each further failure.
const PAUSE: Duration = Duration::from_millis(50);
/// The maximum pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Circuits are kept ready for the web before any request.
const FIRST_NEEDS: [Need; 3] = [
    Need::Port { port: 443, is_ipv6: false },
    Need::Port { port: 80, is_ipv6: false },
    Need::Lookup,
];

impl Proxy {
    /// Builds a circuit for such streams. Does nothing if there is no path, or too many circuits
    /// have failed recently.
    pub(super) fn open_circuit(&mut self, now: Instant, need: Need) -> Option<CircuitNumber> {
        let has_no_path = self.no_paths.get(&need).is_some_and(|until| now < *until);
        if now < self.open_at || has_no_path || self.pool.len() >= CIRCUITS_MAX {
            return None;
        }
        if self.choices.legs > 1
            && let Some(set) = self.open_set(now, need)
        {
            return Some(set);
        }
        let Self { netdir, choices, state, rng, .. } = self;
        let guard = |allowed: &dyn Fn(&_) -> bool| state.guards.choose(netdir, now, allowed);
        let chosen = path::select_path(netdir, &*choices.strategy, choices.rules, need, rng, guard);
        let relays = match chosen {
            Ok(relays) => relays,
            Err(problem) => {
                // Another purpose may have a path.
                self.no_paths.retain(|_, until| now < *until);
                self.no_paths.insert(need, now + PAUSE_MAX);
                self.emit(Event::Trouble { reason: format!("no circuit can be built: {problem}") });
                return None;
            }
        };
        let plan = CircuitPlan {
            has_congestion_control: relays[2].has_congestion_control,
            ..CircuitPlan::new(relays.iter().map(|relay| relay.hop).collect())
        };
        let path = relays.map(|relay| relay.fingerprint);
        self.circuits_opened += 1;
        let circuit = Circuit::new(self.circuits_opened, path, relays[2].clone(), now);
        let number = self.client.open(now, &plan);
        self.pool.add(number, circuit);
        Some(number)
    }

    /// Whether any relay permits such streams.
    pub(super) fn has_exit(&self, need: Need) -> bool {
        self.netdir.relays().iter().any(|relay| need.is_served_by(relay))
    }

    /// Builds circuits for expected streams.
    pub(super) fn prebuild(&mut self, now: Instant) {
        if !self.has_bootstrapped {
            return;
        }
        let is_possible = |need: &Need| self.has_exit(*need);
        let need = self.last_need.into_iter().chain(FIRST_NEEDS).find(is_possible);
        let Some(need) = need else { return };
        while self.pool.spare(need, now) < SPARE && self.pool.building() < PREBUILDING_MAX {
            if self.open_circuit(now, need).is_none() {
                return;
            }
        }
    }

    /// Handles an open circuit.
    pub(super) fn handle_built(&mut self, now: Instant, number: CircuitNumber, took: Duration) {
        let unix_time_s = self.unix_time_s(now);
        let Some(circuit) = self.pool.get_mut(number) else { return };
        circuit.took = Some(took);
        let has_succeeded = circuit.has_succeeded();
        let (guard, is_late, path, name) =
            (*circuit.guard(), circuit.is_late, circuit.path, circuit.number);
        let (legs, is_set) = (circuit.legs.len().max(1), !circuit.legs.is_empty());
        self.failures = 0;
        self.open_at = now;
        // For a set, each leg has been reported.
        if !is_set {
            self.has_state_changed |= self.state.guards.handle_success(&guard, unix_time_s);
            self.state.build_times.handle_built(took);
        }
        if has_succeeded && !is_set {
            self.choices.strategy.handle_outcome(&path, true);
        }
        let path = self.hops(&path);
        self.emit(Event::CircuitBuilt { circuit: name, path, legs, took, is_late });
        if is_late {
            self.pool.remove(number);
            self.client.destroy(number);
        }
        self.hurry(now);
    }

    /// Handles a circuit that was closed or could not be built.
    pub(super) fn handle_lost(&mut self, now: Instant, number: CircuitNumber, cause: &Loss) {
        let Some(circuit) = self.pool.get_mut(number) else { return };
        let (path, was_built, name) = (circuit.path, circuit.took.is_some(), circuit.number);
        for path in circuit.take_failing() {
            self.choices.strategy.handle_outcome(&path, false);
        }
        self.asking.retain(|_, (circuit, _)| *circuit != number);
        if !was_built {
            // For a set, the path of its last leg, if known.
            let guard = match circuit.legs.len() {
                0 => Some(path[0]),
                1 => circuit.legs.values().next().map(|leg| leg[0]),
                _ => None,
            };
            if let (Some(guard), Loss::Link(_) | Loss::Channel(_)) = (guard, cause) {
                self.state.guards.handle_failure(&guard, now);
            }
            self.pause(now);
        }
        let reason = cause.to_string();
        self.lose_streams(now, number, &reason);
        self.pool.remove(number);
        let path = self.hops(&path);
        self.emit(Event::CircuitClosed { circuit: name, path, was_built, reason });
        self.hurry(now);
    }

    /// Pauses the building of circuits.
    pub(super) fn pause(&mut self, now: Instant) {
        self.open_at = now + (PAUSE * 2_u32.pow(self.failures.min(10))).min(PAUSE_MAX);
        self.failures += 1;
    }

    /// Closes circuits and streams that have timed out, and unused circuits.
    pub(super) fn end_overdue(&mut self, now: Instant) {
        let times = &self.state.build_times;
        let (timeout, close_timeout) = (times.timeout(), times.close_timeout());
        let (late, over) = self.pool.overdue(now, timeout, close_timeout);
        for number in late {
            self.state.build_times.handle_timeout();
            // A guard that completes the link handshake and then does not answer counts as
            // unreachable.
            let Some(circuit) = self.pool.get_mut(number) else { continue };
            for path in circuit.take_failing() {
                self.choices.strategy.handle_outcome(&path, false);
            }
            for leg in self.client.silent_legs(number) {
                let guard = circuit.legs.get(&leg).map_or(circuit.guard(), |path| &path[0]);
                self.state.guards.handle_failure(guard, now);
            }
        }
        for number in over {
            let Some(mut circuit) = self.pool.remove(number) else { continue };
            for path in circuit.take_failing() {
                self.choices.strategy.handle_outcome(&path, false);
            }
            self.client.destroy(number);
            let reason = match circuit.took {
                Some(_) => "not used any longer",
                None => "not built in time",
            };
            let (path, was_built) = (self.hops(&circuit.path), circuit.took.is_some());
            let (circuit, reason) = (circuit.number, reason.to_owned());
            self.emit(Event::CircuitClosed { circuit, path, was_built, reason });
        }
        self.end_overdue_streams(now);
    }

    pub(super) fn hops(&self, path: &[RsaId]) -> Vec<Hop> {
        let unnamed = || "Unnamed".parse().ok();
        path.iter()
            .filter_map(|fingerprint| {
                let relay = self.netdir.find(fingerprint).map(|relay| relay.nickname);
                let nickname = relay.or_else(unnamed)?;
                Some(Hop { fingerprint: *fingerprint, nickname })
            })
            .collect()
    }
}
