use super::*;
use crate::cell::msg::Create2;
use crate::cell::{BODY_LEN, CircId};
use crate::cell_model::Tor;
use crate::cell_model::fixture::Staged;
use crate::router::{Honest, LinkPeer, RouterConfig};
use crate::time::Instant;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const NOW: Instant = Instant::ORIGIN;

fn relay() -> Core<Tor, ChaCha8Rng> {
    let config = RouterConfig::new(<Tor as Staged>::identity(1), 0);
    Core::new(config, Honest, ChaCha8Rng::seed_from_u64(1), NOW)
}

/// A client's link from there.
fn link(core: &mut Core<Tor, ChaCha8Rng>, from: [u8; 4]) -> ConnId {
    let conn = core.accept(NOW, Some(IpAddr::from(from)), None).expect("admitted");
    core.handle_link_open(NOW, conn, &LinkPeer::default());
    conn
}

/// A circuit on it that is to be extended to the relay with this number, which does not answer.
fn extend(core: &mut Core<Tor, ChaCha8Rng>, conn: ConnId, circuit: u32, relay: u32) {
    let circ_id = CircId::of_initiator(circuit);
    core.handle_cell(NOW, conn, circ_id, Command::CREATE_FAST, &[7; BODY_LEN]);
    while core.poll_control(NOW, conn).is_some() {}
    let (index, _) = find(core, conn, circuit).expect("created");
    let [_, ip @ ..] = relay.to_be_bytes();
    let address = [10, ip[0], ip[1], ip[2], 35, 41];
    let mut rsa = [9; 20];
    rsa[..4].copy_from_slice(&relay.to_be_bytes());
    let link_specifiers: Vec<(u8, &[u8])> =
        alloc::vec![(link_specifier::IPV4, &address), (link_specifier::RSA_IDENTITY, &rsa)];
    let create = Create2 { handshake_type: 2, data: &[7; 84] };
    let mut data = Vec::new();
    Extend2 { link_specifiers, create }.encode_into(&mut data);
    core.extend(index, &data).expect("the relay dials");
    core.check_accounts();
}

fn find(
    core: &mut Core<Tor, ChaCha8Rng>,
    conn: ConnId,
    circuit: u32,
) -> Option<(CircuitIndex, Direction)> {
    core.conns.link_mut(conn)?.circuits.find(CircId::of_initiator(circuit))
}

fn closed(core: &mut Core<Tor, ChaCha8Rng>) -> usize {
    core::iter::from_fn(|| core.poll_close()).count()
}

#[test]
fn extending_to_unreachable_relays_does_not_block_other_clients() {
    let mut core = relay();
    let (attacker, honest) = (link(&mut core, [192, 0, 2, 1]), link(&mut core, [192, 0, 2, 2]));
    extend(&mut core, honest, 1, 1);
    for number in 2..2000 {
        extend(&mut core, attacker, number, number);
        // Each of its lost circuits was sent a reason, and its link is closed.
        assert_eq!(closed(&mut core), usize::from(core.to_dial.len() > 256));
    }
    extend(&mut core, honest, 2, 3000);
    assert_eq!(closed(&mut core), 1, "one of the attacker's");
    for circuit in [1, 2] {
        assert!(
            find(&mut core, honest, circuit).is_some(),
            "the honest client's circuit still waits"
        );
    }
    assert!(find(&mut core, attacker, 2).is_none() && find(&mut core, attacker, 1999).is_some());
    assert_eq!(core.conns.link_count(), 2 + 256);
}

#[test]
fn a_dial_without_waiting_circuits_is_abandoned() {
    let mut core = relay();
    let client = link(&mut core, [192, 0, 2, 1]);
    extend(&mut core, client, 1, 5);
    extend(&mut core, client, 2, 5);
    assert_eq!(core.conns.link_count(), 2, "one link for both");
    let destroy = |core: &mut Core<Tor, ChaCha8Rng>, circuit| {
        let circ_id = CircId::of_initiator(circuit);
        core.handle_cell(NOW, client, circ_id, Command::DESTROY, &[0; BODY_LEN]);
        core.check_accounts();
        closed(core)
    };
    assert_eq!(destroy(&mut core, 1), 0, "the other circuit still waits");
    assert_eq!((destroy(&mut core, 2), core.conns.link_count()), (1, 1));
    // Neither does it stay if they go with their own link.
    extend(&mut core, client, 3, 5);
    core.handle_closed(NOW, client, &crate::node::CloseCause::ByPeer);
    assert_eq!((closed(&mut core), core.conns.link_count(), core.open_circuits()), (1, 0, 0));
    core.check_accounts();
}
