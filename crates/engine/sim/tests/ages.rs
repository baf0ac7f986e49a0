//! Old links on cells: the relay replaces its links to relays as C tor does.

use onion::Duration;
use onion::cell::msg::DestroyReason;
use onion::cell::{CircId, Command};
use onion::cell_model::{HeaderOnly, Tor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use testkit::stage::{HandshakeKind, Stage, StageModel};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longer than the interval of upkeep.
const UPKEEP: Duration = Duration::from_secs(30);

fn circuit(number: u32) -> CircId {
    CircId::of_initiator(number)
}

/// A circuit from a client to the relay with the number 3.
fn extend<S: StageModel>(stage: &mut Stage<S, ChaCha8Rng>, client: usize, number: u32) {
    stage.create(client, circuit(number), HandshakeKind::Ntor);
    stage.advance(Duration::from_millis(100));
    stage.extend(client, circuit(number), HandshakeKind::Ntor, 3);
    stage.advance(Duration::from_millis(100));
    assert_eq!(stage.hops(client, circuit(number)), 2);
}

fn check_old_link<S: StageModel>() {
    let mut stage = Stage::<S, _>::new(ChaCha8Rng::seed_from_u64(1), |_| {});
    let relay = S::ids(&S::identity(3)).rsa;
    let client = stage.accept(None, None);
    assert!(!stage.relay.has_dialled(&relay));
    for number in [1, 2] {
        extend(&mut stage, client, number);
    }
    let first: Vec<usize> = stage.next_hops().collect();
    assert_eq!(first.len(), 1, "both circuits share one link");
    assert!(stage.relay.has_dialled(&relay));

    // Shortly before a week it is still used for new circuits, and then no longer.
    stage.advance(WEEK - Duration::from_secs(10));
    extend(&mut stage, client, 3);
    assert_eq!(stage.next_hops().collect::<Vec<_>>(), first);
    stage.advance(UPKEEP);
    extend(&mut stage, client, 4);
    extend(&mut stage, client, 5);
    let both: Vec<usize> = stage.next_hops().collect();
    assert_eq!(
        (both.len(), stage.created_circuits(both[1]).len()),
        (2, 2),
        "new circuits share a new link"
    );
    assert_eq!(both[0], first[0], "open circuits remain");

    for number in [1, 2, 3] {
        let reason = [DestroyReason::NONE.get()];
        stage.send_bytes(client, circuit(number), Command::DESTROY, &reason);
    }
    stage.advance(UPKEEP);
    assert_eq!(stage.next_hops().collect::<Vec<_>>(), both[1..], "the old link is closed");
    assert_eq!(stage.relay.open_circuits(), 2);
    stage.relay.check_accounts();
}

#[test]
fn a_week_old_link_gets_no_new_circuits_in_both_cell_models() {
    check_old_link::<Tor>();
    check_old_link::<HeaderOnly>();
}
