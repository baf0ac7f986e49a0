use super::circuits::{Circuits, Handshakes, Tunnels};
use super::conflux::Sets;
use super::conns::Conns;
use super::dos::ClientAddresses;
use super::links::{Link, Outputs, Padder, RelayLink, Role};
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

/// Refusals that are told, on average.
const REFUSALS_PER_S: Rate = Rate::from_byte_per_s(1);

/// Refusals that are told at once.
const REFUSALS_BURST: u64 = 20;

/// Events that wait to be asked for, at most.
const EVENTS_MAX: usize = 256;

/// What an onion router decides, over cells of any [`CellModel`]: no bytes, no framing, no link handshake.
///
/// - *getters*: [`totals`](Self::totals), [`open_circuits`](Self::open_circuits),
///   [`open_links`](Self::open_links), [`has_dialled`](Self::has_dialled), [`has_hop_windows`](Self::has_hop_windows),
///   [`open_streams`](Self::open_streams), [`queued_bytes`](Self::queued_bytes),
///   [`parameters`](Self::parameters), [`expected`](Self::expected), [`is_stream`](Self::is_stream),
///   [`receive_limit`](Self::receive_limit);
/// - *links*: [`accept`](Self::accept), [`handle_link_open`](Self::handle_link_open),
///   [`handle_cell`](Self::handle_cell), [`handle_measure`](Self::handle_measure),
///   [`handle_feedback`](Self::handle_feedback), [`poll_control`](Self::poll_control),
///   [`poll_cells`](Self::poll_cells);
/// - *streams*: [`handle_stream_data`](Self::handle_stream_data),
///   [`poll_stream_data`](Self::poll_stream_data);
/// - *commands*: [`shut_down`](Self::shut_down), and all that begin with `set_`;
/// - the other *handle* and *poll* methods are those of [`Node`](crate::node::Node), with the same contract.
///
/// All randomness comes from the generator passed in, and the same is drawn for any suite. `C` is for tests of
/// those who measure: a relay that is not [`Honest`](super::Honest).
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
    /// Keeps the time, too.
    pub(super) outputs: Outputs,
    pub(super) padder: Padder,
    pub(super) bucket: Option<TokenBucket>,
    /// The bucket is not the usual one: the conduct has asked for another rate.
    pub(super) has_changed_rate: bool,
    pub(super) target: Target,
    pub(super) to_dial: VecDeque<Dial>,
    /// CREATE2 bodies that wait for links to open.
    pub(super) waiting: usize,
    /// Memory is not looked through for something to drop before this.
    pub(super) next_oom_check: Instant,
    /// Nobody's circuits are looked through for some to end before this.
    pub(super) evicts_at: Instant,
    /// Circuits of measurements, among all circuits.
    pub(super) measurement_circuits: usize,
    events: VecDeque<RouterEvent>,
    pub(super) totals: RouterTotals,
    /// What new circuits may agree on.
    pub(super) congestion: Arc<CongestionParams>,
    /// When links were last looked through.
    pub(super) upkept_at: Instant,
    /// Lets refusals and the like be told, one a second on average. One byte of it is one of them.
    pub(super) refusals_told: TokenBucket,
    /// Nothing begins any more.
    pub(super) is_shutting_down: bool,
    pub(super) client_addresses: ClientAddresses,
    pub(super) has_hop_windows: bool,
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// A relay that does as `behavior` says.
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

    /// What has passed so far.
    #[must_use]
    pub const fn totals(&self) -> &RouterTotals {
        &self.totals
    }

    /// How the relay behaves.
    #[must_use]
    pub const fn behavior(&self) -> &C {
        &self.behavior
    }

    /// Seconds that cells have waited in circuits' queues, all together: divided by the cells that were
    /// sent in the same time, it is how long one waits on average.
    #[must_use]
    pub const fn waited_cell_s(&self) -> f64 {
        self.outputs.waited_cell_s()
    }

    /// Circuits that are open now.
    #[must_use]
    pub fn open_circuits(&self) -> usize {
        self.circuits.len()
    }

    /// Links that are open now, or on their way.
    #[must_use]
    pub const fn open_links(&self) -> usize {
        self.conns.link_count()
    }

    /// What each link to a relay that the consensus lists has carried, in no order; links of measurements are none of them. Several may lead
    /// to one relay.
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

    /// Whether there is a link to this relay that we have dialled: it has no need to dial us.
    #[must_use]
    pub fn has_dialled(&self, relay: &RsaId) -> bool {
        self.conns.has_dialled(relay)
    }

    /// Streams that are open now, are being opened, or are still to be written out.
    #[must_use]
    pub const fn open_streams(&self) -> usize {
        self.conns.stream_count()
    }

    /// Bytes of memory that all queues of cells and buffers of streams take, and messages of linked circuits that wait
    /// for their turn.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        let cells = self.outputs.queued_cells() + self.sets.held_cells();
        cells * size_of::<S::Cell>() + self.streams.held_bytes()
    }

    /// Bytes of memory that peers have us hold in all: queues and buffers, cells that open and close circuits,
    /// handshakes that wait, what the driver has taken and the kernel has not, and circuits, streams and links themselves. The kernel's own
    /// buffers are not in it.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.waiting_bytes() + self.standing_bytes()
    }

    /// What the consensus asks for, by the last [`set_parameters`](Self::set_parameters).
    #[must_use]
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Who must be at the other end of a link that we have dialled.
    #[must_use]
    pub fn expected(&self, conn: ConnId) -> Option<ExpectedPeer> {
        self.conns.link(conn)?.expected
    }

    /// Whether [`shut_down`](Self::shut_down) was called.
    #[must_use]
    pub const fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    /// Whether a connection is a stream's.
    #[must_use]
    pub fn is_stream(&self, conn: ConnId) -> bool {
        self.conns.stream(conn).is_some()
    }

    /// Lets nothing begin from now on, as C tor on SIGINT: circuits and streams are refused with the reason
    /// "hibernating", by which clients try the next relay, and so are orders of measurements. What has begun goes on:
    /// it is over when there are no [`open_circuits`](Self::open_circuits) and no [`open_streams`](Self::open_streams)
    /// left. New links are for the driver to refuse.
    pub const fn shut_down(&mut self) {
        self.is_shutting_down = true;
    }

    /// Where streams may lead from now on. Those that stand go on.
    pub fn set_exit(&mut self, exit: Option<ExitConfig>) {
        self.config.exit = exit;
    }

    /// The relays of the consensus from now on. Streams that stand go on.
    pub fn set_relays(&mut self, relays: KnownRelays) {
        self.config.relays = relays;
    }

    /// The directory server that streams lead to from now on.
    pub const fn set_directory(&mut self, directory: Option<SocketAddr>) {
        self.config.directory = directory;
    }

    /// Sets the parameters of congestion control, from a new consensus. Circuits keep those that they
    /// began with.
    pub fn set_congestion_params(&mut self, params: CongestionParams) {
        self.congestion = Arc::new(params);
    }

    /// Who may measure it from now on: the consensus has changed.
    pub fn set_target_params(&mut self, params: TargetParams) {
        self.target.set_params(params);
    }

    /// A measurement was accepted before this relay began, and counts against its coordinator's quota.
    pub fn remember_measurement(&mut self, accepted: Accepted) {
        self.target.remember(accepted);
    }

    /// Schedules like this from now on: the consensus has changed.
    pub fn set_scheduler(&mut self, config: SchedulerConfig) {
        self.config.scheduler = config;
        self.outputs.set_scheduler(&mut self.conns, &config);
    }

    /// What the consensus asks for from now on.
    pub fn set_parameters(&mut self, parameters: Parameters) {
        let Parameters { circ_max_cell_queue_size, circ_max_cell_queue_size_out, .. } = parameters;
        // There is one bound for both directions: the lesser keeps both promises.
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

    /// Answers handshakes with this identity from now on. Its names must be the same as before.
    pub fn set_identity(&mut self, identity: S::Identity) {
        self.config.identity = identity;
    }

    /// The calendar says this now: clocks get set, and a machine that slept has lost time.
    pub const fn set_unix_time(&mut self, now: Instant, unix_time_s: u64) {
        self.began = now;
        self.config.unix_time_s = unix_time_s;
    }

    /// The time by the calendar.
    pub(super) fn unix_time_s(&self) -> u64 {
        self.config.unix_time_s + (self.outputs.now() - self.began).as_secs()
    }

    /// Fresh random bytes for the handshake of a link, and the time by the calendar.
    pub(super) fn begin_handshake<const N: usize>(&mut self, now: Instant) -> ([u8; N], u64) {
        self.outputs.set_now(now);
        let mut random = [0; N];
        self.rng.fill_bytes(&mut random);
        (random, self.unix_time_s())
    }

    /// Whether a connection from there may become a link: to be asked once for each, before anything is spent on it.
    pub fn admits(&mut self, now: Instant, from: IpAddr) -> bool {
        self.outputs.set_now(now);
        let expected = self.target.expected_sockets();
        // Behind a relay of the consensus are many clients.
        let is_admitted = self.config.relays.contain_host(from)
            || self.client_addresses.admit_connection(now, from, expected);
        self.totals.refused_links += u64::from(!is_admitted);
        is_admitted
    }

    /// A link has come in from there, which was [admitted](Self::admits); `None` if there may be no more of them, and it is to be
    /// closed. What its TLS session has exported is for signatures of the measurement's protocol. Its handshake is still to be done.
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

    /// A link that we have dialled turns out to be none.
    pub fn reject(&mut self, conn: ConnId) {
        self.lose(conn, DestroyReason::CONNECT_FAILED);
        self.outputs.close(&mut self.conns, conn);
    }

    /// Something of the link's handshake is to be written.
    pub fn wake(&mut self, conn: ConnId) {
        self.outputs.wake(&mut self.conns, conn);
    }

    /// A connection to a destination stands.
    pub fn handle_plain_connected(&mut self, now: Instant, conn: ConnId) {
        self.outputs.set_now(now);
        self.handle_stream_connected(conn);
    }

    /// A connection is gone, or could not be made.
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

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.outputs.set_now(now);
        self.target.handle_timeout(now);
        self.drain_target();
        self.keep_up();
        self.pad_links();
        self.wake_waiting();
        self.streams.wake_rated(&mut self.conns, now);
    }

    /// The answer to a question.
    pub fn handle_answer(&mut self, now: Instant, id: LookupId, answer: &DnsAnswer) {
        self.outputs.set_now(now);
        self.handle_lookup(id, answer);
    }

    /// The state of a connection that was asked for.
    pub fn handle_socket_state(&mut self, now: Instant, conn: ConnId, state: Option<&SocketState>) {
        self.outputs.set_now(now);
        self.outputs.handle_socket_state(&mut self.conns, conn, state);
    }

    /// The driver holds so much of what it has taken to write.
    pub fn handle_unwritten(&mut self, now: Instant, conn: ConnId, unwritten: Unwritten) {
        self.outputs.set_now(now);
        self.conns.outside.set_unwritten(now, conn, unwritten);
        self.handle_oom();
    }

    /// So much is kept of what has come on a link before it is known who is at its other end.
    pub fn handle_early(&mut self, now: Instant, conn: ConnId, bytes: usize) {
        self.outputs.set_now(now);
        self.conns.outside.set_early(now, conn, bytes);
        self.handle_oom();
    }

    /// Pieces of each kind of work that may be done elsewhere at a time.
    pub(super) const fn works_at_once(&self) -> usize {
        self.config.handshakes_at_once
    }

    /// The next connection to be made.
    #[must_use]
    pub fn poll_dial(&mut self) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    /// The next connection that has something to transmit.
    #[must_use]
    pub fn poll_writable(&mut self) -> Option<ConnId> {
        let link = self.outputs.poll_writable(&mut self.conns);
        // When all has been given out that may be: so one cell tells of all of it.
        let link = link.or_else(|| self.poll_teller());
        link.or_else(|| self.streams.poll_writable(&mut self.conns))
    }

    /// The next connection to be closed.
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

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
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

    /// How much of a stream's data may come now. Links have no limit.
    #[must_use]
    pub fn receive_limit(&self, conn: ConnId) -> usize {
        self.stream_limit(conn).unwrap_or(usize::MAX)
    }

    /// The next stream that takes data again after it took none.
    #[must_use]
    pub fn poll_readable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.streams.poll_readable(&mut self.conns)?;
            // The room may be used up again; then it waits for the next.
            if self.stream_limit(conn).is_some_and(|bytes| bytes > 0) {
                return Some(conn);
            }
        }
    }

    /// The next question to the domain name system.
    #[must_use]
    pub fn poll_lookup(&mut self) -> Option<Lookup> {
        self.streams.poll_lookup()
    }

    /// The next link whose socket's state is to be told.
    #[must_use]
    pub fn poll_socket_query(&mut self) -> Option<ConnId> {
        self.outputs.poll_socket_query(&mut self.conns)
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<RouterEvent> {
        self.events.pop_front()
    }

    pub(super) fn tell(&mut self, event: RouterEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Closes a link from our side, once what is queued on it for its peer has been sent.
    pub(super) fn close(&mut self, id: ConnId) {
        self.lose(id, DestroyReason::CHANNEL_CLOSED);
        self.outputs.close(&mut self.conns, id);
    }
}
