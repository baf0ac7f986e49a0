//! A private network of C tor relays with unequal rates, on three simulated continents or on loopback, and a server.

use crate::error::{Error, Result};
use crate::private_network as network;
use crate::testbed;
use crate::wan_site::enter;
use client::countries::Countries;
use client::probe::{self, ProbeServer};
use client::{Directories, NetDir};
use lab::wan::{HostSpec, Wan, WanPath, WanSpec};
use lab::{ContentServer, JoinedRelay, Network, NetworkSpec, RelaySpec, TemporaryFolder};
use link::unix_time_s;
use netdoc::RsaId;
use onion::{Duration, Rate};
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use terminal::Output;

const CLIENT: &str = "client";
const CORE: &str = "core";
/// The timeout of a consensus that lists all relays.
const PATIENCE: Duration = Duration::from_secs(150);

/// A point on a plane whose units are milliseconds.
#[derive(Clone, Copy)]
struct Position {
    x_ms: f64,
    y_ms: f64,
}

/// A relay: its country, its position, and its capacity in Mbit/s.
struct Place {
    country: &'static str,
    at: Position,
    mbit: f64,
}

const fn place(country: &'static str, x_ms: f64, y_ms: f64, mbit: f64) -> Place {
    Place { country, at: Position { x_ms, y_ms }, mbit }
}

/// Six in Europe, three in the United States, two in Japan. Rates are mixed over continents. A path within Europe without two relays of one
/// country needs three European countries.
const PLACES: [Place; 11] = [
    place("DE", 0.0, 0.0, 0.7),
    place("DE", 10.0, 4.0, 8.0),
    place("DE", 3.0, 12.0, 2.0),
    place("FR", -8.0, -9.0, 4.0),
    place("US", -45.0, 0.0, 16.0),
    place("US", -62.0, 8.0, 1.0),
    place("US", -55.0, -14.0, 4.0),
    place("JP", 85.0, 10.0, 0.7),
    place("JP", 92.0, 22.0, 8.0),
    place("NL", -6.0, -3.0, 2.0),
    place("GB", -12.0, -5.0, 1.0),
];
/// The client is in Germany, and so are authorities and server.
const CLIENT_AT: Position = Position { x_ms: 2.0, y_ms: 2.0 };
/// The one-way latency in addition to the distance.
const MIN_LATENCY_MS: f64 = 8.0;

/// A description of the relays.
pub(super) fn description() -> String {
    let all = PLACES.iter().map(|place| format!("{} {} Mbit/s", place.country, place.mbit));
    all.collect::<Vec<_>>().join(", ")
}

/// The one-way latency.
fn latency(a: Position, b: Position) -> Duration {
    let ms = MIN_LATENCY_MS + (a.x_ms - b.x_ms).hypot(a.y_ms - b.y_ms);
    Duration::from_secs_f64(ms / 1e3)
}

fn name(number: usize) -> String {
    format!("place{}", number + 1)
}

/// All processes of the experiment.
pub(super) struct SelectionNetwork {
    // The order of fields matters: processes are dropped before the hosts on which they run.
    relays: Vec<RsaId>,
    view: Arc<NetDir>,
    server: ProbeServer,
    joined: Vec<JoinedRelay>,
    network: Network,
    wan: Option<Wan>,
    _folder: TemporaryFolder,
}

impl SelectionNetwork {
    pub(super) fn start(is_flat: bool, seed: u64, output: &Output) -> Result<Self> {
        let wan = if is_flat { None } else { Some(start_wan(seed)?) };
        let folder = testbed::temporary_folder()?;
        let core = wan.as_ref().map(|wan| wan.host(CORE)).transpose()?;
        let address = core.map_or(Ipv4Addr::LOCALHOST, lab::wan::Host::address);
        // This thread moves from host to host. Processes and threads that it starts stay on the host where they were started.
        core.map_or(Ok(()), enter)?;
        let exit = |name: &str| RelaySpec::open_exit(name);
        let flat = || {
            let relay = |(number, place): (usize, &Place)| {
                exit(&name(number)).limited_to(Rate::from_mbit_per_s(place.mbit))
            };
            PLACES.iter().enumerate().map(relay).collect()
        };
        let relays = if is_flat { flat() } else { vec![exit("stockexit")] };
        let spec = NetworkSpec { address, ..NetworkSpec::new(relays) };
        let network = network::start(&spec, output)?;
        let server = ProbeServer::start((address, 0).into())?;
        let mut joined = Vec::new();
        if let Some(wan) = &wan {
            output.doing(format!("starting {} relays", PLACES.len()));
            joined = join_all(wan, &network)?;
        }
        let fingerprints: Vec<[u8; 20]> = match is_flat {
            true => network.relays().iter().map(lab::Node::rsa).collect(),
            false => joined.iter().map(JoinedRelay::rsa).collect(),
        };
        let relays: Vec<RsaId> =
            fingerprints.iter().map(|fingerprint| RsaId(*fingerprint)).collect();
        write_weights(&network, &relays)?;
        output.doing("waiting for the consensus that lists them with their weights");
        network.wait_until_known(&fingerprints, PATIENCE)?;
        for relay in &mut joined {
            relay.wait_until_it_knows(&fingerprints, PATIENCE)?;
        }
        if let Some(wan) = &wan {
            enter(wan.host(CLIENT)?)?;
        }
        let has_weights = |view: &NetDir| {
            let of = |(relay, place): (&RsaId, &Place)| {
                view.find(relay).is_some_and(|listed| listed.weight_kb_s == weight_kb_s(place))
            };
            relays.iter().zip(&PLACES).all(of)
        };
        let known = folder.path().join("client");
        let authorities = network.directory_addrs();
        let view = probe::learn(
            authorities,
            Directories::default(),
            [].into(),
            known,
            PATIENCE,
            has_weights,
            || false,
        )?;
        let view = Arc::new(view.only(|relay| relays.contains(&relay.fingerprint)));
        Ok(Self { relays, view, server, joined, network, wan, _folder: folder })
    }

    /// The relays as the client sees them, without authorities.
    pub(super) fn view(&self) -> &NetDir {
        &self.view
    }

    /// The view of the network, shared with other threads.
    pub(super) fn shared_view(&self) -> Arc<NetDir> {
        Arc::clone(&self.view)
    }

    /// Runs `body` on the host of the relay with this number (modulo their count), or here if everything is on loopback.
    pub(super) fn at_place<T: Send>(
        &self,
        number: usize,
        body: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        match &self.wan {
            Some(wan) => Ok(wan.host(&name(number % PLACES.len()))?.run(body)?),
            None => Ok(body()),
        }
    }

    /// The rate limit of each relay.
    pub(super) fn limits(&self) -> impl Iterator<Item = (&RsaId, Rate)> {
        self.relays.iter().zip(PLACES.iter().map(|place| Rate::from_mbit_per_s(place.mbit)))
    }

    /// Starts a server of pages on the host of a relay.
    pub(super) fn server_at(&self, number: usize) -> Result<ContentServer> {
        let name = name(number % PLACES.len());
        let host = self.wan.as_ref().map(|wan| wan.host(&name)).transpose()?;
        let address = host.map_or(Ipv4Addr::LOCALHOST, lab::wan::Host::address);
        self.at_place(number, || testbed::content_server(address))?
    }

    pub(super) const fn network(&self) -> &Network {
        &self.network
    }

    /// The relays, in the order of [`PLACES`].
    pub(super) fn relays(&self) -> &[RsaId] {
        &self.relays
    }

    /// The address of the download server.
    pub(super) const fn server(&self) -> SocketAddr {
        self.server.address()
    }

    /// The addresses of the authorities.
    pub(super) fn authorities(&self) -> Vec<SocketAddr> {
        self.network.directory_addrs()
    }

    /// The configured round trip between two relays; `None` without distances.
    pub(super) fn true_rtt(&self, a: &RsaId, b: &RsaId) -> Option<Duration> {
        self.wan.as_ref()?;
        let place =
            |relay| self.relays.iter().position(|other| other == relay).map(|at| PLACES[at].at);
        Some(latency(place(a)?, place(b)?) * 2)
    }

    /// The country of each address; `None` without distances, because all relays then have the same address.
    pub(super) fn countries(&self) -> Option<Arc<Countries>> {
        let wan = self.wan.as_ref()?;
        let mut text = String::new();
        for (number, place) in PLACES.iter().enumerate() {
            let address = wan.host(&name(number)).ok()?.address();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{address},{address},{}", place.country);
        }
        Countries::parse(&text).ok().map(Arc::new)
    }

    pub(super) fn stop(self) -> Result<()> {
        let Self { joined, network, wan, server, .. } = self;
        drop((joined, server));
        network.stop()?;
        drop(wan);
        Ok(())
    }
}

/// Starts a relay at each place, all in parallel: each call waits until its relay can build circuits.
fn join_all(wan: &Wan, network: &Network) -> Result<Vec<JoinedRelay>> {
    let start = |number: usize, place: &Place| {
        let host = wan.host(&name(number))?;
        enter(host)?;
        let bytes = Rate::from_mbit_per_s(place.mbit).as_byte_per_s();
        let extra = ["RelayBandwidthRate", "RelayBandwidthBurst"]
            .map(|what| format!("{what} {bytes} bytes"));
        let (nickname, at) = (name(number), host.address());
        Ok(JoinedRelay::start_with(network, &nickname, at, &extra, PATIENCE)?)
    };
    thread::scope(|scope| {
        let spawn = |(number, place)| scope.spawn(move || start(number, place));
        let threads: Vec<_> = PLACES.iter().enumerate().map(spawn).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(relay) => relay,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    })
}

/// Starts the hosts and the paths between them.
fn start_wan(seed: u64) -> Result<Wan> {
    let own = [(CLIENT.to_owned(), CLIENT_AT), (CORE.to_owned(), CLIENT_AT)];
    let places = PLACES.iter().enumerate().map(|(number, place)| (name(number), place.at));
    let all: Vec<(String, Position)> = own.into_iter().chain(places).collect();
    let hosts = (1..)
        .zip(&all)
        .map(|(number, (name, _))| HostSpec::new(name.clone(), Ipv4Addr::new(10, 77, 0, number)));
    let mut spec = WanSpec::new(hosts.collect()).with_seed(seed);
    for (from, a) in &all {
        for (to, b) in all.iter().filter(|(to, _)| to != from) {
            spec = spec.with_path(from, to, WanPath::with_latency(latency(*a, *b)));
        }
    }
    Ok(Wan::start(&spec)?)
}

fn weight_kb_s(place: &Place) -> u32 {
    let bytes_s = Rate::from_mbit_per_s(place.mbit).as_byte_per_s();
    u32::try_from(bytes_s / 1000).unwrap_or(u32::MAX)
}

/// Writes a bandwidth file with the relays' limits for the authorities, as from a measurement without errors.
fn write_weights(network: &Network, relays: &[RsaId]) -> Result<()> {
    let mut text = format!("{}\nversion=1.4.0\nsoftware=flashflow\n=====\n", unix_time_s());
    for (relay, place) in relays.iter().zip(&PLACES) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "node_id=${relay} bw={}", weight_kb_s(place));
    }
    let path = network.bandwidth_file_path();
    fs::write(&path, text).map_err(|source| Error::File { what: "write", path, source })
}
