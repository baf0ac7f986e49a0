//! The private network, the relays to attack, and C tor clients.

use super::plan::{Cell, Plan, Side};
use super::ports;
use crate::background_downloads::Endpoints;
use crate::common::Session;
use crate::error::{Error, Result};
use crate::private_network as network;
use crate::testbed;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use control::keys::SecretKey;
use lab::attacks::{AttackTarget, DocumentNames, Interceptor, Kind, Watchlist};
use lab::{
    Client, Content, ContentServer, LabError, NameServer, Network, NetworkSpec, Node, OwnRelay,
    OwnRelaySpec, Pins, RelaySpec, TemporaryFolder, download,
};
use link::Clock;
use netdoc::Consensus;
use netdoc::fetch::{Fetcher, Resource};
use onion::Instant;
use onion::circuit::NextHop;
use onion::measure::load::Target;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The timeout of a consensus that lists all relays.
const PATIENCE: Duration = Duration::from_secs(180);

/// DoS defences and scheduling as in the consensus of the public network, autumn 2025.
pub(super) const PARAMETERS: &str = "DoSCircuitCreationEnabled=1 DoSCircuitCreationMinConnections=2 \
    DoSCircuitCreationRate=2 DoSCircuitCreationBurst=60 DoSConnectionEnabled=1 \
    DoSConnectionMaxConcurrentCount=50 DoSRefuseSingleHopClientRendezvous=1 \
    circ_max_cell_queue_size=1750 circ_max_cell_queue_size_out=1500 dos_num_circ_max_outq=5 \
    KISTSchedRunInterval=3 CircuitPriorityHalflifeMsec=30000";

/// The delay of the name server of exits: as long as a recursive lookup, and long compared with the path to the exit.
const NAMES_DELAY: Duration = Duration::from_millis(50);

/// The TTL of the name server's answers.
const NAMES_TTL_S: u32 = 3_600;

/// The timeout of a download whose name is resolved.
const NAME_PATIENCE: Duration = Duration::from_secs(20);

/// A small download, made only to have a name resolved.
const LOOKED_UP: Content = Content { len: 1_000, seed: 7 };

/// The parameter that [`Scene::change_parameter`] replaces. It does not affect attacks.
const REPLACED: &str = "CircuitPriorityHalflifeMsec=30000";

/// The authorities vote every ten seconds, and a relay fetches the next consensus within ten more. A relay under attack may miss some.
const VOTED: Duration = Duration::from_secs(60);

/// The number of relays to which a relay under attack has no link at first.
pub(super) const FRESH: usize = 6;

/// A relay to attack.
pub(super) struct Subject {
    pub(super) kind: Kind,
    pub(super) side: Side,
    pub(super) target: Target,
    pub(super) pid: u32,
    process: Process,
    /// The proxy on the path to its directory authorities, if the attack uses one.
    interceptor: Option<Arc<Interceptor>>,
}

enum Process {
    Ours(Box<OwnRelay>),
    Tor(Box<Node>),
}

impl Subject {
    /// Its RSA fingerprint.
    pub(super) const fn rsa(&self) -> [u8; 20] {
        self.target.ids.rsa.0
    }

    /// Our relay, if it is one.
    fn ours(&self) -> Option<&OwnRelay> {
        match &self.process {
            Process::Ours(relay) => Some(relay),
            Process::Tor(_) => None,
        }
    }

    /// The file of the onion key, if this is our relay.
    pub(super) fn onion_key(&self) -> Option<PathBuf> {
        Some(self.ours()?.keys.join("secret_onion_key_ntor"))
    }

    /// The configuration file, if this is our relay.
    pub(super) fn configuration(&self) -> Option<PathBuf> {
        Some(self.ours()?.keys.with_file_name("relay.toml"))
    }

    /// Ends the relay, so that it does not disturb the next attack.
    pub(super) fn end(self) {
        if let Process::Tor(node) = &self.process {
            node.kill();
        }
    }
}

/// All processes of the experiment.
pub(super) struct Scene {
    // The order of fields matters: clients are dropped before the network.
    /// Downloads.
    pub(super) loader: Client,
    /// Builds circuits.
    pub(super) builder: Client,
    server: ContentServer,
    _names: NameServer,
    /// The relays, in the order of the attacks.
    subjects: Vec<Subject>,
    network: Network,
    pub(super) clock: Clock,
    _folder: TemporaryFolder,
}

impl Scene {
    /// Starts all processes; `None` if the user has interrupted.
    pub(super) fn start(plan: &Plan, session: Session<'_>) -> Result<Option<Self>> {
        let Session { output, interrupt, .. } = session;
        let folder = testbed::temporary_folder()?;
        let names = NameServer::start(NAMES_DELAY, NAMES_TTL_S).map_err(|source| Error::File {
            what: "listen on",
            path: "127.0.0.1".into(),
            source,
        })?;
        let resolver = folder.path().join("resolv.conf");
        fs::write(&resolver, format!("nameserver {}\n", names.address()))
            .map_err(|source| Error::File { what: "write", path: resolver.clone(), source })?;
        let network = network::start(&spec(plan, &resolver), output)?;
        if interrupt.is_requested() {
            return Ok(None);
        }
        let clock = Clock::start();
        output.doing("starting our relays");
        let key = SecretKey::generate()?.public();
        let mut subjects = Vec::new();
        for Cell { kind, side } in plan.cases() {
            let name = nickname(kind, side);
            subjects.push(match side {
                Side::Tor => of_tor(kind, &network, &name, clock)?,
                Side::Ours => {
                    let intercepts = kind.intercepts() || plan.is_soak;
                    let interceptor = intercept(intercepts, side, &network, clock)?;
                    let spec = OwnRelaySpec {
                        authorities: match &interceptor {
                            Some(interceptor) => interceptor.addresses().to_vec(),
                            None => network.directory_addrs(),
                        },
                        is_open_exit: kind.targets_exit(),
                        name_server: kind.targets_names().then(|| names.address()),
                        arguments: vec![format!("--max-mem-in-queues-mib={}", plan.memory_mib)],
                        ..OwnRelaySpec::new(name, key)
                    };
                    let relay = OwnRelay::start(spec, folder.path(), clock)?;
                    let (target, pid) = (relay.target, relay.process.pid());
                    let process = Process::Ours(Box::new(relay));
                    Subject { kind, side, target, pid, process, interceptor }
                }
            });
        }
        let ours = subjects.iter().filter(|subject| subject.side == Side::Ours);
        let ours: Vec<[u8; 20]> = ours.map(Subject::rsa).collect();
        output.doing("waiting for the consensus that lists them");
        let relays = subjects.iter().filter_map(Subject::ours);
        testbed::wait_until_known(&network, &ours, relays, PATIENCE)?;
        if interrupt.is_requested() {
            return Ok(None);
        }
        output.doing("starting C tor clients");
        let known = testbed::all_relays(&network, &ours);
        let loader = Client::start(&network, "loader", &loader_torrc(plan), &known, PATIENCE)?;
        let builder = Client::start(&network, "builder", &builder_torrc(), &known, PATIENCE)?;
        let server = testbed::content_server(Ipv4Addr::LOCALHOST)?;
        Ok(Some(Self {
            loader,
            builder,
            server,
            _names: names,
            subjects,
            network,
            clock,
            _folder: folder,
        }))
    }

    /// The relay for this attack.
    pub(super) fn take(&mut self, cell: Cell) -> Result<Subject> {
        let place = self
            .subjects
            .iter()
            .position(|subject| (subject.kind, subject.side) == (cell.kind, cell.side));
        let none = || LabError::Spec(format!("a network without a relay for {cell}"));
        Ok(self.subjects.remove(place.ok_or_else(none)?))
    }

    fn authority(&self, place: usize) -> Result<&Node> {
        let none = || LabError::Spec("a network with too few authorities".to_owned());
        Ok(self.network.authorities().get(place).ok_or_else(none)?)
    }

    /// The guard of honest circuits that do not use the relay as guard. It depends on the relay, because DoS defences count clients
    /// at the guard as well.
    fn entry(&self, subject: &Subject) -> Result<&Node> {
        self.authority(usize::from(subject.side == Side::Tor))
    }

    fn c_tor(&self, nickname: &str) -> Result<&Node> {
        let none = || LabError::Spec(format!("a network without {nickname}"));
        Ok(self.network.node(nickname).ok_or_else(none)?)
    }

    /// The path of the honest circuit with this number through a relay. If the attack is on new links, the second hop is a relay to
    /// which the first such circuit must open a link.
    pub(super) fn path(&self, subject: &Subject, number: usize) -> Result<[[u8; 20]; 3]> {
        let (rsa, kind) = (subject.rsa(), subject.kind);
        let exit = self.c_tor(EXIT)?.rsa();
        Ok(if kind.targets_exit() {
            // DoS defences count honest clients at the guard as well, so each of two guards gets half of the circuits.
            let entry =
                if number.is_multiple_of(2) { self.entry(subject)? } else { self.c_tor(EXIT)? };
            [entry.rsa(), self.authority(2)?.rsa(), rsa]
        } else if kind.uses_another_relay() {
            [self.entry(subject)?.rsa(), rsa, exit]
        } else if kind.targets_dials() {
            [rsa, self.c_tor(&fresh(number % FRESH))?.rsa(), exit]
        } else {
            [rsa, self.authority(number % 3)?.rsa(), exit]
        })
    }

    /// Restricts downloads to paths through a relay.
    pub(super) fn pin(&mut self, subject: &Subject) -> Result<()> {
        let authority = |place| Ok::<_, Error>(self.authority(place)?.rsa());
        let entry = vec![self.entry(subject)?.rsa()];
        let (rsa, exit) = (subject.rsa(), self.c_tor(EXIT)?.rsa());
        let pins = if subject.kind.targets_exit() {
            Pins { entry, middle: vec![authority(2)?], exit: vec![rsa] }
        } else if subject.kind.uses_another_relay() {
            Pins { entry, middle: vec![rsa], exit: vec![exit] }
        } else {
            Pins { entry: vec![rsa], middle: vec![authority(2)?], exit: vec![exit] }
        };
        Ok(self.loader.pin(&pins)?)
    }

    /// The downloading client's SOCKS port, and where the content is.
    pub(super) const fn downloads(&self) -> Endpoints {
        Endpoints { socks: self.loader.socks(), server: self.server.address() }
    }

    /// Names for the attack that were never used before, if it targets names.
    pub(super) fn watchlist(&self, kind: Kind) -> Option<Arc<Watchlist>> {
        let tag = (self.clock.now() - Instant::ORIGIN).as_millis();
        let tag = u32::try_from(tag).unwrap_or_default();
        kind.targets_names().then(|| Arc::new(Watchlist::new(tag, self.server.address().port())))
    }

    /// Makes the exit under attack resolve the names that another client is to request.
    pub(super) fn request_names(&self, names: &Watchlist, isolation: &str) -> Result<()> {
        for name in names.to_be_asked() {
            let from = (name.as_str(), self.server.address().port());
            let result = download(self.loader.socks(), from, LOOKED_UP, isolation, NAME_PATIENCE);
            let result = result.map_err(|error| Error::clients(format!("{name}: {error}")))?;
            if !result.is_right {
                return Err(Error::clients(format!("{name}: wrong content")));
            }
        }
        Ok(())
    }

    /// A relay as the target of its own attack.
    pub(super) fn target(&mut self, subject: &Subject, plan: &Plan) -> Result<AttackTarget> {
        // If the relay is an exit, the attack must not use the guards of honest circuits.
        let via = if subject.kind.targets_exit() { self.authority(2) } else { self.entry(subject) };
        let via = via?.target();
        self.target_via(subject, subject.kind, via, plan)
    }

    /// A relay as the target of an attack, which goes through the authority with this index if it uses another relay.
    pub(super) fn target_via_authority(
        &mut self,
        subject: &Subject,
        kind: Kind,
        index: usize,
        plan: &Plan,
    ) -> Result<AttackTarget> {
        let via = self.authority(index)?.target();
        self.target_via(subject, kind, via, plan)
    }

    fn target_via(
        &mut self,
        subject: &Subject,
        kind: Kind,
        via: Target,
        plan: &Plan,
    ) -> Result<AttackTarget> {
        let (relay, via) = (self.hop(subject.target)?, self.hop(via)?);
        let target = AttackTarget::new(relay, via)?
            .with_documents(plan.memory_mib, self.documents()?)
            .with_interceptor(subject.interceptor.clone());
        if kind.targets_dir_port() {
            return Ok(target.with_dir_port(ports::directory(subject.pid)?)?);
        }
        Ok(target)
    }

    /// Makes the authorities vote for a different value of a parameter in each round.
    pub(super) fn change_parameter(&self, round: u32) -> Result<()> {
        let parameters = PARAMETERS.replace(REPLACED, &replaced(round));
        for authority in self.network.authorities() {
            let set =
                authority.control()?.request(&format!("SETCONF ConsensusParams=\"{parameters}\""));
            set.map_err(Error::clients)?;
        }
        Ok(())
    }

    /// Waits until a relay uses a consensus with the parameter of this round.
    pub(super) fn wait_for_parameter(&self, subject: &Subject, round: u32) -> Result<()> {
        let parameter = replaced(round);
        let mut has_parameter = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("params "));
            line.is_some_and(|line| line.split(' ').any(|word| word == parameter))
        };
        let text = self.network.wait_for_consensus(None, &mut has_parameter, VOTED)?;
        let consensus = Consensus::parse(text.as_bytes());
        let consensus = consensus.map_err(Error::clients)?;
        match subject.ours() {
            Some(relay) => Ok(relay.wait_until_it_uses(consensus.valid_after, VOTED)?),
            None => Ok(()),
        }
    }

    /// The documents of the network's relays, by the current consensuses.
    fn documents(&self) -> Result<DocumentNames> {
        let unusable = |error: String| Error::clients(format!("no usable consensus: {error}"));
        let authority = self.network.directory_addrs().first().copied();
        let authority = authority.ok_or_else(|| unusable("no authority".to_owned()))?;
        let consensus = |what: Resource| {
            let text = Fetcher::default().get(authority, &what);
            let text = text.map_err(|error| unusable(error.to_string()))?;
            Consensus::parse(&text).map_err(|error| unusable(error.to_string()))
        };
        let ns = consensus(Resource::Consensus)?;
        Ok(DocumentNames::from_consensuses(&ns, &consensus(Resource::ConsensusMicrodesc)?))
    }

    /// A relay as a hop of a circuit, with the onion key from its microdescriptor.
    fn hop(&mut self, target: Target) -> Result<NextHop> {
        let unusable = || Error::clients("a relay's microdescriptor has no onion key".to_owned());
        let key = format!("md/id/{}", hex::encode_upper(target.ids.rsa.0));
        let text = self.builder.control().get_info(&key);
        let text = text.map_err(Error::clients)?;
        let key = text.lines().find_map(|line| line.strip_prefix("ntor-onion-key "));
        let key = key.ok_or_else(unusable)?.trim().trim_end_matches('=');
        let key = STANDARD_NO_PAD.decode(key).ok().and_then(|key| key.try_into().ok());
        let onion_key = key.ok_or_else(unusable)?;
        Ok(NextHop { address: target.address, ids: target.ids, onion_key })
    }
}

/// The parameter of a round of a soak.
fn replaced(round: u32) -> String {
    format!("CircuitPriorityHalflifeMsec={}", 30_000 + round)
}

/// The C tor exit.
const EXIT: &str = "stockexit";

fn fresh(number: usize) -> String {
    format!("fresh{number}")
}

fn nickname(kind: Kind, side: Side) -> String {
    let word: String = kind.word().chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{}{word}", side.word()).chars().take(19).collect()
}

fn of_tor(kind: Kind, network: &Network, name: &str, clock: Clock) -> Result<Subject> {
    let none = || LabError::Spec(format!("a network without {name}"));
    let node = network.node(name).ok_or_else(none)?;
    let interceptor = intercept(kind.intercepts(), Side::Tor, network, clock)?;
    if let Some(interceptor) = &interceptor {
        redirect(node, interceptor)?;
    }
    let (target, pid) = (node.target(), node.pid());
    let process = Process::Tor(Box::new(node.clone()));
    Ok(Subject { kind, side: Side::Tor, target, pid, process, interceptor })
}

/// The maximum length of the body of a directory answer that a relay accepts, in bytes: our relay's `max_bytes` or C tor's
/// `MAX_DIRECTORY_OBJECT_SIZE`, each less the head of the answer.
const fn answer_max(side: Side) -> u64 {
    match side {
        Side::Ours => (32 << 20) - 65_536,
        Side::Tor => (16 << 20) - 65_536,
    }
}

/// Starts a proxy on the path to the authorities, if wanted.
fn intercept(
    is_wanted: bool,
    side: Side,
    network: &Network,
    clock: Clock,
) -> Result<Option<Arc<Interceptor>>> {
    if !is_wanted {
        return Ok(None);
    }
    let started = Interceptor::start(&network.directory_addrs(), answer_max(side), clock);
    let failed = |source| Error::File { what: "listen on", path: "127.66.0.1".into(), source };
    Ok(Some(Arc::new(started.map_err(failed)?)))
}

/// Makes a running C tor send all directory requests through a proxy. Changing `DirAuthority` would have no effect once it has a
/// consensus.
fn redirect(node: &Node, by: &Interceptor) -> Result<()> {
    let Some(proxy) = by.addresses().first() else { return Ok(()) };
    let set = node.control()?.request(&format!("SETCONF HTTPProxy={proxy}"));
    set.map_err(Error::clients)?;
    Ok(())
}

fn spec(plan: &Plan, resolver: &Path) -> NetworkSpec {
    let mut relays = vec![RelaySpec::open_exit(EXIT)];
    if plan.attacks.iter().any(|kind| kind.targets_dials()) {
        relays.extend((0..FRESH).map(|number| RelaySpec::new(&fresh(number))));
    }
    for Cell { kind, side } in plan.cases().filter(|cell| cell.side == Side::Tor) {
        let name = nickname(kind, side);
        let mut relay =
            if kind.targets_exit() { RelaySpec::open_exit(&name) } else { RelaySpec::new(&name) };
        relay.extra_torrc.push(format!("MaxMemInQueues {} MB", plan.memory_mib));
        if kind.targets_names() {
            let resolver = resolver.display();
            relay.extra_torrc.push(format!("ServerDNSResolvConfFile {resolver}"));
        }
        if kind.targets_dir_port() {
            relay.extra_torrc.push("DirPort 127.0.0.1:auto".to_owned());
        }
        relays.push(relay);
    }
    NetworkSpec {
        extra_torrc_authorities: vec![format!("ConsensusParams {PARAMETERS}")],
        bandwidth_file: false,
        ..NetworkSpec::new(relays)
    }
}

/// The configuration of the downloading client, with its rate limit.
fn loader_torrc(plan: &Plan) -> Vec<String> {
    let bytes = plan.demand.as_byte_per_s();
    vec![
        "ConfluxEnabled 0".to_owned(),
        format!("BandwidthRate {bytes} bytes"),
        format!("BandwidthBurst {bytes} bytes"),
    ]
}

/// The configuration of the client that builds circuits on command.
fn builder_torrc() -> Vec<String> {
    ["ConfluxEnabled 0", "LearnCircuitBuildTimeout 0", "CircuitBuildTimeout 20"]
        .map(str::to_owned)
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use std::collections::BTreeSet;

    #[test]
    fn each_round_of_a_soak_changes_the_consensus() {
        let parameters = |round| PARAMETERS.replace(REPLACED, &replaced(round));
        assert_ne!(parameters(1), PARAMETERS);
        assert_ne!(parameters(1), parameters(2));
    }

    #[test]
    fn each_case_has_a_relay_with_a_unique_nickname() {
        let sides = [Side::Ours, Side::Tor];
        let all = Kind::value_variants().iter();
        let all: Vec<String> =
            all.flat_map(|kind| sides.map(|side| nickname(*kind, side))).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert!(all.iter().all(|name| name.len() <= 19), "too long for tor: {all:?}");
    }
}
