//! Relays, clients and measurers of experiments, each a process, by default on loopback.

use crate::error::{Error, Result};
use authority::RemoteTeam;
use authority::one_relay::Request;
use clap::Args;
use control::keys::SecretKey;
use control::{RemoteMeasurer, Remotes};
use coordinator::Params;
use lab::{
    Client, ContentServer, LabError, Network, OwnError, OwnProcess, OwnRelay, OwnRelaySpec, Pins,
    TemporaryFolder,
};
use link::Clock;
use onion::measure::load::Target;
use onion::{Duration, Rate};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use terminal::Output;

/// Time for a measurer to start, on a busy machine as well.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time until a consensus lists new relays.
const LISTED: Duration = Duration::from_secs(120);

/// A coordinator in this process, with its measurers, each a process.
pub(crate) struct Testbed {
    // Dropped in this order: sessions, measurers, files.
    remotes: Arc<Remotes>,
    measurers: Vec<TestbedMeasurer>,
    key: SecretKey,
    folder: TemporaryFolder,
    clock: Clock,
}

/// A running `flashflow measurer`.
pub(crate) struct TestbedMeasurer {
    /// Dropping it ends the process.
    process: OwnProcess,
    pub(crate) remote: RemoteMeasurer,
    pub(crate) capacity: Rate,
}

/// A folder for an experiment's temporary files. It is removed when dropped, and after this process has ended in any way.
pub(crate) fn temporary_folder() -> Result<TemporaryFolder> {
    Ok(TemporaryFolder::new()?)
}

/// Waits until the network's nodes accept `relays` for any position of a circuit, and the FlashFlow relays among them (`ours`)
/// know the other relays: an exit refuses streams of circuits from a relay that it does not know.
pub(crate) fn wait_until_known<'a>(
    network: &Network,
    relays: &[[u8; 20]],
    ours: impl IntoIterator<Item = &'a OwnRelay>,
    patience: Duration,
) -> Result<()> {
    let valid_after_unix_s = network.wait_until_known(relays, patience)?;
    for relay in ours {
        relay.wait_until_it_uses(valid_after_unix_s, patience)?;
    }
    Ok(())
}

/// The specification of a FlashFlow relay in a network, without a limit and as an exit to all destinations.
pub(crate) fn open_exit(
    nickname: &str,
    network: &Network,
    address: Ipv4Addr,
) -> Result<OwnRelaySpec> {
    let spec = OwnRelaySpec::new(nickname, SecretKey::generate()?.public());
    let authorities = network.directory_addrs();
    Ok(OwnRelaySpec { authorities, is_open_exit: true, address, ..spec })
}

/// Starts FlashFlow relays as open exits in a network on loopback, and waits until all relays know each other.
pub(crate) fn start_exits(
    nicknames: &[&str],
    network: &Network,
    folder: &TemporaryFolder,
    output: &Output,
) -> Result<Vec<OwnRelay>> {
    output.doing("starting our relays");
    let start = |nickname: &&str| {
        let spec = open_exit(nickname, network, Ipv4Addr::LOCALHOST)?;
        Ok(OwnRelay::start(spec, folder.path(), Clock::start())?)
    };
    let ours = nicknames.iter().map(start).collect::<Result<Vec<_>>>()?;
    let fingerprints: Vec<[u8; 20]> = ours.iter().map(OwnRelay::rsa).collect();
    output.doing("waiting for the consensus that lists them");
    wait_until_known(network, &fingerprints, &ours, LISTED)?;
    Ok(ours)
}

/// The first two authorities of a network, and its first relay as the exit.
pub(crate) fn path_of(network: &Network) -> Result<[[u8; 20]; 3]> {
    let [first, second, ..] = network.authorities() else {
        return Err(LabError::Spec("a network without authorities".to_owned()).into());
    };
    let exit = network.relays().first().unwrap_or(second);
    Ok([first.rsa(), second.rsa(), exit.rsa()])
}

/// Restricts a client to this path, and discards its record of used paths.
pub(crate) fn pin(client: &mut Client, path: [[u8; 20]; 3]) -> Result<()> {
    let [entry, middle, exit] = path.map(|rsa| vec![rsa]);
    client.pin(&Pins { entry, middle, exit })?;
    client.used_paths()?;
    Ok(())
}

/// The relays that a client must know: those of the network, and `others`.
pub(crate) fn all_relays(network: &Network, others: &[[u8; 20]]) -> Vec<[u8; 20]> {
    let own = network.authorities().iter().chain(network.relays()).map(lab::Node::rsa);
    others.iter().copied().chain(own).collect()
}

/// Starts a server at this address from which clients download.
pub(crate) fn content_server(address: Ipv4Addr) -> Result<ContentServer> {
    let path = address.to_string().into();
    ContentServer::start_at(address).map_err(|source| Error::File {
        what: "listen on",
        path,
        source,
    })
}

impl Testbed {
    /// A testbed without measurers and relays.
    pub(crate) fn new() -> Result<Self> {
        let key = SecretKey::generate()?;
        let folder = temporary_folder()?;
        let remotes = Arc::new(Remotes::start(key.clone())?);
        Ok(Self { remotes, measurers: Vec::new(), key, folder, clock: Clock::start() })
    }

    /// A testbed with `count` measurers of one pump each.
    pub(crate) fn with_measurers(count: usize, capacity: Rate, output: &Output) -> Result<Self> {
        let mut testbed = Self::new()?;
        for number in 1..=count {
            output.doing(format!("starting measurer {number}"));
            testbed.add_measurer(capacity, 1)?;
        }
        output.step(format!("{count} measurers of {capacity} each"));
        Ok(testbed)
    }

    /// The clock of all events of this testbed.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// The coordinator's key.
    pub(crate) const fn key(&self) -> &SecretKey {
        &self.key
    }

    /// Starts a measurer of this capacity and number of pumps.
    pub(crate) fn add_measurer(&mut self, capacity: Rate, pumps: u32) -> Result<()> {
        self.add_measurer_at(Ipv4Addr::LOCALHOST, capacity, pumps)
    }

    /// Starts a measurer at an address of this thread's network namespace.
    pub(crate) fn add_measurer_at(
        &mut self,
        address: Ipv4Addr,
        capacity: Rate,
        pumps: u32,
    ) -> Result<()> {
        let name = format!("measurer{}", self.measurers.len() + 1);
        let key = SecretKey::generate()?;
        let folder = self.folder.path().join(&name);
        let file = folder.join("measurer.toml");
        let failed = |source| Error::File { what: "write", path: file.clone(), source };
        fs::create_dir_all(&folder).map_err(failed)?;
        key.write_new(&folder.join("key"))?;
        let configuration = format!(
            "listen = \"{address}:0\"\nprivate_network = true\nkey = \"key\"\ncoordinators = [\"{}\"]\n\
             capacity_mbit_per_s = {:?}\npumps = {pumps}\n",
            self.key.public(),
            capacity.as_mbit_per_s(),
        );
        fs::write(&file, configuration).map_err(failed)?;
        let arguments = ["measurer".as_ref(), "--config".as_ref(), file.as_os_str()];
        let process = OwnProcess::start(&name, arguments, None, self.clock)?;
        let listening = process.wait_for("listening", PATIENCE)?;
        let address = listening["address"].as_str().and_then(|text| text.parse().ok());
        let address = address.ok_or_else(|| OwnError::no_address(&name, &listening))?;
        let remote = self.remotes.measurer(address, key.public())?;
        self.measurers.push(TestbedMeasurer { process, remote, capacity });
        Ok(())
    }

    /// The measurers' processes.
    pub(crate) fn measurer_pids(&self) -> Vec<u32> {
        self.measurers.iter().map(|measurer| measurer.process.pid()).collect()
    }

    /// The measurers.
    pub(crate) fn measurers(&self) -> &[TestbedMeasurer] {
        &self.measurers
    }

    /// A team of the first `count` measurers.
    pub(crate) fn team(&self, count: usize) -> RemoteTeam {
        let capacities = self.measurers.iter().map(|measurer| measurer.capacity).enumerate();
        self.team_of(capacities.take(count))
    }

    /// A team of the measurers at these places, each with this capacity.
    pub(crate) fn team_of(&self, shares: impl IntoIterator<Item = (usize, Rate)>) -> RemoteTeam {
        let mate = |(place, capacity): (usize, Rate)| {
            Some((self.measurers.get(place)?.remote.clone(), capacity))
        };
        let measurers = shares.into_iter().filter_map(mate).collect();
        RemoteTeam::with_sessions(Arc::clone(&self.remotes), measurers)
    }

    /// Starts a FlashFlow relay that this testbed's coordinator may measure.
    pub(crate) fn relay(
        &self,
        nickname: &str,
        limit: Option<Rate>,
        client_percent: Option<u32>,
    ) -> Result<OwnRelay> {
        self.published_relay(nickname, limit, client_percent, Vec::new())
    }

    /// Starts a relay that publishes to these directory authorities.
    pub(crate) fn published_relay(
        &self,
        nickname: &str,
        limit: Option<Rate>,
        client_percent: Option<u32>,
        authorities: Vec<SocketAddr>,
    ) -> Result<OwnRelay> {
        let spec = OwnRelaySpec::new(nickname, self.key.public());
        self.start_relay(OwnRelaySpec { limit, authorities, client_percent, ..spec })
    }

    /// Starts a FlashFlow relay as specified.
    pub(crate) fn start_relay(&self, spec: OwnRelaySpec) -> Result<OwnRelay> {
        Ok(OwnRelay::start(spec, self.folder.path(), self.clock)?)
    }

    /// A request to measure a relay by echo, with any number of rounds.
    pub(crate) fn echo_request(&self, target: Target, guess: Rate, params: Params) -> Request {
        let request = Request::new(target, guess).by_echo(self.key.seed());
        Request { params, echo_rounds: u32::MAX, ..request }
    }
}

/// Parameters of a measurement of this length, for relays that have no clients.
pub(crate) fn params(seconds: u32) -> Params {
    Params { seconds, may_have_clients: false, ..Params::default() }
}

/// A relay's limit from Mbit/s. Below 20, the minimum that proposal 316 grants to clients would exceed their share.
pub(crate) fn echo_limit(mbit: f64) -> Result<Rate> {
    if !mbit.is_finite() || mbit < 20.0 {
        return Err(Error::Usage(format!("--limit {mbit}: not 20 Mbit/s or more")));
    }
    Ok(Rate::from_mbit_per_s(mbit))
}

/// The option for relays of a patched C tor.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PatchedTor {
    /// A C tor with the patches of this repository (`make tor` prints its path), whose relays are then measured by echo.
    #[arg(long = "tor", value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

impl PatchedTor {
    /// The program, if it is given and has the patches.
    pub(crate) fn program(&self) -> Result<Option<PathBuf>> {
        Ok(self.program.as_deref().map(lab::patched_tor_at).transpose()?)
    }
}
