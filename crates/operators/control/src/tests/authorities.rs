//! Coordinators of several authorities, over real sockets on loopback.

use super::world::*;
use crate::{Authorities, PeerState};
use onion::Duration;
use std::net::SocketAddr;

const LATENCY: Duration = Duration::from_millis(100);

/// An address without a listener.
fn free() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("bound")
}

/// Waits until `authorities` reports this state of the peer `of`.
fn wait_for(authorities: &Authorities, of: u8, holds: impl Fn(&PeerState) -> bool) {
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        let all = authorities.receive(LATENCY);
        if all.iter().any(|(from, state)| *from == public(of) && holds(state)) {
            return;
        }
        waited += LATENCY;
    }
    panic!("timed out");
}

#[test]
fn statements_reach_the_other_side_in_both_directions_of_one_connection() {
    let (at, nowhere) = (free(), free());
    // Only the second one can dial the other.
    let listens = Authorities::start(at, &key(1), &[(nowhere, public(2))]).expect("listens");
    let dials = Authorities::start(any_port(), &key(2), &[(at, public(1))]).expect("listens");
    listens.send(vec![b"one".to_vec()]);
    dials.send(vec![b"two".to_vec(), b"three".to_vec()]);
    wait_for(&listens, 2, |state| {
        *state == PeerState::Statements(vec![b"two".to_vec(), b"three".to_vec()])
    });
    wait_for(&dials, 1, |state| *state == PeerState::Statements(vec![b"one".to_vec()]));
    wait_for(
        &listens,
        2,
        |state| matches!(state, PeerState::Unreachable(why) if why.contains("reached")),
    );
    // New statements are sent at once.
    listens.send(vec![b"four".to_vec()]);
    wait_for(&dials, 1, |state| *state == PeerState::Statements(vec![b"four".to_vec()]));
    // An authority without statements ignores those of others, too.
    listens.send(vec![]);
    wait_for(&dials, 1, |state| *state == PeerState::Statements(vec![]));
    assert_eq!(listens.receive(Duration::ZERO), []);
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

#[test]
fn a_connection_with_a_foreign_key_carries_no_statements_and_both_sides_report_it() {
    let at = free();
    let ours = Authorities::start(at, &key(1), &[(free(), public(2))]).expect("listens");
    ours.send(vec![b"ours".to_vec()]);
    let stranger = Authorities::start(any_port(), &key(3), &[(at, public(1))]).expect("listens");
    stranger.send(vec![b"mine".to_vec()]);
    wait_for(&stranger, 1, |state| {
        matches!(state, PeerState::Unreachable(why) if why.contains("does not know our key")
            && why.contains(&public(3).to_string()))
    });
    let deceived = Authorities::start(any_port(), &key(2), &[(at, public(3))]).expect("listens");
    deceived.send(vec![b"mine".to_vec()]);
    wait_for(&deceived, 3, |state| match state {
        PeerState::Unreachable(why) => why.contains(&public(1).to_string()),
        PeerState::Statements(_) => false,
    });
    let states = ours.receive(LATENCY);
    assert!(
        states.iter().all(|(_, state)| matches!(state, PeerState::Unreachable(_))),
        "{states:?}"
    );
}
