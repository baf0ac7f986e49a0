use super::tcp::Control;
use super::users::Users;
use alloc::sync::Arc;
use alloc::vec::Vec;
use onion::flow::control::CongestionParams;
use onion::flow::hop::HopFlows;
use onion::measure::protocol::CoordinatorKey;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};

/// A host: its network connection and its application.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The upload rate.
    pub up: Rate,
    /// The download rate.
    pub down: Rate,
    /// The maximum queueing time of downloads; packets that would wait longer are dropped.
    pub queue: Duration,
    /// Its kernel's congestion control.
    pub control: Control,
    /// The memory that its kernel accounts for a segment in send buffers:
    /// [`SEGMENT_MEMORY_BYTES`](super::SEGMENT_MEMORY_BYTES), or another kernel's.
    pub segment_memory_bytes: u32,
    /// How its links leave it.
    pub egress: Egress,
    /// Its application.
    pub role: Role,
}

/// How data of links leaves a host, where kernels and their settings differ. By default there is no limit on unsent data but the
/// send buffer, and sockets take turns (fair queueing and TCP small queues, Linux since 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// `TCP_NOTSENT_LOWAT` is 1, as in Arti's relay: a link takes a new piece of at most 64 KiB only when all is sent.
    pub has_notsent_lowat: bool,
    /// The length in bytes of the device's queue, into which a socket puts all that its window allows: first in, first out, but for
    /// packets without data. 0: none.
    pub device_queue_bytes: u32,
}

/// The application of a host.
#[derive(Clone, Debug)]
pub enum Role {
    /// A relay.
    Relay(RelayConfig),
    /// A client with its users.
    Client(ClientConfig),
    /// A destination. The models are those of its clients' users.
    Server(Arc<super::users::Models>),
    /// A member of a team that measures relays: a measurer or the coordinator. It obeys
    /// [`Part::order`](super::Part::order).
    Member,
    /// A host that fetches from servers without Tor.
    Direct(Vec<super::direct::Direct>),
}

impl HostConfig {
    /// Whether it offers hop-by-hop windows on its links.
    pub(super) const fn has_hop_windows(&self) -> bool {
        match &self.role {
            Role::Relay(relay) => relay.hop_windows.is_some(),
            Role::Client(client) => client.hop_windows.is_some(),
            Role::Server(_) | Role::Member | Role::Direct(_) => false,
        }
    }
}

/// A relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Whether it is an exit.
    pub is_exit: bool,
    /// Its rate limit, if it is below the host's rate.
    pub limit: Option<onion::router::RateLimit>,
    /// Its scheduler.
    pub scheduler: SchedulerConfig,
    /// Its processing time per received cell.
    pub cell_cost: Duration,
    /// The congestion control that it grants.
    pub congestion: CongestionParams,
    /// Hop-by-hop windows with peers that have them; `None` for none.
    pub hop_windows: Option<HopFlows>,
    /// Coordinators that may have it measured by echo, without a quota.
    pub measured_by: Vec<CoordinatorKey>,
}

/// A client: one tor process for all its users.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The number of guards, used in turn; with 0, each circuit has another first hop (C tor: `UseEntryGuards
    /// 0`).
    pub guards: u8,
    /// Circuits built in advance (like C tor).
    pub ready_circuits: u8,
    /// A circuit accepts no new streams this long after its first (C tor: `MaxCircuitDirtiness`), and ends
    /// after its last.
    pub dirtiness: Duration,
    /// The build timeout of circuits.
    pub build_timeout: Duration,
    /// Congestion control (proposal 324) of circuits; fixed windows if `None`.
    pub congestion: Option<Arc<CongestionParams>>,
    /// Hop-by-hop windows with first hops that have them; `None` for none.
    pub hop_windows: Option<HopFlows>,
    /// Its users.
    pub users: Users,
    /// When its users begin.
    pub begins: Duration,
}
