use super::*;
use onion::cell::msg::DestroyReason;
use onion::circuit::CircuitError;
use onion::identity::{RelayIds, RsaId};

fn hop(number: u8) -> NextHop {
    let ids = RelayIds { rsa: RsaId([number; 20]), ed25519: None };
    NextHop { address: SocketAddr::from(([127, 0, 0, 1], 9001)), ids, onion_key: [number; 32] }
}

/// A prober of one circuit, which is being built.
fn building() -> (Prober, CircuitNumber) {
    let path = [1, 2, 3];
    let subject = Subject {
        path: path.map(|number| RsaId([number; 20])).into(),
        hops: path.map(hop).into(),
        has_congestion_control: true,
    };
    let now = Instant::ORIGIN;
    let rng = StdRng::seed_from_u64(1);
    let mut prober = Prober::new(ProbePlan::default(), vec![subject], now, 0, rng);
    prober.handle_timeout(now);
    let circuit = prober.stage.circuit().expect("begun");
    (prober, circuit)
}

fn destroyed(circuit: CircuitNumber, reason: DestroyReason) -> ClientEvent {
    let cause = Loss::Circuit(CircuitError::Destroyed(reason));
    ClientEvent::Lost { circuit, cause }
}

#[test]
fn a_circuit_closed_as_unused_is_retried_once() {
    let (mut prober, first) = building();
    prober.handle_event(Instant::ORIGIN, destroyed(first, DestroyReason::FINISHED));
    assert_eq!(prober.poll_probed(), None, "it continues");
    let second = prober.stage.circuit().expect("begun again");
    assert_ne!(second, first);
    prober.handle_event(Instant::ORIGIN, destroyed(second, DestroyReason::FINISHED));
    let probed = prober.poll_probed().expect("over");
    assert!(probed.failure.is_some_and(|failure| failure.contains("finished")), "the reason");
}

#[test]
fn a_circuit_that_is_destroyed_for_another_reason_is_not_retried() {
    let (mut prober, first) = building();
    prober.handle_event(Instant::ORIGIN, destroyed(first, DestroyReason::RESOURCE_LIMIT));
    assert!(prober.poll_probed().is_some_and(|probed| probed.failure.is_some()));
}
