//! Forgers in virtual time, and callers on real links.

use lab::liars::{Caller, Forgers, LiarError, LiarRelay, LiarSetup};
use onion::Duration;
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, ErrorCode, MeasurerKey, Message, Nonce, Order,
};
use onion::measure::target::TargetParams;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

const UNIX_TIME_S: u64 = 1_700_000_000;
const COORDINATOR: [u8; 32] = [1; 32];

#[test]
fn a_forger_of_all_answers_is_detected_within_the_first_bucket_and_an_honest_relay_never() {
    let one_in = NonZeroU32::new(50).expect("not zero");
    let forgers = Forgers::new(1.0, one_in).expect("keys");
    let mut caught = Vec::new();
    for seed in 0..20 {
        let run = forgers.run(seed).expect("a measurement");
        assert!(run.is_rightly_accused && run.evaded < 50, "seed {seed}: {run:?}");
        assert_eq!(run.caught_at, Some(run.evaded as u64), "seed {seed}");
        assert_eq!(forgers.run(seed).expect("a measurement"), run, "equal seeds give equal runs");
        caught.push(run.evaded);
    }
    caught.sort_unstable();
    caught.dedup();
    assert!(caught.len() > 5, "the positions of checks are random: {caught:?}");

    let honest = Forgers::new(0.0, one_in).expect("keys");
    let run = honest.run(1).expect("a measurement");
    assert_eq!((run.evaded, run.caught_at), (0, None));
}

fn order(relay: &LiarRelay) -> Order {
    Order {
        coordinator: CoordinatorKey::of_seed(&COORDINATOR),
        target: relay.ids(),
        measurers: vec![MeasurerKey::of_seed(&[2; 32])],
        seconds: 3,
        client_share: ClientShare::DEFAULT,
        sockets: 1,
        expires_unix_s: UNIX_TIME_S + 600,
        nonce: Nonce([5; 32]),
    }
}

#[test]
fn a_caller_receives_the_answers_to_its_messages() {
    let target = TargetParams {
        is_allowed: true,
        coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
        ..TargetParams::default()
    };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (lie, limit, seed, unix_time_s) = (None, None, [3; 32], UNIX_TIME_S);
    let setup = LiarSetup { lie, listen, target, limit, seed, unix_time_s };
    let relay = LiarRelay::start(setup).expect("it runs");
    let tls = Caller::tls([4; 32], UNIX_TIME_S).expect("keys");
    let patience = Duration::from_secs(20);
    let dial = || Caller::dial(relay.target(), tls.clone(), UNIX_TIME_S, patience);

    let order = order(&relay);
    let mut stranger = dial().expect("a link");
    let answer = stranger.request(&Message::Order(order.sign(&[9; 32], &stranger.exported())));
    let Ok(Some(Message::Error { code, .. })) = answer else { panic!("{answer:?}") };
    assert_eq!(code, ErrorCode::UNKNOWN_COORDINATOR);
    let mut coordinator = dial().expect("a link");
    assert_ne!(coordinator.exported(), stranger.exported());
    let answer =
        coordinator.request(&Message::Order(order.sign(&COORDINATOR, &coordinator.exported())));
    assert_eq!(answer.expect("a link"), Some(Message::Accepted { nonce: order.nonce }));

    let gone = relay.target();
    relay.stop().expect("it ended");
    let nobody = Caller::dial(gone, tls, UNIX_TIME_S, patience);
    assert!(matches!(nobody, Err(LiarError::NoLink(_))), "{:?}", nobody.err());
}
