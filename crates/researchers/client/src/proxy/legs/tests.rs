use super::*;
use crate::netdir::tests::{netdir, relay};
use crate::netdir::{NetDir, RelayInfo};
use crate::proxy::apps::App;
use crate::proxy::{Choices, FIRST_APP};
use crate::state::State;
use crate::strategy::{Position, Strategy, Uniform};
use netdoc::RsaId;
use onion::cell::msg::DesiredUx;
use onion::node::{CloseCause, ConnId, Node};
use onion::tunnel::conflux::schedulers;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// The paths and outcomes that a strategy was informed of.
type Outcomes = Arc<Mutex<Vec<([RsaId; 3], bool)>>>;

/// A strategy that records outcomes.
#[derive(Debug)]
struct Recording(Outcomes);

impl Strategy for Recording {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn weight(&self, netdir: &NetDir, relay: &RelayInfo, at: Position, path: &[&RelayInfo]) -> f64 {
        Uniform.weight(netdir, relay, at, path)
    }

    fn handle_outcome(&mut self, path: &[RsaId], was_built: bool) {
        let path = path.try_into().expect("three relays");
        self.0.lock().expect("no panic").push((path, was_built));
    }
}

/// A client that uses sets of three legs, in a network of `relays` relays.
fn proxy(relays: u8) -> Proxy {
    proxy_by(relays, Box::new(Uniform))
}

fn proxy_by(relays: u8, strategy: Box<dyn Strategy>) -> Proxy {
    let choices = Choices {
        strategy,
        legs: 3,
        leg_scheduler: &schedulers::LowRtt,
        desired: DesiredUx::NoOpinion,
        ..Choices::default()
    };
    let rng = StdRng::from_seed([1; 32]);
    let mut proxy = Proxy::new(choices, State::default(), Instant::ORIGIN, 1_600_000_000, rng);
    proxy.set_netdir(Instant::ORIGIN, Arc::new(netdir((1..=relays).map(relay))));
    proxy
}

/// The links that it wants now.
fn dials(proxy: &mut Proxy, now: Instant) -> BTreeMap<ConnId, SocketAddr> {
    std::iter::from_fn(|| proxy.poll_dial(now)).map(|dial| (dial.conn, dial.to)).collect()
}

/// The guard of a linked set dies and cannot be reached: other guards are tried one after another.
#[test]
fn a_leg_of_a_linked_set_is_replaced_through_another_guard() {
    let mut proxy = proxy(20);
    let mut now = Instant::ORIGIN;
    let mut links = dials(&mut proxy, now);
    let sets = proxy.pool.numbers();
    for number in &sets {
        let set = proxy.pool.get_mut(*number).expect("it is there");
        assert_eq!(set.legs.len(), 3);
        // It has used up its retries before it was linked.
        (set.took, set.retries) = (Some(Duration::from_secs(1)), RETRIES_MAX);
    }
    let mut dead = vec![];
    for _ in 0..5 {
        now += Duration::from_millis(20);
        // The leg that was tried last.
        let set = proxy.pool.get(sets[0]).expect("it is there");
        let guard = set.legs.values().last().expect("three legs")[0];
        let address = IpAddr::from([10, guard.0[0], 0, 1]);
        let conn = links.iter().find(|(_, to)| to.ip() == address).map(|(conn, _)| *conn);
        let conn = conn.expect("there is a link to its guard");
        links.remove(&conn);
        dead.push(guard);
        proxy.handle_closed(now, conn, CloseCause::Reset);
        links.extend(dials(&mut proxy, now));
        for number in &sets {
            let legs = &proxy.pool.get(*number).expect("it is there").legs;
            assert_eq!(legs.len(), 3, "after {} guards", dead.len());
            let is_alive = |path: &[RsaId; 3]| !dead.contains(&path[0]);
            assert!(legs.values().all(is_alive), "{legs:?}, and {dead:?} are dead");
        }
    }
}

/// A leg timeout is not attributed: otherwise an exit could lead its client from guard to guard.
#[test]
fn an_exit_with_silent_legs_does_not_make_the_client_use_other_guards() {
    let mut proxy = proxy(20);
    let _links = dials(&mut proxy, Instant::ORIGIN);
    let number = proxy.pool.numbers()[0];
    // The guards that the client would use, in order.
    let order = |proxy: &Proxy| -> Vec<RsaId> {
        let mut order = vec![];
        for _ in 0..5 {
            let is_new = |relay: &RelayInfo| !order.contains(&relay.fingerprint);
            order.extend(proxy.state.guards.choose(&proxy.netdir, Instant::ORIGIN, &is_new));
        }
        order
    };
    let before = order(&proxy);
    assert_eq!(before.len(), 5);
    for _ in 0..3 {
        let set = proxy.pool.get(number).expect("it is there");
        let leg = *set.legs.keys().next().expect("three legs");
        proxy.handle_leg_lost(Instant::ORIGIN, number, leg, &Loss::Silent);
    }
    assert_eq!(order(&proxy), before);
}

/// C tor's bug 40811: legs of an unlinked set were launched without end. An exit that lets them fail sees no more guards.
#[test]
fn an_unlinked_set_gets_at_most_three_replacement_legs() {
    let mut proxy = proxy(20);
    let _links = dials(&mut proxy, Instant::ORIGIN);
    let number = proxy.pool.numbers()[0];
    let mut counts = vec![];
    for _ in 0..6 {
        let set = proxy.pool.get(number).expect("it is there");
        let Some(leg) = set.legs.keys().next_back().copied() else { break };
        proxy.handle_leg_lost(Instant::ORIGIN, number, leg, &Loss::Silent);
        counts.push(proxy.pool.get(number).expect("it is there").legs.len());
    }
    assert_eq!(counts, [3, 3, 3, 2, 1, 0]);
}

/// Each leg has its own path, and its outcome is reported once.
#[test]
fn a_strategy_is_informed_once_of_each_legs_outcome() {
    let outcomes = Outcomes::default();
    let mut proxy = proxy_by(20, Box::new(Recording(Arc::clone(&outcomes))));
    let _links = dials(&mut proxy, Instant::ORIGIN);
    let number = proxy.pool.numbers()[0];
    let legs = proxy.pool.get(number).expect("it is there").legs.clone();
    let [first, second, third] = [0, 1, 2].map(|leg| legs[&leg]);
    let now = Instant::ORIGIN;
    proxy.handle_leg_built(now, number, 0, Duration::from_millis(100));
    let closed = Loss::Link(CloseCause::Reset);
    proxy.handle_leg_lost(now, number, 1, &closed);
    // A leg that was open is not a failure, nor is a silent one, which may be due to the exit.
    proxy.handle_leg_lost(now, number, 0, &closed);
    proxy.handle_leg_lost(now, number, 2, &Loss::Silent);
    let so_far = vec![(first, true), (second, false)];
    assert_eq!(*outcomes.lock().expect("no panic"), so_far);
    assert!(
        legs.values().all(|leg| *leg == third || so_far.iter().any(|outcome| outcome.0 == *leg))
    );
    // Their replacements are given up together, and later reports change nothing.
    let left: Vec<_> =
        proxy.pool.get(number).expect("it is there").legs.clone().into_iter().collect();
    assert_eq!(left.len(), 3);
    let given_up = proxy.pool.get_mut(number).expect("it is there").take_failing();
    assert_eq!(given_up, left.iter().map(|leg| leg.1).collect::<Vec<_>>());
    proxy.handle_leg_built(now, number, left[0].0, Duration::from_millis(100));
    proxy.handle_leg_lost(now, number, left[1].0, &closed);
    assert_eq!(outcomes.lock().expect("no panic").len(), 2);
}

/// C tor's bug 40862: once sets had failed, no more were built ahead.
#[test]
fn spare_sets_are_built_again_after_all_have_failed() {
    let mut proxy = proxy(20);
    let mut now = Instant::ORIGIN;
    let mut links = dials(&mut proxy, now);
    let first = proxy.pool.numbers();
    assert!(!first.is_empty());
    // Its legs and their replacements, long before the set would time out.
    for _ in 0..2 {
        for conn in std::mem::take(&mut links).into_keys() {
            proxy.handle_closed(now, conn, CloseCause::Reset);
        }
        now += Duration::from_secs(2);
        proxy.handle_timeout(now);
        links.extend(dials(&mut proxy, now));
    }
    // There are pauses between attempts.
    for _ in 0..15 {
        now += Duration::from_secs(2);
        proxy.handle_timeout(now);
        links.extend(dials(&mut proxy, now));
    }
    let later = proxy.pool.numbers();
    assert_eq!(later.len(), first.len());
    assert!(later.iter().all(|number| !first.contains(number)), "{later:?}, and {first:?} failed");
    let is_whole = |number: &_| proxy.pool.get(*number).is_some_and(|set| set.legs.len() == 3);
    assert!(later.iter().all(is_whole) && !links.is_empty());
}

/// C tor's bug 40876: the success of guards was not recorded for linked circuits, so that others were sampled in their place.
#[test]
fn guards_of_linked_legs_are_confirmed_and_kept() {
    let mut proxy = proxy(20);
    let _links = dials(&mut proxy, Instant::ORIGIN);
    let number = proxy.pool.numbers()[0];
    let legs = proxy.pool.get(number).expect("it is there").legs.clone();
    let confirmed = |proxy: &Proxy| -> BTreeSet<RsaId> {
        let sample = proxy.state.guards.sample().iter();
        sample
            .filter(|sample| sample.confirmed.is_some())
            .map(|sample| sample.fingerprint)
            .collect()
    };
    assert!(confirmed(&proxy).is_empty());
    for leg in legs.keys() {
        proxy.handle_leg_built(Instant::ORIGIN, number, *leg, Duration::from_millis(100));
    }
    proxy.handle_built(Instant::ORIGIN, number, Duration::from_millis(120));
    let guards: BTreeSet<RsaId> = legs.values().map(|path| path[0]).collect();
    assert_eq!((confirmed(&proxy), guards.len()), (guards, 3));
    assert!(proxy.has_state_changed, "the state must be saved");
}

/// C tor's bug 40801: streams that waited for a set were not begun in the order in which they had been asked for.
#[test]
fn streams_that_wait_for_a_set_begin_in_order_of_request() {
    let mut proxy = proxy(20);
    let now = Instant::ORIGIN;
    let _links = dials(&mut proxy, now);
    let conns: Vec<ConnId> = (0..5).map(|number| ConnId(FIRST_APP + number)).collect();
    for (conn, number) in conns.iter().zip(1..) {
        proxy.apps.insert(*conn, App::new(number, now, None));
        proxy.handle_bytes(now, *conn, b"\x05\x01\x00");
        proxy.handle_bytes(now, *conn, b"\x05\x01\x00\x03\x0bexample.org\x01\xbb");
    }
    assert!(proxy.by_stream.is_empty(), "no set is linked");
    for number in proxy.pool.numbers() {
        proxy.handle_built(now, number, Duration::from_millis(100));
    }
    proxy.handle_timeout(now + Duration::from_secs(1));
    let mut begun: Vec<_> = proxy.by_stream.iter().map(|(stream, conn)| (*stream, *conn)).collect();
    begun.sort_unstable();
    assert_eq!(begun.iter().map(|stream| stream.1).collect::<Vec<_>>(), conns);
}
