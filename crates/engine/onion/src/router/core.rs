//! The centre of the router: its state, its configuration, and the getters and commands of a shell.
//!
//! [`Core`] owns the tables of connections, circuits, tunnels and Conflux sets, the output of links, and the
//! clock of the current event. The sibling modules implement its methods by topic. It must not know bytes,
//! framing, TLS or sockets: those belong to [`face`](super::face) and to the shell.

use super::circuits::{Circuits, Handshakes, Tunnels};
use super::conflux::Sets;
use super::conns::Conns;
use super::dos::ClientAddresses;
use super::links::{Link, Outputs, Padder, Reading, RelayLink, Role};
use super::schedule::SchedulerConfig;
use super::streams::{ExitConfig, KnownRelays, Streams};
use super::{Behavior, Parameters, RouterConfig, RouterEvent, RouterTotals};
use crate::cell::CELL_LEN;
use crate::cell::msg::DestroyReason;
use crate::cell_model::CellModel;
use crate::flow::TokenBucket;
use crate::flow::control::CongestionParams;
use crate::identity::RsaId;
use crate::link::ExpectedPeer;
use crate::measure::target::{Accepted, Target, TargetParams};
use crate::node::{CloseCause, ConnId, Dial, DnsAnswer, Lookup, LookupId, SocketState, Unwritten};
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};
use rand_core::Rng;

/// Maximum average rate of reported refusals.
const REFUSALS_PER_S: Rate = Rate::from_byte_per_s(1);

/// Maximum burst of reported refusals.
const REFUSALS_BURST: u64 = 20;

/// Maximum number of queued events.
const EVENTS_MAX: usize = 256;

/// The decisions of an onion router, over cells of any [`CellModel`]: no bytes, no framing, no link handshake.
///
/// - *getters*: [`totals`](Self::totals), [`open_circuits`](Self::open_circuits),
///   [`open_links`](Self::open_links), [`has_dialled`](Self::has_dialled), [`has_hop_windows`](Self::has_hop_windows),
///   [`open_streams`](Self::open_streams), [`queued_bytes`](Self::queued_bytes),
///   [`parameters`](Self::parameters), [`expected`](Self::expected), [`is_stream`](Self::is_stream),
///   [`receive_limit`](Self::receive_limit);
/// - *links*: [`accept`](Self::accept), [`handle_link_open`](Self::handle_link_open),
///   [`handle_cell`](Self::handle_cell), [`handle_measure`](Self::handle_measure),
///   [`handle_feedback`](Self::handle_feedback), [`handle_padding`](Self::handle_padding),
///   [`handle_read`](Self::handle_read), [`poll_read_limit`](Self::poll_read_limit),
///   [`poll_control`](Self::poll_control), [`poll_cells`](Self::poll_cells);
/// - *streams*: [`handle_stream_data`](Self::handle_stream_data),
///   [`poll_stream_data`](Self::poll_stream_data);
/// - *commands*: [`shut_down`](Self::shut_down), and all that begin with `set_`;
/// - the other *handle* and *poll* methods are those of [`Node`](crate::node::Node), with the same contract.
///
/// All random numbers come from the generator that is passed in; every cell model draws the same ones. `C`
/// makes a relay dishonest in tests of measurements; the default is [`Honest`](super::Honest).
#[derive(Debug)]
pub struct Core<S: CellModel, R, C = super::Honest> {
    pub(super) config: RouterConfig<S::Identity>,
    pub(super) parameters: Parameters,
    pub(super) behavior: C,
    pub(super) rng: R,
    began: Instant,
    pub(super) conns: Conns<S>,
    pub(super) circuits: Circuits<S>,
    pub(super) handshakes: Handshakes<S>,
    pub(super) tunnels: Tunnels,
    pub(super) sets: Sets<S>,
    pub(super) streams: Streams,
    /// Also the router's clock.
    pub(super) outputs: Outputs,
    pub(super) padder: Padder,
    /// The rate limit for sending.
    pub(super) bucket: Option<TokenBucket>,
    /// The rate limit for reading.
    pub(super) reading: Reading,
    /// The buckets have another rate than the configured one, on request of the behavior.
    pub(super) has_changed_rate: bool,
    pub(super) target: Target,
    pub(super) to_dial: VecDeque<Dial>,
    /// CREATE2 bodies that wait for a link to open.
    pub(super) waiting: usize,
    /// The OOM handler does not run before this time.
    pub(super) next_oom_check: Instant,
    /// Eviction does not run before this time.
    pub(super) evicts_at: Instant,
    /// The number of measurement circuits among all circuits.
    pub(super) measurement_circuits: usize,
    events: VecDeque<RouterEvent>,
    pub(super) totals: RouterTotals,
    /// The congestion control parameters that new circuits may negotiate.
    pub(super) congestion: Arc<CongestionParams>,
    /// When the last upkeep of links ran.
    pub(super) upkept_at: Instant,
    /// Limits reported refusals to one per second on average. One byte is one report.
    pub(super) refusals_told: TokenBucket,
    /// New circuits, streams and orders are refused.
    pub(super) is_shutting_down: bool,
    pub(super) client_addresses: ClientAddresses,
    pub(super) has_hop_windows: bool,
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Creates a relay with this behavior.
    pub fn new(config: RouterConfig<S::Identity>, behavior: C, rng: R, now: Instant) -> Self {
        let target = Target::new(config.target.clone(), S::ids(&config.identity));
        let mut core = Self {
            parameters: Parameters::default(),
            behavior,
            rng,
            began: now,
            conns: Conns::default(),
            circuits: Circuits::default(),
            handshakes: Handshakes::default(),
            tunnels: Tunnels::default(),
            sets: Sets::default(),
            streams: Streams::default(),
            outputs: Outputs::new(&config.scheduler, now),
            padder: Padder::new(config.padding, &Parameters::default()),
            bucket: None,
            reading: Reading::default(),
            has_changed_rate: false,
            target,
            to_dial: VecDeque::new(),
            waiting: 0,
            next_oom_check: now,
            evicts_at: now,
            measurement_circuits: 0,
            events: VecDeque::new(),
            totals: RouterTotals::default(),
            congestion: Arc::default(),
            upkept_at: now,
            refusals_told: TokenBucket::new(REFUSALS_PER_S, Duration::ZERO, REFUSALS_BURST, now),
            is_shutting_down: false,
            client_addresses: ClientAddresses::default(),
            has_hop_windows: config.flows.hop().is_some(),
            config,
        };
        core.set_limit(now, core.config.limit);
        core
    }

    /// Traffic counters since the start.
    #[must_use]
    pub const fn totals(&self) -> &RouterTotals {
        &self.totals
    }

    /// The relay's behavior.
    #[must_use]
    pub const fn behavior(&self) -> &C {
        &self.behavior
    }

    /// The sum of the times that cells have spent in circuits' queues, in cell-seconds. Divided by the number
    /// of cells sent in the same period, it is the average queueing delay.
    #[must_use]
    pub const fn waited_cell_s(&self) -> f64 {
        self.outputs.waited_cell_s()
    }

    /// The number of open circuits.
    #[must_use]
    pub fn open_circuits(&self) -> usize {
        self.circuits.len()
    }

    /// The number of links that are open, being dialled or in their handshake.
    #[must_use]
    pub const fn open_links(&self) -> usize {
        self.conns.link_count()
    }

    /// The traffic of each link to a listed relay, in no particular order, without links of measurements. There
    /// may be several links to one relay.
    pub fn relay_links(&self) -> impl Iterator<Item = RelayLink> {
        let ordinary = self.conns.links().filter(|(_, link)| link.role == Role::Ordinary);
        ordinary.filter_map(|(_, link)| {
            let relay = link.peer()?.rsa;
            self.config.relays.list(&relay).then(|| RelayLink {
                relay,
                received_bytes: link.received_cells * CELL_LEN as u64,
                sent_bytes: link.sent_cells * CELL_LEN as u64,
                circuits: link.circuits.len(),
            })
        })
    }

    /// Whether there is a link to this relay that this relay dialled: then the peer does not need to dial.
    #[must_use]
    pub fn has_dialled(&self, relay: &RsaId) -> bool {
        self.conns.has_dialled(relay)
    }

    /// The number of streams that are open, opening, or closed with unwritten data.
    #[must_use]
    pub const fn open_streams(&self) -> usize {
        self.conns.stream_count()
    }

    /// Memory of all cell queues, stream buffers and Conflux buffers, in bytes.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        let cells = self.outputs.queued_cells() + self.sets.held_cells();
        cells * size_of::<S::Cell>() + self.streams.held_bytes()
    }

    /// Memory that peers occupy in all, in bytes: queues and buffers, control cells, queued handshakes, data
    /// that the driver holds, and circuits, streams and links themselves. The kernel's buffers are not
    /// included.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.waiting_bytes() + self.standing_bytes()
    }

    /// The consensus parameters of the last [`set_parameters`](Self::set_parameters).
    #[must_use]
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The expected peer of a link that this relay dialled.
    #[must_use]
    pub fn expected(&self, conn: ConnId) -> Option<ExpectedPeer> {
        self.conns.link(conn)?.expected()
    }

    /// Whether [`shut_down`](Self::shut_down) was called.
    #[must_use]
    pub const fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    /// Whether a connection is a stream.
    #[must_use]
    pub fn is_stream(&self, conn: ConnId) -> bool {
        self.conns.stream(conn).is_some()
    }

    /// Starts a graceful shutdown, like C tor on SIGINT. New circuits and streams are refused with reason
    /// "hibernating", so that clients try the next relay; so are measurement orders. Existing ones continue:
    /// the shutdown is complete when [`open_circuits`](Self::open_circuits) and
    /// [`open_streams`](Self::open_streams) are zero. The driver refuses new links.
    pub const fn shut_down(&mut self) {
        self.is_shutting_down = true;
    }

    /// Sets the exit configuration. Existing streams continue.
    pub fn set_exit(&mut self, exit: Option<ExitConfig>) {
        self.config.exit = exit;
    }

    /// Sets the relays of the consensus. Existing streams continue.
    pub fn set_relays(&mut self, relays: KnownRelays) {
        self.config.relays = relays;
    }

    /// Sets the directory server for new streams.
    pub const fn set_directory(&mut self, directory: Option<SocketAddr>) {
        self.config.directory = directory;
    }

    /// Sets the congestion control parameters for new circuits.
    pub fn set_congestion_params(&mut self, params: CongestionParams) {
        self.congestion = Arc::new(params);
    }

    /// Sets who may measure this relay, from a new consensus.
    pub fn set_target_params(&mut self, params: TargetParams) {
        self.target.set_params(params);
    }

    /// Restores a measurement that was accepted before the relay restarted. It counts against its coordinator's
    /// quota.
    pub fn remember_measurement(&mut self, accepted: Accepted) {
        self.target.remember(accepted);
    }

    /// Sets the scheduler.
    pub fn set_scheduler(&mut self, config: SchedulerConfig) {
        self.config.scheduler = config;
        self.outputs.set_scheduler(&mut self.conns, &config);
    }

    /// Sets the consensus parameters.
    pub fn set_parameters(&mut self, parameters: Parameters) {
        let Parameters { circ_max_cell_queue_size, circ_max_cell_queue_size_out, .. } = parameters;
        // The two directions share one limit: the smaller one satisfies both parameters.
        self.config.queue_limit_cells = circ_max_cell_queue_size.min(circ_max_cell_queue_size_out);
        let of_congestion = |name: &str| parameters.congestion_control.get(name).copied();
        self.set_congestion_params(CongestionParams::from_consensus(of_congestion));
        let mut scheduler = self.config.scheduler;
        scheduler.follow(&parameters);
        if scheduler != self.config.scheduler {
            self.set_scheduler(scheduler);
        }
        self.client_addresses.set_dos_params(parameters.dos);
        self.padder.follow(&parameters, &mut self.conns);
        self.parameters = parameters;
    }

    /// Sets the identity that answers handshakes. Its fingerprints must not change.
    pub fn set_identity(&mut self, identity: S::Identity) {
        self.config.identity = identity;
    }

    /// Sets the wall-clock time: clocks are adjusted, and a suspended machine has lost time.
    pub const fn set_unix_time(&mut self, now: Instant, unix_time_s: u64) {
        self.began = now;
        self.config.unix_time_s = unix_time_s;
    }

    /// The Unix time in seconds.
    pub(super) fn unix_time_s(&self) -> u64 {
        self.config.unix_time_s + (self.outputs.now() - self.began).as_secs()
    }

    /// Random bytes for a link handshake, and the Unix time.
    pub(super) fn begin_handshake<const N: usize>(&mut self, now: Instant) -> ([u8; N], u64) {
        self.outputs.set_now(now);
        let mut random = [0; N];
        self.rng.fill_bytes(&mut random);
        (random, self.unix_time_s())
    }

    /// Whether a connection from this address may become a link. The driver asks once for each connection,
    /// before it spends anything on it.
    pub fn admits(&mut self, now: Instant, from: IpAddr) -> bool {
        self.outputs.set_now(now);
        let expected = self.target.expected_sockets();
        // A listed relay carries many clients.
        let is_admitted = self.config.relays.contain_host(from)
            || self.client_addresses.admit_connection(now, from, expected);
        self.totals.refused_links += u64::from(!is_admitted);
        is_admitted
    }

    /// Accepts a link from an address that was [admitted](Self::admits); `None` if there are too many by now,
    /// and the caller closes it. `exported` is the keying material for signatures of the measurement protocol.
    /// The link handshake follows.
    pub fn accept(
        &mut self,
        now: Instant,
        from: Option<IpAddr>,
        exported: Option<[u8; 32]>,
    ) -> Option<ConnId> {
        self.outputs.set_now(now);
        let stranger = from.filter(|ip| !self.config.relays.contain_host(*ip));
        let expected = self.target.expected_sockets();
        if stranger.is_some_and(|ip| !self.client_addresses.admit_link(now, ip, expected)) {
            self.totals.refused_links += 1;
            return None;
        }
        let mut link = Link::accepted(now, self.outputs.begin(), from, exported);
        link.is_counted = stranger.is_some();
        Some(self.conns.add_link(link))
    }

    /// The link handshake of a dialled link has failed to start.
    pub fn reject(&mut self, conn: ConnId) {
        self.lose(conn, DestroyReason::CONNECT_FAILED);
        self.outputs.close(&mut self.conns, conn);
    }

    /// The link handshake has something to write.
    pub fn wake(&mut self, conn: ConnId) {
        self.outputs.wake(&mut self.conns, conn);
    }

    /// A connection to a destination is established.
    pub fn handle_plain_connected(&mut self, now: Instant, conn: ConnId) {
        self.outputs.set_now(now);
        self.handle_stream_connected(conn);
    }

    /// A connection was closed or could not be established.
    pub fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: &CloseCause) {
        self.outputs.set_now(now);
        if self.is_stream(conn) {
            self.handle_stream_closed(conn, cause);
            return;
        }
        let is_open = self.conns.link(conn).is_some_and(|link| link.is_open);
        let reason =
            if is_open { DestroyReason::CHANNEL_CLOSED } else { DestroyReason::CONNECT_FAILED };
        self.lose(conn, reason);
        self.outputs.forget(&mut self.conns, conn);
        self.conns.release(conn);
        self.drain_target();
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.outputs.set_now(now);
        self.target.handle_timeout(now);
        self.drain_target();
        self.upkeep();
        self.pad_links();
        self.wake_waiting();
        self.streams.wake_rated(&mut self.conns, now);
    }

    /// The result of a DNS query.
    pub fn handle_answer(&mut self, now: Instant, id: LookupId, answer: &DnsAnswer) {
        self.outputs.set_now(now);
        self.handle_lookup(id, answer);
    }

    /// The state of a connection's socket, as requested.
    pub fn handle_socket_state(&mut self, now: Instant, conn: ConnId, state: Option<&SocketState>) {
        self.outputs.set_now(now);
        self.outputs.handle_socket_state(&mut self.conns, conn, state);
    }

    /// The driver reports what it has taken and not written.
    pub fn handle_unwritten(&mut self, now: Instant, conn: ConnId, unwritten: Unwritten) {
        self.outputs.set_now(now);
        self.conns.outside.set_unwritten(now, conn, unwritten);
        self.handle_oom();
    }

    /// The face reports how much it holds for a link whose peer is not authenticated yet.
    pub fn handle_early(&mut self, now: Instant, conn: ConnId, bytes: usize) {
        self.outputs.set_now(now);
        self.conns.outside.set_early(now, conn, bytes);
        self.handle_oom();
    }

    /// Maximum number of outstanding computations of each kind on other threads.
    pub(super) const fn works_at_once(&self) -> usize {
        self.config.handshakes_at_once
    }

    /// The next connection to establish.
    #[must_use]
    pub fn poll_dial(&mut self) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    /// The next connection with data to transmit.
    #[must_use]
    pub fn poll_writable(&mut self) -> Option<ConnId> {
        let link = self.outputs.poll_writable(&mut self.conns);
        // After all other output, so that one FEEDBACK cell reports everything.
        let link = link.or_else(|| self.poll_reporting_link());
        link.or_else(|| self.streams.poll_writable(&mut self.conns))
    }

    /// The next connection to close.
    #[must_use]
    pub fn poll_close(&mut self) -> Option<ConnId> {
        if let Some(conn) = self.streams.poll_close(&mut self.conns) {
            return Some(conn);
        }
        let id = self.outputs.poll_close()?;
        self.outputs.forget(&mut self.conns, id);
        self.conns.release(id);
        Some(id)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), unless something happens earlier.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let all = [
            self.target.poll_timeout(),
            self.waiting_ends_at(),
            self.upkeep_at(),
            self.padder.next_at(),
            self.streams.rated_at(),
            self.outputs.next_run_at(),
        ];
        all.into_iter().flatten().min()
    }

    /// The number of bytes that a stream accepts now. Links have [another limit](Self::poll_read_limit).
    #[must_use]
    pub fn receive_limit(&self, conn: ConnId) -> usize {
        self.stream_limit(conn).unwrap_or(usize::MAX)
    }

    /// The next link that may be read again, or stream that accepts data again.
    #[must_use]
    pub fn poll_readable(&mut self) -> Option<ConnId> {
        if let Some(link) = self.reading.poll_readable(&self.conns) {
            return Some(link);
        }
        loop {
            let conn = self.streams.poll_readable(&mut self.conns)?;
            // The space may be used up again; then the stream waits for the next time.
            if self.stream_limit(conn).is_some_and(|bytes| bytes > 0) {
                return Some(conn);
            }
        }
    }

    /// The next DNS query.
    #[must_use]
    pub fn poll_lookup(&mut self) -> Option<Lookup> {
        self.streams.poll_lookup()
    }

    /// The next link whose socket state is needed.
    #[must_use]
    pub fn poll_socket_query(&mut self) -> Option<ConnId> {
        self.outputs.poll_socket_query(&mut self.conns)
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<RouterEvent> {
        self.events.pop_front()
    }

    pub(super) fn report(&mut self, event: RouterEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Closes a link after its queued control cells are written.
    pub(super) fn close(&mut self, id: ConnId) {
        self.lose(id, DestroyReason::CHANNEL_CLOSED);
        self.outputs.close(&mut self.conns, id);
    }
}
