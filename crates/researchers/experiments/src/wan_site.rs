//! Relays at one host of an emulated wide-area network, measured from other hosts.

use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::private_network as network;
use crate::testbed::Testbed;
use crate::trial::{Trial, TrialResult};
use authority::one_relay::Request;
use authority::shell::Team;
use coordinator::{Defences, Params};
use lab::wan::{Host, Wan, WanPath};
use lab::{Network, NetworkSpec, OwnRelay, OwnRelaySpec, RelayReports, RelaySpec};
use netdoc::consensus::Consensus;
use onion::measure::protocol::CoordinatorKey;
use onion::{Duration, Rate};
use rustix::process::{Pid, setpriority_process};
use std::net::Ipv4Addr;
use std::path::Path;
use std::{fs, thread};
use terminal::Output;

/// Slightly below the priority of the emulated paths (`lab::wan`), whose packets must not be late.
const PRIORITY: i32 = -14;

/// Relays of one kind in the network namespace of this thread.
pub(crate) enum Relays {
    /// C tor relays in a private network, whose consensus sets these defences.
    CTor(Network, Defences),
    /// Relays of a patched C tor in a private network, which a testbed's coordinator may measure.
    Patched(Network),
    /// FlashFlow relays that a testbed's coordinator may measure.
    Own(Vec<OwnRelay>),
}

/// Starts a private network with a C tor relay for each limit.
fn tor_network(
    limits: &[Option<Rate>],
    address: Ipv4Addr,
    of_relay: impl Fn(RelaySpec) -> RelaySpec,
    output: &Output,
) -> Result<Network> {
    let relay = |(number, limit): (u32, &Option<Rate>)| {
        of_relay(RelaySpec { limit: *limit, ..RelaySpec::new(&format!("tor{number}")) })
    };
    let relays = (1..).zip(limits).map(relay).collect();
    let spec = NetworkSpec { bandwidth_file: false, address, ..NetworkSpec::new(relays) };
    network::start(&spec, output)
}

impl Relays {
    /// Starts a relay for each limit.
    pub(crate) fn start(
        mode: Mode,
        limits: &[Option<Rate>],
        address: Ipv4Addr,
        testbed: &Testbed,
        output: &Output,
    ) -> Result<Self> {
        match mode {
            Mode::Transit => {
                let network = tor_network(limits, address, |relay| relay, output)?;
                let what = || "the private network's consensus".to_owned();
                let text = network.consensus()?.unwrap_or_default();
                let consensus = Consensus::parse(text.as_bytes())
                    .map_err(|source| Error::Consensus { what: what(), source })?;
                let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
                Ok(Self::CTor(network, defences))
            }
            Mode::Echo => {
                let start = |(number, limit): (u32, Option<Rate>)| {
                    let spec = OwnRelaySpec::new(format!("own{number}"), testbed.key().public());
                    testbed.start_relay(OwnRelaySpec { limit, address, ..spec })
                };
                let limits = (1..).zip(limits.iter().copied());
                Ok(Self::Own(limits.map(start).collect::<Result<_, _>>()?))
            }
        }
    }

    /// Starts a relay of this patched C tor for each limit.
    pub(crate) fn start_patched(
        tor: &Path,
        limits: &[Option<Rate>],
        address: Ipv4Addr,
        testbed: &Testbed,
        output: &Output,
    ) -> Result<Self> {
        let key = CoordinatorKey::of_seed(&testbed.key().seed());
        let of_relay = |relay: RelaySpec| relay.measured_by_echo(tor, key);
        Ok(Self::Patched(tor_network(limits, address, of_relay, output)?))
    }

    /// The relay of this number: the request to measure it, the identifier of its process, and its reports.
    pub(crate) fn subject(
        &self,
        relay: usize,
        guess: Rate,
        params: Params,
        testbed: &Testbed,
    ) -> Result<(Request, u32, RelayReports<'_>)> {
        match self {
            Self::CTor(network, defences) => {
                let node = &network.relays()[relay];
                let request = Request::new(node.target(), guess);
                let request = Request { defences: *defences, params, ..request };
                Ok((request, node.pid(), RelayReports::watch(node)?))
            }
            Self::Patched(network) => {
                let node = &network.relays()[relay];
                let request = testbed.echo_request(node.target(), guess, params);
                Ok((request, node.pid(), RelayReports::watch(node)?))
            }
            Self::Own(relays) => {
                let relay = &relays[relay];
                let reports = RelayReports::watch_own(relay, testbed.clock());
                Ok((
                    testbed.echo_request(relay.target, guess, params),
                    relay.process.pid(),
                    reports,
                ))
            }
        }
    }

    pub(crate) fn stop(self) -> Result<()> {
        match self {
            Self::CTor(network, _) | Self::Patched(network) => Ok(network.stop()?),
            Self::Own(_) => Ok(()),
        }
    }
}

/// Relays at one host of an emulated network, and the measurers at other hosts.
pub(crate) struct Site {
    // Dropped in this order: processes end before their hosts.
    relays: Relays,
    pub(crate) testbed: Testbed,
    pub(crate) wan: Wan,
    /// The host of the relays.
    host: &'static str,
}

/// A measurement of one relay of a site.
pub(crate) struct Measurement<'m> {
    /// The name in progress messages, such as `echo 10 Mbit/s, run 3`.
    pub(crate) name: String,
    pub(crate) relay: usize,
    /// The expected capacity of the relay.
    pub(crate) guess: Rate,
    /// The coordinator's host.
    pub(crate) from: &'static str,
    pub(crate) params: Params,
    /// The measurers.
    pub(crate) team: &'m dyn Fn(&Testbed) -> Result<Box<dyn Team>>,
    /// Changes other choices.
    pub(crate) adjust: &'m dyn Fn(Request) -> Request,
}

impl Site {
    /// Starts the relays at `host`. This thread stays in the network namespace of that host.
    pub(crate) fn start(
        mode: Mode,
        limits: &[Rate],
        wan: Wan,
        host: &'static str,
        testbed: Testbed,
        output: &Output,
    ) -> Result<Self> {
        let address = wan.host(host)?.address();
        enter(wan.host(host)?)?;
        let limits: Vec<Option<Rate>> = limits.iter().copied().map(Some).collect();
        let relays = Relays::start(mode, &limits, address, &testbed, output)?;
        Ok(Self { relays, testbed, wan, host })
    }

    /// Measures a relay: prepares a trial, which `run` runs. `None` if the user has interrupted.
    pub(crate) fn measure(
        &self,
        measurement: &Measurement<'_>,
        run: impl FnOnce(Trial<'_, '_>) -> Result<Option<TrialResult>>,
    ) -> Result<Option<TrialResult>> {
        let Measurement { name, relay, guess, from, params, team, adjust } = measurement;
        enter(self.wan.host(self.host)?)?;
        let (request, pid, mut reports) =
            self.relays.subject(*relay, *guess, *params, &self.testbed)?;
        raise_priority(pid);
        enter(self.wan.host(from)?)?;
        let (team, request) = (&*team(&self.testbed)?, adjust(request));
        run(Trial { name, team, request, pid, reports: &mut reports })
    }

    /// The paths to the relays.
    pub(crate) const fn paths(&self) -> Paths<'_> {
        Paths { wan: &self.wan, host: self.host }
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.relays.stop()
    }
}

/// The paths between the relays of a site and other hosts. Any thread may change them.
#[derive(Clone, Copy)]
pub(crate) struct Paths<'a> {
    wan: &'a Wan,
    host: &'static str,
}

impl Paths<'_> {
    /// Changes both directions of the path of `other`: to the relays, and from them.
    pub(crate) fn set(self, other: &str, [to, from]: [WanPath; 2]) -> Result<()> {
        self.wan.set_path(other, self.host, to)?;
        Ok(self.wan.set_path(self.host, other, from)?)
    }
}

/// One direction of a path with this round-trip time, of which each direction has half.
pub(crate) fn path_with_rtt(rtt_ms: u32, loss_percent: f64) -> WanPath {
    let latency = Duration::from_micros(u64::from(rtt_ms) * 500);
    WanPath::with_latency(latency).with_loss(loss_percent / 100.0)
}

/// Starts a measurer of one pump at a host. `prepare` may first change the attributes of the starting thread, which the
/// process inherits.
pub(crate) fn measurer_at(
    host: &Host,
    testbed: &mut Testbed,
    capacity: Rate,
    prepare: impl FnOnce() -> Result<()> + Send,
) -> Result<()> {
    let start = || -> Result<()> {
        enter(host)?;
        prepare()?;
        testbed.add_measurer_at(host.address(), capacity, 1)
    };
    match thread::scope(|scope| scope.spawn(start).join()) {
        Ok(started) => started,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Moves this thread into the network namespace of a host.
pub(crate) fn enter(host: &Host) -> Result<()> {
    host.namespace().enter().map_err(|error| Error::Network(error.to_string()))
}

/// Gives the threads of a relay's process priority over its measurers, which on real networks run on other machines. Without
/// the permission to do so, nothing changes.
fn raise_priority(pid: u32) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let threads = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    for thread in threads.filter_map(Pid::from_raw) {
        let _unchanged = setpriority_process(Some(thread), PRIORITY);
    }
}
