//! A client's Conflux set and its exit on cells, and the network between them.
//!
//! Both ends are the engine's ([`client::Core`] and [`router::Core`]), over header-only cells; each leg is a
//! circuit of one hop on its own link. The network delivers the cells of one leg in order and cells of
//! different legs in any order. It cuts links, at one end before the other, and it can send messages in the
//! name of either end, as a lying end would. Data has no bytes here, but each DATA cell states its offset in
//! the stream: lost, duplicate and reordered data is detected on arrival.

mod acts;
mod ends;

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

use crate::stage::Cast;

/// Maximum number of legs in one run, including lost ones.
const OPENED_MAX: usize = 12;

/// More than any end needs to deliver its data.
const ROUNDS_MAX: u32 = 20_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct LinkedPlan {
    /// Initial legs.
    pub legs: usize,
    /// The scheduler of client and exit.
    pub scheduler: &'static dyn LegScheduler,
    /// The limit of the client's reordering buffer.
    pub early_max_cells: usize,
    /// Whether both ends retransmit.
    pub resumes: bool,
    /// The exit's memory limit, in bytes.
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
type Moved = (CircId, Command, HeaderOnlyBody);

/// A link with one leg on it.
#[derive(Debug)]
struct Link {
    /// The client's side, while it is open.
    client: Option<ConnId>,
    /// The exit's side.
    exit: Option<ConnId>,
    forth: VecDeque<Moved>,
    back: VecDeque<Moved>,
}

/// A transfer, and its progress at the destination.
#[derive(Debug)]
struct Errand {
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

impl Errand {
    fn request_bytes(&self) -> u64 {
        self.transfer.upload_bytes + Transfer::REQUEST_LEN as u64
    }

    /// The data that the destination may send: the receipt only after the whole upload.
    fn due_bytes(&self) -> u64 {
        // More arrives only from a client that lies.
        let has_upload = self.received_bytes >= self.request_bytes();
        let receipt = if has_upload { Transfer::RECEIPT_LEN as u64 } else { 0 };
        self.transfer.download_bytes + receipt - self.sent_bytes
    }
}

/// A client and an exit with a set, and the network between them. See the [module](self).
#[derive(Debug)]
pub struct Linked {
    /// The client.
    pub client: client::Core<HeaderOnly, Transfer, ChaCha8Rng>,
    /// The exit.
    pub exit: router::Core<HeaderOnly, ChaCha8Rng>,
    /// The time.
    pub now: Instant,
    set: CircuitNumber,
    path: CircuitPlan,
    links: Vec<Link>,
    errands: Vec<Errand>,
    loss: Option<Loss>,
    plan: LinkedPlan,
    /// The nonce of LINK, once it has passed.
    nonce: ConfluxNonce,
    /// Links of which one end was cut.
    cuts: usize,
    /// Whether, after a cut, no leg was linked at both ends.
    was_apart: bool,
    /// Whether a message was sent in the name of an end.
    has_lied: bool,
}

impl Linked {
    /// A client that has requested its set; none of its cells has arrived.
    #[must_use]
    pub fn new(plan: &LinkedPlan) -> Self {
        let identity = HeaderOnly::identity(0);
        let mut config = RouterConfig::new(identity, 1_600_000_000);
        let policy = ExitPolicy::accept_all();
        config.exit = Some(ExitConfig { policy, ipv6: false, allows_single_hop: true });
        config.scheduler = SchedulerConfig::vanilla();
        config.padding = false;
        config.held_bytes_max = plan.held_bytes_max;
        config.conflux_scheduler = Some(plan.scheduler);
        let rng =
            |number| ChaCha8Rng::seed_from_u64(plan.seed.wrapping_mul(2).wrapping_add(number));
        let exit = router::Core::new(config, Honest, rng(0), Instant::ORIGIN);
        let mut client = client::Core::new(rng(1));
        let onion_key = HeaderOnly::onion_key(&identity);
        let address = SocketAddr::from(([192, 0, 2, 1], 9001));
        let hop = NextHop { address, ids: HeaderOnly::ids(&identity), onion_key };
        let path = CircuitPlan { has_own_link: true, ..CircuitPlan::new([hop].into()) };
        let legs = (0..plan.legs).map(|_| path.clone()).collect();
        let set = client.open_set(
            Instant::ORIGIN,
            &SetPlan {
                scheduler: plan.scheduler,
                early_max_cells: plan.early_max_cells,
                resumes: plan.resumes,
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
            errands: Vec::new(),
            loss: None,
            plan: *plan,
            nonce: ConfluxNonce([0; 32]),
            cuts: 0,
            was_apart: false,
            has_lied: false,
        };
        linked.settle();
        linked
    }

    /// The number of links, including cut ones.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Links of which one end was cut.
    #[must_use]
    pub const fn cuts(&self) -> usize {
        self.cuts
    }

    /// Whether a message was sent in the name of an end.
    #[must_use]
    pub const fn has_lied(&self) -> bool {
        self.has_lied
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

    /// Whether the set is linked and streams may begin.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.client.is_built(self.set)
    }

    /// The largest number of messages in the client's reordering buffer.
    #[must_use]
    pub fn early_peak_cells(&self) -> usize {
        self.client.early_peak_cells(self.set)
    }

    /// Transfers begun, and completed ones.
    #[must_use]
    pub fn transfers(&self) -> (usize, usize) {
        (self.errands.len(), self.errands.iter().filter(|it| it.is_complete).count())
    }

    /// The client begins a transfer.
    pub fn begin(&mut self, download_bytes: u64, upload_bytes: u64) {
        let transfer = Transfer { seed: 0, download_bytes, upload_bytes };
        // The port identifies it.
        let Ok(port) = u16::try_from(self.errands.len() + 1) else { return };
        let to = Destination::from(SocketAddr::from(([192, 0, 2, 80], port)));
        let stream = self.client.begin(self.now, self.set, to, transfer);
        let (conn, sent_bytes, received_bytes) = (None, 0, 0);
        let is_complete = false;
        self.errands.push(Errand {
            stream,
            transfer,
            conn,
            sent_bytes,
            received_bytes,
            is_complete,
        });
        self.settle();
    }

    /// The client adds a leg, unless it has too many. Without retransmission it does so only before the set is
    /// linked: later, messages may be in flight, and the ends would not agree on the numbers sent.
    pub fn add_leg(&mut self) {
        let may_join = !self.is_built() || self.client.resumes(self.set);
        if self.links.len() < OPENED_MAX && may_join {
            let path = self.path.clone();
            let _none_if_it_is_lost = self.client.add_leg(self.now, self.set, &path);
            self.settle();
        }
    }

    /// Delivers this number of cells of a leg, or fewer if there are fewer, at the exit or at the client;
    /// returns their number.
    pub fn deliver(&mut self, link: usize, to: LegEnd, most: usize) -> usize {
        for count in 0..most {
            let Some(it) = self.links.get_mut(link) else { return count };
            let (cells, conn) = match to {
                LegEnd::Exit => (&mut it.forth, it.exit),
                LegEnd::Client => (&mut it.back, it.client),
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
            self.note_apart();
        }
        most
    }

    /// Cuts an end of a link: cells in flight to it are lost. The other end does not know yet.
    pub fn cut(&mut self, link: usize, end: LegEnd) {
        let Some(it) = self.links.get_mut(link) else { return };
        let conn = match end {
            LegEnd::Client => it.client.take(),
            LegEnd::Exit => it.exit.take(),
        };
        let Some(conn) = conn else { return };
        self.cuts += 1;
        // Before anybody is notified: their reaction may close the set.
        self.note_apart();
        self.lose(conn, end, link);
        self.note_apart();
    }

    /// With retransmission, a set may be lost only if the ends have no leg in common any longer.
    fn note_apart(&mut self) {
        // The client opens the links of its legs in order.
        let is_common = |it: &LegFigures| {
            let link = self.links.get(usize::from(it.leg));
            link.is_some_and(|it| it.client.is_some() && it.exit.is_some())
        };
        let is_closed = self.loss.is_some();
        self.was_apart |= self.cuts > 0 && !is_closed && !self.legs().iter().any(is_common);
    }

    /// An end learns that its link is closed.
    fn lose(&mut self, conn: ConnId, end: LegEnd, link: usize) {
        match end {
            LegEnd::Client => {
                self.links[link].back.clear();
                self.client.handle_closed(self.now, conn, CloseCause::Reset);
            }
            LegEnd::Exit => {
                self.links[link].forth.clear();
                self.exit.handle_closed(self.now, conn, &CloseCause::Reset);
            }
        }
        self.settle();
    }

    /// If one end is cut, the other learns it after all cells in flight to it have arrived. Returns whether
    /// there was such a link.
    pub fn tell_cuts(&mut self) -> bool {
        let mut any = false;
        for link in 0..self.links.len() {
            let it = &mut self.links[link];
            let (conn, end) = match (it.client, it.exit) {
                (Some(conn), None) if it.back.is_empty() => (conn, LegEnd::Client),
                (None, Some(conn)) if it.forth.is_empty() => (conn, LegEnd::Exit),
                _ => continue,
            };
            (it.client, it.exit) = (None, None);
            self.lose(conn, end, link);
            any = true;
        }
        any
    }

    /// A destination sends as much of its data as is accepted; returns the number of bytes.
    pub fn feed(&mut self, number: usize, bytes: u64) -> u64 {
        let mut fed = 0;
        while let Some(it) = self.errands.get_mut(number)
            && let Some(conn) = it.conn
        {
            let limit = self.exit.receive_limit(conn).min(16_384);
            let len = (limit as u64).min(bytes - fed).min(it.due_bytes());
            if len == 0 {
                break;
            }
            let at = Run::place(it.sent_bytes);
            it.sent_bytes += len;
            fed += len;
            let (exit, now) = (&mut self.exit, self.now);
            // No read is longer than 16 KiB.
            let len = u32::try_from(len).unwrap_or(0);
            HeaderOnly::with_data(at, len, |data| exit.handle_stream_data(now, conn, data));
            self.settle();
        }
        fed
    }

    /// Lets time pass; timeouts fire on the way.
    pub fn pass(&mut self, time: Duration) {
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

    /// Delivers all cells, reports cuts, and lets destinations send until nothing is left to do.
    ///
    /// # Panics
    /// If that does not end.
    pub fn finish(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut any = false;
            for link in 0..self.links.len() {
                any |= self.deliver(link, LegEnd::Exit, 64) > 0;
                any |= self.deliver(link, LegEnd::Client, 64) > 0;
            }
            any |= self.tell_cuts();
            for number in 0..self.errands.len() {
                any |= self.feed(number, 16_384) > 0;
            }
            self.pass(Duration::from_millis(10));
            if !any {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Nothing is known of a closed set, so the set is checked after each cell.
    fn check_early(&self) {
        let early = self.early_peak_cells();
        assert!(early <= self.plan.early_max_cells, "{early} messages wait");
    }

    /// Checks the accounts and limits, and received data against sent data.
    ///
    /// # Panics
    /// If something is wrong.
    pub fn check(&self) {
        self.exit.check_accounts();
        let held_bytes = self.exit.queued_bytes();
        // Destinations send one read at a time.
        let most = self.plan.held_bytes_max + 64 * size_of::<<HeaderOnly as CellModel>::Cell>();
        assert!(held_bytes <= most, "{held_bytes} bytes held");
        self.check_early();
        if !self.has_lied {
            self.check_prefixes();
        }
    }

    /// Delivers everything. All transfers complete unless the set is lost; and it is lost only if a link was
    /// cut without retransmission, the ends had no leg in common, the reordering buffer overflowed, or an end
    /// has lied. In the end nothing of it is left.
    ///
    /// # Panics
    /// If that does not hold.
    pub fn conclude(&mut self) {
        self.finish();
        self.check();
        if !self.has_lied {
            let (begun, complete) = self.transfers();
            let is_sent_again = self.plan.resumes && self.exit.totals().oom_runs == 0;
            let is_bad_cut = self.cuts > 0 && (self.was_apart || !is_sent_again);
            let may_be_lost = is_bad_cut || self.plan.early_max_cells < 1 << 15;
            match &self.loss {
                None => assert_eq!(complete, begun, "{:?}", self.errands),
                Some(loss) => assert!(may_be_lost, "lost, and nobody has done anything: {loss}"),
            }
        }
        self.end();
        self.exit.check_accounts();
        assert_eq!((self.exit.open_circuits(), self.exit.open_streams()), (0, 0));
        assert_eq!(self.exit.queued_bytes(), 0, "nothing is left of anybody");
        assert_eq!((self.client.open_circuits(), self.client.open_streams()), (0, 0));
    }

    /// The client closes its links, and the exit learns of it.
    pub fn end(&mut self) {
        self.client.close_all();
        self.settle();
        for link in 0..self.links.len() {
            self.cut(link, LegEnd::Client);
            self.cut(link, LegEnd::Exit);
        }
        self.settle();
    }
}
