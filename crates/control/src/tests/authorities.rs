//! Coordinators of several authorities, over real sockets on loopback.

use super::world::*;
use crate::{Authorities, Heard};
use onion::Duration;
use std::net::SocketAddr;

const LATENCY: Duration = Duration::from_millis(100);

/// An address where nobody listens yet.
fn free() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("bound")
}

/// What it hears until it has heard this of somebody.
fn wait_for(authorities: &Authorities, of: u8, holds: impl Fn(&Heard) -> bool) {
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        let all = authorities.hear(LATENCY);
        if all.iter().any(|(from, heard)| *from == public(of) && holds(heard)) {
            return;
        }
        waited += LATENCY;
    }
    panic!("timed out");
}

#[test]
fn what_one_says_the_others_hear_as_its_own_whoever_dials() {
    let (at, nowhere) = (free(), free());
    // Of these two only the second one can dial.
    let listens = Authorities::start(at, &key(1), &[(nowhere, public(2))]).expect("listens");
    let dials = Authorities::start(nowhere_else(), &key(2), &[(at, public(1))]).expect("listens");
    listens.say(vec![b"one".to_vec()]);
    dials.say(vec![b"two".to_vec(), b"three".to_vec()]);
    wait_for(&listens, 2, |it| *it == Heard::Words(vec![b"two".to_vec(), b"three".to_vec()]));
    wait_for(&dials, 1, |it| *it == Heard::Words(vec![b"one".to_vec()]));
    wait_for(&listens, 2, |it| matches!(it, Heard::Unreachable(why) if why.contains("reached")));
    // New statements are sent at once.
    listens.say(vec![b"four".to_vec()]);
    wait_for(&dials, 1, |it| *it == Heard::Words(vec![b"four".to_vec()]));
    // An authority without statements ignores those of others, too.
    listens.say(vec![]);
    wait_for(&dials, 1, |it| *it == Heard::Words(vec![]));
    assert_eq!(listens.hear(Duration::ZERO), []);
}

fn nowhere_else() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

#[test]
fn strangers_have_no_say_and_both_sides_are_told() {
    let at = free();
    let ours = Authorities::start(at, &key(1), &[(free(), public(2))]).expect("listens");
    ours.say(vec![b"ours".to_vec()]);
    let stranger =
        Authorities::start(nowhere_else(), &key(3), &[(at, public(1))]).expect("listens");
    stranger.say(vec![b"mine".to_vec()]);
    wait_for(&stranger, 1, |it| {
        matches!(it, Heard::Unreachable(why) if why.contains("does not know our key")
            && why.contains(&public(3).to_string()))
    });
    let deceived =
        Authorities::start(nowhere_else(), &key(2), &[(at, public(3))]).expect("listens");
    deceived.say(vec![b"mine".to_vec()]);
    wait_for(
        &deceived,
        3,
        |it| matches!(it, Heard::Unreachable(why) if why.contains(&public(1).to_string())),
    );
    let heard = ours.hear(LATENCY);
    assert!(heard.iter().all(|(_, it)| matches!(it, Heard::Unreachable(_))), "{heard:?}");
}
