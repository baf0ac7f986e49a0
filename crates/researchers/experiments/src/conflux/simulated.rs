//! Downloads in virtual time: random bridges in each run, middles, an exit and a destination, over modelled paths.

mod transfers;

use super::failures::Failures;
use super::plan::{self, ConfluxSettings, Scene, Trial};
use crate::common::Session;
use crate::error::{Error, Result};
use link::IdentityIssuer;
use onion::circuit::NextHop;
use onion::client::{Client, Server};
use onion::identity::OwnIdentity;
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sim::wire::{NodeId, PathModel, Wire, WireConfig};
use std::net::SocketAddr;
use std::sync::Arc;

/// The maximum number of legs.
const LEGS_MAX: usize = 4;

/// The range of bridges' rates in Mbit/s in each direction; their logarithm is uniform.
const BRIDGE_MBIT: (f64, f64) = (2.0, 16.0);

/// The latencies from client to bridge, from bridge to middle, and from middle to exit, in milliseconds.
const LATENCY_MS: [(f64, f64); 3] = [(10.0, 60.0), (5.0, 40.0), (5.0, 40.0)];

/// The rate of a slow bridge in Mbit/s.
const SLOW_MBIT: f64 = 0.5;

/// The date of all certificates.
const UNIX_TIME_S: u64 = 1_700_000_000;

type Engine = Client<StdRng>;

/// Describes the bridges for the report.
pub(super) fn describe_bridges() -> String {
    let (least, most) = BRIDGE_MBIT;
    format!("{LEGS_MAX}, random in each run: {least} to {most} Mbit/s in each direction")
}

/// The bridge's rate and the latencies of a path to the exit.
#[derive(Clone, Copy, Debug)]
struct SimulatedLeg {
    rate: Rate,
    latencies: [Duration; 3],
}

impl SimulatedLeg {
    fn draw(rng: &mut StdRng) -> Self {
        let (least, most) = BRIDGE_MBIT;
        let mbit = (rng.random_range(least.ln()..most.ln())).exp();
        let latencies = LATENCY_MS
            .map(|(least, most)| Duration::from_secs_f64(rng.random_range(least..most) / 1e3));
        Self { rate: Rate::from_mbit_per_s(mbit), latencies }
    }
}

/// The identities of all relays, which are reused because generating RSA keys is slow.
pub(super) struct Identities {
    certificate: Vec<u8>,
    bridges: Vec<Arc<OwnIdentity>>,
    middles: Vec<Arc<OwnIdentity>>,
    exit: Arc<OwnIdentity>,
}

impl Identities {
    pub(super) fn new() -> Result<Self> {
        let mut issuer = IdentityIssuer::new([3; 32], UNIX_TIME_S)?;
        let certificates = issuer.tls_credentials()?.0;
        let certificate =
            certificates.first().map(|certificate| certificate.to_vec()).unwrap_or_default();
        let mut identity = || Ok::<_, Error>(Arc::new(issuer.identity()?));
        let bridges = (0..LEGS_MAX).map(|_| identity()).collect::<Result<_, _>>()?;
        let middles = (0..LEGS_MAX).map(|_| identity()).collect::<Result<_, _>>()?;
        Ok(Self { certificate, bridges, middles, exit: identity()? })
    }
}

/// The downloads of a run, each in a new world, so that none depends on another; `None` if the user has interrupted.
pub(super) fn run(
    settings: &ConfluxSettings,
    run: u32,
    identities: &Identities,
    session: Session<'_>,
) -> Result<Option<Vec<Trial>>> {
    let seed = settings.seed.wrapping_mul(1 << 20).wrapping_add(run.into());
    let mut rng = StdRng::seed_from_u64(seed);
    let routes: [SimulatedLeg; LEGS_MAX] = std::array::from_fn(|_| SimulatedLeg::draw(&mut rng));
    let mut trials = Vec::new();
    for scene in settings.scenes.iter().copied() {
        let routes = in_scene(routes, scene);
        for size_mb in settings.sizes_mb.iter().copied() {
            for method in settings.methods_in(scene) {
                if session.interrupt.is_requested() {
                    return Ok(None);
                }
                let mut world =
                    SimulatedBridges::new(identities, &routes, settings, scene, run.into())?;
                let seen = world.transfer(method, plan::bytes(size_mb));
                let capacity_mbit =
                    routes.iter().take(method.legs).map(|leg| leg.rate.as_mbit_per_s()).sum();
                trials.push(Trial { scene, method, size_mb, run, capacity_mbit, seen });
            }
        }
    }
    Ok(Some(trials))
}

/// The paths of a scene.
fn in_scene(mut routes: [SimulatedLeg; LEGS_MAX], scene: Scene) -> [SimulatedLeg; LEGS_MAX] {
    if scene == Scene::SlowBridge {
        routes[1].rate = Rate::from_mbit_per_s(SLOW_MBIT);
    }
    routes
}

/// A client, its paths to the exit, and a destination.
struct SimulatedBridges {
    wire: Wire,
    scene: Scene,
    seed: u64,
    client: NodeId,
    exit: NodeId,
    /// The bridge and the middle of each leg.
    links: Vec<(NodeId, NodeId)>,
    failures: Option<Failures>,
    /// The path of each leg of a set, by the leg's number.
    path_of: Vec<usize>,
    /// The most memory of the exit's queues and buffers so far.
    exit_peak_bytes: usize,
    /// Bridge, middle and exit of each leg.
    paths: Vec<Vec<NextHop>>,
    server_at: SocketAddr,
}

impl SimulatedBridges {
    fn new(
        identities: &Identities,
        routes: &[SimulatedLeg],
        plan: &ConfluxSettings,
        scene: Scene,
        seed: u64,
    ) -> Result<Self> {
        let mut wire = Wire::new(WireConfig { seed, ..WireConfig::default() });
        wire.set_all_paths(PathModel::default());
        let server = wire.add(Server::new());
        let server_at = SocketAddr::from(([10, 0, 0, 1], 80));
        wire.listen_plain(server, server_at).map_err(broken)?;
        let client = wire.add(Engine::new(UNIX_TIME_S, StdRng::seed_from_u64(seed)));
        let mut number: u8 = 0;
        let mut add = |wire: &mut Wire, identity: &Arc<OwnIdentity>, is_exit: bool| {
            number += 1;
            let mut config = RouterConfig::new(Arc::clone(identity), UNIX_TIME_S);
            if is_exit {
                let policy = ExitPolicy::accept_all();
                config.exit = Some(ExitConfig { policy, ..ExitConfig::default() });
                config.conflux_scheduler = plan.scheduler;
            }
            let rng = StdRng::seed_from_u64(seed.wrapping_mul(100).wrapping_add(number.into()));
            let node = wire.add(Router::new(config, rng, Instant::ORIGIN));
            let at = SocketAddr::from(([10, 1, 0, number], 9001));
            wire.listen(node, at, &identities.certificate).map_err(broken)?;
            Ok::<_, Error>((node, NextHop::to_own(identity, at)))
        };
        let (exit, exit_hop) = add(&mut wire, &identities.exit, true)?;
        let (mut paths, mut links) = (Vec::new(), Vec::new());
        for (route, (bridge, middle)) in
            routes.iter().zip(identities.bridges.iter().zip(&identities.middles))
        {
            let (bridge, bridge_hop) = add(&mut wire, bridge, false)?;
            let (middle, middle_hop) = add(&mut wire, middle, false)?;
            wire.set_egress(bridge, route.rate);
            wire.set_ingress(bridge, route.rate);
            let pairs = [(client, bridge), (bridge, middle), (middle, exit)];
            for ((one, other), latency) in pairs.into_iter().zip(route.latencies) {
                wire.set_path(one, other, PathModel { latency, ..PathModel::default() });
            }
            paths.push(vec![bridge_hop, middle_hop, exit_hop]);
            links.push((bridge, middle));
        }
        Ok(Self {
            wire,
            scene,
            seed,
            client,
            exit,
            links,
            failures: None,
            path_of: Vec::new(),
            exit_peak_bytes: 0,
            paths,
            server_at,
        })
    }
}

fn broken(error: sim::wire::WireError) -> Error {
    Error::Failed(format!("the simulated network cannot be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflux::plan::{ClientKind, ExitOf, Method};

    #[test]
    fn two_legs_over_equal_bridges_halve_the_time_and_runs_are_repeatable() {
        let plan = ConfluxSettings {
            runs: 1,
            sizes_mb: vec![2.0],
            scenes: vec![Scene::Bridges],
            methods: Vec::new(),
            is_simulated: true,
            scheduler: None,
            seed: 1,
        };
        let latencies = [20, 10, 10].map(Duration::from_millis);
        let routes = [SimulatedLeg { rate: Rate::from_mbit_per_s(6.0), latencies }; LEGS_MAX];
        let identities = Identities::new().expect("keys");
        let in_scene = |scene, who, legs| {
            let world = SimulatedBridges::new(&identities, &routes, &plan, scene, 1);
            let method = Method { who, exit: ExitOf::Ours, legs };
            world.expect("a world").transfer(method, 2_000_000).expect("whole")
        };
        let took = |who, legs| in_scene(Scene::Bridges, who, legs);
        let (one, two, again) =
            (took(ClientKind::Plain, 1), took(ClientKind::Ours, 2), took(ClientKind::Ours, 2));
        assert_eq!(two, again);
        assert!(two.took_s < 0.65 * one.took_s, "{one:?}, {two:?}");
        // No download is faster than its bridges.
        assert!(one.took_s > 2.0 * 8.0 / 6.0 && two.took_s > 2.0 * 8.0 / 12.0, "{one:?}, {two:?}");
        assert!(two.carried.iter().all(|carried| *carried > 1000), "{two:?}");
        assert!(two.client_early_peak > Some(0) && one.client_early_peak == Some(0));
        // The exit reorders uploads, and nothing else fills its queues then.
        let [one, two] = [1, 2].map(|legs| in_scene(Scene::Uploads, ClientKind::Ours, legs));
        assert!(two.exit_peak_kib > one.exit_peak_kib, "{one:?}, {two:?}");
    }

    #[test]
    fn transfers_over_failing_paths_complete_and_are_slower() {
        let plan = ConfluxSettings {
            runs: 1,
            sizes_mb: vec![10.0],
            scenes: vec![Scene::FailingPaths],
            methods: Vec::new(),
            is_simulated: true,
            scheduler: None,
            seed: 1,
        };
        let latencies = [20, 10, 10].map(Duration::from_millis);
        let routes = [SimulatedLeg { rate: Rate::from_mbit_per_s(2.0), latencies }; LEGS_MAX];
        let identities = Identities::new().expect("keys");
        // The sum over several seeds: with one, a path may lose no circuit during the transfer.
        let took = |scene, who, legs| {
            let method = Method { who, exit: ExitOf::Ours, legs };
            let one = |seed| {
                let world = SimulatedBridges::new(&identities, &routes, &plan, scene, seed);
                world.expect("a world").transfer(method, 10_000_000).expect("whole").took_s
            };
            (1..=4).map(one).sum::<f64>()
        };
        let [whole, failing] =
            [Scene::Bridges, Scene::FailingPaths].map(|scene| took(scene, ClientKind::Plain, 1));
        assert!(failing > whole + 5.0, "{whole} s, {failing} s with failures");
        let [ours, fragile] =
            [ClientKind::Ours, ClientKind::Fragile].map(|who| took(Scene::FailingPaths, who, 2));
        assert!(ours < fragile && ours < failing, "{ours}, {fragile}, {failing} s");
    }
}
