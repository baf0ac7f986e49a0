//! A network of processes: C tor bridges in namespaces with limited links, C tor middles, exits of both kinds, and
//! clients of both kinds.

use super::plan::{ClientKind, ConfluxSettings, DownloadFigures, ExitOf, Method};
use crate::error::{Error, Result};
use crate::private_network as network;
use crate::testbed;
use crate::wan_site::enter;
use client::strategy::{Position, Strategy};
use client::{Choices, ClientProxy, Directories, Event, NetDir, RelayInfo, Settings};
use lab::wan::{Access, Bottleneck, HostSpec, Queue, Wan, WanPath, WanSpec};
use lab::{
    Client, Content, ContentServer, Download, JoinedRelay, Network, NetworkSpec, Node, OwnRelay,
    OwnRelaySpec, Pins, RelaySpec, TemporaryFolder, download,
};
use link::Clock;
use netdoc::RsaId;
use onion::{Duration, Rate};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use terminal::Output;

const CLIENT: &str = "client";
const CORE: &str = "core";

/// The number of bridges, and of middles.
pub(super) const BRIDGES: usize = 4;

/// The timeout for a consensus, and for the next byte of a download.
const PATIENCE: Duration = Duration::from_secs(150);

/// The pause before a retry.
const PAUSE: Duration = Duration::from_millis(500);

/// The queue limit of bridges' links.
const QUEUE: Duration = Duration::from_millis(100);

/// The link of a bridge: its rate in each direction, and its one-way latencies.
struct Place {
    mbit: f64,
    from_client_ms: u64,
    from_core_ms: u64,
}

const PLACES: [Place; BRIDGES] = [
    Place { mbit: 4.0, from_client_ms: 20, from_core_ms: 25 },
    Place { mbit: 12.0, from_client_ms: 45, from_core_ms: 30 },
    Place { mbit: 6.0, from_client_ms: 30, from_core_ms: 50 },
    Place { mbit: 8.0, from_client_ms: 15, from_core_ms: 20 },
];

/// Describes the bridges for the report.
pub(super) fn describe_bridges() -> String {
    let all = PLACES.iter().map(|place| {
        let rtt_ms = 2 * (place.from_client_ms + place.from_core_ms);
        format!("{} Mbit/s at {rtt_ms} ms", place.mbit)
    });
    all.collect::<Vec<_>>().join(", ")
}

fn bridge(number: usize) -> String {
    format!("bridge{}", number + 1)
}

/// Permits only these relays at each position.
#[derive(Clone, Debug)]
struct Only {
    guards: Vec<RsaId>,
    middles: Vec<RsaId>,
    exit: RsaId,
}

impl Strategy for Only {
    fn name(&self) -> &'static str {
        "only"
    }

    fn weight(&self, _: &NetDir, _: &RelayInfo, _: Position, _: &[&RelayInfo]) -> f64 {
        1.0
    }

    fn admits(&self, _: &NetDir, relay: &RelayInfo, position: Position, _: &[&RelayInfo]) -> bool {
        match position {
            Position::Guard => self.guards.contains(&relay.fingerprint),
            Position::Middle => self.middles.contains(&relay.fingerprint),
            Position::Exit => self.exit == relay.fingerprint,
        }
    }
}

/// Our client for one method.
struct OurClient {
    method: Method,
    proxy: ClientProxy,
    events: Receiver<Event>,
}

/// All processes of the experiment.
pub(super) struct BridgeNetwork {
    // Fields are dropped in this order: processes before their hosts.
    ours: Vec<OurClient>,
    tor: Client,
    /// The C tor client that links circuits, if a method uses it.
    linked_tor: Option<Client>,
    server: ContentServer,
    exit: OwnRelay,
    bridges: Vec<JoinedRelay>,
    network: Network,
    wan: Wan,
    folder: TemporaryFolder,
    /// The first bridge of the running clients.
    first: Option<usize>,
    downloads: u64,
}

impl BridgeNetwork {
    pub(super) fn start(plan: &ConfluxSettings, output: &Output) -> Result<Self> {
        let wan = start_wan(plan.seed)?;
        // The folder's keeper starts outside of all hosts.
        let folder = testbed::temporary_folder()?;
        // Processes and threads start in the namespace that this thread has entered.
        let core = wan.host(CORE)?;
        enter(core)?;
        let exit = RelaySpec::open_exit("stockexit");
        let middles = (1..=BRIDGES).map(|number| RelaySpec::new(&format!("middle{number}")));
        let spec = NetworkSpec {
            bandwidth_file: false,
            address: core.address(),
            ..NetworkSpec::new(middles.chain([exit]).collect())
        };
        let network = network::start(&spec, output)?;
        let server = testbed::content_server(core.address())?;
        output.doing("starting our exit");
        let spec = testbed::open_exit("oursexit", &network, core.address())?;
        let spec = OwnRelaySpec { links_circuits: true, ..spec };
        let exit = OwnRelay::start(spec, folder.path(), Clock::start())?;
        let mut bridges = Vec::new();
        for number in 0..BRIDGES {
            output.doing(format!("starting bridge {} of {BRIDGES}", number + 1));
            let host = wan.host(&bridge(number))?;
            enter(host)?;
            bridges.push(JoinedRelay::start(&network, &bridge(number), host.address(), PATIENCE)?);
        }
        output.doing("waiting for the consensus that lists them");
        enter(wan.host(CORE)?)?;
        let joined: Vec<[u8; 20]> =
            bridges.iter().map(JoinedRelay::rsa).chain([exit.rsa()]).collect();
        testbed::wait_until_known(&network, &joined, [&exit], PATIENCE)?;
        output.doing("starting the C tor client");
        enter(wan.host(CLIENT)?)?;
        let known = testbed::all_relays(&network, &joined);
        // Plain Tor is one circuit.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let tor = Client::start(&network, "client", &extra, &known, PATIENCE)?;
        let extra = ["ConfluxEnabled 1", "ConfluxClientUX throughput"].map(str::to_owned);
        let has_linked = plan.methods.iter().any(|method| method.who == ClientKind::TorLinked);
        let linked_tor = has_linked
            .then(|| Client::start(&network, "linkedclient", &extra, &known, PATIENCE))
            .transpose()?;
        Ok(Self {
            ours: Vec::new(),
            tor,
            linked_tor,
            server,
            exit,
            bridges,
            network,
            wan,
            folder,
            first: None,
            downloads: 0,
        })
    }

    fn first(&self) -> usize {
        self.first.unwrap_or_default()
    }

    /// Whether the running clients have another first bridge.
    pub(super) fn needs_clients(&self, first: usize) -> bool {
        self.first != Some(first)
    }

    /// Makes the first leg use this bridge, and further legs those that follow it. Starts our clients for each method,
    /// and waits until all methods can download.
    pub(super) fn start_clients(&mut self, plan: &ConfluxSettings, first: usize) -> Result<()> {
        self.first = Some(first);
        let started = self.try_start_clients(plan, first);
        if started.is_err() {
            // The next run starts them again.
            self.first = None;
        }
        started
    }

    fn try_start_clients(&mut self, plan: &ConfluxSettings, first: usize) -> Result<()> {
        self.ours.clear();
        let [entry, middle, exit] = self.c_tor_path();
        if let Some(linked) = &mut self.linked_tor {
            let bridges = self.bridges.iter().cycle().skip(first).take(2);
            let entry = bridges.map(JoinedRelay::rsa).collect();
            linked.pin(&Pins { entry, middle: middle.clone(), exit: exit.clone() })?;
        }
        self.tor.pin(&Pins { entry, middle, exit })?;
        for method in plan.methods.iter().copied().filter(|method| method.who == ClientKind::Ours) {
            let folder = format!("{}-legs-{}-bridge-{first}", method.legs, method.exit.name());
            let settings = Settings {
                choices: Choices {
                    legs: method.legs,
                    strategy: Box::new(self.only(method)),
                    ..Choices::default()
                },
                // Keeps directory traffic off the bridges' links.
                directories: Directories::default(),
                ..Settings::new(self.network.directory_addrs(), self.folder.path().join(folder))
            };
            let (sender, events) = channel();
            let proxy = ClientProxy::start(settings, sender)
                .map_err(|error| Error::Clients(error.to_string()))?;
            self.ours.push(OurClient { method, proxy, events });
        }
        // Our exit accepts streams only from relays in its own consensus.
        let clock = Clock::start();
        let deadline = clock.now() + PATIENCE;
        for method in plan.methods.iter().copied() {
            while let Err(problem) = self.download(method, Content { len: 1, seed: 1 })? {
                if clock.now() > deadline {
                    return Err(Error::Clients(format!("{method}: {problem}")));
                }
                thread::park_timeout(PAUSE);
            }
        }
        Ok(())
    }

    /// Downloads over unused circuits. The outer error is one of the network, the inner one is that of the download.
    pub(super) fn download(
        &mut self,
        method: Method,
        content: Content,
    ) -> Result<Result<DownloadFigures, String>> {
        self.downloads += 1;
        let isolation = self.downloads.to_string();
        let server = self.server.address();
        if let (ClientKind::TorLinked, Some(tor)) = (method.who, &mut self.linked_tor) {
            return linked(tor, server, content, &isolation);
        }
        if method.who != ClientKind::Ours {
            // Discards earlier paths.
            self.tor.used_paths()?;
            let done = warmed(self.tor.socks(), server, content, &isolation);
            let [entry, _, exit] = self.c_tor_path();
            let is_it =
                |path: &Vec<[u8; 20]>| path.first() == entry.first() && path.last() == exit.first();
            let used = self.tor.used_paths()?;
            // Events of the previous download may be among them.
            if done.is_ok() && !used.iter().any(is_it) {
                return Ok(Err(format!("the download took another path: {used:02x?}")));
            }
            return Ok(done.map(|done| figures(&done, Vec::new())));
        }
        let Some(client) = self.ours.iter().find(|client| client.method == method) else {
            return Ok(Err("there is no such client".to_owned()));
        };
        client.events.try_iter().for_each(drop);
        let done = warmed(client.proxy.socks(), server, content, &isolation);
        Ok(done.and_then(|done| Ok(figures(&done, client.carried(content.len)?))))
    }

    /// The total rate of the bridges that a method uses now.
    pub(super) fn capacity_mbit(&self, method: Method) -> f64 {
        PLACES.iter().cycle().skip(self.first()).take(method.legs).map(|place| place.mbit).sum()
    }

    /// The relays that C tor clients may use at each position.
    fn c_tor_path(&self) -> [Vec<[u8; 20]>; 3] {
        let entry = vec![self.bridges[self.first()].rsa()];
        let relays = self.network.relays();
        let middle = relays.iter().take(BRIDGES).map(Node::rsa).collect();
        let exit = relays.iter().skip(BRIDGES).map(Node::rsa).collect();
        [entry, middle, exit]
    }

    fn only(&self, method: Method) -> Only {
        let known = |all: Vec<[u8; 20]>| all.into_iter().map(RsaId).collect();
        let bridges = self.bridges.iter().cycle().skip(self.first()).take(method.legs);
        let [_, middles, exits] = self.c_tor_path();
        let exit = match method.exit {
            ExitOf::Ours => self.exit.rsa(),
            ExitOf::Tor => exits.first().copied().unwrap_or_default(),
        };
        let exit = RsaId(exit);
        Only {
            guards: known(bridges.map(JoinedRelay::rsa).collect()),
            middles: known(middles),
            exit,
        }
    }

    pub(super) fn stop(self) -> Result<()> {
        let Self { ours, tor, linked_tor, server, exit, bridges, network, wan, .. } = self;
        drop((ours, tor, linked_tor, server, exit, bridges));
        network.stop()?;
        drop(wan);
        Ok(())
    }
}

impl OurClient {
    /// The messages of the latest download on each leg, once its end is reported.
    fn carried(&self, bytes: u64) -> Result<Vec<u64>, String> {
        let legs = loop {
            match self.events.recv_timeout(PATIENCE) {
                // The stream before it carried one byte.
                Ok(Event::StreamClosed { legs, received_bytes, .. }) if received_bytes >= bytes => {
                    break legs;
                }
                Ok(_) => {}
                Err(error) => return Err(format!("the stream was not reported: {error}")),
            }
        };
        let linked = legs.len().max(1);
        if linked != self.method.legs {
            return Err(format!("the download used {linked} circuits"));
        }
        Ok(legs.iter().map(|leg| leg.received_messages).collect())
    }
}

/// Downloads over a circuit of its own that has carried one byte before.
fn warmed(
    socks: SocketAddr,
    server: SocketAddr,
    content: Content,
    isolation: &str,
) -> Result<Download, String> {
    whole(socks, server, Content { len: 1, seed: 0 }, isolation)?;
    whole(socks, server, content, isolation)
}

fn whole(
    socks: SocketAddr,
    server: SocketAddr,
    content: Content,
    isolation: &str,
) -> Result<Download, String> {
    let from = (&*server.ip().to_string(), server.port());
    let done = download(socks, from, content, isolation, PATIENCE);
    let done = done.map_err(|error| error.to_string())?;
    if done.is_right { Ok(done) } else { Err(format!("{} bytes arrived", done.received)) }
}

/// Downloads by C tor over linked circuits. C tor uses a single circuit while it has no linked set, so this retries
/// with other isolation until it has one.
fn linked(
    tor: &mut Client,
    server: SocketAddr,
    content: Content,
    isolation: &str,
) -> Result<Result<DownloadFigures, String>> {
    let clock = Clock::start();
    for attempt in 0.. {
        let isolation = format!("{isolation}-{attempt}");
        // Discards earlier events.
        tor.events()?;
        let byte = whole(tor.socks(), server, Content { len: 1, seed: 0 }, &isolation);
        if let Err(problem) = byte {
            return Ok(Err(problem));
        }
        if is_linked(tor)? {
            let done = whole(tor.socks(), server, content, &isolation);
            return Ok(done.map(|done| figures(&done, Vec::new())));
        }
        if clock.now() > onion::Instant::ORIGIN + PATIENCE {
            break;
        }
        thread::park_timeout(PAUSE);
    }
    Ok(Err("C tor has no linked circuits".to_owned()))
}

/// Whether the circuit of a recent stream belongs to a linked set.
fn is_linked(tor: &mut Client) -> Result<bool> {
    let events = tor.events()?;
    // "STREAM 12 SUCCEEDED 7 127.0.0.1:80"
    let used = events.iter().filter_map(|text| text.strip_prefix("STREAM "));
    let used = used.filter_map(|text| text.split_once(" SUCCEEDED ")?.1.split(' ').next());
    let used: Vec<String> = used.map(|id| format!("{id} ")).collect();
    let status = tor.control().get_info("circuit-status");
    let status = status.map_err(|error| Error::Clients(format!("C tor: {error}")))?;
    let is_of_a_set = |line: &str| line.contains("PURPOSE=CONFLUX_LINKED");
    Ok(status.lines().any(|line| is_of_a_set(line) && used.iter().any(|id| line.starts_with(id))))
}

fn figures(done: &Download, carried: Vec<u64>) -> DownloadFigures {
    let (took_s, first_byte_s) = (done.took.as_secs_f64(), done.to_first_byte.as_secs_f64());
    DownloadFigures { took_s, first_byte_s, carried, ..DownloadFigures::default() }
}

/// Starts the hosts and the paths between them.
fn start_wan(seed: u64) -> Result<Wan> {
    let host = |name: &str, at| HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at));
    let mut hosts = vec![host(CLIENT, 1), host(CORE, 2)];
    for (at, (number, place)) in (3..).zip(PLACES.iter().enumerate()) {
        let narrow =
            Bottleneck { rate: Rate::from_mbit_per_s(place.mbit), queue: Queue::Time(QUEUE) };
        hosts.push(host(&bridge(number), at).with_access(Access::both(narrow)));
    }
    let both = |spec: WanSpec, one: &str, other: &str, ms: u64| {
        let path = WanPath::with_latency(Duration::from_millis(ms));
        spec.with_path(one, other, path).with_path(other, one, path)
    };
    // Clients fetch directory documents from the core.
    let mut spec = both(WanSpec::new(hosts).with_seed(seed), CLIENT, CORE, 20);
    for (number, place) in PLACES.iter().enumerate() {
        spec = both(spec, CLIENT, &bridge(number), place.from_client_ms);
        spec = both(spec, CORE, &bridge(number), place.from_core_ms);
    }
    Ok(Wan::start(&spec)?)
}
