use super::event::{CircuitNumber, Loss};
use super::{Client, link::Link};
use crate::cell::BODY_LEN;
use crate::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use crate::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use crate::time::Instant;
use alloc::string::ToString;
use alloc::vec::Vec;
use rand_core::Rng;

impl<R: Rng> Client<R> {
    /// A link is of no more use.
    fn lose_link(&mut self, conn: ConnId, cause: &Loss) {
        let Some(link) = self.links.remove(&conn) else { return };
        for circuit in link.circuits.into_values() {
            self.lose_circuit(circuit, cause.clone());
        }
    }

    /// Handles all cells in a stretch of plaintext.
    fn handle_cells(
        &mut self,
        now: Instant,
        conn: ConnId,
        channel: &mut Channel,
        plaintext: &[u8],
    ) -> Result<(), Loss> {
        let mut input = plaintext;
        let was_open = channel.is_open();
        loop {
            let cell = channel.handle_bytes(&mut input);
            let cell = cell.map_err(|error| Loss::Channel(error.to_string()))?;
            let Some(cell) = cell else { break };
            let link = self.links.get(&conn);
            let number = link.and_then(|link| link.circuits.get(&cell.circ_id)).copied();
            // Cells of circuits that are gone, and those that concern the link itself.
            let Some(number) = number else { continue };
            let command = cell.command;
            let mut body = [0; BODY_LEN];
            let len = cell.body.len().min(BODY_LEN);
            body[..len].copy_from_slice(&cell.body[..len]);
            self.handle_cell(now, channel, number, command, &body);
        }
        if channel.is_open() && !was_open {
            let link = self.links.get(&conn);
            let waiting: Vec<CircuitNumber> =
                link.map_or(Vec::new(), |link| link.circuits.values().copied().collect());
            for number in waiting {
                self.create_on(now, channel, number);
            }
        }
        Ok(())
    }
}

impl<R: Rng> Node for Client<R> {
    fn handle_connected(&mut self, _now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let expected = ExpectedPeer { ids: link.to.ids, address: link.to.address.ip() };
        let anonymous = Authentication::Anonymous;
        let mut random = [0; 24];
        self.rng.fill_bytes(&mut random);
        match Channel::initiator(expected, anonymous, tls, random, self.unix_time_s) {
            Ok(channel) => {
                link.channel = Some(channel);
                self.wake(conn);
            }
            Err(error) => {
                self.lose_link(conn, &Loss::Channel(error.to_string()));
                self.to_close.push_back(conn);
            }
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
        // The channel leaves its link, since its cells borrow from it.
        let channel = self.links.get_mut(&conn).and_then(|link| link.channel.take());
        let Some(mut channel) = channel else { return };
        let result = self.handle_cells(now, conn, &mut channel, plaintext);
        if let Some(link) = self.links.get_mut(&conn) {
            link.channel = Some(channel);
            self.wake(conn);
        }
        if let Err(cause) = result {
            self.lose_link(conn, &cause);
            self.to_close.push_back(conn);
        }
    }

    fn handle_closed(&mut self, _now: Instant, conn: ConnId, cause: CloseCause) {
        self.lose_link(conn, &Loss::Link(cause));
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.room_at.is_some_and(|at| at <= now) {
            self.room_at = None;
            let links: Vec<ConnId> = self.links.keys().copied().collect();
            links.into_iter().for_each(|conn| self.wake(conn));
        }
    }

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.writable.pop_front()?;
            if let Some(link) = self.links.get_mut(&conn) {
                link.is_queued = false;
                return Some(conn);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        loop {
            let channel =
                self.links.get_mut(&conn).and_then(|link: &mut Link| link.channel.as_mut());
            let Some(channel) = channel else { return 0 };
            let len = channel.poll_transmit(out);
            if len > 0 {
                return len;
            }
            if !channel.is_open() || !self.package(now, conn) {
                return 0;
            }
        }
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        let conn = self.to_close.pop_front()?;
        self.links.remove(&conn);
        Some(conn)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.room_at
    }
}
