//! 30 relays and 40 clients that each fetch 1 MiB ten times in 1,200 seconds: how long that takes.
#![expect(clippy::print_stdout, reason = "an example")]

use onion::flow::control::CongestionParams;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sim::world::*;
use std::sync::Arc;

fn main() {
    let latency = |from: u16, to: u16| {
        let steps = u64::from(from.abs_diff(to));
        (Duration::from_millis(5 + 10 * steps), 0.0)
    };
    let mut net = Net::new(4, latency);
    let mut hosts = Vec::new();
    let mut candidates = Vec::new();
    let rate = |mbit: u64| Rate::from_bit_per_s(mbit * 1_000_000);
    let host = |mbit, role| HostConfig {
        up: rate(mbit),
        down: rate(mbit),
        queue: Duration::from_millis(100),
        control: Control::Cubic,
        role,
    };
    for number in 0..30u64 {
        let is_exit = number % 3 == 0;
        let id = net.add(u16::try_from(number % 4).expect("small"), true);
        hosts.push(host(
            100,
            Role::Relay(RelayConfig {
                is_exit,
                limit: None,
                scheduler: SchedulerConfig::default(),
                cell_cost: Duration::ZERO,
                congestion: CongestionParams::default(),
            }),
        ));
        candidates.push(Candidate { host: id, weight: 100, is_guard: number % 3 == 1, is_exit });
    }
    net.add(0, false);
    hosts.push(host(10_000, Role::Server(Arc::default())));
    let size = Size { weight: 1.0, bytes: 1 << 20, timeout: Duration::from_secs(60) };
    let fetch =
        Arc::new(Fetch { every: Duration::from_secs(110), count: Some(10), sizes: vec![size] });
    for number in 0..40u16 {
        net.add(number % 4, false);
        hosts.push(host(
            100,
            Role::Client(ClientConfig {
                guards: 0,
                ready_circuits: 1,
                dirtiness: Duration::from_secs(10),
                build_timeout: Duration::from_secs(60),
                congestion: None,
                users: Users::Fetch(fetch.clone()),
                begins: Duration::from_secs(1),
            }),
        ));
    }
    let net = Arc::new(net);
    let paths = Arc::new(Paths::new(&candidates));
    let all: Vec<HostId> = (0..hosts.len()).map(|it| HostId(it as u32)).collect();
    #[expect(clippy::disallowed_methods, reason = "it is about real time")]
    let began = std::time::Instant::now();
    let mut part = Part::new(&hosts, &all, (&net, &paths), 1);
    while part.now_ns() < 1_200_000_000_000 {
        part.pass_window(|_| panic!("nobody is elsewhere"));
    }
    let took = began.elapsed();
    let records = part.take_records();
    let done = records.iter().filter(|it| it.ending == Ending::Complete).count();
    let figures: Vec<HostFigures> = part.figures().collect();
    let cells: u64 = figures.iter().map(|it| it.cells).sum();
    let events: u64 = figures.iter().map(|it| it.events).sum();
    let mut times: Vec<f64> =
        records.iter().filter_map(|it| it.last_byte).map(|it| it.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    println!("{} records, {done} complete, median {:?}", records.len(), times.get(times.len() / 2));
    println!("{cells} cells, {events} events, {took:?}, {:?} a cell", took / cells.max(1) as u32);
}
