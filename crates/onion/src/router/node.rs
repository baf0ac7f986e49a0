use super::circuit::{Place, Way};
use super::link::{Link, Role};
use super::{Conduct, Router};
use crate::cell::msg::DestroyReason;
use crate::cell::{BODY_LEN, Cell, CircId, Command};
use crate::identity::OwnIdentity;
use crate::link::{Authentication, Channel, TlsSession};
use crate::measure::protocol::EXPORTER_LABEL;
use crate::node::{
    Answer, CloseCause, ConnId, Dial, ListenerId, Lookup, LookupId, Node, SocketState,
};
use crate::time::Instant;
use alloc::sync::Arc;
use rand_core::Rng;

/// Why a link is to be closed.
enum Fault {
    /// It is of no more use.
    Broken,
    /// A measurer breaks the rules.
    Violation(&'static str),
}

impl<R: Rng, C: Conduct> Router<R, C> {
    /// The identity whose certificates go with what a session shows. Its handshake may have begun before
    /// certificates were renewed.
    fn identity_shown(&self, tls: &dyn TlsSession) -> &Arc<OwnIdentity> {
        let shown = tls.own_certificate_sha256();
        let former = self.former_identity.as_ref();
        former
            .filter(|former| shown.is_some() && former.tls_certificate_sha256() == shown)
            .unwrap_or(&self.config.identity)
    }

    fn handle_cells(
        &mut self,
        now: Instant,
        id: ConnId,
        channel: &mut Channel,
        plaintext: &[u8],
    ) -> Result<(), Fault> {
        let mut input = plaintext;
        if !channel.is_open() {
            if !channel.handle_until_open(&mut input).map_err(|_| Fault::Broken)? {
                return Ok(());
            }
            // Before the first of its cells, which may come along.
            self.links.handle_opened(id, channel);
        }
        loop {
            let cell = channel.handle_bytes(&mut input).map_err(|_| Fault::Broken)?;
            let Some(cell) = cell else { return Ok(()) };
            // By far the most frequent.
            if cell.command == Command::RELAY || cell.command == Command::RELAY_EARLY {
                let found = self.links.get_mut(id).and_then(|l| l.circuits.find(cell.circ_id));
                match found {
                    Some((number, Way::Forth)) => self
                        .relay_forth(now, number, cell.command, cell.body)
                        .map_err(Fault::Violation)?,
                    Some((number, Way::Back)) if cell.command == Command::RELAY => {
                        self.relay_back(number, cell.body);
                    }
                    // It would tell the client's side more than a relay may (tor-spec §5.6).
                    Some((number, Way::Back)) => {
                        self.destroy(number, DestroyReason::PROTOCOL, None);
                    }
                    None => {} // of a circuit that is gone
                }
                continue;
            }
            self.handle_rare_cell(now, id, cell)?;
            if self.links.get_mut(id).is_none() {
                return Ok(()); // closed meanwhile
            }
        }
    }

    fn handle_rare_cell(&mut self, now: Instant, id: ConnId, cell: Cell<'_>) -> Result<(), Fault> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        let place = Place { conn: id, circ_id: cell.circ_id };
        if cell.command == Command::MEASURE && cell.circ_id == CircId::LINK {
            self.handle_message_cell(now, id, cell.body);
            return Ok(());
        }
        if cell.command == Command::PADDING_NEGOTIATE {
            self.padder.negotiate(id, link, cell.body);
            return Ok(());
        }
        let mut body = [0; BODY_LEN];
        if matches!(cell.command, Command::CERTS | Command::AUTH_CHALLENGE | Command::AUTHENTICATE)
        {
            return Err(Fault::Broken); // who is who has been settled
        }
        let Ok(fixed) = <&[u8; BODY_LEN]>::try_from(cell.body) else {
            return Ok(()); // of variable length: none of them concerns circuits
        };
        body.copy_from_slice(fixed);
        match (cell.command, link.circuits.find(cell.circ_id)) {
            (Command::CREATE_FAST | Command::CREATE2, None) if cell.circ_id == CircId::LINK => {
                Err(Fault::Broken)
            }
            (Command::CREATE_FAST | Command::CREATE2, None)
                if link.is_our_choice(place.circ_id) =>
            {
                self.refuse(place, DestroyReason::PROTOCOL);
                Ok(())
            }
            (Command::CREATE_FAST, None) => {
                self.create_fast(place, &body).map_err(Fault::Violation)
            }
            (Command::CREATE | Command::CREATE2, None) if link.role == Role::Measurer => {
                Err(Fault::Violation("a circuit other than a measurement's on a measurer's link"))
            }
            (Command::CREATE2, None) => {
                self.create2(place, &body);
                Ok(())
            }
            (Command::CREATE_FAST | Command::CREATE2, Some((number, _))) => {
                self.destroy(number, DestroyReason::PROTOCOL, None);
                Ok(())
            }
            (Command::CREATED2, Some((number, Way::Back))) => {
                self.handle_created(number, place, &body);
                Ok(())
            }
            (Command::DESTROY, Some((number, _))) => {
                self.handle_destroy(number, place);
                Ok(())
            }
            _ => Ok(()), // padding, and cells of circuits that are gone
        }
    }

    fn exported(tls: &dyn TlsSession) -> Option<[u8; 32]> {
        tls.export_keying_material(EXPORTER_LABEL, b"")
    }
}

impl<R: Rng, C: Conduct> Node for Router<R, C> {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        self.now = now;
        let unix_time_s = self.unix_time_s(now);
        let Some(link) = self.links.get_mut(conn) else { return };
        let Some(expected) = link.expected else { return };
        let mut random = [0; 24];
        self.rng.fill_bytes(&mut random);
        let own = Authentication::AsRelay(Arc::clone(&self.config.identity));
        match Channel::initiator(expected, own, tls, random, unix_time_s) {
            Ok(channel) => {
                link.channel = Some(channel.at_addresses(&self.config.addresses));
                self.outputs.wake(conn);
            }
            Err(_) => {
                self.lose(conn, DestroyReason::CONNECT_FAILED);
                self.outputs.close(conn);
            }
        }
    }

    fn handle_accepted(
        &mut self,
        now: Instant,
        _listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        self.now = now;
        let mut challenge = [0; 32];
        self.rng.fill_bytes(&mut challenge);
        let identity = Arc::clone(self.identity_shown(tls));
        let channel = Channel::responder(identity, tls, challenge, self.unix_time_s(now))
            .at_addresses(&self.config.addresses);
        let (exported, from) = (Self::exported(tls), tls.peer_address());
        let id = self.links.add(Link { exported, from, ..Link::new(now, Some(channel), None) });
        self.outputs.open(id);
        Some(id)
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        self.now = now;
        self.outputs.handle_time(now);
        // The channel leaves its link, since its cells borrow from it.
        let Some(mut channel) = self.links.get_mut(conn).and_then(|link| link.channel.take())
        else {
            self.package(now, conn, plaintext);
            self.shed_excess();
            return;
        };
        let outcome = self.handle_cells(now, conn, &mut channel, plaintext);
        if let Some(link) = self.links.get_mut(conn) {
            let has_opened = channel.is_open() && !link.is_open;
            link.is_open = channel.is_open();
            self.padder.handle_transfer(now, conn, link);
            let has_output = channel.queued_len() > 0;
            link.channel = Some(channel);
            if has_output {
                self.outputs.wake(conn);
            }
            if has_opened {
                self.handle_opened(conn);
                self.create_waiting(conn);
            }
            match outcome {
                Ok(()) => {}
                Err(Fault::Violation(problem)) => {
                    self.violate(conn, problem);
                    self.close(conn);
                }
                Err(Fault::Broken) => {
                    self.violate(conn, "what it sends is no stream of cells");
                    self.close(conn);
                }
            }
        }
        self.shed_excess();
        self.drain_target();
    }

    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.now = now;
        if self.streams.get(conn).is_some() {
            self.handle_stream_closed(conn, &cause);
            return;
        }
        let is_open = self.links.get_mut(conn).is_some_and(|link| link.is_open);
        let reason =
            if is_open { DestroyReason::CHANNEL_CLOSED } else { DestroyReason::CONNECT_FAILED };
        self.lose(conn, reason);
        self.outputs.forget(conn);
        self.links.release(conn);
        self.drain_target();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.outputs.handle_time(now);
        self.target.handle_timeout(now);
        self.drain_target();
        self.keep_up(now);
        self.pad_links(now);
        self.wake_waiting(now);
        self.streams.wake_rated(now);
    }

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.outputs.poll_writable().or_else(|| self.streams.poll_writable())
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        if self.streams.get(conn).is_some() {
            return self.transmit_stream(now, conn, out);
        }
        let len = self.transmit(now, conn, out);
        if len > 0
            && let Some(link) = self.links.get_mut(conn)
        {
            self.padder.handle_transfer(now, conn, link);
        }
        self.wake_unblocked();
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        if let Some(conn) = self.streams.poll_close() {
            self.links.release(conn);
            return Some(conn);
        }
        let id = self.outputs.poll_close()?;
        self.outputs.forget(id);
        self.links.release(id);
        Some(id)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let all = [
            self.target.poll_timeout(),
            self.waiting_ends_at(),
            self.upkeep_at(),
            self.padder.next_at(),
            self.streams.rated_at(),
            self.outputs.next_run_at(),
        ];
        all.into_iter().flatten().min()
    }

    fn handle_plain_connected(&mut self, now: Instant, conn: ConnId) {
        self.now = now;
        self.handle_stream_connected(conn);
    }

    fn receive_limit(&self, conn: ConnId) -> usize {
        self.stream_limit(conn).unwrap_or(usize::MAX)
    }

    fn poll_readable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.streams.poll_readable()?;
            // The room may be used up again; then it waits for the next.
            if self.stream_limit(conn).is_some_and(|bytes| bytes > 0) {
                return Some(conn);
            }
        }
    }

    fn poll_lookup(&mut self) -> Option<Lookup> {
        self.streams.poll_lookup()
    }

    fn handle_answer(&mut self, now: Instant, id: LookupId, answer: Answer) {
        self.now = now;
        self.handle_lookup(id, &answer);
    }

    fn poll_socket_query(&mut self) -> Option<ConnId> {
        self.outputs.poll_socket_query()
    }

    fn handle_socket_state(&mut self, now: Instant, conn: ConnId, state: Option<SocketState>) {
        self.outputs.handle_time(now);
        self.outputs.handle_socket_state(conn, state.as_ref());
    }
}
