use super::*;
use crate::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use crate::cell_model::Tor;
use crate::cell_model::fixture::Staged;
use crate::router::circuits::{Direction, OnLink};
use crate::router::{LinkPeer, RouterConfig};
use crate::time::Instant;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const NOW: Instant = Instant::ORIGIN;
const CIRCUIT: CircId = CircId::of_initiator(1);

/// Does this with the second cell that passes, and counts.
struct Once {
    action: ForwardAction,
    passed: u32,
    added: u32,
}

impl Behavior for Once {
    fn forward(
        &mut self,
        _: &mut impl Rng,
        from: OnLink,
        received: &[u8; BODY_LEN],
        cell: &mut [u8; BODY_LEN],
    ) -> ForwardAction {
        assert_eq!(from, OnLink { conn: ConnId(0), circ_id: CIRCUIT });
        assert_ne!(received, cell, "a layer was removed");
        self.passed += 1;
        if self.passed == 2 { self.action } else { ForwardAction::Forward }
    }

    fn fabricate(&mut self, _: &mut impl Rng, from: OnLink, cell: &mut [u8; BODY_LEN]) {
        assert_eq!(from.circ_id, CIRCUIT);
        self.added += 1;
        *cell = [0xad; BODY_LEN];
    }
}

/// A relay with a circuit from link 0 to link 1, which has brought two cells.
fn after_two(action: ForwardAction) -> Core<Tor, ChaCha8Rng, Once> {
    let config = RouterConfig::new(<Tor as Staged>::identity(1), 0);
    let behavior = Once { action, passed: 0, added: 0 };
    let mut core = Core::new(config, behavior, ChaCha8Rng::seed_from_u64(1), NOW);
    for _ in 0..2 {
        let conn = core.accept(NOW, None, None).expect("admitted");
        let peer = LinkPeer::default();
        core.handle_link_open(NOW, conn, &peer);
    }
    core.handle_cell(NOW, ConnId(0), CIRCUIT, Command::CREATE_FAST, &[7; BODY_LEN]);
    let out = OnLink { conn: ConnId(1), circ_id: CIRCUIT };
    let index = CircuitIndex(0);
    core.circuits.get_mut(index).expect("it is created").next_link = NextLink::Open(out);
    core.conns.link_mut(out.conn).expect("open").circuits.add(
        out.circ_id,
        index,
        Direction::Backward,
    );
    for _ in 0..2 {
        core.handle_cell(NOW, ConnId(0), CIRCUIT, Command::RELAY, &[9; BODY_LEN]);
    }
    core.check_accounts();
    core
}

/// The reason in the relay's DESTROY on a link.
fn destroyed(core: &mut Core<Tor, ChaCha8Rng, Once>, conn: ConnId) -> Option<DestroyReason> {
    let controls = core::iter::from_fn(|| core.poll_control(NOW, conn));
    let mut ends = controls.filter(|control| control.command == Command::DESTROY);
    ends.next().map(|control| DestroyReason::parse(&control.body))
}

#[test]
fn cells_may_be_dropped_or_followed_by_others() {
    for (action, queued, added) in [
        (ForwardAction::Forward, 2, 0),
        (ForwardAction::Drop, 1, 0),
        (ForwardAction::ForwardWith(3), 5, 3),
    ] {
        let mut core = after_two(action);
        assert_eq!(core.outputs.queued_cells(), queued, "{action:?}");
        while let Some(conn) = core.poll_socket_query() {
            core.handle_socket_state(NOW, conn, None);
        }
        let mut out = [[0; CELL_LEN]; 9];
        let len = core.poll_cells(NOW, ConnId(1), &mut out);
        assert_eq!((len, core.behavior.added), (queued, added));
        let made = out.iter().filter(|cell| cell[5..] == [0xad; BODY_LEN]).count();
        assert_eq!(made, added as usize);
        core.check_accounts();
    }
}

#[test]
fn added_cells_respect_the_queue_limit() {
    let most = crate::flow::QUEUE_LIMIT_CELLS;
    let mut core = after_two(ForwardAction::ForwardWith(most - 2));
    assert_eq!((core.open_circuits(), destroyed(&mut core, ConnId(0))), (1, None));
    let mut core = after_two(ForwardAction::ForwardWith(most + 1000));
    assert_eq!(core.behavior.added, most - 2);
    assert_eq!((core.open_circuits(), core.queued_bytes()), (0, 0));
    assert_eq!(destroyed(&mut core, ConnId(0)), Some(DestroyReason::RESOURCE_LIMIT));
}

#[test]
fn a_behavior_may_destroy_all_circuits_or_links() {
    let reason = DestroyReason::RESOURCE_LIMIT;
    let mut core = after_two(ForwardAction::DestroyCircuits(reason));
    for conn in [ConnId(0), ConnId(1)] {
        assert_eq!(destroyed(&mut core, conn), Some(reason));
        assert!(core.conns.link(conn).is_some());
    }
    assert_eq!(core.poll_close(), None);
    let mut core = after_two(ForwardAction::CloseLinks);
    assert_eq!([core.poll_close(), core.poll_close()], [Some(ConnId(0)), Some(ConnId(1))]);
    assert_eq!((core.open_circuits(), core.conns.link_count()), (0, 0));
}
