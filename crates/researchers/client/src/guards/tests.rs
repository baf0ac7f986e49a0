use super::*;
use crate::netdir::tests::{netdir, relay};
use crate::strategy::Weighted;
use netdoc::consensus::Flag;
use rand::SeedableRng;
use rand::rngs::StdRng;

const DAY_S: u64 = 24 * 3600;

fn network(relays: u8) -> NetDir {
    netdir((1..=relays).map(relay))
}

fn sampled(netdir: &NetDir, at: u64) -> Guards {
    let mut guards = Guards::default();
    assert!(guards.update(netdir, &Weighted, at, &mut StdRng::from_seed([1; 32])));
    guards
}

fn at(seconds: u64) -> Instant {
    Instant::ORIGIN + Duration::from_secs(seconds)
}

fn everybody(_: &RelayInfo) -> bool {
    true
}

#[test]
fn a_sample_has_twenty_guards_or_all_of_a_small_network() {
    assert_eq!(sampled(&network(5), 1).sample().len(), 5);
    assert_eq!(sampled(&network(200), 1).sample().len(), LISTED_MIN);
    let mut view_without = network(5);
    let mut guards = sampled(&view_without, 1);
    assert!(!guards.update(&view_without, &Weighted, 2, &mut StdRng::from_seed([2; 32])));
    let mut other = relay(9);
    other.flags = other.flags.iter().filter(|flag| *flag != Flag::Guard).collect();
    view_without = netdir([other]);
    assert!(sampled(&network(1), 1).sample().len() == 1);
    assert!(!Guards::default().update(
        &view_without,
        &Weighted,
        1,
        &mut StdRng::from_seed([1; 32])
    ));
}

#[test]
fn the_first_primary_guard_that_works_is_used_and_retried() {
    let netdir = network(10);
    let mut guards = sampled(&netdir, 1);
    let order: Vec<_> = guards.in_order().iter().map(|guard| guard.fingerprint).collect();
    assert_eq!(guards.choose(&netdir, at(0), &everybody), Some(order[0]));
    guards.handle_failure(&order[0], at(1));
    assert_eq!(guards.choose(&netdir, at(2), &everybody), Some(order[1]));
    // Ten minutes later it is tried again, and is the first again if that works.
    assert_eq!(guards.choose(&netdir, at(600), &everybody), Some(order[1]));
    assert_eq!(guards.choose(&netdir, at(601), &everybody), Some(order[0]));
    // One that a path's other relays forbid is passed over.
    let is_other = |relay: &RelayInfo| relay.fingerprint != order[0];
    assert_eq!(guards.choose(&netdir, at(700), &is_other), Some(order[1]));
    // Longer and longer: six hours after it first failed, for an hour and a half.
    let late = 7 * 3600;
    guards.handle_failure(&order[0], at(late));
    assert_eq!(guards.choose(&netdir, at(late + 89 * 60), &everybody), Some(order[1]));
    assert_eq!(guards.choose(&netdir, at(late + 90 * 60), &everybody), Some(order[0]));
}

#[test]
fn a_guard_with_completed_circuits_is_preferred() {
    let netdir = network(10);
    let mut guards = sampled(&netdir, 1);
    let fifth = guards.in_order()[4].fingerprint;
    assert!(guards.handle_success(&fifth, 50));
    assert!(!guards.handle_success(&fifth, 60), "it was before");
    assert_eq!(guards.choose(&netdir, at(0), &everybody), Some(fifth));
    assert_eq!(guards.primary().next().map(|guard| guard.fingerprint), Some(fifth));
    // The next run reads the same sample, without the failures to connect.
    guards.handle_failure(&fifth, at(1));
    let text = serde_json::to_string(&guards).expect("written");
    let read: Guards = serde_json::from_str(&text).expect("read");
    assert_eq!(read.choose(&netdir, at(2), &everybody), Some(fifth));
}

#[test]
fn if_all_guards_are_unreachable_the_first_failed_one_is_retried() {
    let netdir = network(3);
    let mut guards = sampled(&netdir, 1);
    let order: Vec<_> = guards.in_order().iter().map(|guard| guard.fingerprint).collect();
    for (second, guard) in order.iter().enumerate() {
        guards.handle_failure(guard, at(10 + second as u64));
    }
    assert_eq!(guards.choose(&netdir, at(11), &everybody), None);
    assert_eq!(guards.choose(&netdir, at(12), &everybody), Some(order[0]));
    guards.handle_failure(&order[0], at(13));
    assert_eq!(guards.choose(&netdir, at(13), &everybody), Some(order[1]));
}

#[test]
fn guards_are_dropped_when_long_unlisted_or_old() {
    let mut rng = StdRng::from_seed([3; 32]);
    let (all, without) = (network(3), netdir([relay(1), relay(2)]));
    let mut guards = sampled(&all, DAY_S);
    let third = relay(3).fingerprint;
    let has_third =
        |guards: &Guards| guards.sample().iter().any(|guard| guard.fingerprint == third);
    assert!(guards.update(&without, &Weighted, 2 * DAY_S, &mut rng));
    assert!(has_third(&guards) && guards.in_order().len() == 2, "it may come back");
    guards.update(&without, &Weighted, 22 * DAY_S, &mut rng);
    assert!(has_third(&guards));
    guards.update(&without, &Weighted, 22 * DAY_S + 1, &mut rng);
    assert!(!has_third(&guards));

    // One that is confirmed leaves 60 days after that; others 120 days after they were drawn. They may be drawn again.
    let mut guards = sampled(&all, 0);
    guards.handle_success(&third, 10 * DAY_S);
    guards.update(&all, &Weighted, 70 * DAY_S + 1, &mut rng);
    let added: Vec<_> = guards.sample().iter().map(|guard| guard.added > 0).collect();
    assert_eq!(added.iter().filter(|is_new| **is_new).count(), 1);
    assert!(guards.sample().iter().all(|guard| guard.confirmed.is_none()));
}
