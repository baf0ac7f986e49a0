//! How fast virtual time passes: a network of relays with clients that download, over paths with loss
//! and narrow relays.
//!
//! `cargo run --release -p lab --example wire_speed -- [RELAYS] [CLIENTS] [SECONDS]`

use link::{Clock, Forge};
use onion::circuit::NextHop;
use onion::client::{CircuitPlan, Client, Server, Transfer};
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sim::wire::{PathModel, Wire, WireConfig};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

const UNIX_TIME_S: u64 = 1_700_000_000;

#[expect(clippy::print_stdout, reason = "an example that tells figures")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut number = |usual| numbers.next().unwrap_or(Ok(usual));
    let (relays, clients, seconds): (u64, u64, u64) = (number(100)?, number(200)?, number(10)?);
    let mut forge = Forge::new([3; 32], UNIX_TIME_S)?;
    let (certificates, _) = forge.tls_credentials()?;
    let mut wire = Wire::new(WireConfig::default());
    wire.set_all_paths(PathModel {
        latency: Duration::from_millis(25),
        loss_per_million: 100,
        ..PathModel::default()
    });
    let server_at = SocketAddr::from(([10, 0, 0, 1], 80));
    let server = wire.add(Server::new());
    wire.listen_plain(server, server_at)?;
    let mut hops = Vec::new();
    for place in 0..relays {
        let identity = Arc::new(forge.identity()?);
        let [.., high, low] = place.to_be_bytes();
        let at = SocketAddr::from(([10, 1, high, low], 9001));
        hops.push(NextHop::to_own(&identity, at));
        let mut config = RouterConfig::new(identity, UNIX_TIME_S);
        let policy = ExitPolicy::accept_all();
        config.exit = Some(ExitConfig { policy, ..ExitConfig::default() });
        let router = Router::new(config, ChaCha8Rng::seed_from_u64(place), Instant::ORIGIN);
        let node = wire.add(router);
        wire.listen(node, at, &certificates[0])?;
        wire.set_egress(node, Rate::from_mbit_per_s(20.0));
    }
    for place in 0..clients {
        let mut client = Client::new(UNIX_TIME_S, ChaCha8Rng::seed_from_u64(1_000_000 + place));
        let hop = |step: u64| {
            let number = (place * 7 + step * (relays / 3)) % relays;
            hops[usize::try_from(number).unwrap_or(0)]
        };
        let path = CircuitPlan {
            has_congestion_control: true,
            ..CircuitPlan::new(vec![hop(0), hop(1), hop(2)])
        };
        let circuit = client.open(Instant::ORIGIN, &path);
        let transfer = Transfer::download(place, u64::MAX / 2);
        client.begin(Instant::ORIGIN, circuit, server_at.into(), transfer);
        wire.add(client);
    }
    let clock = Clock::start();
    let until = Instant::ORIGIN + Duration::from_secs(seconds);
    let _ = wire.run_until(until, |_| false)?;
    let took = (clock.now() - Instant::ORIGIN).as_secs_f64();
    let steps = wire.steps() as f64;
    println!(
        "{relays} relays, {clients} clients: {seconds} s in {took:.2} s, {:.0} events, {:.0} events/s, \
         fingerprint {:016x}",
        steps,
        steps / took,
        wire.fingerprint()
    );
    Ok(())
}
