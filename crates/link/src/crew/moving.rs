//! Bytes on their way between the node and the threads.

use super::Crew;
use super::messages::{Chunk, Errand, IN_FLIGHT_MAX};
use onion::Instant;
use onion::node::{ConnId, Node, Security};

impl<N: Node> Crew<N> {
    /// Gives a thread what the node has for a connection, up to a bound.
    pub(super) fn transmit(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.wants_flush = true;
        // A node may name a connection before it stands: it is asked once it does.
        while conn.is_connected && conn.in_flight.held_bytes < IN_FLIGHT_MAX {
            let mut chunk = self.spare.take();
            let len = chunk.fill(|out| self.node.poll_transmit(now, id, out));
            if len == 0 {
                conn.wants_flush = false;
                self.spare.give(chunk);
                break;
            }
            let chunk = self.spare.fit(chunk);
            conn.in_flight.bytes += len;
            conn.in_flight.held_bytes += chunk.held_bytes();
            self.traffic.sent_bytes += len as u64;
            self.traffic.sent_records += 1;
            self.hands[conn.hand].tell(Errand::Send(conn.serial, chunk));
        }
        self.tell_of_unwritten(now, id, 0);
    }

    /// Tells the node what it has given away and the kernel has not taken; so much of it has gone since the last time.
    pub(super) fn tell_of_unwritten(&mut self, now: Instant, id: ConnId, written_bytes: usize) {
        let news = self.conns.get_mut(&id).and_then(|conn| conn.news_of_unwritten(written_bytes));
        if let Some(unwritten) = news {
            self.node.handle_unwritten(now, id, unwritten);
        }
    }

    /// Gives the node what has come.
    pub(super) fn handle_chunk(&mut self, now: Instant, id: ConnId, chunk: Chunk) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match conn.security {
            Security::Tls => {
                self.node.handle_bytes(now, id, chunk.bytes());
                self.spare.give(chunk);
            }
            Security::Plain => {
                conn.granted = conn.granted.saturating_sub(chunk.bytes().len());
                conn.held.push_back(chunk);
                self.deliver(now, id);
            }
        }
    }

    /// Gives the node as much of a connection without TLS as it takes, and its end if that was all;
    /// else lets the thread read as much more.
    pub(super) fn deliver(&mut self, now: Instant, id: ConnId) {
        loop {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            let Some(chunk) = conn.held.front() else { break };
            let rest = &chunk.bytes()[conn.taken..];
            let len = rest.len().min(self.node.receive_limit(id));
            if len == 0 {
                return; // until the node says that it takes more
            }
            self.node.handle_bytes(now, id, &rest[..len]);
            conn.taken += len;
            if conn.taken == chunk.bytes().len() {
                conn.taken = 0;
                conn.held.pop_front().into_iter().for_each(|chunk| self.spare.give(chunk));
            }
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Some(cause) = conn.closed.take() {
            self.conns.remove(&id);
            self.node.handle_closed(now, id, cause);
        } else if conn.security == Security::Plain && conn.is_connected {
            let more = self.node.receive_limit(id).saturating_sub(conn.granted);
            if more > 0 {
                conn.granted += more;
                self.hands[conn.hand].tell(Errand::Grant(conn.serial, more));
            }
        }
    }
}
