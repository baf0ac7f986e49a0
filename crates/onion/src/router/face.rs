mod verifications;

use super::schedule::SchedulerConfig;
use super::{
    Behavior, Core, ExitConfig, HandshakeDone, Honest, KnownRelays, LinkPeer, Parameters,
    RateLimit, RelayLink, RouterConfig, RouterEvent, RouterTotals,
};
use crate::cell::{BODY_LEN, CELL_LEN, Cell, CircId, Command, LinkProtocol};
use crate::cell_model::Tor;
use crate::flow::control::CongestionParams;
use crate::identity::{OwnIdentity, RsaId};
use crate::link::{Authentication, Channel, ChannelError, TlsSession};
use crate::measure::protocol::EXPORTER_LABEL;
use crate::measure::target::{Accepted, TargetParams};
use crate::node::{
    CloseCause, ConnId, Dial, DnsAnswer, Done, ListenerId, Lookup, LookupId, Node, SocketState,
    Unwritten, Work,
};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use rand_core::Rng;
use verifications::{LinkVerified, Verifications};

/// An onion router on links of bytes: the thin face of a [`Core`] over tor's cells. See the
/// [module](super).
///
/// It owns what links need before and below cells: their handshakes and framing, and the identity that they
/// show. All else is decided by the core, whose getters and commands it has.
#[derive(Debug)]
pub struct Router<R, C = Honest> {
    core: Core<Tor, R, C>,
    /// By connection; none before TLS stands, and none for streams.
    channels: Vec<Option<Box<Channel>>>,
    verifications: Verifications,
    identity: Arc<OwnIdentity>,
    /// The one before, for sessions that still show its TLS certificate.
    former_identity: Option<Arc<OwnIdentity>>,
    /// Its own addresses.
    addresses: Vec<IpAddr>,
}

impl<R: Rng> Router<R> {
    /// An honest relay, from now on.
    pub fn new(config: RouterConfig, rng: R, now: Instant) -> Self {
        Self::with_behavior(config, Honest, rng, now)
    }
}

impl<R: Rng, C: Behavior> Router<R, C> {
    /// A relay that does as `behavior` says.
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

    /// What has passed so far.
    #[must_use]
    pub fn totals(&self) -> &RouterTotals {
        self.core.totals()
    }

    /// How the relay behaves.
    #[must_use]
    pub fn behavior(&self) -> &C {
        self.core.behavior()
    }

    /// See [`Core::waited_cell_s`].
    #[must_use]
    pub fn waited_cell_s(&self) -> f64 {
        self.core.waited_cell_s()
    }

    /// Circuits that are open now.
    #[must_use]
    pub fn open_circuits(&self) -> usize {
        self.core.open_circuits()
    }

    /// See [`Core::open_links`].
    #[must_use]
    pub const fn open_links(&self) -> usize {
        self.core.open_links()
    }

    /// See [`Core::relay_links`].
    pub fn relay_links(&self) -> impl Iterator<Item = RelayLink> {
        self.core.relay_links()
    }

    /// See [`Core::has_dialled`].
    #[must_use]
    pub fn has_dialled(&self, relay: &RsaId) -> bool {
        self.core.has_dialled(relay)
    }

    /// See [`Core::open_streams`].
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.core.open_streams()
    }

    /// See [`Core::is_shutting_down`].
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.core.is_shutting_down()
    }

    /// See [`Core::shut_down`].
    pub fn shut_down(&mut self) {
        self.core.shut_down();
    }

    /// See [`Core::queued_bytes`].
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.core.queued_bytes()
    }

    /// See [`Core::held_bytes`].
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.core.held_bytes()
    }

    /// See [`Core::parameters`].
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        self.core.parameters()
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<RouterEvent> {
        self.core.poll_event()
    }

    /// See [`Core::set_exit`].
    pub fn set_exit(&mut self, exit: Option<ExitConfig>) {
        self.core.set_exit(exit);
    }

    /// See [`Core::set_relays`].
    pub fn set_relays(&mut self, relays: KnownRelays) {
        self.core.set_relays(relays);
    }

    /// See [`Core::set_directory`].
    pub fn set_directory(&mut self, directory: Option<SocketAddr>) {
        self.core.set_directory(directory);
    }

    /// See [`Core::set_congestion_params`].
    pub fn set_congestion_params(&mut self, params: CongestionParams) {
        self.core.set_congestion_params(params);
    }

    /// See [`Core::set_target_params`].
    pub fn set_target_params(&mut self, params: TargetParams) {
        self.core.set_target_params(params);
    }

    /// See [`Core::remember_measurement`].
    pub fn remember_measurement(&mut self, accepted: Accepted) {
        self.core.remember_measurement(accepted);
    }

    /// See [`Core::set_scheduler`].
    pub fn set_scheduler(&mut self, config: SchedulerConfig) {
        self.core.set_scheduler(config);
    }

    /// See [`Core::set_parameters`].
    pub fn set_parameters(&mut self, parameters: Parameters) {
        self.core.set_parameters(parameters);
    }

    /// See [`Core::set_limit`].
    pub fn set_limit(&mut self, now: Instant, limit: Option<RateLimit>) {
        self.core.set_limit(now, limit);
    }

    /// See [`Core::set_unix_time`].
    pub fn set_unix_time(&mut self, now: Instant, unix_time_s: u64) {
        self.core.set_unix_time(now, unix_time_s);
    }

    /// Compares the accounts that are kept on the way with what really is there.
    ///
    /// # Panics
    /// If they differ. For tests and fuzzing: it looks at everything.
    pub fn check_accounts(&self) {
        self.core.check_accounts();
    }

    /// Presents these certificates on links that are made from now on, and accepts these onion keys.
    /// A link whose TLS session still shows the certificate before gets what belongs to that.
    /// Both identities must be the same as before.
    pub fn set_identity(&mut self, identity: Arc<OwnIdentity>) {
        self.core.set_identity(Arc::clone(&identity));
        let former = core::mem::replace(&mut self.identity, identity);
        if former.tls_certificate_sha256() != self.identity.tls_certificate_sha256() {
            // Its onion keys are nobody's business any more.
            let former = OwnIdentity { previous_onion_secret: None, ..OwnIdentity::clone(&former) };
            self.former_identity = Some(Arc::new(OwnIdentity { onion_secret: [0; 32], ..former }));
        }
    }

    /// The identity whose certificates go with what a session shows. Its handshake may have begun before
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
        // Without other threads all is done where it comes in.
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

    /// Hands all cells in a stretch of plaintext over. False if the link is ours no more.
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
            // Before the first of its cells, which may come along.
            self.handle_open(now, conn, channel);
        }
        while let Some(cell) = channel.handle_bytes(&mut input)? {
            let goes_on = match <&[u8; BODY_LEN]>::try_from(cell.body) {
                Ok(body) if !cell.command.is_variable_length() => {
                    self.core.handle_cell(now, conn, (cell.circ_id, cell.command), body)
                }
                _ => self.handle_variable(now, conn, cell),
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The handshake of a link is done.
    fn handle_open(&mut self, now: Instant, conn: ConnId, channel: &Channel) {
        let peer = LinkPeer {
            relay: channel.peer().map(|peer| peer.ids),
            is_canonical: channel.is_canonical(),
            has_padding: channel.protocol() >= Some(LinkProtocol::V5),
            has_feedback: channel.protocol() == Some(LinkProtocol::V5WithFeedback),
        };
        self.core.handle_link_open(now, conn, &peer);
    }

    /// Keeps what has come before it is known who is at the other end.
    fn keep_early(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        match self.verifications.keep(conn, bytes) {
            Some(bytes) => self.core.handle_early(now, conn, bytes),
            None => {
                let problem = "it sends too much before it is known who it is";
                self.core.handle_violation(now, conn, problem);
            }
        }
    }

    /// It is known who is at the other end of a link, or that nobody proves it.
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

    /// A channel goes back to its place after what has come was handled.
    fn give_back(
        &mut self,
        now: Instant,
        conn: ConnId,
        channel: Box<Channel>,
        outcome: &Result<bool, ChannelError>,
    ) {
        if outcome.is_err() {
            self.core.handle_violation(now, conn, "what it sends is no stream of cells");
        }
        self.core.handle_transfer(now, conn);
        if channel.queued_len() > 0 {
            self.core.wake(conn);
        }
        self.channels[conn.0 as usize] = Some(channel);
    }

    /// A cell of variable length: none of them concerns circuits.
    fn handle_variable(&mut self, now: Instant, conn: ConnId, cell: Cell<'_>) -> bool {
        match cell.command {
            Command::MEASURE if cell.circ_id == CircId::LINK => {
                self.core.handle_measure(now, conn, cell.body)
            }
            Command::FEEDBACK if cell.circ_id == CircId::LINK => {
                self.core.handle_feedback(now, conn, cell.body)
            }
            // Who is who has been settled.
            Command::CERTS | Command::AUTH_CHALLENGE | Command::AUTHENTICATE => {
                self.core.handle_violation(now, conn, "what it sends is no stream of cells");
                false
            }
            _ => true,
        }
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
        // The channel leaves its place, since its cells borrow from it.
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
        // What opens and closes circuits goes the way of the handshake, before all cells of circuits.
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
