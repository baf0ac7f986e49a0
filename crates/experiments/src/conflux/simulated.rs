//! The same in virtual time: bridges that each run draws, middles, an exit and a destination, over modelled paths.

use super::plan::{self, ClientKind, ConfluxSettings, DownloadFigures, Method, Trial};
use crate::common::Session;
use crate::error::{Error, Result};
use link::IdentityIssuer;
use onion::circuit::NextHop;
use onion::client::{
    CircuitNumber, CircuitPlan, Client, ClientEvent, Outcome, Server, SetPlan, StreamNumber,
    Transfer,
};
use onion::identity::OwnIdentity;
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sim::wire::{Ended, NodeId, PathModel, Wire, WireConfig};
use std::net::SocketAddr;
use std::sync::Arc;

/// Legs at most.
const WAYS: usize = 4;

/// What bridges carry, each way, in Mbit/s; drawn so that equal ratios are as likely.
const BRIDGE_MBIT: (f64, f64) = (2.0, 16.0);

/// Time from client to bridge, from bridge to middle, and from middle to exit, in milliseconds.
const LATENCY_MS: [(f64, f64); 3] = [(10.0, 60.0), (5.0, 40.0), (5.0, 40.0)];

/// More than any download takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// The date of all certificates.
const UNIX_TIME_S: u64 = 1_700_000_000;

type Engine = Client<StdRng>;

/// Bridges in words.
pub(super) fn described() -> String {
    let (least, most) = BRIDGE_MBIT;
    format!("{WAYS}, drawn in each run: {least} to {most} Mbit/s each way")
}

/// The middle and the bridge of one way to the exit.
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

/// Identities, made once: their RSA keys take time.
struct Identities {
    certificate: Vec<u8>,
    bridges: Vec<Arc<OwnIdentity>>,
    middles: Vec<Arc<OwnIdentity>>,
    exit: Arc<OwnIdentity>,
}

impl Identities {
    fn new() -> Result<Self> {
        let mut issuer = IdentityIssuer::new([3; 32], UNIX_TIME_S)?;
        let certificates = issuer.tls_credentials()?.0;
        let certificate = certificates.first().map(|it| it.to_vec()).unwrap_or_default();
        let mut identity = || Ok::<_, Error>(Arc::new(issuer.identity()?));
        let bridges = (0..WAYS).map(|_| identity()).collect::<Result<_, _>>()?;
        let middles = (0..WAYS).map(|_| identity()).collect::<Result<_, _>>()?;
        Ok(Self { certificate, bridges, middles, exit: identity()? })
    }
}

/// All downloads; a world of its own for each, so that none has what another has warmed.
pub(super) fn play(plan: &ConfluxSettings, session: Session<'_>) -> Result<Vec<Trial>> {
    let Session { output, interrupt, .. } = session;
    let cast = Identities::new()?;
    let mut trials = Vec::new();
    for run in 1..=plan.runs {
        output.doing(format!("run {run} of {}", plan.runs));
        let mut rng =
            StdRng::seed_from_u64(plan.seed.wrapping_mul(1 << 20).wrapping_add(run.into()));
        let ways: [SimulatedLeg; WAYS] = std::array::from_fn(|_| SimulatedLeg::draw(&mut rng));
        for size_mb in plan.sizes_mb.iter().copied() {
            for method in plan.methods.iter().copied() {
                if interrupt.is_requested() {
                    return Ok(trials);
                }
                let mut world = SimulatedBridges::new(&cast, &ways, plan, run.into())?;
                let seen = world.download(method, plan::bytes(size_mb));
                let capacity_mbit =
                    ways.iter().take(method.legs).map(|it| it.rate.as_mbit_per_s()).sum();
                trials.push(Trial { method, size_mb, run, capacity_mbit, seen });
            }
        }
    }
    Ok(trials)
}

/// A client, its ways to the exit, and a destination.
struct SimulatedBridges {
    wire: Wire,
    client: NodeId,
    /// Bridge, middle and exit of each way.
    paths: Vec<Vec<NextHop>>,
    server_at: SocketAddr,
}

impl SimulatedBridges {
    fn new(
        cast: &Identities,
        ways: &[SimulatedLeg],
        plan: &ConfluxSettings,
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
            wire.listen(node, at, &cast.certificate).map_err(broken)?;
            Ok::<_, Error>((node, NextHop::to_own(identity, at)))
        };
        let (exit, exit_hop) = add(&mut wire, &cast.exit, true)?;
        let mut paths = Vec::new();
        for (way, (bridge, middle)) in ways.iter().zip(cast.bridges.iter().zip(&cast.middles)) {
            let (bridge, bridge_hop) = add(&mut wire, bridge, false)?;
            let (middle, middle_hop) = add(&mut wire, middle, false)?;
            wire.set_egress(bridge, way.rate);
            wire.set_ingress(bridge, way.rate);
            let pairs = [(client, bridge), (bridge, middle), (middle, exit)];
            for ((one, other), latency) in pairs.into_iter().zip(way.latencies) {
                wire.set_path(one, other, PathModel { latency, ..PathModel::default() });
            }
            paths.push(vec![bridge_hop, middle_hop, exit_hop]);
        }
        Ok(Self { wire, client, paths, server_at })
    }

    /// Builds the circuits, sends something over them, and then downloads.
    fn download(&mut self, method: Method, bytes: u64) -> Result<DownloadFigures, String> {
        let circuit = self.open(method);
        let is_built = |wire: &Wire, client| {
            wire.node::<Engine>(client).is_some_and(|it| it.is_built(circuit))
        };
        self.until("circuits are open", is_built)?;
        let first = self.begin(circuit, Transfer::download(1, 1));
        self.over(first)?;
        let stream = self.begin(circuit, Transfer::download(2, bytes));
        let figures = self.over(stream)?;
        let client = self.wire.node::<Engine>(self.client);
        let legs = client.map(|it| it.legs(circuit)).unwrap_or_default();
        if method.who == ClientKind::Ours && legs.len() != method.legs {
            return Err(format!("{} legs were linked", legs.len()));
        }
        Ok(DownloadFigures {
            took_s: figures.to_last().as_secs_f64(),
            first_byte_s: figures.to_first_byte().map_or(f64::NAN, |it| it.as_secs_f64()),
            carried: legs.iter().map(|leg| leg.received).collect(),
        })
    }

    fn open(&mut self, method: Method) -> CircuitNumber {
        let path = |hops: &Vec<NextHop>| CircuitPlan {
            has_congestion_control: method.who != ClientKind::Fixed,
            ..CircuitPlan::new(hops.clone())
        };
        let legs: Vec<CircuitPlan> = self.paths.iter().take(method.legs).map(path).collect();
        let now = self.wire.now();
        let client = self.client_mut();
        match (method.who, legs.first()) {
            (
                ClientKind::Plain | ClientKind::Fixed | ClientKind::Tor | ClientKind::TorLinked,
                Some(only),
            ) => client.open(now, only),
            _ => client.open_set(now, &SetPlan::new(legs)),
        }
    }

    fn begin(&mut self, circuit: CircuitNumber, transfer: Transfer) -> StreamNumber {
        let (now, to) = (self.wire.now(), self.server_at);
        self.client_mut().begin(now, circuit, to.into(), transfer)
    }

    /// How a transfer went, once it is over.
    fn over(&mut self, stream: StreamNumber) -> Result<onion::client::Figures, String> {
        let is_over = |wire: &Wire, client| {
            wire.node::<Engine>(client).is_none_or(|it| it.figures(stream).is_none())
        };
        self.until("the download is over", is_over)?;
        let client = self.client_mut();
        let mut why = "it is over, and nobody says how".to_owned();
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Over { stream: it, outcome: Outcome::Complete, figures }
                    if it == stream =>
                {
                    return Ok(figures);
                }
                ClientEvent::Over { stream: it, outcome, .. } if it == stream => {
                    why = outcome.to_string();
                }
                ClientEvent::Lost { cause, .. } => why = cause.to_string(),
                _ => {}
            }
        }
        Err(why)
    }

    fn until(&mut self, what: &str, is_done: impl Fn(&Wire, NodeId) -> bool) -> Result<(), String> {
        let (deadline, client) = (self.wire.now() + PATIENCE, self.client);
        match self.wire.run_until(deadline, |wire| is_done(wire, client)) {
            Ok(Ended::Satisfied) => Ok(()),
            Ok(ended) => Err(format!("before {what}: {ended:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The client for its commands.
    fn client_mut(&mut self) -> &mut Engine {
        self.wire.node_mut(self.client).expect("a client was put there")
    }
}

fn broken(error: sim::wire::WireError) -> Error {
    Error::Failed(format!("the simulated network cannot be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflux::plan::ExitOf;

    /// Where two ways are alike, two legs take little more than half the time of one, and the same seed gives the same run.
    #[test]
    fn two_legs_over_like_bridges_halve_the_time_and_runs_are_repeatable() {
        let plan = ConfluxSettings {
            runs: 1,
            sizes_mb: vec![2.0],
            methods: Vec::new(),
            is_simulated: true,
            scheduler: None,
            seed: 1,
        };
        let latencies = [20, 10, 10].map(Duration::from_millis);
        let ways = [SimulatedLeg { rate: Rate::from_mbit_per_s(6.0), latencies }; WAYS];
        let cast = Identities::new().expect("keys");
        let took = |who, legs| {
            let mut world = SimulatedBridges::new(&cast, &ways, &plan, 1).expect("a world");
            let method = Method { who, exit: ExitOf::Ours, legs };
            world.download(method, 2_000_000).expect("whole")
        };
        let (one, two, again) =
            (took(ClientKind::Plain, 1), took(ClientKind::Ours, 2), took(ClientKind::Ours, 2));
        assert_eq!(two, again);
        assert!(two.took_s < 0.65 * one.took_s, "{one:?}, {two:?}");
        // What passes the bridge cannot come sooner than it passes.
        assert!(one.took_s > 2.0 * 8.0 / 6.0 && two.took_s > 2.0 * 8.0 / 12.0, "{one:?}, {two:?}");
        assert!(two.carried.iter().all(|carried| *carried > 1000), "{two:?}");
    }
}
