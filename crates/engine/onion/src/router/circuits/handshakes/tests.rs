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

fn link(conn: u32) -> Requester {
    Requester::Link(ConnId(conn))
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
fn one_handshake_does_not_wait_behind_thousands_of_another_link() {
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
fn a_full_queue_drops_the_newest_handshake_of_the_largest_requester() {
    let mut handshakes = Handshakes::default();
    let most = u32::try_from(WAITING_MAX).expect("few");
    for circ_id in 0..most {
        assert_eq!(add(&mut handshakes, 1, circ_id), None);
    }
    assert_eq!(add(&mut handshakes, 2, 1), Some(at(1, most - 1)));
    assert_eq!(add(&mut handshakes, 1, most), Some(at(1, most)));
    assert_eq!(handshakes.len(), WAITING_MAX);
    // The same number of links with one handshake each: the last one is too late.
    let mut handshakes = Handshakes::default();
    for conn in 0..most {
        assert_eq!(add(&mut handshakes, conn, 1), None);
    }
    assert_eq!(add(&mut handshakes, most, 1), Some(at(most, 1)));
    assert_eq!(handshakes.turns.len(), WAITING_MAX);
}

proptest! {
    #[test]
    fn links_are_served_round_robin_and_all_handshakes_are_counted(
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
                    model.retain(|circuit| Some(*circuit) != expected);
                    if let Some(expected) = expected {
                        handshakes.cancel(expected);
                    }
                }
                3 if circ_id == 0 => {
                    handshakes.cancel_link(ConnId(conn));
                    model.retain(|circuit| circuit.conn != ConnId(conn));
                }
                3 => {
                    handshakes.cancel(at(conn, circ_id));
                    model.retain(|circuit| *circuit != at(conn, circ_id));
                }
                _ => {}
            }
            let mut turns: Vec<_> = handshakes.turns.iter().copied().collect();
            turns.sort_unstable();
            prop_assert_eq!(turns, handshakes.waiting.keys().copied().collect::<Vec<_>>());
            let counts: BTreeSet<_> =
                handshakes.waiting.iter().map(|(requester, queue)| (queue.len(), *requester)).collect();
            prop_assert_eq!(&counts, &handshakes.by_count);
            prop_assert_eq!(counts.iter().map(|(count, _)| count).sum::<usize>(), handshakes.len());
            prop_assert!(model.iter().all(|circuit| handshakes.contains(*circuit)));
            prop_assert_eq!(model.len(), handshakes.known.len());
            for conn in (0..4).map(ConnId) {
                let has_any = model.iter().any(|circuit| circuit.conn == conn);
                prop_assert_eq!(handshakes.has_any_of(conn), has_any);
            }
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

/// Everything that the relay sends on a link.
fn sent<S: CellModel, C: Behavior<S>>(
    relay: &mut Core<S, ChaCha8Rng, C>,
    conn: ConnId,
) -> Vec<(CircId, Command, Vec<u8>)> {
    core::iter::from_fn(|| relay.poll_control(START, conn))
        .map(|cell| (cell.circ_id, cell.command, cell.body.to_vec()))
        .collect()
}

fn check_that_a_worker_answers_like_the_router<S: Staged>() {
    let (mut without_workers, conn) = relay::<S>(0);
    ask(&mut without_workers, conn, 1);
    let expected = sent(&mut without_workers, conn);
    assert_eq!(expected.first().map(|(_, command, _)| *command), Some(Command::CREATED2));

    let (mut relay, conn) = relay::<S>(2);
    ask(&mut relay, conn, 1);
    assert_eq!(sent(&mut relay, conn), [], "no handshake is answered yet");
    assert_eq!(relay.open_circuits(), 0);
    let job = relay.poll_handshake(START).expect("one to be answered");
    assert!(relay.poll_handshake(START).is_none());
    relay.handle_handshake(START, job.run());
    assert_eq!(sent(&mut relay, conn), expected);
    assert_eq!(relay.open_circuits(), 1);
    relay.check_accounts();
}

#[test]
fn a_worker_answers_a_handshake_like_the_router_itself() {
    check_that_a_worker_answers_like_the_router::<Tor>();
    check_that_a_worker_answers_like_the_router::<HeaderOnly>();
}

#[test]
fn the_limit_of_outstanding_handshakes_is_respected() {
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
fn an_answer_for_a_destroyed_circuit_opens_no_other() {
    let (mut relay, conn) = relay::<HeaderOnly>(4);
    ask(&mut relay, conn, 1);
    let job = relay.poll_handshake(START).expect("one");
    let destroy = <HeaderOnly as CellModel>::Body::from_bytes(&[DestroyReason::REQUESTED.get()]);
    let circ_id = CircId::of_initiator(1);
    assert!(relay.handle_cell(START, conn, circ_id, Command::DESTROY, &destroy));
    ask(&mut relay, conn, 1);
    relay.handle_handshake(START, job.run());
    assert_eq!(relay.open_circuits(), 0, "the answer was for the previous circuit");
    assert_eq!(sent(&mut relay, conn), []);
    let job = relay.poll_handshake(START).expect("the next handshake");
    relay.handle_handshake(START, job.run());
    assert_eq!(relay.open_circuits(), 1);
    relay.check_accounts();
}

#[test]
fn two_requests_with_one_circuit_id_are_both_refused() {
    let (mut relay, conn) = relay::<HeaderOnly>(4);
    ask(&mut relay, conn, 1);
    ask(&mut relay, conn, 1);
    let sent = sent(&mut relay, conn);
    assert_eq!(sent.iter().map(|(_, command, _)| *command).collect::<Vec<_>>(), [Command::DESTROY]);
    assert!(relay.poll_handshake(START).is_none());
}

#[test]
fn answers_for_a_closed_link_are_discarded() {
    let (mut relay, conn) = relay::<HeaderOnly>(1);
    ask(&mut relay, conn, 1);
    ask(&mut relay, conn, 2);
    let job = relay.poll_handshake(START).expect("one");
    relay.handle_closed(START, conn, &crate::node::CloseCause::ByPeer);
    // Its number is another's now.
    let other = open(&mut relay, 2);
    relay.handle_handshake(START, job.run());
    assert!(relay.poll_handshake(START).is_none());
    assert_eq!((relay.open_circuits(), sent(&mut relay, other)), (0, vec![]));
    relay.check_accounts();
}

#[test]
fn handshakes_that_waited_too_long_are_refused() {
    let (mut relay, conn) = relay::<HeaderOnly>(1);
    ask(&mut relay, conn, 1);
    let late = START + WAIT_MAX + Duration::from_millis(1);
    assert!(relay.poll_handshake(late).is_none());
    let sent = sent(&mut relay, conn);
    assert_eq!(sent[0].1, Command::DESTROY);
    assert_eq!(sent[0].2, [DestroyReason::RESOURCE_LIMIT.get()]);
    assert_eq!(relay.totals().refused_handshakes, 1);
}
