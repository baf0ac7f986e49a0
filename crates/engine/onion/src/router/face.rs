//! The router on links of bytes: one [`Channel`] for each link, with handshake and framing.
//!
//! It owns channels, certificates and the verification of peers. It must not decide about circuits, streams or
//! scheduling: it passes cells to the [`Core`] and its output to the driver.

mod verifications;

use super::{Behavior, Core, HandshakeDone, Honest, LinkPeer, RouterConfig, Violation};
use crate::cell::{BODY_LEN, CELL_LEN, Cell, CircId, Command, LinkProtocol};
use crate::cell_model::Tor;
use crate::identity::OwnIdentity;
use crate::link::{Authentication, Channel, ChannelError, TlsSession};
use crate::measure::protocol::EXPORTER_LABEL;
use crate::node::{
    CloseCause, ConnId, Dial, DnsAnswer, Done, ListenerId, Lookup, LookupId, Node, SocketState,
    Unwritten, Work,
};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::{Deref, DerefMut};
use rand_core::Rng;
use verifications::{LinkVerified, Verifications};

/// An onion router on links of bytes: a [`Core`] with the link handshake, framing and the `Node` interface. See
/// the [module](super).
///
/// It owns what links need below cells: handshakes, framing and the relay's certificates. The core decides
/// everything else; its getters and commands are reached by dereferencing.
#[derive(Debug)]
pub struct Router<R, C = Honest> {
    core: Core<Tor, R, C>,
    /// By connection; `None` before TLS is established, and for streams.
    channels: Vec<Option<Box<Channel>>>,
    verifications: Verifications,
    identity: Arc<OwnIdentity>,
    /// The previous identity, for sessions that still present its TLS certificate.
    former_identity: Option<Arc<OwnIdentity>>,
    /// The relay's own addresses.
    addresses: Vec<IpAddr>,
}

impl<R: Rng> Router<R> {
    /// Creates an honest relay.
    pub fn new(config: RouterConfig, rng: R, now: Instant) -> Self {
        Self::with_behavior(config, Honest, rng, now)
    }
}

impl<R: Rng, C: Behavior> Router<R, C> {
    /// Creates a relay with this behavior.
    pub fn with_behavior(config: RouterConfig, behavior: C, rng: R, now: Instant) -> Self {
        Self {
            identity: Arc::clone(&config.identity),
            former_identity: None,
            addresses: config.addresses.clone(),
            channels: Vec::new(),
            verifications: Verifications::default(),
            core: Core::new(config, behavior, rng, now),
        }
    }

    /// Sets the certificates for new links, and the onion keys. A link whose TLS session presents the previous
    /// certificate gets the certificates that belong to it. The fingerprints must not change.
    pub fn set_identity(&mut self, identity: Arc<OwnIdentity>) {
        self.core.set_identity(Arc::clone(&identity));
        let former = core::mem::replace(&mut self.identity, identity);
        if former.tls_certificate_sha256() != self.identity.tls_certificate_sha256() {
            // Its onion keys are no longer needed.
            let former = OwnIdentity { previous_onion_secret: None, ..OwnIdentity::clone(&former) };
            self.former_identity = Some(Arc::new(OwnIdentity { onion_secret: [0; 32], ..former }));
        }
    }

    /// The identity that belongs to the certificate of a session. Its TLS handshake may have begun before
    /// certificates were renewed.
    fn identity_shown(&self, tls: &dyn TlsSession) -> &Arc<OwnIdentity> {
        let shown = tls.own_certificate_sha256();
        let former = self.former_identity.as_ref();
        former
            .filter(|former| shown.is_some() && former.tls_certificate_sha256() == shown)
            .unwrap_or(&self.identity)
    }

    fn set_channel(&mut self, conn: ConnId, channel: Channel) {
        let channel = channel.at_addresses(&self.addresses);
        let channel =
            if self.core.has_hop_windows() { channel.offering_feedback() } else { channel };
        // Without worker threads everything is computed immediately.
        let is_deferring = self.core.works_at_once() > 0;
        let channel = if is_deferring { channel.deferring() } else { channel };
        let place = conn.0 as usize;
        if self.channels.len() <= place {
            self.channels.resize_with(place + 1, || None);
        }
        self.channels[place] = Some(Box::new(channel));
    }

    fn take_channel(&mut self, conn: ConnId) -> Option<Box<Channel>> {
        self.channels.get_mut(conn.0 as usize)?.take()
    }

    /// A connection is gone.
    fn forget(&mut self, conn: ConnId) {
        self.take_channel(conn);
        self.verifications.forget(conn);
    }

    /// Passes all cells of some plaintext to the core. Returns false if the link is closed.
    fn handle_cells(
        &mut self,
        now: Instant,
        conn: ConnId,
        channel: &mut Channel,
        mut input: &[u8],
    ) -> Result<bool, ChannelError> {
        if !channel.is_open() {
            let is_open = channel.handle_until_open(&mut input)?;
            if let Some(verification) = channel.poll_verification() {
                self.verifications.add(conn, verification);
            }
            if !is_open {
                if channel.is_verifying() {
                    self.keep_early(now, conn, input);
                }
                return Ok(true);
            }
            // Before its first cells, which may be in the same plaintext.
            self.handle_open(now, conn, channel);
        }
        while let Some(cell) = channel.handle_bytes(&mut input)? {
            let goes_on = match <&[u8; BODY_LEN]>::try_from(cell.body) {
                Ok(body) if !cell.command.is_variable_length() => {
                    self.core.handle_cell(now, conn, cell.circ_id, cell.command, body)
                }
                _ => self.handle_variable(now, conn, cell),
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The link handshake is complete.
    fn handle_open(&mut self, now: Instant, conn: ConnId, channel: &Channel) {
        let peer = LinkPeer {
            relay: channel.peer().map(|peer| peer.ids),
            is_canonical: channel.is_canonical(),
            has_padding: channel.protocol() >= Some(LinkProtocol::V5),
            has_feedback: channel.protocol() == Some(LinkProtocol::V5WithFeedback),
        };
        self.core.handle_link_open(now, conn, &peer);
    }

    /// Buffers what arrives before the peer is authenticated.
    fn keep_early(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        match self.verifications.keep(conn, bytes) {
            Some(bytes) => self.core.handle_early(now, conn, bytes),
            None => {
                self.core.handle_violation(now, conn, Violation::TooMuchBeforeVerification);
            }
        }
    }

    /// The peer of a link has authenticated, or failed to.
    fn handle_verified(&mut self, now: Instant, done: LinkVerified) {
        let conn = done.conn;
        let Some(early) = self.verifications.take(&done) else { return };
        let Some(mut channel) = self.take_channel(conn) else { return };
        self.core.handle_early(now, conn, 0);
        let opened = channel.handle_verified(done.verified);
        let outcome = opened.and_then(|()| {
            self.handle_open(now, conn, &channel);
            self.handle_cells(now, conn, &mut channel, &early)
        });
        self.give_back(now, conn, channel, &outcome);
    }

    /// Returns a channel to its slot after its input was handled.
    fn give_back(
        &mut self,
        now: Instant,
        conn: ConnId,
        channel: Box<Channel>,
        outcome: &Result<bool, ChannelError>,
    ) {
        if outcome.is_err() {
            self.core.handle_violation(now, conn, Violation::NotCells);
        }
        self.core.handle_transfer(now, conn);
        if channel.queued_len() > 0 {
            self.core.wake(conn);
        }
        self.channels[conn.0 as usize] = Some(channel);
    }

    /// Handles a variable-length cell; none of them concerns circuits.
    fn handle_variable(&mut self, now: Instant, conn: ConnId, cell: Cell<'_>) -> bool {
        match cell.command {
            Command::MEASURE if cell.circ_id == CircId::LINK => {
                self.core.handle_measure(now, conn, cell.body)
            }
            Command::FEEDBACK if cell.circ_id == CircId::LINK => {
                self.core.handle_feedback(now, conn, cell.body)
            }
            // The handshake is over.
            Command::CERTS | Command::AUTH_CHALLENGE | Command::AUTHENTICATE => {
                self.core.handle_violation(now, conn, Violation::NotCells);
                false
            }
            _ => self.core.handle_padding(now, conn, cell.body.len()),
        }
    }
}

impl<R, C> Deref for Router<R, C> {
    type Target = Core<Tor, R, C>;

    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl<R, C> DerefMut for Router<R, C> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.core
    }
}

impl<R: Rng, C: Behavior> Node for Router<R, C> {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        let Some(expected) = self.core.expected(conn) else { return };
        let (random, unix_time_s) = self.core.begin_handshake::<24>(now);
        let own = Authentication::AsRelay(Arc::clone(&self.identity));
        match Channel::initiator(expected, own, tls, random, unix_time_s) {
            Ok(channel) => {
                self.set_channel(conn, channel);
                self.core.wake(conn);
            }
            Err(_) => self.core.reject(conn),
        }
    }

    fn admits(&mut self, now: Instant, from: IpAddr) -> bool {
        self.core.admits(now, from)
    }

    fn handle_accepted(
        &mut self,
        now: Instant,
        _listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        let from = tls.peer_address();
        if !tls.was_admitted() && from.is_some_and(|ip| !self.core.admits(now, ip)) {
            return None;
        }
        let (challenge, unix_time_s) = self.core.begin_handshake::<32>(now);
        let identity = Arc::clone(self.identity_shown(tls));
        let channel = Channel::responder(identity, tls, challenge, unix_time_s);
        let exported = tls.export_keying_material(EXPORTER_LABEL, b"");
        let conn = self.core.accept(now, from, exported)?;
        self.set_channel(conn, channel);
        Some(conn)
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        // The channel leaves its slot, since its cells borrow from it.
        let Some(mut channel) = self.take_channel(conn) else {
            self.core.handle_stream_data(now, conn, plaintext);
            return;
        };
        let outcome = self.handle_cells(now, conn, &mut channel, plaintext);
        self.give_back(now, conn, channel, &outcome);
    }

    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.forget(conn);
        self.core.handle_closed(now, conn, &cause);
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
        let channel = self.channels.get_mut(conn.0 as usize).and_then(Option::as_mut);
        let Some(channel) = channel else { return self.core.poll_stream_data(now, conn, out) };
        // Control cells share the handshake's buffer, ahead of all cells of circuits.
        while channel.queued_len() < out.len()
            && let Some(control) = self.core.poll_control(now, conn)
        {
            channel.send(control.circ_id, control.command, &control.body);
        }
        let len = channel.poll_transmit(out);
        if len > 0 {
            self.core.handle_transfer(now, conn);
            return len;
        }
        let (cells, _) = out.as_chunks_mut::<CELL_LEN>();
        self.core.poll_cells(now, conn, cells) * CELL_LEN
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        let conn = self.core.poll_close()?;
        self.forget(conn);
        Some(conn)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    fn handle_plain_connected(&mut self, now: Instant, conn: ConnId) {
        self.core.handle_plain_connected(now, conn);
    }

    fn receive_limit(&self, conn: ConnId) -> usize {
        self.core.receive_limit(conn)
    }

    fn poll_readable(&mut self) -> Option<ConnId> {
        self.core.poll_readable()
    }

    fn poll_read_limit(&mut self, now: Instant, conn: Option<ConnId>) -> usize {
        self.core.poll_read_limit(now, conn)
    }

    fn handle_read(&mut self, now: Instant, conn: Option<ConnId>, bytes: usize) {
        self.core.handle_read(now, conn, bytes);
    }

    fn poll_lookup(&mut self) -> Option<Lookup> {
        self.core.poll_lookup()
    }

    fn handle_answer(&mut self, now: Instant, id: LookupId, answer: DnsAnswer) {
        self.core.handle_answer(now, id, &answer);
    }

    fn poll_work(&mut self, now: Instant) -> Option<Work> {
        if let Some(proof) = self.verifications.next(self.core.works_at_once()) {
            return Some(Work::new(move || proof.run()));
        }
        let job = self.core.poll_handshake(now)?;
        Some(Work::new(move || job.run()))
    }

    fn handle_work(&mut self, now: Instant, done: Done) {
        match done.into::<HandshakeDone<Tor>>() {
            Ok(done) => self.core.handle_handshake(now, done),
            Err(done) => {
                if let Ok(done) = done.into::<LinkVerified>() {
                    self.handle_verified(now, done);
                }
            }
        }
    }

    fn handle_unwritten(&mut self, now: Instant, conn: ConnId, unwritten: Unwritten) {
        self.core.handle_unwritten(now, conn, unwritten);
    }

    fn poll_socket_query(&mut self) -> Option<ConnId> {
        self.core.poll_socket_query()
    }

    fn handle_socket_state(&mut self, now: Instant, conn: ConnId, state: Option<SocketState>) {
        self.core.handle_socket_state(now, conn, state.as_ref());
    }
}
