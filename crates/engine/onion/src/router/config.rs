//! The configuration of a router.

use super::links::RECORD_BYTES;
use super::schedule::SchedulerConfig;
use super::streams::{ExitConfig, KnownRelays};
use crate::flow::control::{FlowFactory, TorFlows};
use crate::flow::{QUEUE_LIMIT_CELLS, TokenBucket};
use crate::identity::OwnIdentity;
use crate::measure::target::TargetParams;
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use crate::tunnel::conflux::LegScheduler;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// How late a driver may wake up without reducing the rate: its timers have a resolution of about 1 ms.
const TIMER_SLACK: Duration = Duration::from_millis(10);

/// The rate limit, like `RelayBandwidthRate` and `RelayBandwidthBurst` of C tor, in each direction.
///
/// Sending counts cells. Reading counts all bytes of links, with TLS; it may run ahead by what is queued here, and
/// allows for the TLS of as many cells as are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Average rate.
    pub rate: Rate,
    /// Burst.
    pub burst_bytes: u64,
}

impl RateLimit {
    pub(super) fn bucket(self, now: Instant) -> TokenBucket {
        let depth = self.burst_bytes.max(RECORD_BYTES);
        TokenBucket::new(self.rate, TIMER_SLACK, depth, now)
    }
}

/// The configuration of a router.
#[derive(Clone, Debug)]
pub struct RouterConfig<I = Arc<OwnIdentity>> {
    /// The relay's keys and certificates.
    pub identity: I,
    /// Who may measure the relay, and the parameters of measurements.
    pub target: TargetParams,
    /// The rate limit; `None` for none.
    pub limit: Option<RateLimit>,
    /// Maximum number of queued cells of a circuit in one direction (C tor: `circ_max_cell_queue_size`).
    pub queue_limit_cells: u32,
    /// The scheduler, and the priority of circuits.
    pub scheduler: SchedulerConfig,
    /// The flow control of circuits that end here, and the hop-by-hop windows towards the next hop.
    pub flows: Arc<dyn FlowFactory>,
    /// The Unix time in seconds when the router starts, for certificates and orders.
    pub unix_time_s: u64,
    /// The exit configuration; `None` for a relay that is not an exit.
    pub exit: Option<ExitConfig>,
    /// The relays of the consensus.
    pub relays: KnownRelays,
    /// The address of the directory server for BEGIN_DIR, if there is one.
    pub directory: Option<SocketAddr>,
    /// The relay's own addresses, which it announces in NETINFO: a peer considers the link canonical if it
    /// comes from one of them.
    pub addresses: Vec<IpAddr>,
    /// Whether circuits may be extended to private addresses (C tor: `ExtendAllowPrivateAddresses`).
    pub extends_to_private: bool,
    /// Maximum number of streams of all circuits; more are refused.
    pub streams_max: u32,
    /// Maximum memory that peers may occupy, in bytes: cells, control cells, handshakes, stream buffers, and
    /// circuits, streams and links themselves. Above it, the circuits with the oldest queued data are destroyed
    /// until a tenth is free (C tor: `MaxMemInQueues`). If circuits, streams and links occupy half of it, a new
    /// circuit evicts idle ones of the addresses that have most.
    pub held_bytes_max: usize,
    /// Maximum number of CREATE2 handshakes outstanding on other threads
    /// ([`Core::poll_handshake`](super::Core::poll_handshake)). With zero, handshakes are computed immediately
    /// on this thread.
    pub handshakes_at_once: usize,
    /// The scheduler that chooses the leg of a Conflux set. `None` follows the client's request, by
    /// [`for_desired_ux`](crate::tunnel::conflux::schedulers::for_desired_ux).
    pub conflux_scheduler: Option<&'static dyn LegScheduler>,
    /// Whether clients' links are padded as the consensus and the clients request (padding-spec §2). C tor's
    /// relays have no such option.
    pub padding: bool,
}

impl RouterConfig {
    /// The default of [`streams_max`](Self::streams_max).
    pub const STREAMS_MAX: u32 = 16_384;

    /// The default of [`held_bytes_max`](Self::held_bytes_max): 512 MiB.
    pub const HELD_BYTES_MAX: usize = 512 << 20;
}

impl<I> RouterConfig<I> {
    /// A relay without exit, directory, rate limit and measurements, with default limits. Circuits may be
    /// extended to any address.
    #[must_use]
    pub fn new(identity: I, unix_time_s: u64) -> Self {
        Self {
            identity,
            target: TargetParams::default(),
            limit: None,
            queue_limit_cells: QUEUE_LIMIT_CELLS,
            scheduler: SchedulerConfig::default(),
            flows: Arc::new(TorFlows),
            unix_time_s,
            exit: None,
            relays: KnownRelays::default(),
            directory: None,
            addresses: Vec::new(),
            extends_to_private: true,
            streams_max: RouterConfig::STREAMS_MAX,
            held_bytes_max: RouterConfig::HELD_BYTES_MAX,
            handshakes_at_once: 0,
            conflux_scheduler: None,
            padding: true,
        }
    }
}
