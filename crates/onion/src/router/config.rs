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

/// How late a driver may look without the rate suffering: its timers are good to a millisecond or so.
const TIMER_SLACK: Duration = Duration::from_millis(10);

/// How much a relay sends: as `RelayBandwidthRate` and `RelayBandwidthBurst` of C tor, but of cells,
/// without TLS and TCP around them, and on the way out only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// On average.
    pub rate: Rate,
    /// At once, after a pause: at least ten milliseconds' worth, and a TLS record's.
    pub burst_bytes: u64,
}

impl RateLimit {
    pub(super) fn bucket(self, now: Instant) -> TokenBucket {
        let depth = self.burst_bytes.max(RECORD_BYTES);
        TokenBucket::new(self.rate, TIMER_SLACK, depth, now)
    }
}

/// Choices for a router.
#[derive(Clone, Debug)]
pub struct RouterConfig<I = Arc<OwnIdentity>> {
    /// Who it is.
    pub identity: I,
    /// Who may measure it, and how.
    pub target: TargetParams,
    /// How much it sends; all that it can if `None`.
    pub limit: Option<RateLimit>,
    /// Cells that wait on one circuit in one direction, at most (C tor: `circ_max_cell_queue_size`).
    pub queue_limit_cells: u32,
    /// Which cells go first, and when.
    pub scheduler: SchedulerConfig,
    /// Flow control of circuits, at their ends here and towards the next hop.
    pub flows: Arc<dyn FlowFactory>,
    /// Seconds since 1970 when the router begins, for certificates and orders.
    pub unix_time_s: u64,
    /// Streams to destinations; none go out if `None`.
    pub exit: Option<ExitConfig>,
    /// The relays of the consensus.
    pub relays: KnownRelays,
    /// The directory server that BEGIN_DIR leads to, if there is one.
    pub directory: Option<SocketAddr>,
    /// Its own addresses, which it tells those it has links with: relays take a link for theirs to use
    /// if it comes from one of them.
    pub addresses: Vec<IpAddr>,
    /// Whether circuits may be extended to private addresses (C tor: `ExtendAllowPrivateAddresses`).
    pub extends_to_private: bool,
    /// Streams at once, of all circuits together; more are refused.
    pub streams_max: u32,
    /// Bytes of memory that peers may have it hold: cells, control cells, handshakes, buffers of streams, and
    /// circuits, streams and links themselves. Beyond it whatever has waited longest is dropped, with its circuit,
    /// until a tenth is free (C tor: `MaxMemInQueues`). Where circuits, streams and links take half of it, a new circuit ends
    /// idle ones of the neighbours that have most.
    pub held_bytes_max: usize,
    /// Handshakes of CREATE2 that are handed out at a time, for other threads to answer
    /// ([`Core::poll_handshake`](super::Core::poll_handshake)). With none they are answered at once, where they come in.
    pub handshakes_at_once: usize,
    /// Which leg of linked circuits carries what is sent, whatever clients wish; as they wish if `None`, by
    /// [`for_wish`](crate::tunnel::conflux::schedulers::for_wish).
    pub conflux_scheduler: Option<&'static dyn LegScheduler>,
    /// Whether clients' links are padded as consensus and clients ask for (padding-spec §2); none is if
    /// not. C tor's relays have no such choice.
    pub padding: bool,
}

impl RouterConfig {
    /// A default for [`streams_max`](Self::streams_max).
    pub const STREAMS_MAX: u32 = 16_384;

    /// A default for [`held_bytes_max`](Self::held_bytes_max): 512 MiB.
    pub const HELD_BYTES_MAX: usize = 512 << 20;
}

impl<I> RouterConfig<I> {
    /// A relay without exits, directory, limit and measurements, with the usual bounds. Circuits may be
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
