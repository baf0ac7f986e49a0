//! The circuit of the traces with whole routers in virtual time: links and cells as they are, over a model of TCP (`sim::wire`).

use super::Begin;
use super::chain::{Chain, RELAYS, Sizes, median_cells, reached};
use super::model::new_optimum;
use super::noted::{NotedFlows, Notes};
use link::Forge;
use onion::cell::CELL_LEN;
use onion::circuit::NextHop;
use onion::client::{CircuitPlan, Client, Server, Transfer};
use onion::router::schedule::SchedulerConfig;
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sim::wire::{NodeId, PathModel, Wire, WireConfig};
use std::net::SocketAddr;
use std::sync::Arc;

/// The date of all certificates.
const UNIX_TIME_S: u64 = 1_700_000_000;

/// More than is downloaded.
const ENDLESS: u64 = 1 << 40;

/// A stream's window is half of its circuit's: so many fill it.
const STREAMS: u64 = 2;

/// How long the narrow place is narrow, and how long it is twice as wide then.
const NARROW_FOR: Duration = Duration::from_secs(2);
const WIDENED_FOR: Duration = Duration::from_secs(2);

fn chain(distance: usize) -> Chain {
    Chain {
        distance,
        narrow_cells_per_s: 2_500.0,
        wide_cells_per_s: 25_000.0,
        delay: Duration::from_millis(5),
        grain: SchedulerConfig::INTERVAL,
    }
}

/// Limits what a host sends and receives.
fn limit(wire: &mut Wire, node: NodeId, cells_per_s: f64) {
    let rate = Rate::from_mbit_per_s(cells_per_s * CELL_LEN as f64 * 8.0 / 1e6);
    wire.set_egress(node, rate);
    wire.set_ingress(node, rate);
}

/// The source's window, since it began, and when the narrow place became twice as wide.
fn play(chain: &Chain) -> (Sizes, Instant) {
    let mut wire = Wire::new(WireConfig { seed: 1, ..WireConfig::default() });
    wire.set_all_paths(PathModel { latency: 2 * chain.delay, ..PathModel::default() });
    let mut forge = Forge::new([3; 32], UNIX_TIME_S).expect("a key");
    let certificate = forge.tls_credentials().expect("encoded").0[0].to_vec();
    let flows = Begin::Again.windows().flows(chain.grain);
    let notes = Notes::default();
    let (mut nodes, mut hops) = (Vec::new(), Vec::new());
    for place in 0..=RELAYS {
        let identity = Arc::new(forge.identity().expect("keys"));
        let at = SocketAddr::from(([10, 0, 0, 1], 5_000 + u16::try_from(place).expect("few")));
        hops.push(NextHop::to_own(&identity, at));
        let config = RouterConfig::new(identity, UNIX_TIME_S);
        let config = match place {
            0 => RouterConfig {
                flows: Arc::new(NotedFlows { flows, notes: notes.clone() }),
                exit: Some(ExitConfig { policy: ExitPolicy::accept_all(), ..ExitConfig::default() }),
                ..config
            },
            _ => RouterConfig { flows: Arc::new(flows), ..config },
        };
        let router = Router::new(config, StdRng::seed_from_u64(place as u64), wire.now());
        let node = wire.add(router);
        wire.listen(node, at, &certificate).expect("free");
        nodes.push(node);
    }
    let server_at = SocketAddr::from(([10, 0, 0, 2], 80));
    let server = wire.add(Server::new());
    wire.listen_plain(server, server_at).expect("free");
    let mut client = Client::new(UNIX_TIME_S, StdRng::seed_from_u64(100));
    client.set_flows(Arc::new(flows));
    let client = wire.add(client);
    nodes.push(client);
    for (place, node) in nodes.iter().enumerate() {
        let is_narrow = place == chain.distance;
        let rate = if is_narrow { chain.narrow_cells_per_s } else { chain.wide_cells_per_s };
        limit(&mut wire, *node, rate);
    }
    hops.reverse();
    let now = wire.now();
    let it = wire.node_mut::<Client<StdRng>>(client).expect("a client");
    let circuit = it.open(now, &CircuitPlan::new(hops));
    for seed in 0..STREAMS {
        it.begin(now, circuit, server_at.into(), Transfer::download(seed, ENDLESS));
    }
    let soon = now + Duration::from_secs(60);
    wire.run_until(soon, |_| notes.count() > 0).expect("it goes on");
    let (begun, _) = notes.latest().expect("a window");
    wire.run_until(begun + NARROW_FOR, |_| false).expect("it goes on");
    limit(&mut wire, nodes[chain.distance], chain.doubled().narrow_cells_per_s);
    wire.run_until(begun + NARROW_FOR + WIDENED_FOR, |_| false).expect("it goes on");
    let (_, sizes) = notes.latest().expect("a window");
    (sizes, Instant::ORIGIN + NARROW_FOR)
}

#[test]
fn whole_routers_find_a_place_that_becomes_twice_as_wide_within_five_round_trips() {
    for distance in 1..=RELAYS {
        let chain = chain(distance);
        let (sizes, widened_at) = play(&chain);
        let before = median_cells(&sizes, Instant::ORIGIN + NARROW_FOR / 2, widened_at);
        let took = reached(&sizes, widened_at, new_optimum(&chain));
        eprintln!("{distance}: optimum {:.1} before {before:?} took {took:?} of {:?}", chain.optimal_cells(), chain.round_trip());
        for (at, size) in &sizes { eprintln!("  {at} {size}"); }
    }
}
