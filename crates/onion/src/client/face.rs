use super::{
    Application, CircuitNumber, CircuitPlan, ClientEvent, Core, Destination, Figures, LegFigures,
    SetPlan, StreamNumber, Transfer,
};
use crate::cell::{BODY_LEN, CELL_LEN, CircId, Command, LinkProtocol};
use crate::cell_model::{Body, Cell, Tor};
use crate::flow::control::{CongestionParams, FlowFactory};
use crate::link::{Authentication, Channel, ChannelError, ExpectedPeer, TlsSession};
use crate::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use crate::time::{Duration, Instant};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use rand_core::Rng;

/// In the place of the random bytes that only those say who prove an identity.
const SAYS_NOTHING: [u8; 24] = [0; 24];

/// A client on links of bytes: a [`Core`], and the channel of each of its links. See the [module](super).
///
/// - *getters*: [`is_built`](Self::is_built), [`silent_legs`](Self::silent_legs),
///   [`open_circuits`](Self::open_circuits), [`open_streams`](Self::open_streams), [`figures`](Self::figures),
///   [`received_bytes`](Self::received_bytes), [`legs`](Self::legs), [`early_peak_cells`](Self::early_peak_cells);
/// - *commands*: [`set_congestion`](Self::set_congestion), [`set_flows`](Self::set_flows),
///   [`open`](Self::open), [`open_set`](Self::open_set), [`add_leg`](Self::add_leg), [`begin`](Self::begin), [`send_drops`](Self::send_drops), [`application_mut`](Self::application_mut),
///   [`send_more`](Self::send_more), [`pause`](Self::pause), [`resume`](Self::resume),
///   [`end`](Self::end), [`destroy`](Self::destroy), [`close_idle`](Self::close_idle),
///   [`close_all`](Self::close_all);
/// - *handle* and *poll*: those of [`Node`](crate::node::Node), and [`poll_event`](Self::poll_event).
pub struct Client<R, A = Transfer> {
    /// Checked against the dates of certificates.
    unix_time_s: u64,
    core: Core<Tor, A, R>,
    /// Of the links whose TLS stands.
    channels: BTreeMap<ConnId, Channel>,
}

impl<R: Rng> Client<R> {
    /// A client without circuits, whose streams do transfers. All randomness comes from the generator.
    pub fn new(unix_time_s: u64, rng: R) -> Self {
        Self::with_applications(unix_time_s, rng)
    }
}

impl<R: Rng, A: Application<Tor>> Client<R, A> {
    /// The same with other applications at our ends of its streams.
    pub fn with_applications(unix_time_s: u64, rng: R) -> Self {
        Self { unix_time_s, core: Core::new(rng), channels: BTreeMap::new() }
    }

    /// See [`Core::set_congestion`].
    pub fn set_congestion(&mut self, params: Arc<CongestionParams>) {
        self.core.set_congestion(params);
    }

    /// See [`Core::set_flows`].
    pub fn set_flows(&mut self, flows: Arc<dyn FlowFactory>) {
        self.core.set_flows(flows);
    }

    /// See [`Core::is_built`].
    #[must_use]
    pub fn is_built(&self, circuit: CircuitNumber) -> bool {
        self.core.is_built(circuit)
    }

    /// See [`Core::silent_legs`].
    #[must_use]
    pub fn silent_legs(&self, circuit: CircuitNumber) -> Vec<u8> {
        self.core.silent_legs(circuit)
    }

    /// See [`Core::open_circuits`].
    #[must_use]
    pub fn open_circuits(&self) -> usize {
        self.core.open_circuits()
    }

    /// See [`Core::open_streams`].
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.core.open_streams()
    }

    /// See [`Core::figures`].
    #[must_use]
    pub fn figures(&self, stream: StreamNumber) -> Option<&Figures> {
        self.core.figures(stream)
    }

    /// See [`Core::received_bytes`].
    #[must_use]
    pub const fn received_bytes(&self) -> u64 {
        self.core.received_bytes()
    }

    /// See [`Core::open`].
    pub fn open(&mut self, now: Instant, path: &CircuitPlan) -> CircuitNumber {
        self.core.open(now, path)
    }

    /// See [`Core::open_set`].
    pub fn open_set(&mut self, now: Instant, plan: &SetPlan) -> CircuitNumber {
        self.core.open_set(now, plan)
    }

    /// See [`Core::add_leg`].
    pub fn add_leg(
        &mut self,
        now: Instant,
        circuit: CircuitNumber,
        path: &CircuitPlan,
    ) -> Option<u8> {
        self.core.add_leg(now, circuit, path)
    }

    /// See [`Core::legs`].
    #[must_use]
    pub fn legs(&self, circuit: CircuitNumber) -> Vec<LegFigures> {
        self.core.legs(circuit)
    }

    /// See [`Core::resumes`].
    #[must_use]
    pub fn resumes(&self, circuit: CircuitNumber) -> bool {
        self.core.resumes(circuit)
    }

    /// See [`Core::early_peak_cells`].
    #[must_use]
    pub fn early_peak_cells(&self, circuit: CircuitNumber) -> usize {
        self.core.early_peak_cells(circuit)
    }

    /// See [`Core::begin`].
    pub fn begin(
        &mut self,
        now: Instant,
        circuit: CircuitNumber,
        to: Destination,
        application: A,
    ) -> StreamNumber {
        self.core.begin(now, circuit, to, application)
    }

    /// See [`Core::begin_at`].
    pub fn begin_at(
        &mut self,
        now: Instant,
        circuit: CircuitNumber,
        hop: Option<usize>,
        to: Destination,
        application: A,
    ) -> StreamNumber {
        self.core.begin_at(now, circuit, hop, to, application)
    }

    /// See [`Core::hop_times`].
    #[must_use]
    pub fn hop_times(&self, circuit: CircuitNumber) -> &[Duration] {
        self.core.hop_times(circuit)
    }

    /// See [`Core::send_drops`].
    pub fn send_drops(&mut self, now: Instant, circuit: CircuitNumber, cells: usize) {
        self.core.send_drops(now, circuit, cells);
    }

    /// See [`Core::application_mut`].
    pub fn application_mut(&mut self, stream: StreamNumber) -> Option<&mut A> {
        self.core.application_mut(stream)
    }

    /// See [`Core::send_more`].
    pub fn send_more(&mut self, now: Instant, stream: StreamNumber) {
        self.core.send_more(now, stream);
    }

    /// See [`Core::pause`].
    pub fn pause(&mut self, stream: StreamNumber) {
        self.core.pause(stream);
    }

    /// See [`Core::resume`].
    pub fn resume(&mut self, now: Instant, stream: StreamNumber) {
        self.core.resume(now, stream);
    }

    /// See [`Core::end`].
    pub fn end(&mut self, stream: StreamNumber) {
        self.core.end(stream);
    }

    /// See [`Core::destroy`].
    pub fn destroy(&mut self, circuit: CircuitNumber) {
        self.core.destroy(circuit);
    }

    /// See [`Core::close_idle`].
    pub fn close_idle(&mut self) {
        self.core.close_idle();
    }

    /// See [`Core::close_all`].
    pub fn close_all(&mut self) {
        self.core.close_all();
    }

    /// See [`Core::poll_event`].
    #[must_use]
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.core.poll_event()
    }
}

impl<R: Rng, A: Application<Tor>> Client<R, A> {
    /// Handles all cells in a stretch of plaintext.
    fn handle_cells(
        &mut self,
        now: Instant,
        conn: ConnId,
        plaintext: &[u8],
    ) -> Result<(), ChannelError> {
        let Some(channel) = self.channels.get_mut(&conn) else { return Ok(()) };
        let mut input = plaintext;
        if !channel.is_open() && channel.handle_until_open(&mut input)? {
            let has_feedback = channel.protocol() == Some(LinkProtocol::V5WithFeedback);
            self.core.handle_link_open(now, conn, has_feedback);
        }
        while let Some(cell) = channel.handle_bytes(&mut input)? {
            if (cell.circ_id, cell.command) == (CircId::LINK, Command::FEEDBACK) {
                if !self.core.handle_feedback(now, conn, cell.body) {
                    return Ok(());
                }
                continue;
            }
            let padded;
            let body = match cell.body.first_chunk::<BODY_LEN>() {
                Some(body) => body,
                None => {
                    padded = Body::<Tor>::from_bytes(cell.body);
                    &padded
                }
            };
            self.core.handle_cell(now, conn, cell.circ_id, cell.command, body);
        }
        // Answers of the handshake.
        self.core.wake(conn);
        Ok(())
    }

    fn handle_error(&mut self, now: Instant, conn: ConnId, error: &ChannelError) {
        self.channels.remove(&conn);
        self.core.handle_broken(now, conn, error.to_string());
    }
}

impl<R: Rng, A: Application<Tor>> Node for Client<R, A> {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        let Some(to) = self.core.first_hop(conn) else { return };
        let expected = ExpectedPeer { ids: to.ids, address: to.address.ip() };
        let anonymous = Authentication::Anonymous;
        match Channel::initiator(expected, anonymous, tls, SAYS_NOTHING, self.unix_time_s) {
            Ok(channel) => {
                let channel =
                    if self.core.has_hop_windows() { channel.offering_feedback() } else { channel };
                self.channels.insert(conn, channel);
                self.core.wake(conn);
            }
            Err(error) => self.handle_error(now, conn, &error),
        }
    }

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        _tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        None
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        if let Err(error) = self.handle_cells(now, conn, plaintext) {
            self.handle_error(now, conn, &error);
        }
    }

    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.channels.remove(&conn);
        self.core.handle_closed(now, conn, cause);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.core.handle_timeout(now);
    }

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        self.core.poll_dial()
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.core.poll_writable()
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(channel) = self.channels.get_mut(&conn) else { return 0 };
        while let Some(body) = self.core.poll_feedback(conn) {
            channel.send(CircId::LINK, Command::FEEDBACK, &body);
        }
        let len = channel.poll_transmit(out);
        let (cells, rest) = out[len..].as_chunks_mut();
        let cells_len = self.core.poll_cells(now, conn, cells) * CELL_LEN;
        if len + cells_len > 0 || !cells.is_empty() {
            return len + cells_len;
        }
        // There is room for a part of a cell only: the channel keeps the others.
        let mut cell = [[0; CELL_LEN]];
        if rest.is_empty() || self.core.poll_cells(now, conn, &mut cell) == 0 {
            return 0;
        }
        let [cell] = &cell;
        channel.send(cell.circ_id(), cell.command(), cell.body());
        channel.poll_transmit(rest)
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        let conn = self.core.poll_close()?;
        self.channels.remove(&conn);
        Some(conn)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }
}

impl<R, A> fmt::Debug for Client<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}
