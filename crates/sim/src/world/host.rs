use super::client::Client;
use super::config::{HostConfig, Role};
use super::direct::DirectClient;
use super::kernel::{Event, Kernel};
use super::member::Member;
use super::message::{HostId, Mail};
use super::net::Net;
use super::paths::Paths;
use super::records::Record;
use super::relay::Relay;
use super::server::Server;
use super::team::{TeamOrder, TeamReport};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What runs on a host.
#[derive(Debug)]
enum Application {
    Relay(Box<Relay>),
    Client(Box<Client>),
    Server(Box<Server>),
    Member(Box<Member>),
    Direct(Box<DirectClient>),
}

/// What all hosts of a world know.
#[derive(Debug)]
pub(super) struct Around {
    pub(super) net: Arc<Net>,
    pub(super) paths: Arc<Paths>,
    /// Hosts that are servers.
    pub(super) servers: Arc<[u32]>,
    /// Of each host, whether it offers windows from hop to hop.
    pub(super) windows: Arc<[bool]>,
}

/// A host: kernel and application.
#[derive(Debug)]
pub struct Host {
    pub(super) kernel: Kernel,
    /// When something happens in the application by itself: it need not be asked where only the kernel has something to do.
    application_at: u64,
    application: Application,
}

/// What a host has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFigures {
    /// Which.
    pub host: HostId,
    /// Cells that have come over links.
    pub cells: u64,
    /// What its kernel has done: arrivals, departures and time-outs.
    pub events: u64,
    /// Flights that got lost on their way, and at its own way down.
    pub lost_flights: u64,
    /// Those of them that would have waited too long there.
    pub dropped_flights: u64,
    /// Bytes sent in each second, with all headers.
    pub sent_bytes: Vec<u64>,
    /// A relay's cells sent, and the seconds that cells have waited in its queues, all together.
    pub relayed_bytes: u64,
    /// See `relayed_bytes`.
    pub waited_cell_s: f64,
    /// The seconds that cells have waited in kernels' sockets before they were sent for the first time, all together: behind the relay's queues.
    pub kernel_waited_cell_s: f64,
    /// Circuits that a relay has had.
    pub circuits: u64,
    /// Bytes that a client's streams have got.
    pub received_bytes: u64,
}

impl Host {
    pub(super) fn new(
        id: HostId,
        config: &HostConfig,
        Around { net, paths, servers, windows }: &Around,
        seed: u64,
    ) -> Self {
        let pace = (config.up, config.down, config.queue);
        let tcp = (config.control, config.segment_memory_bytes);
        let mut kernel = Kernel::new(id.0, net.clone(), pace, tcp, seed);
        kernel.windows = windows.clone();
        let application = match &config.role {
            Role::Relay(relay) => Application::Relay(Box::new(Relay::new(id.0, relay, seed))),
            Role::Client(client) => {
                let around = (paths.clone(), servers.clone());
                Application::Client(Box::new(Client::new(id.0, client, around, seed)))
            }
            Role::Server(models) => Application::Server(Box::new(Server::new(models.clone()))),
            Role::Member => Application::Member(Box::new(Member::new(id.0))),
            Role::Direct(plans) => Application::Direct(Box::new(DirectClient::new(id.0, plans))),
        };
        let mut host = Self { kernel, application_at: 0, application };
        host.application_at = host.ask_application();
        host
    }

    /// When something happens here by itself.
    pub(super) fn next_at(&self) -> u64 {
        self.kernel.next_at().min(self.application_at)
    }

    fn ask_application(&self) -> u64 {
        match &self.application {
            Application::Relay(it) => it.next_at(),
            Application::Client(it) => it.next_at(),
            Application::Server(it) => it.next_at(),
            Application::Member(it) => it.next_at(),
            Application::Direct(it) => it.next_at(),
        }
    }

    pub(super) fn admit(&mut self, mail: Mail) {
        self.kernel.admit(mail);
    }

    /// Lets all happen that happens before `end`.
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
            Application::Relay(it) => it.handle_time(&mut self.kernel),
            Application::Client(it) => it.handle_time(&self.kernel),
            Application::Server(it) => it.handle_time(&mut self.kernel),
            Application::Member(it) => it.handle_time(&mut self.kernel),
            Application::Direct(it) => it.handle_time(&mut self.kernel),
        }
    }

    fn handle(&mut self, event: Event) {
        match &mut self.application {
            Application::Relay(it) => it.handle(event, &mut self.kernel),
            Application::Client(it) => it.handle(event, &mut self.kernel),
            Application::Server(it) => it.handle(event, &mut self.kernel),
            Application::Member(it) => it.handle(event, &mut self.kernel),
            Application::Direct(it) => it.handle(event, &mut self.kernel),
        }
    }

    fn settle(&mut self) {
        match &mut self.application {
            Application::Relay(it) => it.settle(&mut self.kernel),
            Application::Client(it) => it.settle(&mut self.kernel),
            Application::Server(_) | Application::Direct(_) | Application::Member(_) => {}
        }
    }

    /// Tells a host of a team something, now.
    pub(super) fn order(&mut self, now: u64, order: TeamOrder) {
        if let Application::Member(it) = &mut self.application {
            it.order(now, order);
            self.application_at = self.ask_application();
        }
    }

    /// Takes what a host of a team has told since the last time.
    pub(super) fn take_reports(&mut self) -> Vec<TeamReport> {
        match &mut self.application {
            Application::Member(it) => it.take_reports(),
            _ => Vec::new(),
        }
    }

    /// What it has done so far.
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
            Application::Relay(it) => {
                figures.relayed_bytes = it.core.totals().client_bytes;
                figures.waited_cell_s = it.waited_cell_s();
                figures.circuits = it.core.totals().circuits;
            }
            Application::Client(it) => figures.received_bytes = it.received_bytes,
            Application::Direct(it) => figures.received_bytes = it.received_bytes,
            Application::Server(_) | Application::Member(_) => {}
        }
        figures
    }

    /// Takes what transfers have ended since the last time.
    pub fn take_records(&mut self) -> Vec<Record> {
        match &mut self.application {
            Application::Client(it) => core::mem::take(&mut it.records),
            Application::Direct(it) => core::mem::take(&mut it.records),
            _ => Vec::new(),
        }
    }

    /// Transfers that are under way now.
    pub fn under_way(&self) -> Vec<Record> {
        match &self.application {
            Application::Client(it) => it.under_way().collect(),
            Application::Direct(it) => it.under_way().collect(),
            _ => Vec::new(),
        }
    }
}
