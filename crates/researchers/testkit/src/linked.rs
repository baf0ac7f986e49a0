//! A client and an exit with a Conflux set, and the network between them.
//!
//! Both ends are the engine's ([`client::Core`] and [`router::Core`]), over header-only cells; each leg is a
//! circuit of one hop on its own link. The network delivers the cells of one leg in order, and cells of
//! different legs in any order. It can cut a link at one end before the other, and forge messages of either
//! end. Data has no bytes here, but each DATA cell states its offset in the stream, so that lost, duplicate
//! and reordered data is detected.

mod ends;
mod events;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use onion::cell::msg::ConfluxNonce;
use onion::cell::{CircId, Command};
use onion::cell_model::{CellModel, HeaderOnly, HeaderOnlyBody, Run};
use onion::circuit::NextHop;
use onion::client::{
    self, CircuitNumber, CircuitPlan, Destination, LegFigures, Loss, SetPlan, StreamNumber,
    Transfer,
};
use onion::node::{CloseCause, ConnId};
use onion::router::schedule::SchedulerConfig;
use onion::router::{self, ExitConfig, ExitPolicy, Honest, RouterConfig};
use onion::tunnel::conflux::LegScheduler;
use onion::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::stage::StageModel;

/// Maximum number of legs in one run, including lost ones.
const OPENED_MAX: usize = 12;

/// Limit on the rounds of [`LinkedPair::finish`].
const ROUNDS_MAX: u32 = 20_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct LinkedParams {
    /// Initial legs.
    pub legs: usize,
    /// The scheduler of client and exit.
    pub scheduler: &'static dyn LegScheduler,
    /// The limit of the client's reordering buffer, in messages.
    pub early_max_cells: usize,
    /// Whether both ends retransmit.
    pub resumes: bool,
    /// The exit's memory limit.
    pub held_bytes_max: usize,
    /// The seed of keys.
    pub seed: u64,
}

/// An end of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegEnd {
    /// The client's.
    Client,
    /// The exit's.
    Exit,
}

/// A cell in flight.
type QueuedCell = (CircId, Command, HeaderOnlyBody);

/// A link with one leg on it.
#[derive(Debug)]
struct Link {
    /// The client's connection, while it is open.
    client: Option<ConnId>,
    /// The exit's connection, while it is open.
    exit: Option<ConnId>,
    forward: VecDeque<QueuedCell>,
    backward: VecDeque<QueuedCell>,
}

/// A transfer, and the destination's progress.
#[derive(Debug)]
struct TransferState {
    stream: StreamNumber,
    transfer: Transfer,
    /// The exit's connection to the destination, while it exists.
    conn: Option<ConnId>,
    /// Bytes that the destination has sent and received.
    sent_bytes: u64,
    received_bytes: u64,
    /// Whether the client has received everything.
    is_complete: bool,
}

impl TransferState {
    fn request_bytes(&self) -> u64 {
        self.transfer.upload_bytes + Transfer::REQUEST_LEN as u64
    }

    /// The bytes that the destination still has to send; the receipt is due after the whole upload.
    fn due_bytes(&self) -> u64 {
        // Forged cells may deliver more.
        let has_upload = self.received_bytes >= self.request_bytes();
        let receipt = if has_upload { Transfer::RECEIPT_LEN as u64 } else { 0 };
        self.transfer.download_bytes + receipt - self.sent_bytes
    }
}

/// A client and an exit with a set, and the network between them. See the [module](self).
#[derive(Debug)]
pub struct LinkedPair {
    /// The client.
    pub client: client::Core<HeaderOnly, Transfer, ChaCha8Rng>,
    /// The exit.
    pub exit: router::Core<HeaderOnly, ChaCha8Rng>,
    /// The time.
    pub now: Instant,
    set: CircuitNumber,
    path: CircuitPlan,
    links: Vec<Link>,
    transfers: Vec<TransferState>,
    loss: Option<Loss>,
    params: LinkedParams,
    /// The nonce of the client's LINK, once it is sent.
    nonce: ConfluxNonce,
    /// The number of cuts.
    cuts: usize,
    /// Whether the ends have had no leg in common since a cut.
    was_disconnected: bool,
    /// Whether a cell was forged, dropped or duplicated.
    has_forged: bool,
}

impl LinkedPair {
    /// A client that has requested its set. None of its cells has been delivered.
    #[must_use]
    pub fn new(params: &LinkedParams) -> Self {
        let identity = HeaderOnly::identity(0);
        let mut config = RouterConfig::new(identity, 1_600_000_000);
        let policy = ExitPolicy::accept_all();
        config.exit = Some(ExitConfig { policy, ipv6: false, allows_single_hop: true });
        config.scheduler = SchedulerConfig::vanilla();
        config.padding = false;
        config.held_bytes_max = params.held_bytes_max;
        config.conflux_scheduler = Some(params.scheduler);
        let rng =
            |number| ChaCha8Rng::seed_from_u64(params.seed.wrapping_mul(2).wrapping_add(number));
        let exit = router::Core::new(config, Honest, rng(0), Instant::ORIGIN);
        let mut client = client::Core::new(rng(1));
        let onion_key = HeaderOnly::onion_key(&identity);
        let address = SocketAddr::from(([192, 0, 2, 1], 9001));
        let hop = NextHop { address, ids: HeaderOnly::ids(&identity), onion_key };
        let path = CircuitPlan { has_own_link: true, ..CircuitPlan::new([hop].into()) };
        let legs = (0..params.legs).map(|_| path.clone()).collect();
        let set = client.open_set(
            Instant::ORIGIN,
            &SetPlan {
                scheduler: params.scheduler,
                early_max_cells: params.early_max_cells,
                resumes: params.resumes,
                ..SetPlan::new(legs)
            },
        );
        let mut linked = Self {
            client,
            exit,
            now: Instant::ORIGIN,
            set,
            path,
            links: Vec::new(),
            transfers: Vec::new(),
            loss: None,
            params: *params,
            nonce: ConfluxNonce([0; 32]),
            cuts: 0,
            was_disconnected: false,
            has_forged: false,
        };
        linked.settle();
        linked
    }

    /// The number of links, including cut ones.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// The number of cuts.
    #[must_use]
    pub const fn cuts(&self) -> usize {
        self.cuts
    }

    /// Whether a cell was forged, dropped or duplicated.
    #[must_use]
    pub const fn has_forged(&self) -> bool {
        self.has_forged
    }

    /// Why the client has lost the set, if it has.
    #[must_use]
    pub const fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// The client's legs.
    #[must_use]
    pub fn legs(&self) -> Vec<LegFigures> {
        self.client.legs(self.set)
    }

    /// Whether the set is linked, so that streams may begin.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.client.is_built(self.set)
    }

    /// The largest number of messages in the client's reordering buffer.
    #[must_use]
    pub fn early_peak_cells(&self) -> usize {
        self.client.early_peak_cells(self.set)
    }

    /// The numbers of transfers that were begun and completed.
    #[must_use]
    pub fn transfers(&self) -> (usize, usize) {
        (
            self.transfers.len(),
            self.transfers.iter().filter(|transfer| transfer.is_complete).count(),
        )
    }

    /// The client begins a transfer.
    pub fn begin(&mut self, download_bytes: u64, upload_bytes: u64) {
        let transfer = Transfer { seed: 0, download_bytes, upload_bytes };
        // The destination's port identifies the transfer.
        let Ok(port) = u16::try_from(self.transfers.len() + 1) else { return };
        let to = Destination::from(SocketAddr::from(([192, 0, 2, 80], port)));
        let stream = self.client.begin(self.now, self.set, to, transfer);
        let (conn, sent_bytes, received_bytes) = (None, 0, 0);
        let is_complete = false;
        self.transfers.push(TransferState {
            stream,
            transfer,
            conn,
            sent_bytes,
            received_bytes,
            is_complete,
        });
        self.settle();
    }

    /// The client adds a leg, unless it has too many. Without retransmission, it does so only before the set is
    /// linked: messages in flight would make the ends disagree on sequence numbers.
    pub fn add_leg(&mut self) {
        let may_join = !self.is_built() || self.client.resumes(self.set);
        if self.links.len() < OPENED_MAX && may_join {
            let path = self.path.clone();
            let _none_if_lost = self.client.add_leg(self.now, self.set, &path);
            self.settle();
        }
    }

    /// Delivers up to this number of cells of a leg to one end. Returns the number delivered.
    pub fn deliver(&mut self, link: usize, to: LegEnd, most: usize) -> usize {
        for count in 0..most {
            let Some(state) = self.links.get_mut(link) else { return count };
            let (cells, conn) = match to {
                LegEnd::Exit => (&mut state.forward, state.exit),
                LegEnd::Client => (&mut state.backward, state.client),
            };
            let Some((circ_id, command, body)) = cells.pop_front() else { return count };
            let Some(conn) = conn else { continue };
            match to {
                LegEnd::Exit => {
                    let _ = self.exit.handle_cell(self.now, conn, circ_id, command, &body);
                }
                LegEnd::Client => self.client.handle_cell(self.now, conn, circ_id, command, &body),
            }
            self.settle();
            self.check_early();
            self.note_disconnection();
        }
        most
    }

    /// Cuts a link at one end. Cells in flight to that end are lost. The other end is not notified yet.
    pub fn cut(&mut self, link: usize, end: LegEnd) {
        let Some(state) = self.links.get_mut(link) else { return };
        let conn = match end {
            LegEnd::Client => state.client.take(),
            LegEnd::Exit => state.exit.take(),
        };
        let Some(conn) = conn else { return };
        self.cuts += 1;
        // Before the end is notified: its reaction may close the set.
        self.note_disconnection();
        self.close(conn, end, link);
        self.note_disconnection();
    }

    /// Notes whether the ends still have a leg in common: with retransmission, only then may a set be lost.
    fn note_disconnection(&mut self) {
        // The client opens the links of its legs in order.
        let is_common = |leg: &LegFigures| {
            let link = self.links.get(usize::from(leg.leg));
            link.is_some_and(|link| link.client.is_some() && link.exit.is_some())
        };
        let is_closed = self.loss.is_some();
        self.was_disconnected |= self.cuts > 0 && !is_closed && !self.legs().iter().any(is_common);
    }

    /// Notifies an end that its link is closed.
    fn close(&mut self, conn: ConnId, end: LegEnd, link: usize) {
        match end {
            LegEnd::Client => {
                self.links[link].backward.clear();
                self.client.handle_closed(self.now, conn, CloseCause::Reset);
            }
            LegEnd::Exit => {
                self.links[link].forward.clear();
                self.exit.handle_closed(self.now, conn, &CloseCause::Reset);
            }
        }
        self.settle();
    }

    /// Notifies the other ends of cut links, if no cells are in flight to them. Returns whether there were any.
    pub fn report_cuts(&mut self) -> bool {
        let mut any = false;
        for link in 0..self.links.len() {
            let state = &mut self.links[link];
            let (conn, end) = match (state.client, state.exit) {
                (Some(conn), None) if state.backward.is_empty() => (conn, LegEnd::Client),
                (None, Some(conn)) if state.forward.is_empty() => (conn, LegEnd::Exit),
                _ => continue,
            };
            (state.client, state.exit) = (None, None);
            self.close(conn, end, link);
            any = true;
        }
        any
    }

    /// A destination sends up to this number of bytes, as the exit accepts them. Returns the number sent.
    pub fn feed(&mut self, number: usize, bytes: u64) -> u64 {
        let mut fed = 0;
        while let Some(transfer) = self.transfers.get_mut(number)
            && let Some(conn) = transfer.conn
        {
            let limit = self.exit.receive_limit(conn).min(16_384);
            let len = (limit as u64).min(bytes - fed).min(transfer.due_bytes());
            if len == 0 {
                break;
            }
            let at = Run::place(transfer.sent_bytes);
            transfer.sent_bytes += len;
            fed += len;
            let (exit, now) = (&mut self.exit, self.now);
            // No read is longer than 16 KiB.
            let len = u32::try_from(len).unwrap_or(0);
            HeaderOnly::with_data(at, len, |data| exit.handle_stream_data(now, conn, data));
            self.settle();
        }
        fed
    }

    /// Advances the clock by `time`, and handles timeouts that fire meanwhile.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let (exit, client) = (self.exit.poll_timeout(), self.client.poll_timeout());
            let next = exit.into_iter().chain(client).min().filter(|at| *at <= end);
            let Some(at) = next else { break };
            self.now = self.now.max(at);
            if exit.is_some_and(|at| at <= self.now) {
                self.exit.handle_timeout(self.now);
            }
            if client.is_some_and(|at| at <= self.now) {
                self.client.handle_timeout(self.now);
            }
            self.settle();
        }
        self.now = end;
    }

    /// Delivers all cells, reports cuts, and lets destinations send, until nothing is left to do.
    ///
    /// # Panics
    /// If this does not end.
    pub fn finish(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut any = false;
            for link in 0..self.links.len() {
                any |= self.deliver(link, LegEnd::Exit, 64) > 0;
                any |= self.deliver(link, LegEnd::Client, 64) > 0;
            }
            any |= self.report_cuts();
            for number in 0..self.transfers.len() {
                any |= self.feed(number, 16_384) > 0;
            }
            self.advance(Duration::from_millis(10));
            if !any {
                return;
            }
        }
        panic!("the transfers do not end");
    }

    /// Checks the reordering buffer. This must happen after each cell: a closed set has no counters.
    fn check_early(&self) {
        let early = self.early_peak_cells();
        assert!(early <= self.params.early_max_cells, "{early} messages buffered");
    }

    /// Checks the accounts and limits, and received data against sent data.
    ///
    /// # Panics
    /// If something is wrong.
    pub fn check(&self) {
        self.exit.check_accounts();
        let held_bytes = self.exit.queued_bytes();
        // A read from a destination may exceed the limit.
        let most = self.params.held_bytes_max + 64 * size_of::<<HeaderOnly as CellModel>::Cell>();
        assert!(held_bytes <= most, "{held_bytes} bytes held");
        self.check_early();
        if !self.has_forged {
            self.check_prefixes();
        }
    }

    /// Delivers everything. All transfers must complete unless the set is lost. It may be lost only if a link was
    /// cut without retransmission, the ends had no leg in common, the reordering buffer overflowed, or a cell was
    /// forged. At the end, no state may be left.
    ///
    /// # Panics
    /// If that does not hold.
    pub fn conclude(&mut self) {
        self.finish();
        self.check();
        if !self.has_forged {
            let (begun, complete) = self.transfers();
            let retransmits = self.params.resumes && self.exit.totals().oom_runs == 0;
            let is_bad_cut = self.cuts > 0 && (self.was_disconnected || !retransmits);
            let may_be_lost = is_bad_cut || self.params.early_max_cells < 1 << 15;
            match &self.loss {
                None => assert_eq!(complete, begun, "{:?}", self.transfers),
                Some(loss) => assert!(may_be_lost, "lost without a reason: {loss}"),
            }
        }
        self.close_all();
        self.exit.check_accounts();
        assert_eq!((self.exit.open_circuits(), self.exit.open_streams()), (0, 0));
        assert_eq!(self.exit.queued_bytes(), 0, "data is left");
        assert_eq!((self.client.open_circuits(), self.client.open_streams()), (0, 0));
    }

    /// The client closes its links, and the exit learns of it.
    pub fn close_all(&mut self) {
        self.client.close_all();
        self.settle();
        for link in 0..self.links.len() {
            self.cut(link, LegEnd::Client);
            self.cut(link, LegEnd::Exit);
        }
        self.settle();
    }
}
