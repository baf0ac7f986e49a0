//! How fast our router echoes: one router thread, one measurer thread, over loopback.
//!
//! `cargo run --release -p lab --example echo_speed -- [seconds] [sockets] [coalesce_us]`
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a probe for developers")]

use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, Forge, thread_cpu_time, unix_time_s};
use onion::measure::load::{Event, LoadConfig, LoadGenerator, Pace, ReturnPath, Target};
use onion::measure::order::{OrderConfig, OrderEvent, OrderLink};
use onion::measure::protocol::{ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order};
use onion::measure::target::TargetParams;
use onion::router::{Router, RouterConfig, RouterEvent};
use onion::{Duration, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::TcpListener;
use std::num::NonZeroU32;
use std::sync::Arc;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap());
    let seconds = u16::try_from(arguments.next().unwrap_or(5)).unwrap();
    let sockets = u16::try_from(arguments.next().unwrap_or(8)).unwrap();
    let coalesce = Duration::from_micros(arguments.next().unwrap_or(1000));
    let unix = unix_time_s();
    let clock = Clock::start();
    let (coordinator, measurer) = ([1; 32], [2; 32]);
    let mut forge = Forge::new([3; 32], unix).unwrap();
    let identity = Arc::new(forge.identity().unwrap());
    let params = TargetParams {
        is_allowed: true,
        coordinators: vec![CoordinatorKey::of_seed(&coordinator)],
        ..TargetParams::default()
    };
    let config = RouterConfig { target: params, ..RouterConfig::new(Arc::clone(&identity), unix) };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target { address: listener.local_addr().unwrap(), ids: identity.ids() };
    let tls = TlsConfigs::new(&forge).unwrap();
    let router = Router::new(config, StdRng::from_seed([4; 32]), clock.now());
    let options = DriverOptions { coalesce, ..DriverOptions::default() };
    let mut relay = Driver::new(router, clock, tls.clone(), vec![listener], options).unwrap();
    let relay = std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
        let mut before = (Duration::ZERO, link::Traffic::default());
        loop {
            let soon = relay.now() + Duration::from_secs(1);
            relay.turn(soon).unwrap();
            while let Some(event) = relay.node_mut().poll_event() {
                if let RouterEvent::MeasuredSecond { measured_bytes, .. } = event {
                    let now = (thread_cpu_time(), *relay.traffic());
                    let cpu = (now.0 - before.0).as_secs_f64();
                    let gbit = measured_bytes as f64 * 8e-9;
                    let records = now.1.sent_records - before.1.sent_records;
                    let sent = now.1.sent_bytes - before.1.sent_bytes;
                    let in_records = now.1.received_records - before.1.received_records;
                    let received = now.1.received_bytes - before.1.received_bytes;
                    println!(
                        "{gbit:.3} Gbit/s, {cpu:.2} CPU s, {:.2} Gbit per CPU s, records {} B out, {} B in",
                        gbit / cpu,
                        sent / records.max(1),
                        received / in_records.max(1),
                    );
                    before = now;
                } else {
                    println!("{event:?}");
                }
            }
        }
    });
    drop(relay);
    let order = Order {
        coordinator: CoordinatorKey::of_seed(&coordinator),
        target: target.ids,
        measurers: vec![MeasurerKey::of_seed(&measurer)],
        seconds,
        client_share: ClientShare::DEFAULT,
        sockets,
        expires_unix_s: unix + 60,
        nonce: Nonce([5; 32]),
    };
    let order = OrderConfig {
        target,
        order,
        key_seed: coordinator,
        accept_timeout: Duration::from_secs(5),
        random: [6; 24],
        unix_time_s: unix,
    };
    let link = OrderLink::new(order, clock.now());
    let mut link = Driver::new(link, clock, tls.clone(), vec![], DriverOptions::default()).unwrap();
    loop {
        link.turn(clock.now() + Duration::from_secs(1)).unwrap();
        match link.node_mut().poll_event() {
            Some(OrderEvent::Accepted) => break,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    let config = LoadConfig {
        held_back: None,
        target,
        return_path: ReturnPath::Echo { nonce: Nonce([5; 32]), key_seed: measurer },
        sockets: u32::from(sockets),
        circuits_per_socket: 1,
        pace: Pace { burst: 200, per_s: NonZeroU32::new(1000).unwrap() },
        second_tries: 0,
        seconds: u32::from(seconds),
        rate: Rate::from_mbit_per_s(100_000.0),
        window_cap_cells: 2249,
        check_one_in: NonZeroU32::new(125).unwrap(),
        setup_timeout: Duration::from_secs(8),
        stall_timeout: Duration::from_secs(2),
        unix_time_s: unix,
    };
    let generator = LoadGenerator::new(config, StdRng::from_seed([7; 32]), clock.now());
    let options = DriverOptions { coalesce: Duration::from_millis(3), ..DriverOptions::default() };
    let mut generator = Driver::new(generator, clock, tls, vec![], options).unwrap();
    loop {
        generator.turn(clock.now() + Duration::from_secs(1)).unwrap();
        while let Some(event) = generator.node_mut().poll_event() {
            match event {
                Event::Ready { .. } => {
                    let now = clock.now();
                    generator.node_mut().start(now, now);
                }
                Event::Second(second) => {
                    println!("measured {:.3} Gbit/s", second.bytes as f64 * 8e-9);
                }
                Event::Finished => return,
                other => println!("{other:?}"),
            }
        }
    }
}
