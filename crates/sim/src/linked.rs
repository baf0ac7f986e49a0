//! A client's set of linked circuits and their exit, at the seam of cells, and somebody between them.
//!
//! Both ends are the engine's ([`client::Core`] and [`router::Core`]), over weightless cells; each leg is a circuit of one hop on a link of its
//! own. Who is between lets cells of the legs arrive in any order: one after another on each leg, as links do, and otherwise as he
//! likes. He cuts links, at one end before the other; and he can speak for either end, as one that lies. Data has no bytes here, but
//! each cell of it says where in its stream it begins: what is lost, comes twice or changes places is noticed where it comes.

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

/// Legs that are opened in one play, those that are lost included.
const OPENED_MAX: usize = 12;

/// More than any end takes to deliver what it has.
const ROUNDS_MAX: u32 = 20_000;

/// How a set is played.
#[derive(Clone, Copy, Debug)]
pub struct LinkedPlan {
    /// Legs at first.
    pub legs: usize,
    /// What client and exit send by.
    pub scheduler: &'static dyn LegScheduler,
    /// Messages that may wait at the client for others that come before them.
    pub early_max_cells: usize,
    /// Whether both ends send again what a lost leg has not brought.
    pub resumes: bool,
    /// Bytes of memory that the exit may hold.
    pub held_bytes_max: usize,
    /// Draws keys.
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

/// A cell under way.
type Moved = (CircId, Command, HeaderOnlyBody);

/// A link with one leg on it.
#[derive(Debug)]
struct Link {
    /// The client's end, while it is open.
    client: Option<ConnId>,
    /// The exit's.
    exit: Option<ConnId>,
    forth: VecDeque<Moved>,
    back: VecDeque<Moved>,
}

/// A transfer, and how far its destination is with it.
#[derive(Debug)]
struct Errand {
    stream: StreamNumber,
    transfer: Transfer,
    /// The exit's connection to the destination, while there is one.
    conn: Option<ConnId>,
    /// Bytes that the destination has sent, and got.
    sent_bytes: u64,
    received_bytes: u64,
    /// The client has all.
    is_complete: bool,
}

impl Errand {
    fn request_bytes(&self) -> u64 {
        self.transfer.upload_bytes + Transfer::REQUEST_LEN as u64
    }

    /// What the destination has to send now: the receipt only once the upload has come.
    fn due_bytes(&self) -> u64 {
        // More comes only from a client that lies.
        let has_upload = self.received_bytes >= self.request_bytes();
        let receipt = if has_upload { Transfer::RECEIPT_LEN as u64 } else { 0 };
        self.transfer.download_bytes + receipt - self.sent_bytes
    }
}

/// Client and exit of a set, and who is between them. See the [module](self).
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
    /// What LINK has said, once it has passed.
    nonce: ConfluxNonce,
    /// Links of which an end was cut.
    cuts: usize,
    /// After a cut there was no leg left that both ends have linked.
    was_apart: bool,
    /// Somebody has spoken for an end.
    has_lied: bool,
}

impl Linked {
    /// A client that has asked for its set, and nothing of it has arrived.
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

    /// How many links there were, those that are cut included.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Links whose ends are both open.
    #[must_use]
    pub fn whole_links(&self) -> usize {
        self.links.iter().filter(|it| it.client.is_some() && it.exit.is_some()).count()
    }

    /// Links of which an end was cut.
    #[must_use]
    pub const fn cuts(&self) -> usize {
        self.cuts
    }

    /// Whether somebody has spoken for an end.
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

    /// Whether the set is linked, and streams may begin.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.client.is_built(self.set)
    }

    /// Most messages that have waited at the client for others that come before them.
    #[must_use]
    pub fn early_peak_cells(&self) -> usize {
        self.client.early_peak_cells(self.set)
    }

    /// Transfers that were begun, and those of them that the client has had whole.
    #[must_use]
    pub fn transfers(&self) -> (usize, usize) {
        (self.errands.len(), self.errands.iter().filter(|it| it.is_complete).count())
    }

    /// The client begins a transfer.
    pub fn begin(&mut self, download_bytes: u64, upload_bytes: u64) {
        let transfer = Transfer { seed: 0, download_bytes, upload_bytes };
        // The port says which it is.
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

    /// The client opens another leg, if it has not opened too many. Where nothing is sent again it does so only before the set is linked:
    /// later something may be under way, and then the ends would not agree on what was sent.
    pub fn add_leg(&mut self) {
        let may_join = !self.is_built() || self.client.resumes(self.set);
        if self.links.len() < OPENED_MAX && may_join {
            let path = self.path.clone();
            let _none_if_it_is_lost = self.client.add_leg(self.now, self.set, &path);
            self.settle();
        }
    }

    /// So many cells of a leg arrive, or as many as there are, at the exit or at the client; returns how many.
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

    /// An end of a link is cut: what was under way to it is lost. The other end does not know yet.
    pub fn cut(&mut self, link: usize, end: LegEnd) {
        let Some(it) = self.links.get_mut(link) else { return };
        let conn = match end {
            LegEnd::Client => it.client.take(),
            LegEnd::Exit => it.exit.take(),
        };
        let Some(conn) = conn else { return };
        self.cuts += 1;
        // Before anybody has heard of it: the set may be lost by what they do then.
        self.note_apart();
        self.lose(conn, end, link);
        self.note_apart();
    }

    /// Between ends that send again, a set may be lost only where they have no leg in common any more.
    fn note_apart(&mut self) {
        // The client opens a link for each leg, in their order.
        let is_common = |it: &LegFigures| {
            let link = self.links.get(usize::from(it.leg));
            link.is_some_and(|it| it.client.is_some() && it.exit.is_some())
        };
        let is_closed = self.loss.is_some();
        self.was_apart |= self.cuts > 0 && !is_closed && !self.legs().iter().any(is_common);
    }

    /// An end learns that its link is gone.
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

    /// Where one end is cut, the other learns of it, once all has arrived that was under way to it. Whether there was any.
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

    /// A destination sends as much of this as it has to send and as is taken from it; returns how much.
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
            // No reading is longer than 16 KiB.
            let len = u32::try_from(len).unwrap_or(0);
            HeaderOnly::with_data(at, len, |data| exit.handle_stream_data(now, conn, data));
            self.settle();
        }
        fed
    }

    /// Lets time pass; whatever is due on the way happens when it is due.
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

    /// All that is under way arrives, who does not know of a cut learns of it, and destinations send what they have, until nothing
    /// is left to do.
    ///
    /// # Panics
    /// If that has no end.
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

    /// Of a set that is closed since nothing is known any more: so it is looked at after each cell.
    fn check_early(&self) {
        let early = self.early_peak_cells();
        assert!(early <= self.plan.early_max_cells, "{early} messages wait");
    }

    /// Compares what is kept with what is there, and with its bounds; and what has come with what was sent.
    ///
    /// # Panics
    /// If something is wrong.
    pub fn check(&self) {
        self.exit.check_accounts();
        let held_bytes = self.exit.queued_bytes();
        // What destinations send comes a reading at a time.
        let most = self.plan.held_bytes_max + 64 * size_of::<<HeaderOnly as CellModel>::Cell>();
        assert!(held_bytes <= most, "{held_bytes} bytes held");
        self.check_early();
        if !self.has_lied {
            self.check_prefixes();
        }
    }

    /// Lets everything come that can: it does, unless the set is lost; and it is lost only where a link was cut whose cells
    /// nobody sends again, the ends had no leg in common, more came early than may wait, or an end has lied. At the end nothing is left of it.
    ///
    /// # Panics
    /// If it is otherwise.
    pub fn conclude(&mut self) {
        self.finish();
        self.check();
        if !self.has_lied {
            let (begun, complete) = self.transfers();
            let is_sent_again = self.plan.resumes && self.exit.totals().sheds == 0;
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

    /// The client's links close, and the exit learns of it.
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
