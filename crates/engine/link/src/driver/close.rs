//! Closes connections.

use super::Driver;
use super::socket::{Stage, Transport};
use onion::Instant;
use onion::node::{CloseCause, ConnId, Node};

/// Limit on the memory of all connections without TLS that the node has closed and that still have
/// bytes to write.
const LEAVING_MAX: usize = 16 << 20;

impl<N: Node> Driver<N> {
    /// Closes a connection for the node.
    pub(super) fn close_for_node(&mut self, now: Instant, conn: ConnId) {
        let Some(place) = self.by_conn.remove(&conn) else { return };
        if !self.leave(now, place) {
            self.flush_alert(place);
            self.drop_socket(place);
        }
    }

    /// Removes a socket and reports the end to the node.
    pub(super) fn close(&mut self, place: usize, cause: CloseCause) {
        let now = self.clock.now();
        let conn = self.sockets[place].as_ref().and_then(|socket| socket.conn);
        // A peer that has closed its sending direction may still receive.
        if cause != CloseCause::ByPeer || !self.leave(now, place) {
            self.drop_socket(place);
        }
        if let Some(conn) = conn {
            self.by_conn.remove(&conn);
            self.node.handle_closed(now, conn, cause);
        }
    }

    /// Keeps a connection without TLS open until its pending bytes are written. Returns false if
    /// there are none.
    fn leave(&mut self, now: Instant, place: usize) -> bool {
        let Some(socket) = &mut self.sockets[place] else { return false };
        let is_plain = matches!(socket.transport, Transport::Plain(_));
        let held_bytes = socket.outgoing().held_bytes();
        if !is_plain || socket.stage != Stage::Open || held_bytes == 0 {
            return false;
        }
        // The node no longer accounts for this memory, so it is limited here.
        if self.leaving_bytes + held_bytes > LEAVING_MAX {
            return false;
        }
        self.leaving_bytes += held_bytes;
        socket.left_with_bytes = held_bytes;
        socket.stage = Stage::Leaving;
        socket.conn = None;
        self.set_deadline(place, Some(now + self.options.linger_timeout));
        true
    }

    /// Tries once to write the last pending bytes of a socket that is about to be closed.
    pub(super) fn flush_alert(&mut self, place: usize) {
        if let Some(socket) = &mut self.sockets[place] {
            socket.wants_flush = false;
            let _ = socket.flush(&mut self.buffers, &mut [], |_, _| 0);
        }
    }

    pub(super) fn drop_socket(&mut self, place: usize) {
        self.set_deadline(place, None);
        self.pending_accepts.remove(place);
        let Some(mut socket) = self.sockets[place].take() else { return };
        self.leaving_bytes -= socket.left_with_bytes;
        if let Transport::Tls(session) = &mut socket.transport {
            session.give_incoming_back(&mut self.buffers);
        }
        // Closing the descriptor has the same effect; an error means that it is not registered.
        let _ = self.poll.registry().deregister(&mut socket.stream);
        self.free.push(place);
    }

    /// Closes sockets whose stage has timed out.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(place) = self.deadlines.due(now) {
            self.close(place, CloseCause::TimedOut);
        }
    }
}
