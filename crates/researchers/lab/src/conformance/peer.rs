//! One end of one link, which sends any cells.

use onion::Instant;
use onion::cell::msg::CreatedFast;
use onion::cell::{CircId, Command};
use onion::crypto::{HopKeys, fast};
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::measure::load::Target;
use onion::measure::protocol::{EXPORTER_LABEL, Message};
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};

/// A received cell.
pub(super) type ReceivedCell = (CircId, Command, Vec<u8>);

/// A peer that dials a relay once, anonymously.
pub(super) struct Peer {
    target: Target,
    unix_time_s: u64,
    must_dial: bool,
    conn: Option<ConnId>,
    channel: Option<Channel>,
    is_writable: bool,
    must_close: bool,
    /// What TLS exports for the measurement protocol.
    pub(super) exported: [u8; 32],
    pub(super) received: Vec<ReceivedCell>,
    pub(super) closed: Option<CloseCause>,
    /// Why the relay's bytes are no cells.
    pub(super) problem: Option<String>,
}

impl Peer {
    pub(super) const fn new(target: Target, unix_time_s: u64) -> Self {
        Self {
            target,
            unix_time_s,
            must_dial: true,
            conn: None,
            channel: None,
            is_writable: false,
            must_close: false,
            exported: [0; 32],
            received: Vec::new(),
            closed: None,
            problem: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_open)
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    pub(super) fn send(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        if let Some(channel) = &mut self.channel {
            channel.send(circ_id, command, body);
            self.is_writable = true;
        }
    }

    pub(super) fn send_message(&mut self, message: &Message) {
        self.send(CircId::LINK, Command::MEASURE, &message.encode());
    }

    pub(super) const fn close(&mut self) {
        self.must_close = true;
    }

    /// The received messages of the measurement protocol; an unreadable one ends them.
    pub(super) fn messages(&self) -> Vec<Message> {
        let bodies = self.received.iter().filter(|(_, command, _)| *command == Command::MEASURE);
        bodies.map_while(|(_, _, body)| Message::parse(body).ok()).collect()
    }

    /// The codes of the errors that it received.
    pub(super) fn errors(&self) -> Vec<u16> {
        let code = |message| match message {
            Message::Error { code, .. } => Some(code.get()),
            _ => None,
        };
        self.messages().into_iter().filter_map(code).collect()
    }

    /// The keys of a circuit that was created by CREATE_FAST with these bytes, once it is answered.
    pub(super) fn fast_keys(&self, circ_id: CircId, x: [u8; 20]) -> Option<HopKeys> {
        let is_it =
            |received: &&ReceivedCell| received.0 == circ_id && received.1 == Command::CREATED_FAST;
        let (_, _, body) = self.received.iter().find(is_it)?;
        fast::Client::new(x).finish(&CreatedFast::parse(body).ok()?).ok()
    }
}

impl Node for Peer {
    fn handle_connected(&mut self, _: Instant, conn: ConnId, tls: &dyn TlsSession) {
        self.exported = tls.export_keying_material(EXPORTER_LABEL, &[]).unwrap_or_default();
        let expected = ExpectedPeer { ids: self.target.ids, address: self.target.address.ip() };
        let own = Authentication::Anonymous;
        match Channel::initiator(expected, own, tls, [9; 24], self.unix_time_s) {
            Ok(channel) => {
                self.channel = Some(channel);
                self.conn = Some(conn);
                self.is_writable = true;
            }
            Err(error) => self.problem = Some(error.to_string()),
        }
    }

    fn handle_accepted(&mut self, _: Instant, _: ListenerId, _: &dyn TlsSession) -> Option<ConnId> {
        None
    }

    fn handle_bytes(&mut self, _: Instant, _: ConnId, mut plaintext: &[u8]) {
        let Some(channel) = &mut self.channel else { return };
        loop {
            match channel.handle_bytes(&mut plaintext) {
                Ok(Some(cell)) => {
                    self.received.push((cell.circ_id, cell.command, cell.body.to_vec()));
                }
                Ok(None) => break,
                Err(error) => {
                    self.problem = Some(error.to_string());
                    self.must_close = true;
                    break;
                }
            }
        }
        self.is_writable |= channel.queued_len() > 0;
    }

    fn handle_closed(&mut self, _: Instant, _: ConnId, cause: CloseCause) {
        self.closed = Some(cause);
        self.conn = None;
        (self.is_writable, self.must_close) = (false, false);
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        if !std::mem::take(&mut self.must_dial) {
            return None;
        }
        self.conn = Some(ConnId(0));
        Some(Dial { conn: ConnId(0), to: self.target.address, security: Security::Tls })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        let conn = self.conn?;
        std::mem::take(&mut self.is_writable).then_some(conn)
    }

    fn poll_transmit(&mut self, _: Instant, _: ConnId, out: &mut [u8]) -> usize {
        self.channel.as_mut().map_or(0, |channel| channel.poll_transmit(out))
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        if std::mem::take(&mut self.must_close) { self.conn.take() } else { None }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
