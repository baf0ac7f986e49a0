//! Moves bytes between the node and the I/O threads.

use super::ThreadedDriver;
use super::messages::{Chunk, FIRST_GRANT, GRANT_MAX, IN_FLIGHT_MAX, IoCommand};
use onion::Instant;
use onion::node::{ConnId, Node, Security};

impl<N: Node> ThreadedDriver<N> {
    /// Sends data of the node to the I/O thread, up to a limit.
    pub(super) fn transmit(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.wants_flush = true;
        // The node may request a flush before the connection is open; it is polled later.
        while conn.is_connected && conn.in_flight.held_bytes < IN_FLIGHT_MAX {
            let mut chunk = self.pool.take();
            let len = chunk.fill(|out| self.node.poll_transmit(now, id, out));
            if len == 0 {
                conn.wants_flush = false;
                self.pool.give(chunk);
                break;
            }
            let chunk = self.pool.fit(chunk);
            conn.in_flight.bytes += len;
            conn.in_flight.held_bytes += chunk.held_bytes();
            self.traffic.sent_bytes += len as u64;
            self.traffic.sent_records += 1;
            self.io_workers[conn.worker].send(IoCommand::Send(conn.serial, chunk));
        }
        self.report_unwritten(now, id, 0);
    }

    /// Reports to the node the data that the kernel has not accepted. `written_bytes` were written
    /// since the last call.
    pub(super) fn report_unwritten(&mut self, now: Instant, id: ConnId, written_bytes: usize) {
        let report = self.conns.get_mut(&id).and_then(|conn| conn.unwritten_report(written_bytes));
        if let Some(unwritten) = report {
            self.node.handle_unwritten(now, id, unwritten);
        }
    }

    /// Passes received data to the node.
    pub(super) fn handle_chunk(&mut self, now: Instant, id: ConnId, chunk: Chunk) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match conn.security {
            Security::Tls => {
                self.node.handle_bytes(now, id, chunk.bytes());
                self.pool.give(chunk);
            }
            Security::Plain => {
                conn.granted = conn.granted.saturating_sub(chunk.bytes().len());
                conn.held.push_back(chunk);
                self.deliver(now, id);
            }
        }
    }

    /// Passes received data of a connection without TLS to the node, within its limit, and then the
    /// end of the stream if there is no more. Otherwise permits the I/O thread to read more.
    pub(super) fn deliver(&mut self, now: Instant, id: ConnId) {
        loop {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            let Some(chunk) = conn.held.front() else { break };
            let rest = &chunk.bytes()[conn.taken..];
            let len = rest.len().min(self.node.receive_limit(id));
            if len == 0 {
                return; // until the node requests a read
            }
            self.node.handle_bytes(now, id, &rest[..len]);
            conn.taken += len;
            if conn.taken == chunk.bytes().len() {
                conn.taken = 0;
                conn.held.pop_front().into_iter().for_each(|chunk| self.pool.give(chunk));
            }
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Some(cause) = conn.closed.take() {
            self.conns.remove(&id);
            self.node.handle_closed(now, id, cause);
        } else {
            self.grant(now, id);
        }
    }

    /// Permits the I/O thread to read as much from a connection as the node does.
    pub(super) fn grant(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.is_connected) else { return };
        let limit = match conn.security {
            Security::Plain => self.node.receive_limit(id),
            // Of a link without a limit, half of the grant is left.
            Security::Tls if conn.granted > GRANT_MAX / 2 => return,
            Security::Tls => self.node.poll_read_limit(now, Some(id)).min(GRANT_MAX),
        };
        let more = limit.saturating_sub(conn.granted);
        if more > 0 {
            conn.granted += more;
            self.io_workers[conn.worker].send(IoCommand::Grant(conn.serial, more));
        }
    }

    /// Permits the TLS handshakes of all threads to read what the node permits.
    pub(super) fn grant_handshakes(&mut self, now: Instant) {
        let threads = self.io_workers.len();
        for _ in 0..threads {
            // Each thread is the first in turn.
            self.next_granted = (self.next_granted + 1) % threads;
            let worker = &mut self.io_workers[self.next_granted];
            if worker.handshakes_granted > FIRST_GRANT / 2 {
                continue;
            }
            let limit = self.node.poll_read_limit(now, None).min(GRANT_MAX);
            let more = limit.saturating_sub(worker.handshakes_granted);
            if more > 0 {
                worker.handshakes_granted += more;
                worker.send(IoCommand::GrantHandshakes(more));
            }
        }
    }
}
