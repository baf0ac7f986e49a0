//! A host: a kernel and an application.

use super::client::Client;
use super::config::{HostConfig, Role};
use super::direct::DirectClient;
use super::kernel::{Event, Kernel, Line};
use super::member::Member;
use super::message::{HostId, Mail};
use super::net::Net;
use super::paths::Paths;
use super::records::{CircuitTimes, Record};
use super::relay::Relay;
use super::server::Server;
use super::team::{TeamOrder, TeamReport};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The application of a host.
#[derive(Debug)]
enum Application {
    Relay(Box<Relay>),
    Client(Box<Client>),
    Server(Box<Server>),
    Member(Box<Member>),
    Direct(Box<DirectClient>),
}

/// The data that all hosts of a world share.
#[derive(Debug)]
pub(super) struct Around {
    pub(super) net: Arc<Net>,
    pub(super) paths: Arc<Paths>,
    /// The server hosts.
    pub(super) servers: Arc<[u32]>,
    /// For each host, whether it offers hop-by-hop windows.
    pub(super) windows: Arc<[bool]>,
}

/// A host: kernel and application.
#[derive(Debug)]
pub struct Host {
    pub(super) kernel: Kernel,
    /// When the next timer of the application expires: it is not called if only the kernel has something to do.
    application_at: u64,
    application: Application,
}

/// The statistics of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFigures {
    /// The host.
    pub host: HostId,
    /// Cells received over links.
    pub cells: u64,
    /// The kernel's events: arrivals, departures and RTOs.
    pub events: u64,
    /// Flights lost in transit, and at its download queue.
    pub lost_flights: u64,
    /// Flights among them that would have waited too long there.
    pub dropped_flights: u64,
    /// Bytes sent in each second, including headers.
    pub sent_bytes: Vec<u64>,
    /// A relay's cells sent, and the sum of queueing delays in its queues, in cell-seconds.
    pub relayed_bytes: u64,
    /// See `relayed_bytes`.
    pub waited_cell_s: f64,
    /// The sum of delays in kernels' sockets before the first transmission, in cell-seconds: after the relay's
    /// queues.
    pub kernel_waited_cell_s: f64,
    /// Circuits of a relay so far.
    pub circuits: u64,
    /// Bytes received by a client's streams.
    pub received_bytes: u64,
}

impl Host {
    pub(super) fn new(
        id: HostId,
        config: &HostConfig,
        Around { net, paths, servers, windows }: &Around,
        seed: u64,
    ) -> Self {
        let line = Line { up: config.up, down: config.down, queue: config.queue };
        let HostConfig { control, segment_memory_bytes, .. } = *config;
        let mut kernel = Kernel::new(id.0, net.clone(), line, control, segment_memory_bytes, seed);
        kernel.windows = windows.clone();
        kernel.set_egress(config.egress);
        let application = match &config.role {
            Role::Relay(relay) => Application::Relay(Box::new(Relay::new(id.0, relay, seed))),
            Role::Client(client) => {
                let (paths, servers) = (paths.clone(), servers.clone());
                Application::Client(Box::new(Client::new(id.0, client, paths, servers, seed)))
            }
            Role::Server(models) => Application::Server(Box::new(Server::new(models.clone()))),
            Role::Member => Application::Member(Box::new(Member::new(id.0))),
            Role::Direct(plans) => Application::Direct(Box::new(DirectClient::new(id.0, plans))),
        };
        let mut host = Self { kernel, application_at: 0, application };
        host.application_at = host.ask_application();
        host
    }

    /// When its next timer expires.
    pub(super) fn next_at(&self) -> u64 {
        self.kernel.next_at().min(self.application_at)
    }

    fn ask_application(&self) -> u64 {
        match &self.application {
            Application::Relay(relay) => relay.next_at(),
            Application::Client(client) => client.next_at(),
            Application::Server(server) => server.next_at(),
            Application::Member(member) => member.next_at(),
            Application::Direct(direct) => direct.next_at(),
        }
    }

    /// Reads what this mail needs, for the cache only.
    pub(super) fn read_ahead(&self, mail: &Mail) -> u64 {
        self.kernel.read_ahead(mail)
    }

    pub(super) fn admit(&mut self, mail: Mail) {
        self.kernel.admit(mail);
    }

    /// Processes all events before `end`.
    pub(super) fn run(&mut self, end: u64) {
        loop {
            let (kernel_at, application_at) = (self.kernel.next_at(), self.application_at);
            let at = kernel_at.min(application_at);
            if at >= end {
                return;
            }
            self.kernel.now = self.kernel.now.max(at);
            if kernel_at <= application_at {
                self.kernel.step();
            } else {
                self.handle_time();
            }
            let mut is_touched = application_at < kernel_at;
            while let Some(event) = self.kernel.scratch.events.pop_front() {
                self.handle(event);
                is_touched = true;
            }
            if is_touched {
                self.settle();
                self.application_at = self.ask_application();
            }
        }
    }

    fn handle_time(&mut self) {
        match &mut self.application {
            Application::Relay(relay) => relay.handle_time(&mut self.kernel),
            Application::Client(client) => client.handle_time(&self.kernel),
            Application::Server(server) => server.handle_time(&mut self.kernel),
            Application::Member(member) => member.handle_time(&mut self.kernel),
            Application::Direct(direct) => direct.handle_time(&mut self.kernel),
        }
    }

    fn handle(&mut self, event: Event) {
        match &mut self.application {
            Application::Relay(relay) => relay.handle(event, &mut self.kernel),
            Application::Client(client) => client.handle(event, &mut self.kernel),
            Application::Server(server) => server.handle(event, &mut self.kernel),
            Application::Member(member) => member.handle(event, &mut self.kernel),
            Application::Direct(direct) => direct.handle(event, &mut self.kernel),
        }
    }

    fn settle(&mut self) {
        match &mut self.application {
            Application::Relay(relay) => relay.settle(&mut self.kernel),
            Application::Client(client) => client.settle(&mut self.kernel),
            Application::Server(_) | Application::Direct(_) | Application::Member(_) => {}
        }
    }

    /// Gives an order to a team's host, now.
    pub(super) fn order(&mut self, now: u64, order: TeamOrder) {
        if let Application::Member(member) = &mut self.application {
            member.order(now, order);
            self.application_at = self.ask_application();
        }
    }

    /// Takes the reports of a team's host since the last call.
    pub(super) fn take_reports(&mut self) -> Vec<TeamReport> {
        match &mut self.application {
            Application::Member(member) => member.take_reports(),
            _ => Vec::new(),
        }
    }

    /// Its statistics so far.
    #[must_use]
    pub fn figures(&self) -> HostFigures {
        let counts = &self.kernel.counts;
        let mut figures = HostFigures {
            host: HostId(self.kernel.id),
            cells: counts.cells,
            events: counts.events,
            lost_flights: counts.lost_flights,
            dropped_flights: counts.dropped_flights,
            sent_bytes: self.kernel.sent_bytes.clone(),
            kernel_waited_cell_s: self.kernel.waited_cell_s(),
            ..HostFigures::default()
        };
        match &self.application {
            Application::Relay(relay) => {
                figures.relayed_bytes = relay.core.totals().client_bytes;
                figures.waited_cell_s = relay.waited_cell_s();
                figures.circuits = relay.core.totals().circuits;
            }
            Application::Client(client) => figures.received_bytes = client.received_bytes,
            Application::Direct(direct) => figures.received_bytes = direct.received_bytes,
            Application::Server(_) | Application::Member(_) => {}
        }
        figures
    }

    /// Takes the transfers that have ended since the last call.
    pub fn take_records(&mut self) -> Vec<Record> {
        match &mut self.application {
            Application::Client(client) => core::mem::take(&mut client.records),
            Application::Direct(direct) => core::mem::take(&mut direct.records),
            _ => Vec::new(),
        }
    }

    /// Takes the circuits that a scanner has measured since the last call.
    pub fn take_circuit_times(&mut self) -> Vec<CircuitTimes> {
        match &mut self.application {
            Application::Client(client) => core::mem::take(&mut client.probed),
            _ => Vec::new(),
        }
    }

    /// The running transfers.
    pub fn under_way(&self) -> Vec<Record> {
        match &self.application {
            Application::Client(client) => client.under_way().collect(),
            Application::Direct(direct) => direct.under_way().collect(),
            _ => Vec::new(),
        }
    }
}
