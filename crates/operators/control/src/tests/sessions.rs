//! Normal sessions.

use super::world::*;
use crate::keys::SecretKey;
use crate::testing::order;
use crate::{HandedList, opt_in};
use coordinator::policy::{
    Contact, Hours, OptOuts, Policy, PolicyInForce, PolicyRelays, PolicyTime,
};
use measurer::member::{FailureKind, MemberReport, RoundOrder, Target};
use measurer::{Consent, Member as _};
use onion::{Duration, Rate};
use std::net::SocketAddr;
use std::sync::Arc;

#[test]
fn two_rounds_run_from_order_to_last_second() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    let abilities = measurer.abilities().expect("a session");
    assert_eq!(abilities.capacity, Rate::from_mbit_per_s(1000.0));
    assert_eq!((abilities.rounds_max, abilities.sockets_max), (64, 5000));
    let mut member = measurer.member();
    assert_measures(&daemon, &mut member);
    assert_measures(&daemon, &mut member);
    assert!(daemon.is_quiet());
}

#[test]
fn several_rounds_at_once_share_a_session_within_the_capacity() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    let (mut first, mut second_member, mut third) =
        (measurer.member(), measurer.member(), measurer.member());
    let with_rate = |mbit| RoundOrder { rate: Rate::from_mbit_per_s(mbit), ..order() };
    let (reporter, first_received) = reports();
    first.prepare(with_rate(600.0), reporter).expect("a thread");
    let (_, tell_first) = daemon.prepared();
    let (reporter, second_received) = reports();
    second_member.prepare(with_rate(400.0), reporter).expect("a thread");
    let (_, tell_second) = daemon.prepared();

    let (reporter, third_received) = reports();
    third.prepare(with_rate(0.001), reporter).expect("a thread");
    assert_broken(&third_received, "busy: 1000.00 Mbit/s of 1000.00 Mbit/s are in use by 2 rounds");

    // Each report goes to its own round.
    tell_second(MemberReport::Ready { sockets: 2 });
    tell_first(MemberReport::Ready { sockets: 1 });
    let ready = |sockets| Ok(MemberReport::Ready { sockets });
    assert_eq!(first_received.recv_timeout(PATIENCE), ready(1));
    assert_eq!(second_received.recv_timeout(PATIENCE), ready(2));

    // A round that ends releases its share.
    first.stop();
    daemon.stopped();
    assert_measures(&daemon, &mut third);
    assert!(second_received.try_recv().is_err());
}

#[test]
fn a_replaced_round_reports_nothing_more_and_releases_its_share() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let mut member = remote(&remotes, daemon.address()).member();
    let all = RoundOrder { rate: Rate::from_mbit_per_s(1000.0), ..order() };
    let (reporter, old) = reports();
    member.prepare(all, reporter).expect("a thread");
    let (_, tell_old) = daemon.prepared();
    for _ in 0..20 {
        let (reporter, new) = reports();
        member.prepare(all, reporter).expect("a thread");
        tell_old(MemberReport::Ready { sockets: 1 });
        daemon.stopped();
        let (_, notify) = daemon.prepared();
        notify(MemberReport::Ready { sockets: 2 });
        assert_eq!(new.recv_timeout(PATIENCE), Ok(MemberReport::Ready { sockets: 2 }));
    }
    assert!(old.recv_timeout(PATIENCE).is_err(), "the sender is dropped without a report");
}

#[test]
fn a_second_coordinator_gets_busy_and_does_not_disturb_the_first() {
    let daemon = Daemon::start();
    let (ours, theirs) = (remotes(COORDINATOR), remotes(OTHER_COORDINATOR));
    let all = RoundOrder { rate: Rate::from_mbit_per_s(1000.0), ..order() };
    let mut first = remote(&ours, daemon.address()).member();
    let (reporter, first_received) = reports();
    first.prepare(all, reporter).expect("a thread");
    let (_, notify) = daemon.prepared();

    let mut other = remote(&theirs, daemon.address()).member();
    let (reporter, other_received) = reports();
    other.prepare(order(), reporter).expect("a thread");
    assert_broken(&other_received, "1 of them of other coordinators");

    notify(MemberReport::Ready { sockets: 8 });
    let ready = first_received.recv_timeout(PATIENCE);
    assert_eq!(ready, Ok(MemberReport::Ready { sockets: 8 }));
    first.stop();
    daemon.stopped();
    assert_measures(&daemon, &mut other);
}

#[test]
fn a_second_session_with_the_same_key_is_refused_with_the_reason() {
    let daemon = Daemon::start();
    let (ours, intruders) = (remotes(COORDINATOR), remotes(COORDINATOR));
    let first = remote(&ours, daemon.address());
    first.abilities().expect("a session");
    let second = remote(&intruders, daemon.address());
    let error = second.abilities().expect_err("a second session").to_string();
    assert!(error.contains("a session with this coordinator's key already"), "{error}");
    assert_measures(&daemon, &mut first.member());

    // Once the first is over, the second gets in.
    drop(ours);
    second.abilities().expect("a session");
    assert_measures(&daemon, &mut second.member());
}

#[test]
fn the_measurers_own_consent_rule_overrides_any_order() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    let mut member = measurer.member();
    let mut public_relay = order();
    public_relay.target.address = SocketAddr::from(([198, 51, 100, 7], 9001));
    let (reporter, received) = reports();
    member.prepare(public_relay, reporter).expect("a thread");
    match received.recv_timeout(PATIENCE) {
        Ok(MemberReport::Failed { kind: FailureKind::Refused, detail }) => {
            assert!(detail.contains("has not opted in"), "{detail}");
        }
        other => panic!("{other:?} instead of a refusal"),
    }
    assert!(daemon.is_quiet(), "the member got no command");
    assert_measures(&daemon, &mut member);
}

#[test]
fn new_rules_apply_to_later_orders_and_to_sessions_of_removed_coordinators() {
    let daemon = Daemon::start();
    let (ours, others) = (remotes(COORDINATOR), remotes(OTHER_COORDINATOR));
    let measurer = |remotes: &crate::Remotes| remote(remotes, daemon.address());
    let (measurer, others_measurer) = (measurer(&ours), measurer(&others));
    let prepared = |measurer: &crate::RemoteMeasurer| {
        let (reporter, received) = reports();
        let mut member = measurer.member();
        let rate = Rate::from_mbit_per_s(1.0);
        member.prepare(RoundOrder { rate, ..order() }, reporter).expect("a thread");
        let (_, notify) = daemon.prepared();
        (member, received, notify)
    };
    let (_running, received, notify) = prepared(&measurer);
    let (_removed, removed_received, _) = prepared(&others_measurer);

    let mut abroad = RoundOrder { rate: Rate::from_mbit_per_s(1.0), ..order() };
    abroad.target.address = SocketAddr::from(([198, 51, 100, 7], 443));
    let refused = |word: &str| {
        let (reporter, received) = reports();
        let mut member = measurer.member();
        member.prepare(abroad, reporter).expect("a thread");
        match received.recv_timeout(PATIENCE) {
            Ok(MemberReport::Failed { kind: FailureKind::Refused, detail }) => {
                assert!(detail.contains(word), "{detail}");
            }
            other => panic!("{other:?} instead of a refusal"),
        }
    };
    refused("has not opted in");
    let list = format!("{} 198.51.100.7", abroad.target.ids.rsa);
    let consent = Consent::local_only().with_list(&list).expect("a list");
    daemon.reload(rules(&[COORDINATOR], consent));
    assert_broken(&removed_received, "removed this coordinator");
    daemon.stopped();
    assert!(others_measurer.abilities().is_err(), "no new session either");
    let (reporter, _received) = reports();
    let mut member = measurer.member();
    member.prepare(abroad, reporter).expect("a thread");
    assert_eq!(daemon.prepared().0, abroad);
    notify(MemberReport::Ready { sockets: 3 });
    let report = received.recv_timeout(PATIENCE);
    assert_eq!(report, Ok(MemberReport::Ready { sockets: 3 }), "the first round continues");
    daemon.reload(rules(&[COORDINATOR], Consent::local_only()));
    refused("has not opted in");
}

/// A policy for the target of [`order`] at 198.51.100.7, with this rate, from and to this time.
fn policy(target: &Target, mbit: f64, from_unix_s: u64, until_unix_s: u64) -> PolicyInForce {
    let time = |unix_s: u64| PolicyTime { unix_s, text: unix_s.to_string() };
    let policy = Policy {
        announcement: "https://example.org".to_owned(),
        announced: time(0),
        valid_after: time(from_unix_s),
        valid_until: time(until_unix_s),
        hours: Hours::ALL,
        relay_rates: vec![(time(0), Rate::from_mbit_per_s(mbit))],
        network_rate: Rate::from_mbit_per_s(1000.0),
        measurers: [(public(MEASURER).0, 100)].into(),
        opt_outs: OptOuts::default(),
    };
    let relays = [(target.ids.rsa, (target.address.ip(), Contact::Silent))].into();
    let relays = PolicyRelays { usable_until_unix_s: u64::MAX, relays };
    let team = vec![public(MEASURER).0];
    PolicyInForce { policy: Arc::new(policy), relays: Some(Arc::new(relays)), team }
}

#[test]
fn a_measurers_policy_is_checked_at_the_order_and_at_the_start_whatever_the_coordinator_wants() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let mut abroad = RoundOrder { rate: Rate::from_mbit_per_s(10.0), seconds: 30, ..order() };
    abroad.target.address = SocketAddr::from(([198, 51, 100, 7], 443));
    let now = link::unix_time_s();
    let apply = |mbit, from, until| {
        let rule = policy(&abroad.target, mbit, from, until);
        let consent = Consent::local_only().with_policy(Some(rule));
        daemon.reload(rules(&[COORDINATOR], consent));
    };
    let measurer = remote(&remotes, daemon.address());
    let refused = |received: &std::sync::mpsc::Receiver<MemberReport>, part: &str| match received
        .recv_timeout(PATIENCE)
    {
        Ok(MemberReport::Failed { kind: FailureKind::Refused, detail }) => {
            assert!(detail.contains(part), "{detail}");
        }
        other => panic!("{other:?} instead of a refusal"),
    };
    for (mbit, from, until, part) in [
        (9.9, 0, now + 3600, "are above the measurement policy"),
        (10.0, now + 3600, now + 7200, "is valid from"),
        (10.0, 0, now, "was valid until"),
    ] {
        apply(mbit, from, until);
        let (reporter, received) = reports();
        let mut member = measurer.member();
        member.prepare(abroad, reporter).expect("a thread");
        refused(&received, part);
        assert!(daemon.is_quiet(), "the member got no command");
    }
    // Valid now, but not until the end of the load.
    apply(10.0, 0, now + 20);
    let (reporter, received) = reports();
    let mut member = measurer.member();
    member.prepare(abroad, reporter).expect("a thread");
    let (_, notify) = daemon.prepared();
    notify(MemberReport::Ready { sockets: 8 });
    assert_eq!(received.recv_timeout(PATIENCE), Ok(MemberReport::Ready { sockets: 8 }));
    member.start(Duration::from_secs(1));
    refused(&received, "was valid until");
    daemon.stopped();
    // Within everything, it runs. A second order for the same relay does not.
    apply(10.0, 0, now + 3600);
    let (reporter, _received) = reports();
    let mut member = measurer.member();
    member.prepare(abroad, reporter).expect("a thread");
    assert_eq!(daemon.prepared().0, abroad);
    let (reporter, received) = reports();
    let mut second = measurer.member();
    second
        .prepare(RoundOrder { rate: Rate::from_bit_per_s(1), ..abroad }, reporter)
        .expect("a thread");
    refused(&received, "10.00 Mbit/s are in use");
}

#[test]
fn a_stop_file_ends_rounds_and_refuses_sessions_until_it_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("stop");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let daemon = Daemon::with_stop_file(listen, Some(file.clone()));
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    let mut member = measurer.member();
    let (reporter, received) = reports();
    member.prepare(order(), reporter).expect("a thread");
    let _ = daemon.prepared();
    std::fs::write(&file, "").expect("written");
    assert_broken(&received, "stop exists");
    daemon.stopped();
    let error = measurer.abilities().expect_err("no new session").to_string();
    assert!(error.contains("the measurer's operator has stopped all load"), "{error}");
    assert!(daemon.is_quiet());
    std::fs::remove_file(&file).expect("removed");
    until(|| measurer.abilities().is_ok());
    assert_measures(&daemon, &mut measurer.member());
}

#[test]
fn a_list_from_the_coordinator_counts_for_public_addresses_only() {
    let daemon = Daemon::start();
    let taking = |handed| crate::Rules { handed, ..rules(&[COORDINATOR], Consent::local_only()) };
    daemon.reload(taking(HandedList::Ignored));
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    let mut abroad = order();
    abroad.target.address = SocketAddr::from(([198, 51, 100, 7], 443));
    let id = abroad.target.ids.rsa;
    let list = |text: &str| Consent::local_only().with_list(text).expect("a list");
    // More than fits into one message, with our relay last.
    let others: String = (0..500).map(|n| format!("{n:040X} 2001:db8::{n:x}\n")).collect();
    remotes.hand_out(&list(&format!("{others}{id} 198.51.100.7")));
    let answer = |order: RoundOrder| {
        let (reporter, received) = reports();
        let mut member = measurer.member();
        member.prepare(order, reporter).expect("a thread");
        match daemon.prepared_or(&received) {
            Some(MemberReport::Failed { detail, .. }) => Err(detail),
            Some(other) => panic!("{other:?} from a member without reports"),
            None => {
                member.stop();
                daemon.stopped();
                Ok(())
            }
        }
    };
    // A list that the operator begins to take reaches a session that is open already.
    answer(abroad).expect_err("no list counts");
    daemon.reload(taking(HandedList::Accepted));
    until(|| answer(abroad).is_ok());
    let mut elsewhere = abroad;
    elsewhere.target.address = SocketAddr::from(([198, 51, 100, 8], 443));
    assert!(answer(elsewhere).expect_err("another address").contains("not at 198.51.100.8"));
    remotes.hand_out(&list(&others));
    until(|| answer(abroad).is_err());
    remotes.hand_out(&list(&id.to_string()));
    until(|| answer(abroad).is_ok());
    // A list that must be signed counts only as long as its signature does.
    let key = SecretKey::from_seed([9; 32]);
    daemon.reload(taking(HandedList::SignedBy(key.public())));
    until(|| answer(abroad).is_err_and(|error| error.contains("is not signed")));
    let signed = |until| {
        let line = opt_in::sign(&list(&id.to_string()), until, &key);
        list(&format!("{id}\n{line}"))
    };
    remotes.hand_out(&signed("9999-12-31"));
    until(|| answer(abroad).is_ok());
    remotes.hand_out(&signed("2020-01-01"));
    until(|| answer(abroad).is_err_and(|error| error.contains("valid until 2020-01-01")));
    remotes.hand_out(&signed("9999-12-31"));
    daemon.reload(taking(HandedList::Ignored));
    until(|| answer(abroad).is_err());
    // With a policy that permits less than the order needs, only a signed list permits it. A relay that may decline is refused.
    let now = link::unix_time_s();
    let rule = policy(&abroad.target, 1.0, now - 60, now + 3600);
    let with_policy = |rule: PolicyInForce, handed| {
        let consent = Consent::local_only().with_policy(Some(rule));
        daemon.reload(crate::Rules { handed, ..rules(&[COORDINATOR], consent) });
    };
    with_policy(rule.clone(), HandedList::Accepted);
    until(|| answer(abroad).is_err_and(|problem| problem.contains("policy")));
    with_policy(rule.clone(), HandedList::SignedBy(key.public()));
    until(|| answer(abroad).is_ok());
    let contact_tokens = vec!["flashflow:no".to_owned()];
    let opt_outs = OptOuts { contact_tokens, ..OptOuts::default() };
    let changed = Policy { opt_outs, ..(*rule.policy).clone() };
    let unknown = PolicyInForce { policy: Arc::new(changed), relays: None, ..rule };
    with_policy(unknown, HandedList::SignedBy(key.public()));
    until(|| answer(abroad).is_err_and(|problem| problem.contains("consensus")));
}

/// Waits until the condition holds.
fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
    }
    panic!("timed out");
}
