//! Stock bridges at hosts of their own, with links that are narrow; middles and exits, ours among them; a stock client and ours.

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
use netdoc::Fingerprint;
use onion::{Duration, Rate};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use terminal::Output;

const CLIENT: &str = "client";
const CORE: &str = "core";

/// How many bridges there are, and middles.
pub(super) const BRIDGES: usize = 4;

/// Far more than a consensus takes; and a byte of a download has to come at least this often.
const PATIENCE: Duration = Duration::from_secs(150);

/// Between two tries of what does not work yet.
const PAUSE: Duration = Duration::from_millis(500);

/// What may wait at a narrow place.
const QUEUE: Duration = Duration::from_millis(100);

/// A bridge: what its link carries each way in Mbit/s, and how far it is, one way, from the client and from all others.
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

/// The bridges in words.
pub(super) fn described() -> String {
    let all = PLACES.iter().map(|it| {
        let rtt_ms = 2 * (it.from_client_ms + it.from_core_ms);
        format!("{} Mbit/s at {rtt_ms} ms", it.mbit)
    });
    all.collect::<Vec<_>>().join(", ")
}

fn bridge(number: usize) -> String {
    format!("bridge{}", number + 1)
}

/// Only these relays, each at its position.
#[derive(Clone, Debug)]
struct Only {
    guards: Vec<Fingerprint>,
    middles: Vec<Fingerprint>,
    exit: Fingerprint,
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

/// Our client that downloads in one way.
struct OurClient {
    method: Method,
    proxy: ClientProxy,
    events: Receiver<Event>,
}

/// All processes of the experiment.
pub(super) struct BridgeNetwork {
    // In this order: what runs at the hosts ends before they do.
    ours: Vec<OurClient>,
    tor: Client,
    /// The one that links circuits, if it has a part.
    linked_tor: Option<Client>,
    server: ContentServer,
    exit: OwnRelay,
    bridges: Vec<JoinedRelay>,
    network: Network,
    wan: Wan,
    folder: TemporaryFolder,
    /// With which bridge a path begins now.
    first: usize,
    downloads: u64,
}

impl BridgeNetwork {
    pub(super) fn start(plan: &ConfluxSettings, output: &Output) -> Result<Self> {
        let wan = lay(plan.seed)?;
        // Its keeper stays outside of all hosts.
        let folder = testbed::temporary_folder()?;
        // This thread goes from host to host: processes and threads that it starts stay where it was.
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
        output.doing("starting the stock client");
        enter(wan.host(CLIENT)?)?;
        let known = testbed::all_relays(&network, &joined);
        // Plain Tor is one circuit.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let tor = Client::start(&network, "client", &extra, &known, PATIENCE)?;
        let extra = ["ConfluxEnabled 1", "ConfluxClientUX throughput"].map(str::to_owned);
        let has_linked = plan.methods.iter().any(|it| it.who == ClientKind::TorLinked);
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
            first: 0,
            downloads: 0,
        })
    }

    /// Makes paths begin with this bridge, and further legs with those that follow it. Starts our clients for each way, and
    /// waits until all of them come through.
    pub(super) fn begin_with(&mut self, plan: &ConfluxSettings, first: usize) -> Result<()> {
        self.ours.clear();
        self.first = first;
        let [entry, middle, exit] = self.stock_path();
        if let Some(linked) = &mut self.linked_tor {
            let bridges = self.bridges.iter().cycle().skip(first).take(2);
            let entry = bridges.map(JoinedRelay::rsa).collect();
            linked.pin(&Pins { entry, middle: middle.clone(), exit: exit.clone() })?;
        }
        self.tor.pin(&Pins { entry, middle, exit })?;
        for method in plan.methods.iter().copied().filter(|it| it.who == ClientKind::Ours) {
            let folder = format!("{}-legs-{}-bridge-{first}", method.legs, method.exit.word());
            let settings = Settings {
                choices: Choices {
                    legs: method.legs,
                    strategy: Box::new(self.only(method)),
                    ..Choices::default()
                },
                // Nothing but downloads is to go over the bridges' narrow links.
                directories: Directories::default(),
                ..Settings::new(self.network.directory_addrs(), self.folder.path().join(folder))
            };
            let (sender, events) = channel();
            let proxy = ClientProxy::start(settings, sender)
                .map_err(|error| Error::Clients(error.to_string()))?;
            self.ours.push(OurClient { method, proxy, events });
        }
        // Our exit takes streams only from relays that its own consensus lists.
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

    /// Downloads over circuits that nobody has used. An error is one of what plays here; that the download failed is no such error.
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
            // What was used until now is of no interest.
            self.tor.used_paths()?;
            let done = warmed(self.tor.socks(), server, content, &isolation);
            let [entry, _, exit] = self.stock_path();
            let is_it =
                |path: &Vec<[u8; 20]>| path.first() == entry.first() && path.last() == exit.first();
            let used = self.tor.used_paths()?;
            // Word of the download before may come late.
            if done.is_ok() && !used.iter().any(is_it) {
                return Ok(Err(format!("it went elsewhere: {used:02x?}")));
            }
            return Ok(done.map(|done| seen(&done, Vec::new())));
        }
        let Some(it) = self.ours.iter().find(|it| it.method == method) else {
            return Ok(Err("there is no such client".to_owned()));
        };
        it.events.try_iter().for_each(drop);
        let done = warmed(it.proxy.socks(), server, content, &isolation);
        Ok(done.and_then(|done| Ok(seen(&done, it.carried(content.len)?))))
    }

    /// What the bridges carry that a method uses now, all together.
    pub(super) fn capacity_mbit(&self, method: Method) -> f64 {
        PLACES.iter().cycle().skip(self.first).take(method.legs).map(|it| it.mbit).sum()
    }

    /// The fingerprints that stock clients may use at each position.
    fn stock_path(&self) -> [Vec<[u8; 20]>; 3] {
        let entry = vec![self.bridges[self.first].rsa()];
        let relays = self.network.relays();
        let middle = relays.iter().take(BRIDGES).map(Node::rsa).collect();
        let exit = relays.iter().skip(BRIDGES).map(Node::rsa).collect();
        [entry, middle, exit]
    }

    fn only(&self, method: Method) -> Only {
        let known = |all: Vec<[u8; 20]>| all.into_iter().map(Fingerprint::from_bytes).collect();
        let bridges = self.bridges.iter().cycle().skip(self.first).take(method.legs);
        let [_, middles, stock] = self.stock_path();
        let exit = match method.exit {
            ExitOf::Ours => self.exit.rsa(),
            ExitOf::Stock => stock.first().copied().unwrap_or_default(),
        };
        let exit = Fingerprint::from_bytes(exit);
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
    /// What the legs of the circuit have carried of the latest download, once its end is reported.
    fn carried(&self, bytes: u64) -> Result<Vec<u64>, String> {
        let legs = loop {
            match self.events.recv_timeout(PATIENCE) {
                // The one before it is of a byte, and a head.
                Ok(Event::StreamClosed { legs, received_bytes, .. }) if received_bytes >= bytes => {
                    break legs;
                }
                Ok(_) => {}
                Err(error) => return Err(format!("the stream was not reported: {error}")),
            }
        };
        let linked = legs.len().max(1);
        if linked != self.method.legs {
            return Err(format!("it came over {linked} circuits"));
        }
        Ok(legs.iter().map(|leg| leg.received_messages).collect())
    }
}

/// A download over a circuit of its own, which has brought a byte before.
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
    if done.is_right { Ok(done) } else { Err(format!("{} bytes came", done.received)) }
}

/// Downloads by C tor over circuits that it has linked: it takes one circuit where it has no such set ready. Then another
/// program's stream is tried, until there is one.
fn linked(
    tor: &mut Client,
    server: SocketAddr,
    content: Content,
    isolation: &str,
) -> Result<Result<DownloadFigures, String>> {
    let clock = Clock::start();
    for attempt in 0.. {
        let isolation = format!("{isolation}-{attempt}");
        // What was used until now is of no interest.
        tor.events()?;
        let byte = whole(tor.socks(), server, Content { len: 1, seed: 0 }, &isolation);
        if let Err(problem) = byte {
            return Ok(Err(problem));
        }
        if is_linked(tor)? {
            let done = whole(tor.socks(), server, content, &isolation);
            return Ok(done.map(|done| seen(&done, Vec::new())));
        }
        if clock.now() > onion::Instant::ORIGIN + PATIENCE {
            break;
        }
        thread::park_timeout(PAUSE);
    }
    Ok(Err("stock tor has no linked circuits".to_owned()))
}

/// Whether the circuit that has got a stream of late is one of a set.
fn is_linked(tor: &mut Client) -> Result<bool> {
    let events = tor.events()?;
    // "STREAM 12 SUCCEEDED 7 127.0.0.1:80"
    let used = events.iter().filter_map(|text| text.strip_prefix("STREAM "));
    let used = used.filter_map(|text| text.split_once(" SUCCEEDED ")?.1.split(' ').next());
    let used: Vec<String> = used.map(|id| format!("{id} ")).collect();
    let status = tor.control().get_info("circuit-status");
    let status = status.map_err(|error| Error::Clients(format!("stock tor: {error}")))?;
    let is_of_a_set = |line: &str| line.contains("PURPOSE=CONFLUX_LINKED");
    Ok(status.lines().any(|line| is_of_a_set(line) && used.iter().any(|id| line.starts_with(id))))
}

fn seen(done: &Download, carried: Vec<u64>) -> DownloadFigures {
    let (took_s, first_byte_s) = (done.took.as_secs_f64(), done.to_first_byte.as_secs_f64());
    DownloadFigures { took_s, first_byte_s, carried }
}

/// Hosts and the ways between them.
fn lay(seed: u64) -> Result<Wan> {
    let host = |name: &str, at| HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at));
    let mut hosts = vec![host(CLIENT, 1), host(CORE, 2)];
    for (at, (number, place)) in (3..).zip(PLACES.iter().enumerate()) {
        let narrow =
            Bottleneck { rate: Rate::from_mbit_per_s(place.mbit), queue: Queue::Time(QUEUE) };
        hosts.push(host(&bridge(number), at).with_access(Access::both(narrow)));
    }
    let both = |spec: WanSpec, one: &str, other: &str, ms: u64| {
        let way = WanPath::with_latency(Duration::from_millis(ms));
        spec.with_path(one, other, way).with_path(other, one, way)
    };
    // Clients learn of the network from the core.
    let mut spec = both(WanSpec::new(hosts).with_seed(seed), CLIENT, CORE, 20);
    for (number, place) in PLACES.iter().enumerate() {
        spec = both(spec, CLIENT, &bridge(number), place.from_client_ms);
        spec = both(spec, CORE, &bridge(number), place.from_core_ms);
    }
    Ok(Wan::start(&spec)?)
}
