use super::clients::ClientCircuit;
use super::hops::HopCircuit;
use super::{SentCell, Stage, StageModel};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use onion::cell::msg::{DestroyReason, FeedbackEntry};
use onion::cell::{CELL_LEN, CircId, Command};
use onion::cell_model::{Body, Cell, CellModel};
use onion::identity::RelayIds;
use onion::node::{CloseCause, ConnId, SocketState};
use onion::router::LinkPeer;
use onion::{Duration, Instant};
use rand_core::Rng;

/// How fast a link's peer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Cells per millisecond.
    pub cells_per_ms: u32,
    /// The capacity of the kernel's buffer, in cells.
    pub buffer_cells: u32,
}

/// Maximum number of cells per write.
const RECORD_CELLS: usize = 31;

/// One of the relay's links, and its peer.
#[derive(Debug)]
pub(super) struct StageLink<S: CellModel> {
    /// `None` once it is closed.
    pub(super) conn: Option<ConnId>,
    /// `None` if the peer reads everything at once.
    pub(super) pace: Option<Pace>,
    /// Cells in the kernel's buffer.
    pub(super) buffered_cells: u32,
    /// When the kernel last sent, in whole milliseconds.
    pub(super) drained_at: Instant,
    /// Whether the kernel's buffer was full at the last write.
    pub(super) is_full: bool,
    pub(super) clients: BTreeMap<CircId, ClientCircuit<S>>,
    pub(super) hops: BTreeMap<CircId, HopCircuit<S>>,
    /// The peer's number, if it is a relay.
    pub(super) relay: Option<u8>,
    /// By circuit, cells that the relay received and has not reported as forwarded.
    unreported_by_relay: BTreeMap<CircId, u32>,
    /// By circuit, cells that the relay sent and the peer has not reported as forwarded.
    unreported_by_peer: BTreeMap<CircId, u32>,
}

impl<S: CellModel> StageLink<S> {
    pub(super) const fn new(
        now: Instant,
        conn: ConnId,
        pace: Option<Pace>,
        relay: Option<u8>,
    ) -> Self {
        Self {
            conn: Some(conn),
            pace,
            buffered_cells: 0,
            drained_at: now,
            is_full: false,
            clients: BTreeMap::new(),
            hops: BTreeMap::new(),
            relay,
            unreported_by_relay: BTreeMap::new(),
            unreported_by_peer: BTreeMap::new(),
        }
    }

    /// When the kernel will have sent more, if its buffer holds cells.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let waits = self.conn.is_some() && self.buffered_cells > 0;
        waits.then(|| self.drained_at + Duration::from_millis(1))
    }

    /// Empties the kernel's buffer at the peer's pace, up to `now`.
    pub(super) fn drain(&mut self, now: Instant) {
        let Some(pace) = self.pace else { return };
        while self.buffered_cells > 0 && self.drained_at + Duration::from_millis(1) <= now {
            self.drained_at += Duration::from_millis(1);
            self.buffered_cells = self.buffered_cells.saturating_sub(pace.cells_per_ms);
        }
    }

    fn room_cells(&self) -> usize {
        self.pace.map_or(RECORD_CELLS, |pace| {
            pace.buffer_cells.saturating_sub(self.buffered_cells) as usize
        })
    }

    /// The socket state: the congestion window holds what the peer reads in ten milliseconds.
    pub(super) fn socket_state(&self) -> SocketState {
        let mss_bytes = 1448;
        let window_cells = self.pace.map_or(1000, |pace| pace.cells_per_ms * 10);
        let segments = |cells: u32| (cells * 514).div_ceil(mss_bytes);
        SocketState {
            cwnd_segments: segments(window_cells).max(2),
            unacked_segments: segments(self.buffered_cells.min(window_cells)),
            mss_bytes,
            notsent_bytes: self.buffered_cells.saturating_sub(window_cells) * 514,
            unwritten_bytes: 0,
            rtt_us: 10_000,
        }
    }
}

/// Whether hop-by-hop windows count the command.
fn is_relay_cell(command: Command) -> bool {
    matches!(command, Command::RELAY | Command::RELAY_EARLY)
}

impl<S: StageModel, R: Rng> Stage<S, R> {
    /// A relay with this number, or a client, opens a link. Returns its index.
    ///
    /// # Panics
    /// If the relay has DoS limits: all links of a stage come from one address.
    pub fn accept(&mut self, relay: Option<u8>, pace: Option<Pace>) -> usize {
        let conn = self.relay.accept(self.now, Some([192, 0, 2, 9].into()), None);
        let conn = conn.expect("the relay has no DoS limits");
        self.open(conn, relay, pace)
    }

    pub(super) fn open(&mut self, conn: ConnId, relay: Option<u8>, pace: Option<Pace>) -> usize {
        let ids: Option<RelayIds> = relay.map(|number| S::ids(&S::identity(number)));
        let has_feedback = self.relay.has_hop_windows() && (self.has_feedback)(relay);
        let peer =
            LinkPeer { relay: ids, is_canonical: relay.is_some(), has_padding: true, has_feedback };
        self.links.push(StageLink::new(self.now, conn, pace, relay));
        self.relay.handle_link_open(self.now, conn, &peer);
        self.settle();
        self.links.len() - 1
    }

    /// The number of links so far.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Sets how fast the peer reads: everything at once if `None`.
    pub fn set_pace(&mut self, link: usize, pace: Option<Pace>) {
        let Some(state) = self.links.get_mut(link) else { return };
        state.drain(self.now);
        state.pace = pace;
        if pace.is_none() {
            state.buffered_cells = 0;
        }
        state.drained_at = self.now;
        self.read(link);
        self.settle();
    }

    /// Closes a link.
    pub fn close_link(&mut self, link: usize) {
        let Some(conn) = self.links.get_mut(link).and_then(|link| link.conn.take()) else { return };
        self.relay.handle_closed(self.now, conn, &CloseCause::ByPeer);
        self.settle();
    }

    /// A cell arrives on a link.
    pub fn send(&mut self, link: usize, circ_id: CircId, command: Command, body: &S::Body) {
        let Some(state) = self.links.get_mut(link) else { return };
        let Some(conn) = state.conn else { return };
        if is_relay_cell(command) {
            *state.unreported_by_relay.entry(circ_id).or_default() += 1;
        } else if command != Command::PADDING {
            // The ID may now name a new circuit, so later reports do not concern the previous one.
            state.unreported_by_peer.remove(&circ_id);
        }
        let _ = self.relay.handle_cell(self.now, conn, circ_id, command, body);
        self.settle();
    }

    /// A cell with these bytes arrives on a link.
    pub fn send_bytes(&mut self, link: usize, circ_id: CircId, command: Command, bytes: &[u8]) {
        self.send(link, circ_id, command, &S::Body::from_bytes(bytes));
    }

    /// The peer of a link forgets a circuit.
    pub(super) fn forget_circuit(&mut self, link: usize, circ_id: CircId) {
        if let Some(state) = self.links.get_mut(link) {
            state.clients.remove(&circ_id);
            state.hops.remove(&circ_id);
        }
    }

    /// The peer reports forwarded cells, truthfully or not.
    pub fn send_feedback(&mut self, link: usize, circ_id: CircId, cells: u16) {
        let mut body = Vec::new();
        FeedbackEntry { circ_id, cells }.encode_into(&mut body);
        let unreported_by_peer =
            self.links.get_mut(link).and_then(|link| link.unreported_by_peer.get_mut(&circ_id));
        if let Some(unreported_by_peer) = unreported_by_peer {
            *unreported_by_peer = unreported_by_peer.saturating_sub(cells.into());
        }
        self.send_feedback_bytes(link, &body);
    }

    /// A FEEDBACK cell with these bytes arrives on a link.
    pub fn send_feedback_bytes(&mut self, link: usize, body: &[u8]) {
        let Some(conn) = self.links.get(link).and_then(|link| link.conn) else { return };
        let _ = self.relay.handle_feedback(self.now, conn, body);
        self.settle();
    }

    /// The peer truthfully reports forwarded cells of a circuit, at most this number. Returns the number
    /// reported.
    ///
    /// # Panics
    /// If the relay closes the link because of it.
    pub fn report_forwarded(&mut self, link: usize, circ_id: CircId, most: u16) -> u16 {
        if !self.is_open(link) {
            return 0;
        }
        let cells =
            most.min(u16::try_from(self.unreported_by_peer(link, circ_id)).unwrap_or(u16::MAX));
        if cells > 0 {
            self.send_feedback(link, circ_id, cells);
            assert!(self.is_open(link), "the relay closed an honest peer's link");
        }
        cells
    }

    /// Cells of a circuit that the relay sent on a link and that were not reported as forwarded.
    #[must_use]
    pub fn unreported_by_peer(&self, link: usize, circ_id: CircId) -> u32 {
        self.links
            .get(link)
            .and_then(|link| link.unreported_by_peer.get(&circ_id))
            .copied()
            .unwrap_or(0)
    }

    /// Cells of a circuit that the relay received on a link and has not reported as forwarded.
    #[must_use]
    pub fn unreported_by_relay(&self, link: usize, circ_id: CircId) -> u32 {
        self.links
            .get(link)
            .and_then(|link| link.unreported_by_relay.get(&circ_id))
            .copied()
            .unwrap_or(0)
    }

    /// Whether a link is open.
    #[must_use]
    pub fn is_open(&self, link: usize) -> bool {
        self.links.get(link).is_some_and(|link| link.conn.is_some())
    }

    /// The relay reports forwarded cells.
    ///
    /// # Panics
    /// If it reports more than it received.
    fn receive_feedback(&mut self, link: usize, body: &[u8]) {
        for FeedbackEntry { circ_id, cells } in FeedbackEntry::parse(body).expect("well-formed") {
            let unreported_by_relay =
                self.links[link].unreported_by_relay.entry(circ_id).or_default();
            *unreported_by_relay =
                unreported_by_relay.checked_sub(cells.into()).expect("no more than it received");
            let command = Command::FEEDBACK;
            self.sent_cells.push(SentCell {
                at: self.now,
                link,
                circ_id,
                command,
                message: None,
                destroyed: None,
            });
        }
    }

    /// Takes the relay's output for a link, as far as there is space.
    pub(super) fn read(&mut self, link: usize) {
        let Some(conn) = self.links[link].conn else { return };
        while let Some(control) = self.relay.poll_control(self.now, conn) {
            if control.command == Command::FEEDBACK {
                self.receive_feedback(link, &control.body);
            }
            if control.command.is_variable_length() {
                continue;
            }
            let mut cell = <S::Cell as Cell>::EMPTY;
            control.fill::<S>(&mut cell);
            self.receive(link, &cell);
        }
        loop {
            let room = self.links[link].room_cells().min(RECORD_CELLS);
            self.links[link].is_full = room == 0;
            if room == 0 {
                return;
            }
            let mut cells: Vec<S::Cell> = (0..room).map(|_| <S::Cell as Cell>::EMPTY).collect();
            let count = self.relay.poll_cells(self.now, conn, &mut cells);
            if count == 0 {
                return;
            }
            let state = &mut self.links[link];
            if state.pace.is_some() {
                if state.buffered_cells == 0 {
                    state.drained_at = self.now;
                }
                state.buffered_cells += u32::try_from(count).unwrap_or(u32::MAX);
            }
            cells[..count].iter().for_each(|cell| self.receive(link, cell));
        }
    }

    /// A cell has left the relay.
    fn receive(&mut self, link: usize, cell: &S::Cell) {
        const { assert!(CELL_LEN == 514, "the cell size that `socket_state` assumes") };
        let (circ_id, command) = (cell.circ_id(), cell.command());
        let unreported_by_peer = &mut self.links[link].unreported_by_peer;
        if is_relay_cell(command) {
            *unreported_by_peer.entry(circ_id).or_default() += 1;
        } else if command == Command::DESTROY {
            unreported_by_peer.remove(&circ_id);
        }
        let message = if self.links[link].hops.contains_key(&circ_id) || command == Command::CREATE2
        {
            self.receive_as_hop(link, circ_id, command, cell.body())
        } else {
            self.receive_as_client(link, circ_id, command, cell.body())
        };
        let destroyed =
            (command == Command::DESTROY).then(|| DestroyReason::parse(cell.body().bytes()));
        self.sent_cells.push(SentCell { at: self.now, link, circ_id, command, message, destroyed });
    }

    /// Resumes links whose kernel has space again.
    pub(super) fn read_on(&mut self) {
        for link in 0..self.links.len() {
            if self.links[link].is_full && self.links[link].room_cells() > 0 {
                self.read(link);
            }
        }
    }
}
