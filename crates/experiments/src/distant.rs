//! Relays and other nodes beyond a distance.

use crate::error::Error;
use crate::mode::Mode;
use crate::stage::Stage;
use lab::wan::Host;
use lab::{Network, NetworkSpec, OwnRelay, OwnRelaySpec, RelaySaid, RelaySpec};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, NodeThread, Watch};
use measurer::{Approach, Defences, Request};
use netdoc::Fingerprint;
use onion::Rate;
use onion::measure::load::Target;
use onion::node::Node;
use rustix::process::{Pid, setpriority_process};
use std::net::TcpListener;
use std::{fs, thread};
use terminal::measuring::Subject;
use terminal::{Output, network};

/// Nearly the priority of the path itself (`lab::wan`), which must be late for nobody.
const PRIORITY: i32 = -14;

/// Lets nodes run at hosts, by one clock and with the keys of one side of TLS.
pub(crate) struct Starter {
    pub(crate) clock: Clock,
    pub(crate) tls: TlsConfigs,
}

impl Starter {
    /// Lets a node run at a host; `watch` looks after it.
    pub(crate) fn start<N: Node + Send + 'static>(
        &self,
        host: &Host,
        node: N,
        listeners: Vec<TcpListener>,
        options: DriverOptions,
        watch: impl Watch<N> + 'static,
    ) -> Result<NodeThread<N>, Error> {
        let driver = Driver::new(node, self.clock, self.tls.clone(), listeners, options)?;
        // A thread is in the network of the one that starts it.
        Ok(host.run(|| NodeThread::start(host.name(), Box::new(driver), watch))??)
    }
}

/// Relays with limits that run at a host, all of one kind.
pub(crate) enum Relays {
    /// Stock tor's, in a network of their own.
    Stock(Network),
    /// Ours, that a stage's coordinator may measure.
    Own(Vec<OwnRelay>),
}

impl Relays {
    /// Starts one for each limit. It leaves this thread at that host: processes and threads that it starts later
    /// stay there.
    pub(crate) fn start(
        mode: Mode,
        limits: &[Rate],
        host: &Host,
        stage: &Stage,
        output: &Output,
    ) -> Result<Self, Error> {
        let address = host.address();
        enter(host)?;
        let limits = (1..).zip(limits.iter().copied());
        match mode {
            Mode::Transit => {
                let relay = |(number, limit): (u32, Rate)| {
                    RelaySpec::new(&format!("stock{number}")).limited_to(limit)
                };
                let relays = limits.map(relay).collect();
                let spec =
                    NetworkSpec { bandwidth_file: false, address, ..NetworkSpec::new(relays) };
                Ok(Self::Stock(network::start(&spec, output)?))
            }
            Mode::Echo => {
                let start = |(number, limit): (u32, Rate)| {
                    let spec = OwnRelaySpec {
                        nickname: format!("own{number}"),
                        limit: Some(limit),
                        coordinator: stage.key().public().to_string(),
                        authorities: Vec::new(),
                        client_percent: None,
                        is_open_exit: false,
                        address,
                    };
                    stage.start_relay(spec)
                };
                Ok(Self::Own(limits.map(start).collect::<Result<_, _>>()?))
            }
        }
    }

    /// The relay of this number, as it is to be measured: the order, its process, and what it says. From then on it goes ahead of its measurers
    /// where processors are few, as the path does: nobody shares a machine with them elsewhere.
    pub(crate) fn subject(
        &self,
        relay: usize,
        guess: Rate,
        stage: &Stage,
    ) -> Result<(Request, u32, RelaySaid<'_>), Error> {
        match self {
            Self::Stock(network) => {
                let node = &network.relays()[relay];
                let ids = Subject::ids(Fingerprint::from_bytes(node.rsa()), Some(node.ed25519()));
                let target = Target { address: node.or_addr(), ids };
                let defences = Defences::default();
                let request = Request { target, guess, defences, approach: Approach::Transit };
                go_ahead(node.pid());
                Ok((request, node.pid(), RelaySaid::watch(node)?))
            }
            Self::Own(relays) => {
                let relay = &relays[relay];
                go_ahead(relay.process.pid());
                let said = RelaySaid::watch_own(relay, stage.clock());
                Ok((stage.echo_request(relay.target, guess), relay.process.pid(), said))
            }
        }
    }

    pub(crate) fn stop(self) -> Result<(), Error> {
        match self {
            Self::Stock(network) => Ok(network.stop()?),
            Self::Own(_) => Ok(()),
        }
    }
}

/// Starts a measurer of one pump at a host, on a thread that `prepare` may change first: the process inherits
/// that.
pub(crate) fn measurer_at(
    host: &Host,
    stage: &mut Stage,
    capacity: Rate,
    prepare: impl FnOnce() -> Result<(), Error> + Send,
) -> Result<(), Error> {
    let start = || -> Result<(), Error> {
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
pub(crate) fn enter(host: &Host) -> Result<(), Error> {
    host.namespace().enter().map_err(|error| Error::Network(error.to_string()))
}

/// Lets all threads of a process have a processor before others; without the right to that, as all others.
fn go_ahead(pid: u32) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let threads = tasks.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    for thread in threads.filter_map(Pid::from_raw) {
        let _equal = setpriority_process(Some(thread), PRIORITY);
    }
}
