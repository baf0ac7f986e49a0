//! One end of one link that sends arbitrary cells.

use onion::Instant;
use onion::cell::msg::{
    Create2, CreatedFast, Extend2, HANDSHAKE_NTOR, encode_created2_into, link_specifier,
};
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::{ClientHop, HopKeys, fast};
use onion::identity::{OwnIdentity, RelayIds};
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::measure::load::Target;
use onion::measure::protocol::{EXPORTER_LABEL, Message};
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A received cell.
pub(crate) type ReceivedCell = (CircId, Command, Vec<u8>);

/// A peer that sends arbitrary cells. It dials or is dialled once.
pub(crate) struct Peer {
    target: Option<Target>,
    identity: Option<Arc<OwnIdentity>>,
    claims: Vec<IpAddr>,
    /// Accepted connections.
    pub(crate) accepted: u32,
    unix_time_s: u64,
    must_dial: bool,
    next: u32,
    conn: Option<ConnId>,
    channel: Option<Channel>,
    /// Bytes that are sent unmodified after the channel's output.
    raw: VecDeque<u8>,
    is_writable: bool,
    must_close: bool,
    is_mute: bool,
    /// Sends nothing for now.
    pub(crate) is_held: bool,
    pub(crate) exported: [u8; 32],
    pub(crate) received: Vec<ReceivedCell>,
    pub(crate) closed: Option<CloseCause>,
}

impl Peer {
    const fn new(unix_time_s: u64) -> Self {
        Self {
            target: None,
            identity: None,
            claims: Vec::new(),
            accepted: 0,
            unix_time_s,
            must_dial: false,
            next: 0,
            conn: None,
            channel: None,
            raw: VecDeque::new(),
            is_writable: false,
            must_close: false,
            is_mute: false,
            is_held: false,
            exported: [0; 32],
            received: Vec::new(),
            closed: None,
        }
    }

    /// Dials a relay, anonymously.
    pub(crate) fn dialling(target: Target, unix_time_s: u64) -> Self {
        Self { target: Some(target), must_dial: true, ..Self::new(unix_time_s) }
    }

    /// Dials a relay as another relay, which claims these addresses.
    pub(crate) fn dialling_as(
        target: Target,
        identity: Arc<OwnIdentity>,
        claims: Vec<IpAddr>,
        unix_time_s: u64,
    ) -> Self {
        Self { identity: Some(identity), claims, ..Self::dialling(target, unix_time_s) }
    }

    /// Waits to be dialled.
    pub(crate) fn listening(identity: Arc<OwnIdentity>, unix_time_s: u64) -> Self {
        Self { identity: Some(identity), ..Self::new(unix_time_s) }
    }

    /// Accepts connections and sends nothing.
    pub(crate) fn mute(unix_time_s: u64) -> Self {
        Self { is_mute: true, ..Self::new(unix_time_s) }
    }

    /// Sends what it held back.
    pub(crate) const fn release(&mut self) {
        self.is_held = false;
        self.is_writable = true;
    }

    pub(crate) const fn is_accepted(&self) -> bool {
        self.conn.is_some()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_open)
    }

    pub(crate) fn send(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        self.channel.as_mut().expect("a link").send(circ_id, command, body);
        self.is_writable = true;
    }

    pub(crate) fn send_message(&mut self, message: &Message) {
        self.send(CircId::LINK, Command::MEASURE, &message.encode());
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.raw.extend(bytes);
        self.is_writable = true;
    }

    pub(crate) const fn close(&mut self) {
        self.must_close = true;
    }

    /// The received messages of the measurement protocol.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let of_protocol =
            self.received.iter().filter(|(_, command, _)| *command == Command::MEASURE);
        of_protocol.map(|(_, _, body)| Message::parse(body).expect("readable")).collect()
    }

    /// The body of the first cell on a circuit with this command.
    pub(crate) fn cell(&self, circ_id: CircId, command: Command) -> Option<&[u8]> {
        let is_it = |received: &&ReceivedCell| received.0 == circ_id && received.1 == command;
        self.received.iter().find(is_it).map(|(_, _, body)| &body[..])
    }

    /// The keys of a circuit that was created by CREATE_FAST with these bytes, once it is answered.
    pub(crate) fn fast_keys(&self, circ_id: CircId, x: [u8; 20]) -> Option<HopKeys> {
        let created = CreatedFast::parse(self.cell(circ_id, Command::CREATED_FAST)?);
        Some(fast::Client::new(x).finish(&created.expect("readable")).expect("honest"))
    }

    fn begin(&mut self, conn: ConnId, channel: Channel) {
        self.conn = Some(conn);
        self.channel = Some(channel);
        self.is_writable = true;
    }
}

/// The body of a relay cell with a message for a circuit's first hop.
pub(crate) fn sealed(
    hop: &mut ClientHop,
    command: RelayCommand,
    stream_id: u16,
    data: &[u8],
) -> [u8; BODY_LEN] {
    let message = RelayMessage { command, stream_id, data };
    let mut body = message.to_body().expect("fits");
    hop.encrypt(&mut body);
    body
}

/// The data of an EXTEND2 with an invalid handshake.
pub(crate) fn extend_data(address: SocketAddr, ids: &RelayIds) -> Vec<u8> {
    let SocketAddr::V4(v4) = address else { panic!("of IPv4") };
    let mut place = v4.ip().octets().to_vec();
    place.extend_from_slice(&v4.port().to_be_bytes());
    let mut link_specifiers: Vec<(u8, &[u8])> =
        vec![(link_specifier::IPV4, &place), (link_specifier::RSA_IDENTITY, &ids.rsa.0)];
    if let Some(ed25519) = &ids.ed25519 {
        link_specifiers.push((link_specifier::ED25519_IDENTITY, &ed25519.0));
    }
    let create = Create2 { handshake_type: HANDSHAKE_NTOR, data: &[0x2a; 84] };
    let mut data = Vec::new();
    Extend2 { link_specifiers, create }.encode_into(&mut data);
    data
}

/// The body of a CREATED2 with an invalid handshake.
pub(crate) fn created2() -> Vec<u8> {
    let mut body = Vec::new();
    encode_created2_into(&[0x2b; 64], &mut body);
    body
}

impl Node for Peer {
    fn handle_connected(&mut self, _: Instant, conn: ConnId, tls: &dyn TlsSession) {
        let Some(target) = self.target else { return };
        self.exported = tls.export_keying_material(EXPORTER_LABEL, &[]).expect("TLS 1.3");
        let expected = ExpectedPeer { ids: target.ids, address: target.address.ip() };
        let own = match &self.identity {
            Some(identity) => Authentication::AsRelay(Arc::clone(identity)),
            None => Authentication::Anonymous,
        };
        let channel = Channel::initiator(expected, own, tls, [9; 24], self.unix_time_s);
        self.begin(conn, channel.expect("usable").at_addresses(&self.claims));
    }

    fn handle_accepted(
        &mut self,
        _: Instant,
        _: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        self.accepted += 1;
        if self.is_mute {
            self.next += 1;
            self.conn = Some(ConnId(self.next));
            return self.conn;
        }
        let identity = self.identity.as_ref()?;
        let channel = Channel::responder(Arc::clone(identity), tls, [8; 32], self.unix_time_s);
        self.next += 1;
        self.begin(ConnId(self.next), channel);
        self.conn
    }

    fn handle_bytes(&mut self, _: Instant, _: ConnId, mut plaintext: &[u8]) {
        let Some(channel) = &mut self.channel else { return };
        while let Some(cell) = channel.handle_bytes(&mut plaintext).expect("the relay's cells") {
            self.received.push((cell.circ_id, cell.command, cell.body.to_vec()));
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
        let target = self.target?;
        if !std::mem::take(&mut self.must_dial) {
            return None;
        }
        self.conn = Some(ConnId(0));
        Some(Dial { conn: ConnId(0), to: target.address, security: Security::Tls })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        let conn = self.conn?;
        std::mem::take(&mut self.is_writable).then_some(conn)
    }

    fn poll_transmit(&mut self, _: Instant, _: ConnId, out: &mut [u8]) -> usize {
        if self.is_held {
            return 0;
        }
        let sent = self.channel.as_mut().map_or(0, |channel| channel.poll_transmit(out));
        if sent > 0 {
            return sent;
        }
        let len = self.raw.len().min(out.len());
        for (place, byte) in out.iter_mut().zip(self.raw.drain(..len)) {
            *place = byte;
        }
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        if std::mem::take(&mut self.must_close) { self.conn.take() } else { None }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
