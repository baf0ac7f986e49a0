use super::*;
use crate::cell::Command;
use crate::cell::msg::DestroyReason;
use crate::cell_model::fixture::{Staged, hop};
use crate::cell_model::{Handshake, HeaderOnly, Tor};
use crate::circuit::NextHop;
use crate::node::ConnId;
use crate::router::{Behavior, Core, Honest, LinkPeer, RouterConfig};
use alloc::vec;
use core::net::{IpAddr, Ipv4Addr};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const START: Instant = Instant::ORIGIN;

fn at(conn: u32, circ_id: u32) -> OnLink {
    OnLink { conn: ConnId(conn), circ_id: CircId::of_initiator(circ_id) }
}

fn link(conn: u32) -> Asker {
    Asker::Link(ConnId(conn))
}

fn add(handshakes: &mut Handshakes<HeaderOnly>, conn: u32, circ_id: u32) -> Option<OnLink> {
    let body = <HeaderOnly as CellModel>::Body::from_bytes(&[]);
    handshakes.add(START, link(conn), at(conn, circ_id), &body)
}

/// The next circuit in order.
fn next(handshakes: &mut Handshakes<HeaderOnly>) -> Option<OnLink> {
    match handshakes.next(START)? {
        Next::Answer(unanswered) => Some(unanswered.0.at),
        Next::TooLate(_) => panic!("no time has passed"),
    }
}

#[test]
fn who_asks_for_one_does_not_wait_behind_who_asks_for_thousands() {
    let mut handshakes = Handshakes::default();
    for circ_id in 0..3000 {
        assert_eq!(add(&mut handshakes, 1, circ_id), None);
    }
    assert_eq!(add(&mut handshakes, 2, 1), None);
    assert_eq!(next(&mut handshakes), Some(at(1, 0)));
    assert_eq!(next(&mut handshakes), Some(at(2, 1)));
    assert_eq!(next(&mut handshakes), Some(at(1, 1)));
    assert_eq!((handshakes.len(), handshakes.under_way()), (2998, 3));
}

#[test]
fn where_it_is_full_who_asked_for_most_gives_up_his_newest() {
    let mut handshakes = Handshakes::default();
    let most = u32::try_from(WAITING_MAX).expect("few");
    for circ_id in 0..most {
        assert_eq!(add(&mut handshakes, 1, circ_id), None);
    }
    assert_eq!(add(&mut handshakes, 2, 1), Some(at(1, most - 1)));
    assert_eq!(add(&mut handshakes, 1, most), Some(at(1, most)));
    assert_eq!(handshakes.len(), WAITING_MAX);
    // As many who ask for one each: the last comes too late.
    let mut handshakes = Handshakes::default();
    for conn in 0..most {
        assert_eq!(add(&mut handshakes, conn, 1), None);
    }
    assert_eq!(add(&mut handshakes, most, 1), Some(at(most, 1)));
    assert_eq!(handshakes.turns.len(), WAITING_MAX);
}

proptest! {
    #[test]
    fn each_has_one_turn_and_all_are_counted(
        steps in prop::collection::vec((0u8..4, 0u32..4, 0u32..6), 0..200),
    ) {
        let mut handshakes = Handshakes::<HeaderOnly>::default();
        let mut model: Vec<OnLink> = vec![];
        for (kind, conn, circ_id) in steps {
            match kind {
                0 | 1 if !handshakes.contains(at(conn, circ_id)) => {
                    add(&mut handshakes, conn, circ_id);
                    model.push(at(conn, circ_id));
                }
                2 => {
                    let expected = next(&mut handshakes);
                    model.retain(|it| Some(*it) != expected);
                    if let Some(expected) = expected {
                        handshakes.cancel(expected);
                    }
                }
                3 if circ_id == 0 => {
                    handshakes.cancel_link(ConnId(conn));
                    model.retain(|it| it.conn != ConnId(conn));
                }
                3 => {
                    handshakes.cancel(at(conn, circ_id));
                    model.retain(|it| *it != at(conn, circ_id));
                }
                _ => {}
            }
            let mut turns: Vec<_> = handshakes.turns.iter().copied().collect();
            turns.sort_unstable();
            prop_assert_eq!(turns, handshakes.waiting.keys().copied().collect::<Vec<_>>());
            let counts: BTreeSet<_> =
                handshakes.waiting.iter().map(|(asker, queue)| (queue.len(), *asker)).collect();
            prop_assert_eq!(&counts, &handshakes.by_count);
            prop_assert_eq!(counts.iter().map(|(count, _)| count).sum::<usize>(), handshakes.len());
            prop_assert!(model.iter().all(|it| handshakes.contains(*it)));
            prop_assert_eq!(model.len(), handshakes.known.len());
        }
        while next(&mut handshakes).is_some() {}
        prop_assert_eq!(handshakes.len(), 0);
    }
}

type Relay<S> = Core<S, ChaCha8Rng>;

/// A relay with one link and this limit of outstanding handshakes.
fn relay<S: Staged>(handshakes_at_once: usize) -> (Relay<S>, ConnId) {
    let config = RouterConfig { handshakes_at_once, ..RouterConfig::new(S::identity(1), 0) };
    let mut relay = Core::new(config, Honest, ChaCha8Rng::seed_from_u64(1), START);
    let conn = open(&mut relay, 1);
    (relay, conn)
}

fn open<S: Staged>(relay: &mut Relay<S>, host: u8) -> ConnId {
    let from = IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
    let conn = relay.accept(START, Some(from), None).expect("room");
    relay.handle_link_open(START, conn, &LinkPeer::default());
    conn
}

fn ask<S: Staged>(relay: &mut Relay<S>, conn: ConnId, circ_id: u32) {
    let handshake = S::Handshake::ntor(&to_it(), [7; 32]);
    let (command, body) = handshake.create_cell();
    let body = S::Body::from_bytes(&body);
    let circ_id = CircId::of_initiator(circ_id);
    assert!(relay.handle_cell(START, conn, circ_id, command, &body));
}

fn to_it() -> NextHop {
    hop(1)
}

/// All that it says on a link.
fn said<S: CellModel, C: Behavior<S>>(
    relay: &mut Core<S, ChaCha8Rng, C>,
    conn: ConnId,
) -> Vec<(CircId, Command, Vec<u8>)> {
    core::iter::from_fn(|| relay.poll_control(START, conn))
        .map(|it| (it.circ_id, it.command, it.body.to_vec()))
        .collect()
}

fn the_same_is_answered_elsewhere_as_on_the_spot<S: Staged>() {
    let (mut on_the_spot, conn) = relay::<S>(0);
    ask(&mut on_the_spot, conn, 1);
    let expected = said(&mut on_the_spot, conn);
    assert_eq!(expected.first().map(|it| it.1), Some(Command::CREATED2));

    let (mut relay, conn) = relay::<S>(2);
    ask(&mut relay, conn, 1);
    assert_eq!(said(&mut relay, conn), [], "nobody has answered yet");
    assert_eq!(relay.open_circuits(), 0);
    let job = relay.poll_handshake(START).expect("one to be answered");
    assert!(relay.poll_handshake(START).is_none());
    relay.handle_handshake(START, job.run());
    assert_eq!(said(&mut relay, conn), expected);
    assert_eq!(relay.open_circuits(), 1);
    relay.check_accounts();
}

#[test]
fn a_handshake_is_answered_elsewhere_as_on_the_spot() {
    the_same_is_answered_elsewhere_as_on_the_spot::<Tor>();
    the_same_is_answered_elsewhere_as_on_the_spot::<HeaderOnly>();
}

#[test]
fn no_more_are_handed_out_than_are_wanted_at_once() {
    let (mut relay, conn) = relay::<HeaderOnly>(2);
    (1..=5).for_each(|circ_id| ask(&mut relay, conn, circ_id));
    let first = relay.poll_handshake(START).expect("one");
    let second = relay.poll_handshake(START).expect("another");
    assert!(relay.poll_handshake(START).is_none());
    relay.handle_handshake(START, second.run());
    assert!(relay.poll_handshake(START).is_some());
    relay.handle_handshake(START, first.run());
    assert_eq!(relay.open_circuits(), 2);
}

#[test]
fn an_answer_to_a_circuit_that_was_given_up_begins_no_other() {
    let (mut relay, conn) = relay::<HeaderOnly>(4);
    ask(&mut relay, conn, 1);
    let job = relay.poll_handshake(START).expect("one");
    let destroy = <HeaderOnly as CellModel>::Body::from_bytes(&[DestroyReason::REQUESTED.get()]);
    let circ_id = CircId::of_initiator(1);
    assert!(relay.handle_cell(START, conn, circ_id, Command::DESTROY, &destroy));
    ask(&mut relay, conn, 1);
    relay.handle_handshake(START, job.run());
    assert_eq!(relay.open_circuits(), 0, "that was the answer to the one before");
    assert_eq!(said(&mut relay, conn), []);
    let job = relay.poll_handshake(START).expect("the one after");
    relay.handle_handshake(START, job.run());
    assert_eq!(relay.open_circuits(), 1);
    relay.check_accounts();
}

#[test]
fn who_asks_twice_under_one_number_is_refused_both() {
    let (mut relay, conn) = relay::<HeaderOnly>(4);
    ask(&mut relay, conn, 1);
    ask(&mut relay, conn, 1);
    let said = said(&mut relay, conn);
    assert_eq!(said.iter().map(|it| it.1).collect::<Vec<_>>(), [Command::DESTROY]);
    assert!(relay.poll_handshake(START).is_none());
}

#[test]
fn a_link_that_is_gone_wants_no_answer() {
    let (mut relay, conn) = relay::<HeaderOnly>(1);
    ask(&mut relay, conn, 1);
    ask(&mut relay, conn, 2);
    let job = relay.poll_handshake(START).expect("one");
    relay.handle_closed(START, conn, &crate::node::CloseCause::ByPeer);
    // Its number is another's now.
    let other = open(&mut relay, 2);
    relay.handle_handshake(START, job.run());
    assert!(relay.poll_handshake(START).is_none());
    assert_eq!((relay.open_circuits(), said(&mut relay, other)), (0, vec![]));
    relay.check_accounts();
}

#[test]
fn who_has_waited_too_long_is_refused_and_not_answered() {
    let (mut relay, conn) = relay::<HeaderOnly>(1);
    ask(&mut relay, conn, 1);
    let late = START + WAIT_MAX + Duration::from_millis(1);
    assert!(relay.poll_handshake(late).is_none());
    let said = said(&mut relay, conn);
    assert_eq!(said[0].1, Command::DESTROY);
    assert_eq!(said[0].2, [DestroyReason::RESOURCE_LIMIT.get()]);
    assert_eq!(relay.totals().refused_handshakes, 1);
}
