use super::Peer;
use super::behaviour::Behaviour;
use onion::Instant;
use onion::link::{Authentication, Channel, TlsSession};
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use rand::Rng;
use std::sync::Arc;

impl<R: Rng> Node for Peer<R> {
    fn handle_connected(&mut self, _now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let Some(expected) = entry.expected else { return };
        let mut random = [0; 24];
        self.rng.fill_bytes(&mut random);
        let own = Authentication::AsRelay(Arc::clone(&self.identity));
        match Channel::initiator(expected, own, tls, random, self.unix_time_s) {
            Ok(channel) => {
                entry.channel = Some(channel);
                self.conns.wake(conn);
            }
            Err(_) => {
                self.lose_conn(conn);
                self.to_close.push_back(conn);
            }
        }
    }

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        let identity = match &self.behaviour {
            Behaviour::NeverAnswers => return Some(self.conns.add(None, None)),
            Behaviour::WrongIdentity(other) => other,
            _ => &self.identity,
        };
        let mut challenge = [0; 32];
        self.rng.fill_bytes(&mut challenge);
        let identity = Arc::clone(identity);
        let channel = Channel::responder(identity, tls, challenge, self.unix_time_s);
        Some(self.conns.add(Some(channel), None))
    }

    fn handle_bytes(&mut self, _now: Instant, conn: ConnId, plaintext: &[u8]) {
        if !self.is_silent {
            self.handle_cells(conn, plaintext);
        }
    }

    fn handle_closed(&mut self, _now: Instant, conn: ConnId, _cause: CloseCause) {
        self.lose_conn(conn);
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.conns.poll_writable()
    }

    fn poll_transmit(&mut self, _now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        if self.is_silent {
            return 0;
        }
        let channel = self.conns.get_mut(conn).and_then(|conn| conn.channel.as_mut());
        channel.map_or(0, |channel| channel.poll_transmit(out))
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
