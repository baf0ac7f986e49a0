//! Relays and other nodes beyond a distance.

use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::private_network as network;
use crate::testbed::Testbed;
use crate::trial::{Trial, Tried};
use lab::wan::{Host, Wan, WanPath};
use lab::{Network, NetworkSpec, OwnRelay, OwnRelaySpec, RelayReports, RelaySpec};
use measurer::{Approach, Defences, Request, Team};
use netdoc::Fingerprint;
use netdoc::consensus::Consensus;
use onion::measure::load::Target;
use onion::{Duration, Rate};
use rustix::process::{Pid, setpriority_process};
use std::net::Ipv4Addr;
use std::{fs, thread};
use terminal::Output;
use terminal::measuring::Subject;

/// Nearly the priority of the path itself (`lab::wan`), which must be late for nobody.
const PRIORITY: i32 = -14;

/// Relays, all of one kind, in the network namespace of this thread.
pub(crate) enum Relays {
    /// C tor's, in a network of their own, which the consensus gives these defences.
    Stock(Network, Defences),
    /// Ours, which a stage's coordinator may measure.
    Own(Vec<OwnRelay>),
}

impl Relays {
    /// Starts a relay for each limit.
    pub(crate) fn start(
        mode: Mode,
        limits: &[Option<Rate>],
        address: Ipv4Addr,
        stage: &Testbed,
        output: &Output,
    ) -> Result<Self> {
        let limits = (1..).zip(limits.iter().copied());
        match mode {
            Mode::Transit => {
                let relay = |(number, limit): (u32, Option<Rate>)| RelaySpec {
                    limit,
                    ..RelaySpec::new(&format!("stock{number}"))
                };
                let spec = NetworkSpec {
                    bandwidth_file: false,
                    address,
                    ..NetworkSpec::new(limits.map(relay).collect())
                };
                let network = network::start(&spec, output)?;
                let what = || "the private network's consensus".to_owned();
                let text = network.consensus()?.unwrap_or_default();
                let consensus = Consensus::parse(text.as_bytes())
                    .map_err(|source| Error::Consensus { what: what(), source })?;
                let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
                Ok(Self::Stock(network, defences))
            }
            Mode::Echo => {
                let start = |(number, limit): (u32, Option<Rate>)| {
                    let spec = OwnRelaySpec::new(format!("own{number}"), stage.key().public());
                    stage.start_relay(OwnRelaySpec { limit, address, ..spec })
                };
                Ok(Self::Own(limits.map(start).collect::<Result<_, _>>()?))
            }
        }
    }

    /// The relay of this number, for a measurement: the order, its process, and what it reports.
    pub(crate) fn subject(
        &self,
        relay: usize,
        guess: Rate,
        stage: &Testbed,
    ) -> Result<(Request, u32, RelayReports<'_>)> {
        match self {
            Self::Stock(network, defences) => {
                let node = &network.relays()[relay];
                let ids = Subject::ids(Fingerprint::from_bytes(node.rsa()), Some(node.ed25519()));
                let target = Target { address: node.or_addr(), ids };
                let request =
                    Request { target, guess, defences: *defences, approach: Approach::Transit };
                Ok((request, node.pid(), RelayReports::watch(node)?))
            }
            Self::Own(relays) => {
                let relay = &relays[relay];
                let said = RelayReports::watch_own(relay, stage.clock());
                Ok((stage.echo_request(relay.target, guess), relay.process.pid(), said))
            }
        }
    }

    pub(crate) fn stop(self) -> Result<()> {
        match self {
            Self::Stock(network, _) => Ok(network.stop()?),
            Self::Own(_) => Ok(()),
        }
    }
}

/// Relays at one host of a network with distances, measured from others.
pub(crate) struct Site {
    // In this order: what runs at the hosts ends before they do.
    relays: Relays,
    pub(crate) stage: Testbed,
    pub(crate) wan: Wan,
    /// The host of the relays.
    at: &'static str,
}

/// How the relay of a site is measured.
pub(crate) struct Measurement<'m> {
    /// In progress, such as `echo 10 Mbit/s, run 3`.
    pub(crate) name: String,
    pub(crate) relay: usize,
    /// What the relay is expected to carry.
    pub(crate) guess: Rate,
    /// The coordinator's host.
    pub(crate) from: &'static str,
    pub(crate) team: &'m dyn Fn(&Testbed) -> Result<Team>,
}

impl Site {
    /// Starts the relays at the host `at`. This thread stays in the namespace of that host.
    pub(crate) fn start(
        mode: Mode,
        limits: &[Rate],
        wan: Wan,
        at: &'static str,
        stage: Testbed,
        output: &Output,
    ) -> Result<Self> {
        let host = wan.host(at)?;
        enter(host)?;
        let limits: Vec<Option<Rate>> = limits.iter().copied().map(Some).collect();
        let relays = Relays::start(mode, &limits, host.address(), &stage, output)?;
        Ok(Self { relays, stage, wan, at })
    }

    /// Measures a relay; `None` if the user has interrupted. `around` runs the trial, and is given the relay's process.
    pub(crate) fn measure(
        &self,
        measurement: &Measurement<'_>,
        around: impl FnOnce(Trial<'_, '_>) -> Result<Option<Tried>>,
    ) -> Result<Option<Tried>> {
        let Measurement { name, relay, guess, from, team } = measurement;
        enter(self.wan.host(self.at)?)?;
        let (request, pid, mut said) = self.relays.subject(*relay, *guess, &self.stage)?;
        go_ahead(pid);
        enter(self.wan.host(from)?)?;
        let team = &mut team(&self.stage)?;
        around(Trial { name, team, request, pid, said: &mut said })
    }

    /// The paths to the relays.
    pub(crate) const fn paths(&self) -> Paths<'_> {
        Paths { wan: &self.wan, at: self.at }
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.relays.stop()
    }
}

/// The paths to the relays of a site, which any thread may change.
#[derive(Clone, Copy)]
pub(crate) struct Paths<'a> {
    wan: &'a Wan,
    at: &'static str,
}

impl Paths<'_> {
    /// Changes the path of a host: to the relays, and from them.
    pub(crate) fn set(self, host: &str, [to, from]: [WanPath; 2]) -> Result<()> {
        self.wan.set_path(host, self.at, to)?;
        Ok(self.wan.set_path(self.at, host, from)?)
    }
}

/// A path of this round trip, of which each direction is half.
pub(crate) fn way_of_rtt(rtt_ms: u32, loss_percent: f64) -> WanPath {
    let latency = Duration::from_micros(u64::from(rtt_ms) * 500);
    WanPath::with_latency(latency).with_loss(loss_percent / 100.0)
}

/// Starts a measurer of one pump at a host, on a thread that `prepare` may change first: the process inherits
/// that.
pub(crate) fn measurer_at(
    host: &Host,
    stage: &mut Testbed,
    capacity: Rate,
    prepare: impl FnOnce() -> Result<()> + Send,
) -> Result<()> {
    let start = || -> Result<()> {
        enter(host)?;
        prepare()?;
        stage.add_measurer_at(host.address(), capacity, 1)
    };
    match thread::scope(|scope| scope.spawn(start).join()) {
        Ok(started) => started,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Brings this thread to a host.
pub(crate) fn enter(host: &Host) -> Result<()> {
    host.namespace().enter().map_err(|error| Error::Network(error.to_string()))
}

/// Gives the threads of a relay's process priority over its measurers, as the path has: elsewhere they share no machine. It is not changed without
/// the right to do so.
fn go_ahead(pid: u32) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let threads = tasks.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    for thread in threads.filter_map(Pid::from_raw) {
        let _equal = setpriority_process(Some(thread), PRIORITY);
    }
}
