//! A lying relay on its own thread, as in experiments.

use lab::liars::{EchoLie, LiarRelay, LiarSetup};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer};
use onion::measure::load::{Event, LoadConfig, LoadFailure, LoadGenerator, Pace, ReturnPath};
use onion::measure::order::{OrderConfig, OrderEvent, OrderLink};
use onion::measure::protocol::{ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order};
use onion::measure::target::TargetParams;
use onion::node::Node;
use onion::router::RouterEvent;
use onion::{Duration, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

const UNIX_TIME_S: u64 = 1_700_000_000;
const COORDINATOR: [u8; 32] = [1; 32];
const MEASURER: [u8; 32] = [2; 32];

fn relay(lie: Option<EchoLie>) -> LiarRelay {
    let target = TargetParams {
        is_allowed: true,
        coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
        ..TargetParams::default()
    };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (limit, seed, unix_time_s) = (None, [3; 32], UNIX_TIME_S);
    LiarRelay::start(LiarSetup { lie, listen, target, limit, seed, unix_time_s }).expect("it runs")
}

/// Drives a node until `poll` returns a value.
fn until<N: Node, T>(driver: &mut Driver<N>, mut poll: impl FnMut(&mut N) -> Option<T>) -> T {
    let deadline = driver.now() + Duration::from_secs(20);
    loop {
        if let Some(value) = poll(driver.node_mut()) {
            return value;
        }
        assert!(driver.now() < deadline, "the condition is not met in time");
        driver.turn(deadline).expect("a turn");
    }
}

/// The outcome of a measurement of one second for its measurer.
fn measure(relay: &LiarRelay) -> Result<u64, LoadFailure> {
    let issuer = IdentityIssuer::new([4; 32], UNIX_TIME_S).expect("keys");
    let clock = Clock::start();
    let order = Order {
        coordinator: CoordinatorKey::of_seed(&COORDINATOR),
        target: relay.ids(),
        measurers: vec![MeasurerKey::of_seed(&MEASURER)],
        seconds: 1,
        client_share: ClientShare::DEFAULT,
        sockets: 1,
        expires_unix_s: UNIX_TIME_S + 60,
        nonce: Nonce([5; 32]),
    };
    let config = OrderConfig {
        target: relay.target(),
        order,
        key_seed: COORDINATOR,
        accept_timeout: Duration::from_secs(10),
        random: [6; 24],
        unix_time_s: UNIX_TIME_S,
    };
    let tls = || TlsConfigs::new(&issuer).expect("usable");
    let options = DriverOptions::default();
    let link = OrderLink::new(config, clock.now());
    let mut link = Driver::new(link, clock, tls(), Vec::new(), options).expect("it runs");
    assert_eq!(until(&mut link, OrderLink::poll_event), OrderEvent::Accepted);
    let config = LoadConfig {
        held_back: None,
        few_circuits: None,
        target: relay.target(),
        return_path: ReturnPath::Echo { nonce: Nonce([5; 32]), key_seed: MEASURER },
        sockets: 1,
        circuits_per_socket: 1,
        pace: Pace { burst: 1, per_s: NonZeroU32::MIN },
        second_tries: 0,
        seconds: 1,
        rate: Rate::from_mbit_per_s(20.0),
        window_cap_cells: 1000,
        check_one_in: NonZeroU32::new(125).expect("not zero"),
        setup_timeout: Duration::from_secs(10),
        stall_timeout: Duration::from_secs(10),
        unix_time_s: UNIX_TIME_S,
    };
    let generator = LoadGenerator::new(config, ChaCha8Rng::seed_from_u64(7), clock.now());
    let mut generator = Driver::new(generator, clock, tls(), Vec::new(), options).expect("it runs");
    let mut bytes = 0;
    until(&mut generator, |generator| {
        // Several events may be pending.
        while let Some(event) = generator.poll_event() {
            match event {
                Event::Ready { .. } => generator.start(clock.now(), clock.now()),
                Event::Second(second) => bytes = second.bytes,
                Event::Lost { .. } => {}
                Event::Finished => return Some(Ok(bytes)),
                Event::Failed(failure) => return Some(Err(failure)),
            }
        }
        None
    })
}

#[test]
fn a_lying_relay_on_its_own_thread_is_detected() {
    let liar = relay(Some(EchoLie::SkipsDecryption));
    assert!(matches!(measure(&liar), Err(LoadFailure::CheckFailed { .. })));
    assert!(liar.totals().measured_bytes > 0);
    let events = liar.take_events();
    assert!(events.iter().any(|event| matches!(event, RouterEvent::MeasurementAccepted(_))));
    let address = liar.address();
    liar.stop().expect("it ran");
    assert!(std::net::TcpStream::connect(address).is_err(), "the listener is closed");
}

#[test]
fn an_honest_relay_on_its_own_thread_is_measured() {
    let honest = relay(None);
    assert!(measure(&honest).expect("it is honest") > 0);
    honest.stop().expect("it ran");
}
