//! One end of one link to a relay, which sends arbitrary cells.

use onion::Instant;
use onion::cell::msg::CreatedFast;
use onion::cell::{CircId, Command};
use onion::crypto::{HopKeys, fast};
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::measure::load::Target;
use onion::measure::protocol::{EXPORTER_LABEL, Message};
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};

/// A relay that sends more than this does not belong to a test of messages. It must not fill the memory.
const RECEIVED_MAX: usize = 10_000;

/// A received cell.
pub(crate) type ReceivedCell = (CircId, Command, Vec<u8>);

/// A peer that dials a relay once, anonymously.
pub(crate) struct Peer {
    target: Target,
    unix_time_s: u64,
    must_dial: bool,
    conn: Option<ConnId>,
    channel: Option<Channel>,
    is_writable: bool,
    must_close: bool,
    /// What TLS exports for the measurement protocol.
    pub(crate) exported: [u8; 32],
    pub(crate) received: Vec<ReceivedCell>,
    /// Why the link has ended although this side has not closed it, or why it cannot be used.
    pub(crate) ended: Option<String>,
}

impl Peer {
    pub(crate) const fn new(target: Target, unix_time_s: u64) -> Self {
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
            ended: None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.ended.is_none() && self.channel.as_ref().is_some_and(Channel::is_open)
    }

    /// Whether the connection is over, whichever side has closed it.
    pub(crate) const fn is_closed(&self) -> bool {
        !self.must_dial && self.conn.is_none()
    }

    pub(crate) fn send(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        if let Some(channel) = &mut self.channel {
            channel.send(circ_id, command, body);
            self.is_writable = true;
        }
    }

    pub(crate) fn send_message(&mut self, message: &Message) {
        self.send(CircId::LINK, Command::MEASURE, &message.encode());
    }

    pub(crate) const fn close(&mut self) {
        self.must_close = true;
    }

    /// The received messages of the measurement protocol; an unreadable one ends them.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let bodies = self.received.iter().filter(|(_, command, _)| *command == Command::MEASURE);
        bodies.map_while(|(_, _, body)| Message::parse(body).ok()).collect()
    }

    /// The codes of the errors that it received.
    pub(crate) fn errors(&self) -> Vec<u16> {
        let code = |message| match message {
            Message::Error { code, .. } => Some(code.get()),
            _ => None,
        };
        self.messages().into_iter().filter_map(code).collect()
    }

    /// The keys of a circuit that was created by CREATE_FAST with these bytes, once it is answered.
    pub(crate) fn fast_keys(&self, circ_id: CircId, x: [u8; 20]) -> Option<HopKeys> {
        let is_it =
            |received: &&ReceivedCell| received.0 == circ_id && received.1 == Command::CREATED_FAST;
        let (_, _, body) = self.received.iter().find(is_it)?;
        fast::Client::new(x).finish(&CreatedFast::parse(body).ok()?).ok()
    }

    fn begin(&mut self, tls: &dyn TlsSession) -> Result<Channel, String> {
        self.exported = tls
            .export_keying_material(EXPORTER_LABEL, &[])
            .ok_or("the TLS session cannot export keying material")?;
        let expected = ExpectedPeer { ids: self.target.ids, address: self.target.address.ip() };
        // Only AUTHENTICATE contains it, which an anonymous initiator does not send.
        let random = [9; 24];
        Channel::initiator(expected, Authentication::Anonymous, tls, random, self.unix_time_s)
            .map_err(|error| error.to_string())
    }

    fn end(&mut self, problem: String) {
        self.ended.get_or_insert(problem);
        self.must_close = true;
    }
}

impl Node for Peer {
    fn handle_connected(&mut self, _: Instant, conn: ConnId, tls: &dyn TlsSession) {
        self.conn = Some(conn);
        match self.begin(tls) {
            Ok(channel) => {
                self.channel = Some(channel);
                self.is_writable = true;
            }
            Err(problem) => self.end(problem),
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
                    if self.received.len() >= RECEIVED_MAX {
                        return self.end(format!("the relay has sent {RECEIVED_MAX} cells"));
                    }
                }
                Ok(None) => break,
                Err(error) => return self.end(error.to_string()),
            }
        }
        self.is_writable |= channel.queued_len() > 0;
    }

    fn handle_closed(&mut self, _: Instant, _: ConnId, cause: CloseCause) {
        self.ended.get_or_insert(cause.to_string());
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
