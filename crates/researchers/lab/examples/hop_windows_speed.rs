//! The cost of hop-by-hop windows at a relay: a client downloads over loopback through three of our relays,
//! alternately without and with windows. Prints the processor time of the middle relay's thread.
//!
//! `cargo run --release -p lab --example hop_windows_speed -- [seconds] [runs] [circuits] [jumpstart cells] [limit in Mbit/s]`
//!
//! Without a limit, a relay that carries less has smaller records and so appears more expensive. With a limit,
//! the middle relay carries the same in all runs, and the difference is the cost of windows. The last lines
//! print the ratio of bytes per second of processor time with windows to that without: the median of the ratios
//! within each round, and the ratio of the medians.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a probe for developers")]

use link::tls::TlsConfigs;
use link::{
    Clock, Driver, DriverOptions, IdentityIssuer, NodeThread, thread_cpu_time, unix_time_s,
};
use onion::circuit::NextHop;
use onion::client::{CircuitPlan, Client, Server, Transfer};
use onion::flow::control::{FlowFactory, TorFlows};
use onion::flow::hop::HopWindows;
use onion::identity::OwnIdentity;
use onion::router::schedule::SchedulerConfig;
use onion::router::{ExitConfig, ExitPolicy, RateLimit, Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::TcpListener;
use std::sync::Arc;

/// Time for circuits to open and windows to grow.
const WARM_UP: Duration = Duration::from_secs(2);

/// The burst of the limit.
const BURST: Duration = Duration::from_millis(20);

/// More bytes than a run downloads.
const ENDLESS: u64 = 1 << 40;

struct Setup {
    issuer: IdentityIssuer,
    relays: Vec<Arc<OwnIdentity>>,
    /// The limit of the middle relay.
    limit: Option<Rate>,
    unix_time_s: u64,
}

/// The results of the middle relay.
struct Run {
    rate: Rate,
    gbit_per_cpu_s: f64,
    /// The mean length of a TLS record that it has sent, in bytes, and the number of records that it has
    /// received per second.
    record_bytes: f64,
    received_per_s: f64,
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap());
    let mut argument = |usual| arguments.next().unwrap_or(usual);
    let (seconds, runs, circuits) = (argument(5), argument(3), argument(8));
    let jump = u32::try_from(argument(0)).unwrap();
    let limit = Some(argument(0)).filter(|limit| *limit > 0);
    let limit = limit.map(|mbit| Rate::from_bit_per_s(mbit * 1_000_000));
    let windows = match jump {
        0 => HopWindows::CircuitStartAgain,
        cells => HopWindows::JumpStart { cells },
    };
    let unix_time_s = unix_time_s();
    let mut issuer = IdentityIssuer::new([3; 32], unix_time_s).unwrap();
    let relays = (0..3).map(|_| Arc::new(issuer.identity().unwrap())).collect();
    let setup = Setup { issuer, relays, limit, unix_time_s };
    let kinds = [None, Some(windows), Some(HopWindows::Fixed { cells: 500 })];
    let mut figures = [const { Vec::new() }; 3];
    for run in 1..=runs {
        for (kind, figures) in kinds.iter().zip(&mut figures) {
            let found = measure(&setup, Duration::from_secs(seconds), circuits, *kind);
            let what = kind.map_or("no windows".to_owned(), |kind| format!("{kind:?}"));
            let (rate, gbit_per_cpu_s) = (found.rate.as_mbit_per_s(), found.gbit_per_cpu_s);
            let Run { record_bytes, received_per_s, .. } = found;
            println!(
                "run {run}: {what}: {rate:.0} Mbit/s, {gbit_per_cpu_s:.3} Gbit per CPU second; {record_bytes:.0} bytes in a record, {received_per_s:.0} records/s received"
            );
            figures.push(gbit_per_cpu_s);
        }
    }
    // Consecutive runs are close in time, so other load on the machine affects both.
    let [without, with, fixed] = &figures;
    let over = |some: &[f64]| {
        let mut ratios: Vec<f64> =
            some.iter().zip(without).map(|(some, none)| some / none).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: usize| ratios.get(ratios.len() * share / 4).copied().unwrap_or(f64::NAN);
        format!("{:.3} (quartiles {:.3} and {:.3})", at(2), at(1), at(3))
    };
    println!(
        "over the run without windows of the same round, median: with {}, fixed {}",
        over(with),
        over(fixed)
    );
    let [without, with, fixed] = figures.map(median);
    println!(
        "median: without {without:.3}, with {with:.3}, fixed {fixed:.3} Gbit per CPU second; ratio {:.3}, fixed {:.3}",
        with / without,
        fixed / without
    );
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn measure(setup: &Setup, length: Duration, circuits: u64, windows: Option<HopWindows>) -> Run {
    let flows = || -> Arc<dyn FlowFactory> {
        match windows {
            None => Arc::new(TorFlows),
            Some(windows) => Arc::new(windows.flows(SchedulerConfig::INTERVAL)),
        }
    };
    let (clock, usual) = (Clock::start(), DriverOptions::default());
    let tls = TlsConfigs::new(&setup.issuer).unwrap();
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = listen();
    let server_at = listener.local_addr().unwrap();
    let plain = DriverOptions { accepts_plain: true, ..usual };
    let server = Driver::new(Server::new(), clock, tls.clone(), vec![listener], plain).unwrap();
    let _server = NodeThread::start("server", Box::new(server), ()).unwrap();
    let (mut hops, mut relays) = (Vec::new(), Vec::new());
    for (number, identity) in (0..).zip(&setup.relays) {
        let listener = listen();
        hops.push(NextHop::to_own(identity, listener.local_addr().unwrap()));
        let mut config = RouterConfig::new(Arc::clone(identity), setup.unix_time_s);
        let policy = ExitPolicy::accept_all();
        config.exit = Some(ExitConfig { policy, ..ExitConfig::default() });
        config.flows = flows();
        let limit = setup.limit.filter(|_| number == 1);
        config.limit = limit.map(|rate| RateLimit { rate, burst_bytes: rate.bytes_in(BURST) });
        let router = Router::new(config, StdRng::from_seed([number; 32]), clock.now());
        let driver = Driver::new(router, clock, tls.clone(), vec![listener], usual).unwrap();
        relays.push(NodeThread::start(format!("relay {number}"), Box::new(driver), ()).unwrap());
    }
    let mut client = Client::new(setup.unix_time_s, StdRng::from_seed([9; 32]));
    client.set_flows(flows());
    for seed in 0..circuits {
        let now = clock.now();
        let circuit = client.open(now, &CircuitPlan::new(hops.clone()));
        client.begin(now, circuit, server_at.into(), Transfer::download(seed, ENDLESS));
    }
    let driver = Driver::new(client, clock, tls, vec![], usual).unwrap();
    let _client = NodeThread::start("client", Box::new(driver), ()).unwrap();
    let read = || {
        let middle = relays[1].handle();
        let figures = middle.call(|driver| {
            (
                thread_cpu_time(),
                driver.now(),
                driver.node().totals().client_bytes,
                *driver.traffic(),
            )
        });
        figures.unwrap()
    };
    wait(clock, clock.now() + WARM_UP);
    let (cpu, at, bytes, traffic) = read();
    wait(clock, at + length);
    let (cpu_after, at_after, bytes_after, traffic_after) = read();
    let (bytes, cpu_s) = (bytes_after - bytes, (cpu_after - cpu).as_secs_f64());
    let (rate, time_s) =
        (Rate::from_bytes_over(bytes, at_after - at), (at_after - at).as_secs_f64());
    let sent_bytes = traffic_after.sent_bytes - traffic.sent_bytes;
    let sent_records = traffic_after.sent_records - traffic.sent_records;
    let received_records = traffic_after.received_records - traffic.received_records;
    Run {
        rate,
        gbit_per_cpu_s: bytes as f64 * 8e-9 / cpu_s,
        record_bytes: sent_bytes as f64 / sent_records.max(1) as f64,
        received_per_s: received_records as f64 / time_s,
    }
}

fn wait(clock: Clock, until: Instant) {
    while clock.now() < until {
        std::thread::park_timeout(until - clock.now());
    }
}
