use super::tcp::Control;
use super::users::Users;
use alloc::sync::Arc;
use alloc::vec::Vec;
use onion::flow::control::CongestionParams;
use onion::flow::hop::HopFlows;
use onion::measure::protocol::CoordinatorKey;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};

/// A host: its connection to the network, and what runs on it.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What it sends at most.
    pub up: Rate,
    /// What it gets at most.
    pub down: Rate,
    /// What comes and would wait longer than this on the way down is dropped.
    pub queue: Duration,
    /// Its kernel's congestion control.
    pub control: Control,
    /// What its kernel reckons for a segment where it decides how much of a connection it buffers: [`SEGMENT_MEMORY_BYTES`](super::SEGMENT_MEMORY_BYTES), or another kernel's.
    pub segment_memory_bytes: u32,
    /// What it is.
    pub role: Role,
}

/// What runs on a host.
#[derive(Clone, Debug)]
pub enum Role {
    /// A relay.
    Relay(RelayConfig),
    /// A client, and its users.
    Client(ClientConfig),
    /// A destination. The models are those that its clients' users have.
    Server(Arc<super::users::Models>),
    /// Of a team that measures relays: a measurer, or the coordinator. It does what it is told ([`Part::order`](super::Part::order)).
    Member,
    /// Somebody who fetches from servers without Tor.
    Direct(Vec<super::direct::Direct>),
}

impl HostConfig {
    /// Whether it offers windows from hop to hop on its links.
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
    /// Whether streams may leave it.
    pub is_exit: bool,
    /// What it lets itself send, if less than its host could.
    pub limit: Option<onion::router::RateLimit>,
    /// Its scheduler.
    pub scheduler: SchedulerConfig,
    /// What its processor needs for a cell that comes.
    pub cell_cost: Duration,
    /// Congestion control of circuits that ask for it.
    pub congestion: CongestionParams,
    /// Windows from hop to hop with whoever has them, too; none if `None`.
    pub hop_windows: Option<HopFlows>,
    /// Coordinators that may have it measured, as an echo; as many rounds as they like.
    pub measured_by: Vec<CoordinatorKey>,
}

/// A client: what one tor process does for all users behind it.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// So many guards are kept, and used in turn; each circuit has another first hop if 0 (C tor: `UseEntryGuards 0`).
    pub guards: u8,
    /// Circuits that stand ready for what comes (C tor builds them ahead, too).
    pub ready_circuits: u8,
    /// A circuit takes no new streams when its first was so long ago (C tor: `MaxCircuitDirtiness`), and ends when its last is over.
    pub dirtiness: Duration,
    /// A circuit that does not stand by then is given up.
    pub build_timeout: Duration,
    /// Congestion control (proposal 324), for circuits; fixed windows if `None`.
    pub congestion: Option<Arc<CongestionParams>>,
    /// Windows from hop to hop with first hops that have them, too; none if `None`.
    pub hop_windows: Option<HopFlows>,
    /// Who uses it.
    pub users: Users,
    /// When its users begin.
    pub begins: Duration,
}
