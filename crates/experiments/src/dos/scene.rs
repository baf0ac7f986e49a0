//! The private network, a relay for each case, and stock clients.

use super::plan::{Plan, Side};
use super::ports;
use crate::background_downloads::Endpoints;
use crate::common::Session;
use crate::error::{Error, Result};
use crate::private_network as network;
use crate::testbed;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use control::keys::SecretKey;
use lab::attacks::{DocumentNames, Interceptor, Kind, Prey, Watchlist};
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

/// Far more than a consensus of all takes.
const PATIENCE: Duration = Duration::from_secs(180);

/// Defences and scheduling as in the consensus of the public network, autumn 2025.
pub(super) const PARAMETERS: &str = "DoSCircuitCreationEnabled=1 DoSCircuitCreationMinConnections=2 \
    DoSCircuitCreationRate=2 DoSCircuitCreationBurst=60 DoSConnectionEnabled=1 \
    DoSConnectionMaxConcurrentCount=50 DoSRefuseSingleHopClientRendezvous=1 \
    circ_max_cell_queue_size=1750 circ_max_cell_queue_size_out=1500 dos_num_circ_max_outq=5 \
    KISTSchedRunInterval=3 CircuitPriorityHalflifeMsec=30000";

/// How far away the name server is of exits whose names are probed: as one that has to ask others, and long compared with the path to the exit.
const NAMES_DELAY: Duration = Duration::from_millis(50);

/// What it says of how long its answers hold: an hour.
const NAMES_TTL_S: u32 = 3_600;

/// A name that is not found in so long is not found.
const NAME_PATIENCE: Duration = Duration::from_secs(20);

/// A download of so little is there to have its name looked up.
const LOOKED_UP: Content = Content { len: 1_000, seed: 7 };

/// The parameter that [`Scene::change_parameter`] replaces. It has no influence on attacks.
const REPLACED: &str = "CircuitPriorityHalflifeMsec=30000";

/// The authorities vote every ten seconds, and a relay fetches the next consensus within ten more. A relay under attack may miss some.
const VOTED: Duration = Duration::from_secs(60);

/// Relays of which each is fresh once for each relay under attack: there is no link to it yet.
pub(super) const FRESH: usize = 6;

/// A relay that is to be attacked once.
pub(super) struct Subject {
    pub(super) kind: Kind,
    pub(super) side: Side,
    pub(super) target: Target,
    pub(super) pid: u32,
    holder: Holder,
    /// The proxy on the path to its directory authorities, if an attacker is there.
    interceptor: Option<Arc<Interceptor>>,
}

enum Holder {
    /// It ends with this.
    Ours(Box<OwnRelay>),
    Tor(Box<Node>),
}

impl Subject {
    /// Its fingerprint.
    pub(super) const fn rsa(&self) -> [u8; 20] {
        self.target.ids.rsa.0
    }

    /// The file of its onion key, if it is ours.
    pub(super) fn onion_key(&self) -> Option<PathBuf> {
        match &self.holder {
            Holder::Ours(relay) => Some(relay.keys.join("secret_onion_key_ntor")),
            Holder::Tor(_) => None,
        }
    }

    /// The configuration file, if the subject is our relay.
    pub(super) fn configuration(&self) -> Option<PathBuf> {
        match &self.holder {
            Holder::Ours(relay) => Some(relay.keys.with_file_name("relay.toml")),
            Holder::Tor(_) => None,
        }
    }

    /// Waits until the relay, if it is ours, uses a consensus of this time or later.
    fn wait_for_consensus(&self, valid_after: u64) -> Result<()> {
        match &self.holder {
            Holder::Ours(relay) => Ok(relay.wait_until_it_uses(valid_after, VOTED)?),
            Holder::Tor(_) => Ok(()),
        }
    }

    /// Ends it: nothing of it is to disturb the next.
    pub(super) fn end(self) {
        if let Holder::Tor(node) = &self.holder {
            node.kill();
        }
    }
}

/// All that takes part.
pub(super) struct Scene {
    // In this order: clients end before the network does.
    /// Downloads.
    pub(super) loader: Client,
    /// Builds circuits.
    pub(super) builder: Client,
    server: ContentServer,
    _names: NameServer,
    /// In the order in which they are attacked.
    pub(super) subjects: Vec<Subject>,
    network: Network,
    pub(super) clock: Clock,
    _folder: TemporaryFolder,
}

impl Scene {
    /// Starts it all; `None` if the user has had enough.
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
        for (kind, side) in plan.cases() {
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
                        is_open_exit: kind.is_on_exit(),
                        name_server: kind.is_on_names().then(|| names.address()),
                        arguments: vec![format!("--max-mem-in-queues-mib={}", plan.memory_mib)],
                        ..OwnRelaySpec::new(name, key)
                    };
                    let relay = OwnRelay::start(spec, folder.path(), clock)?;
                    let (target, pid) = (relay.target, relay.process.pid());
                    let holder = Holder::Ours(Box::new(relay));
                    Subject { kind, side, target, pid, holder, interceptor }
                }
            });
        }
        let ours = subjects.iter().filter(|subject| subject.side == Side::Ours);
        let ours: Vec<[u8; 20]> = ours.map(Subject::rsa).collect();
        output.doing("waiting for the consensus that lists them");
        let relays = subjects.iter().filter_map(|subject| match &subject.holder {
            Holder::Ours(relay) => Some(relay.as_ref()),
            Holder::Tor(_) => None,
        });
        testbed::wait_until_known(&network, &ours, relays, PATIENCE)?;
        if interrupt.is_requested() {
            return Ok(None);
        }
        output.doing("starting stock clients");
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

    fn authority(&self, place: usize) -> Result<&Node> {
        let none = || LabError::Spec("a network with too few authorities".to_owned());
        Ok(self.network.authorities().get(place).ok_or_else(none)?)
    }

    /// Where honest circuits enter that do not enter by the relay itself: each relay's clients by another one, since defences
    /// count them there as well.
    fn entry(&self, subject: &Subject) -> Result<&Node> {
        self.authority(usize::from(subject.side == Side::Tor))
    }

    fn stock(&self, nickname: &str) -> Result<&Node> {
        let none = || LabError::Spec(format!("a network without {nickname}"));
        Ok(self.network.node(nickname).ok_or_else(none)?)
    }

    /// The path of the honest circuit with this number through a relay. Where links are what is attacked, its second hop is a
    /// relay to which there is none yet, for the first circuit that goes there.
    pub(super) fn path(&self, subject: &Subject, number: usize) -> Result<[[u8; 20]; 3]> {
        let (rsa, kind) = (subject.rsa(), subject.kind);
        let exit = self.stock(EXIT)?.rsa();
        Ok(if kind.is_on_exit() {
            // Defences of relays on the way count honest clients as well: no more than half of the circuits by one.
            let entry =
                if number.is_multiple_of(2) { self.entry(subject)? } else { self.stock(EXIT)? };
            [entry.rsa(), self.authority(2)?.rsa(), rsa]
        } else if kind.comes_by_another() {
            [self.entry(subject)?.rsa(), rsa, exit]
        } else if kind.is_on_dials() {
            [rsa, self.stock(&fresh(number % FRESH))?.rsa(), exit]
        } else {
            [rsa, self.authority(number % 3)?.rsa(), exit]
        })
    }

    /// Makes downloads go through a relay.
    pub(super) fn pin(&mut self, subject: &Subject) -> Result<()> {
        let authority = |place| Ok::<_, Error>(self.authority(place)?.rsa());
        let entry = vec![self.entry(subject)?.rsa()];
        let (rsa, exit) = (subject.rsa(), self.stock(EXIT)?.rsa());
        let pins = if subject.kind.is_on_exit() {
            Pins { entry, middle: vec![authority(2)?], exit: vec![rsa] }
        } else if subject.kind.comes_by_another() {
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

    /// The names that are watched under this attack, if it is on names. No others before were called so.
    pub(super) fn watchlist(&self, kind: Kind) -> Option<Arc<Watchlist>> {
        let tag = (self.clock.now() - Instant::ORIGIN).as_millis();
        let tag = u32::try_from(tag).unwrap_or_default();
        kind.is_on_names().then(|| Arc::new(Watchlist::new(tag, self.server.address().port())))
    }

    /// Has the downloading client go to those of the names that somebody is to ask for, through the exit that it is pinned to.
    pub(super) fn ask_for(&self, names: &Watchlist, isolation: &str) -> Result<()> {
        for name in names.to_be_asked() {
            let from = (name.as_str(), self.server.address().port());
            let done = download(self.loader.socks(), from, LOOKED_UP, isolation, NAME_PATIENCE);
            let done = done.map_err(|error| Error::Clients(format!("{name}: {error}")))?;
            if !done.is_right {
                return Err(Error::Clients(format!("{name} leads elsewhere")));
            }
        }
        Ok(())
    }

    /// A relay as attackers see it.
    pub(super) fn prey(&mut self, place: usize, plan: &Plan) -> Result<Prey> {
        let none = || Error::Failed("no such relay".to_owned());
        let subject = self.subjects.get(place).ok_or_else(none)?;
        // Honest circuits to an exit come by others.
        let by = if subject.kind.is_on_exit() { self.authority(2) } else { self.entry(subject) }?;
        let by = by.target();
        let subject = self.subjects.remove(place);
        let prey = self.prey_of(&subject, subject.kind, by, plan);
        self.subjects.insert(place, subject);
        prey
    }

    /// A relay as attackers see it that come by the authority in this place where they come by another relay.
    pub(super) fn prey_by(
        &mut self,
        subject: &Subject,
        kind: Kind,
        place: usize,
        plan: &Plan,
    ) -> Result<Prey> {
        let by = self.authority(place)?.target();
        self.prey_of(subject, kind, by, plan)
    }

    fn prey_of(&mut self, subject: &Subject, kind: Kind, by: Target, plan: &Plan) -> Result<Prey> {
        let relay = self.hop(subject.target)?;
        let by = self.hop(by)?;
        let prey = Prey::new(relay, by)?.holding(plan.memory_mib, self.documents()?);
        let prey = prey.intercepted(subject.interceptor.clone());
        if kind.is_on_dir_port() {
            return Ok(prey.with_dir_port(ports::directory(subject.pid)?)?);
        }
        Ok(prey)
    }

    /// Makes the authorities vote for a different value of a parameter in each round.
    pub(super) fn change_parameter(&self, round: u32) -> Result<()> {
        let parameters = PARAMETERS.replace(REPLACED, &replaced(round));
        for authority in self.network.authorities() {
            let set =
                authority.control()?.request(&format!("SETCONF ConsensusParams=\"{parameters}\""));
            set.map_err(|error| Error::Clients(error.to_string()))?;
        }
        Ok(())
    }

    /// Waits until a relay uses a consensus with the parameter of this round.
    pub(super) fn wait_for_parameter(&self, subject: &Subject, round: u32) -> Result<()> {
        let parameter = replaced(round);
        let mut has_it = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("params "));
            line.is_some_and(|it| it.split(' ').any(|it| it == parameter))
        };
        let text = self.network.wait_for_consensus(None, &mut has_it, VOTED)?;
        let consensus = Consensus::parse(text.as_bytes());
        let consensus = consensus.map_err(|error| Error::Clients(error.to_string()))?;
        subject.wait_for_consensus(consensus.valid_after)
    }

    /// The documents of the network's relays, as its consensuses name them now.
    fn documents(&self) -> Result<DocumentNames> {
        let unusable = |error: String| Error::Clients(format!("no usable consensus: {error}"));
        let authority = self.network.directory_addrs().first().copied();
        let authority = authority.ok_or_else(|| unusable("no authority".to_owned()))?;
        let consensus = |what: Resource| {
            let text = Fetcher::default().get(authority, &what);
            let text = text.map_err(|error| unusable(error.to_string()))?;
            Consensus::parse(&text).map_err(|error| unusable(error.to_string()))
        };
        let ns = consensus(Resource::Consensus)?;
        Ok(DocumentNames::of(&ns, &consensus(Resource::ConsensusMicrodesc)?))
    }

    /// What a client knows of a relay, by its microdescriptor.
    fn hop(&mut self, target: Target) -> Result<NextHop> {
        let unusable = || Error::Clients("a relay's microdescriptor has no onion key".to_owned());
        let key = format!("md/id/{}", hex::encode_upper(target.ids.rsa.0));
        let text = self.builder.control().get_info(&key);
        let text = text.map_err(|error| Error::Clients(error.to_string()))?;
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
    let holder = Holder::Tor(Box::new(node.clone()));
    Ok(Subject { kind, side: Side::Tor, target, pid, holder, interceptor })
}

/// The longest answer that a relay takes from an authority, in bytes: `max_bytes` of ours, C tor's `MAX_DIRECTORY_OBJECT_SIZE`; less
/// what the head of an answer takes.
const fn answer_max(side: Side) -> u64 {
    match side {
        Side::Ours => (32 << 20) - 65_536,
        Side::Tor => (16 << 20) - 65_536,
    }
}

/// A proxy on the path to the authorities, if there is to be one.
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

/// Has a running C tor send all its directory requests by a proxy. The ports in `DirAuthority` do not matter once it has a consensus.
fn redirect(node: &Node, by: &Interceptor) -> Result<()> {
    let Some(proxy) = by.addresses().first() else { return Ok(()) };
    let set = node.control()?.request(&format!("SETCONF HTTPProxy={proxy}"));
    set.map_err(|error| Error::Clients(error.to_string()))?;
    Ok(())
}

fn spec(plan: &Plan, resolver: &Path) -> NetworkSpec {
    let mut relays = vec![RelaySpec::open_exit(EXIT)];
    if plan.attacks.iter().any(|kind| kind.is_on_dials()) {
        relays.extend((0..FRESH).map(|number| RelaySpec::new(&fresh(number))));
    }
    for (kind, _) in plan.cases().filter(|(_, side)| *side == Side::Tor) {
        let name = nickname(kind, Side::Tor);
        let mut relay =
            if kind.is_on_exit() { RelaySpec::open_exit(&name) } else { RelaySpec::new(&name) };
        relay.extra_torrc.push(format!("MaxMemInQueues {} MB", plan.memory_mib));
        if kind.is_on_names() {
            let resolver = resolver.display();
            relay.extra_torrc.push(format!("ServerDNSResolvConfFile {resolver}"));
        }
        if kind.is_on_dir_port() {
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

/// A client of one guard that is limited to this rate.
fn loader_torrc(plan: &Plan) -> Vec<String> {
    let bytes = plan.demand.as_byte_per_s();
    vec![
        "ConfluxEnabled 0".to_owned(),
        format!("BandwidthRate {bytes} bytes"),
        format!("BandwidthBurst {bytes} bytes"),
    ]
}

/// A client whose circuits are made on command, and judged by us.
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
    fn each_case_has_a_relay_of_its_own_name() {
        let sides = [Side::Ours, Side::Tor];
        let all = Kind::value_variants().iter();
        let all: Vec<String> =
            all.flat_map(|kind| sides.map(|side| nickname(*kind, side))).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert!(all.iter().all(|name| name.len() <= 19), "tor takes no longer one: {all:?}");
    }
}
