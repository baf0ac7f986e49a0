//! An onion router: what a relay does with cells, as one [`Node`](crate::node::Node).
//!
//! It accepts links, answers CREATE_FAST and CREATE2 with ntor, extends circuits over one link to each
//! relay, whoever of the two dialled it, and passes relay cells both ways with its layer taken off or
//! put on. Where a circuit ends it opens streams: to destinations, if it is configured as an exit, and
//! to a directory server. As the target of a measurement it sends the cells of measurement circuits
//! back, decrypted, and holds its clients to their share meanwhile (see
//! [`measure::target`](crate::measure::target)).
//!
//! # Streams
//!
//! A stream is a connection without TLS; its [`ConnId`] is from the same numbers as those of links. What a
//! destination sends becomes DATA cells at once, in the queue of its circuit. So nothing is read that
//! cannot be sent: [`receive_limit`](crate::node::Node::receive_limit) is the least of the circuit's window, the
//! stream's, and the queue's room, and [`poll_readable`](crate::node::Node::poll_readable) names the streams of a
//! circuit in turn when there is room again. The other way each stream has a buffer. How far it may
//! grow the client is told: by SENDMEs that stay out, or by XOFF
//! (see [`flow`](crate::flow)). What tor leaves open is done as C tor does it.
//!
//! # Bounds
//!
//! | what | bound | beyond it |
//! |---|---|---|
//! | cells of a circuit that wait, each way | [`RouterConfig::queue_limit_cells`] | the circuit is destroyed, reason 5 |
//! | data among them that destinations have sent | 256 cells | destinations are not read until 10 are left |
//! | bytes for one destination | 500 cells; with congestion control 16 MiB | the circuit is destroyed; the stream ends |
//! | queues and buffers together | [`RouterConfig::held_bytes_max`] | the circuit that holds most is destroyed |
//! | streams of a circuit | 1,024 | refused, "misc" |
//! | streams of all circuits, and connections that are still to be written out | [`RouterConfig::streams_max`] | refused, "resource limit" |
//! | circuits of a link | 10,000 | refused, reason 5 |
//! | time for what is left of a stream that is over | 15 s without progress | dropped |
//! | time of a link without circuits | 3 to 4.5 minutes; to a relay, about `nf_conntimeout_relays` | closed |
//! | time for a lookup | 300 s | the stream ends, "timeout" |

mod carrying;
mod circuit;
mod conduct;
mod create;
mod ending;
mod exit_policy;
mod extend;
mod link;
mod measuring;
mod node;
mod opening;
mod output;
mod padding;
mod parameters;
mod queue;
mod reentry;
mod relaying;
pub mod schedule;
mod streams;
mod transmit;
mod upkeep;
mod waiting;

pub use conduct::{Conduct, Honest};
pub use exit_policy::{Addresses, ExitConfig, ExitPolicy, ExitRule, RuleError, is_private};
pub use parameters::Parameters;
pub use reentry::KnownRelays;

use crate::flow::control::CongestionParams;
use crate::flow::{QUEUE_LIMIT_CELLS, TokenBucket};
use crate::identity::OwnIdentity;
use crate::measure::target::{Target, TargetEvent, TargetParams};
use crate::node::{ConnId, Dial};
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use circuit::Circuits;
use core::net::{IpAddr, SocketAddr};
use link::Links;
use output::Outputs;
use padding::Padder;
use rand_core::Rng;
use schedule::SchedulerConfig;
use streams::Streams;

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
    fn bucket(self, now: Instant) -> TokenBucket {
        let depth = self.burst_bytes.max(output::RECORD_BYTES);
        TokenBucket::new(self.rate, TIMER_SLACK, depth, now)
    }
}

/// Choices for a router.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Who it is.
    pub identity: Arc<OwnIdentity>,
    /// Who may measure it, and how.
    pub target: TargetParams,
    /// How much it sends; all that it can if `None`.
    pub limit: Option<RateLimit>,
    /// Cells that wait on one circuit in one direction, at most (C tor: `circ_max_cell_queue_size`).
    pub queue_limit_cells: u32,
    /// Which cells go first, and when.
    pub scheduler: SchedulerConfig,
    /// Seconds since 1970 when the router begins, for certificates and orders.
    pub unix_time_s: u64,
    /// Streams to destinations; none go out if `None`.
    pub exit: Option<ExitConfig>,
    /// Where no streams lead.
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
    /// Bytes that all queues of cells and buffers of streams may hold together. Beyond it the circuit
    /// that holds most is destroyed (C tor: `MaxMemInQueues`).
    pub held_bytes_max: usize,
    /// Whether clients' links are padded as consensus and clients ask for (padding-spec §2); none is if
    /// not. C tor's relays have no such choice.
    pub padding: bool,
}

impl RouterConfig {
    /// A default for [`streams_max`](Self::streams_max).
    pub const STREAMS_MAX: u32 = 16_384;

    /// A default for [`held_bytes_max`](Self::held_bytes_max): 512 MiB.
    pub const HELD_BYTES_MAX: usize = 512 << 20;

    /// A relay without exits, directory, limit and measurements, with the usual bounds. Circuits may be
    /// extended to any address.
    #[must_use]
    pub fn new(identity: Arc<OwnIdentity>, unix_time_s: u64) -> Self {
        Self {
            identity,
            target: TargetParams::default(),
            limit: None,
            queue_limit_cells: QUEUE_LIMIT_CELLS,
            scheduler: SchedulerConfig::default(),
            unix_time_s,
            exit: None,
            relays: KnownRelays::default(),
            directory: None,
            addresses: Vec::new(),
            extends_to_private: true,
            streams_max: Self::STREAMS_MAX,
            held_bytes_max: Self::HELD_BYTES_MAX,
            padding: true,
        }
    }
}

/// What a router has to tell. A shell that does not ask misses the oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterEvent {
    /// A coordinator's order was accepted.
    MeasurementAccepted,
    /// A coordinator or measurer was refused, with this reason.
    Refused(String),
    /// A second of a measurement is over.
    MeasuredSecond {
        /// Measurement traffic that was sent back, in bytes.
        measured_bytes: u64,
        /// Client traffic that really was sent, in bytes.
        client_bytes: u64,
    },
    /// A measurement is over; the reason if before its time.
    MeasurementOver(Option<String>),
}

/// What has passed through a router since it began: cells of 514 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterTotals {
    /// Bytes of measurement cells sent back.
    pub measured_bytes: u64,
    /// Bytes of clients' cells sent, either way.
    pub client_bytes: u64,
    /// Circuits opened.
    pub circuits: u64,
    /// Streams opened, and names looked up, for clients.
    pub streams: u64,
}

/// How late a driver may look without the rate suffering: its timers are good to a millisecond or so.
const TIMER_SLACK: Duration = Duration::from_millis(10);

/// Refusals that are told, on average.
const REFUSALS_PER_S: Rate = Rate::from_byte_per_s(1);

/// Refusals that are told at once.
const REFUSALS_BURST: u64 = 20;

/// Events that wait to be asked for, at most.
const EVENTS_MAX: usize = 256;

/// An onion router. See the [module](self).
///
/// - *getters*: [`totals`](Self::totals), [`open_circuits`](Self::open_circuits),
///   [`open_streams`](Self::open_streams), [`queued_bytes`](Self::queued_bytes),
///   [`parameters`](Self::parameters);
/// - *commands*: [`set_target_params`](Self::set_target_params), [`set_limit`](Self::set_limit),
///   [`set_congestion_params`](Self::set_congestion_params), [`set_exit`](Self::set_exit),
///   [`set_relays`](Self::set_relays),
///   [`set_directory`](Self::set_directory), [`set_scheduler`](Self::set_scheduler),
///   [`set_parameters`](Self::set_parameters), [`set_identity`](Self::set_identity);
/// - *handle* and *poll*: those of [`Node`](crate::node::Node), and [`poll_event`](Self::poll_event).
///
/// All randomness comes from the generator passed in. `C` is for tests of those who measure: a relay
/// that is not [`Honest`].
#[derive(Debug)]
pub struct Router<R, C = Honest> {
    config: RouterConfig,
    /// The one before, for sessions that still show its TLS certificate.
    former_identity: Option<Arc<OwnIdentity>>,
    parameters: Parameters,
    conduct: C,
    rng: R,
    began: Instant,
    links: Links,
    circuits: Circuits,
    streams: Streams,
    outputs: Outputs,
    padder: Padder,
    bucket: Option<TokenBucket>,
    /// The bucket is not the usual one: the conduct has asked for another rate.
    has_changed_rate: bool,
    target: Target,
    to_dial: VecDeque<Dial>,
    events: VecDeque<RouterEvent>,
    totals: RouterTotals,
    /// What new circuits may agree on.
    congestion: Arc<CongestionParams>,
    /// The time of what is being handled.
    now: Instant,
    /// When links were last looked through.
    upkept_at: Instant,
    /// Lets refusals be told, one a second on average. One byte of it is one refusal.
    refusals_told: TokenBucket,
}

impl<R: Rng> Router<R> {
    /// An honest relay, from now on.
    pub fn new(config: RouterConfig, rng: R, now: Instant) -> Self {
        Self::with_conduct(config, Honest, rng, now)
    }
}

impl<R: Rng, C: Conduct> Router<R, C> {
    /// A relay that does as `conduct` says.
    pub fn with_conduct(config: RouterConfig, conduct: C, rng: R, now: Instant) -> Self {
        let identity = &config.identity;
        let target = Target::new(config.target.clone(), identity.ids());
        let mut router = Self {
            parameters: Parameters::default(),
            conduct,
            rng,
            began: now,
            links: Links::default(),
            circuits: Circuits::default(),
            streams: Streams::default(),
            outputs: Outputs::new(&config.scheduler, now),
            padder: Padder::new(config.padding, &Parameters::default()),
            bucket: None,
            has_changed_rate: false,
            target,
            to_dial: VecDeque::new(),
            events: VecDeque::new(),
            totals: RouterTotals::default(),
            congestion: Arc::default(),
            now,
            upkept_at: now,
            refusals_told: TokenBucket::new(REFUSALS_PER_S, Duration::ZERO, REFUSALS_BURST, now),
            config,
            former_identity: None,
        };
        router.set_limit(now, router.config.limit);
        router
    }

    /// What has passed so far.
    #[must_use]
    pub const fn totals(&self) -> &RouterTotals {
        &self.totals
    }

    /// How the relay behaves.
    #[must_use]
    pub const fn conduct(&self) -> &C {
        &self.conduct
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

    /// Streams that are open now, are being opened, or are still to be written out.
    #[must_use]
    pub const fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Bytes in all queues of cells and buffers of streams.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.held_bytes()
    }

    /// Where streams may lead from now on. Those that stand go on.
    pub fn set_exit(&mut self, exit: Option<ExitConfig>) {
        self.config.exit = exit;
    }

    /// Where no streams may lead from now on: the consensus has changed. Those that stand go on.
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

    /// Schedules like this from now on: the consensus has changed.
    pub fn set_scheduler(&mut self, config: SchedulerConfig) {
        self.config.scheduler = config;
        self.outputs.set_scheduler(&config);
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
        self.padder.follow(&parameters, &mut self.links);
        self.parameters = parameters;
    }

    /// What the consensus asks for, by the last [`set_parameters`](Self::set_parameters).
    #[must_use]
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Presents these certificates on links that are made from now on, and accepts these onion keys.
    /// A link whose TLS session still shows the certificate before gets what belongs to that.
    /// Both identities must be the same as before.
    pub fn set_identity(&mut self, identity: Arc<OwnIdentity>) {
        let former = core::mem::replace(&mut self.config.identity, identity);
        if former.tls_certificate_sha256() != self.config.identity.tls_certificate_sha256() {
            // Its onion keys are nobody's business any more.
            let former = OwnIdentity { previous_onion_secret: None, ..OwnIdentity::clone(&former) };
            self.former_identity = Some(Arc::new(OwnIdentity { onion_secret: [0; 32], ..former }));
        }
    }

    /// Sends no more than this from now on.
    pub fn set_limit(&mut self, now: Instant, limit: Option<RateLimit>) {
        self.config.limit = limit;
        self.bucket = limit.map(|limit| limit.bucket(now));
        self.has_changed_rate = false;
        self.outputs.wake_parked(usize::MAX);
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<RouterEvent> {
        self.events.pop_front()
    }

    fn tell(&mut self, event: RouterEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The calendar says this now: clocks get set, and a machine that slept has lost time.
    pub const fn set_unix_time(&mut self, now: Instant, unix_time_s: u64) {
        self.began = now;
        self.config.unix_time_s = unix_time_s;
    }

    /// The time by the calendar.
    fn unix_time_s(&self, now: Instant) -> u64 {
        self.config.unix_time_s + (now - self.began).as_secs()
    }

    /// Does what the measurement asks for.
    fn drain_target(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Report { conn, second, measured_bytes } => {
                    self.report_second(conn, second, measured_bytes);
                }
                TargetEvent::Over { coordinator, measurers, refusal } => {
                    self.end_measurement(coordinator, &measurers, refusal);
                }
            }
        }
    }

    /// Closes a link from our side, once what is queued on it for its peer has been sent.
    fn close(&mut self, id: ConnId) {
        self.lose(id, crate::cell::msg::DestroyReason::CHANNEL_CLOSED);
        self.outputs.close(id);
    }
}
