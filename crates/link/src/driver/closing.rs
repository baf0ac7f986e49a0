//! How connections end.

use super::Driver;
use super::socket::{Stage, Transport};
use onion::Instant;
use onion::node::{CloseCause, ConnId, Node};

/// Bytes of memory of connections without TLS that the node has closed and whose last bytes are not written yet, of all together.
const LEAVING_MAX: usize = 16 << 20;

impl<N: Node> Driver<N> {
    /// The node closes a connection.
    pub(super) fn close_for_node(&mut self, now: Instant, conn: ConnId) {
        let Some(place) = self.by_conn.remove(&conn) else { return };
        if !self.leave(now, place) {
            self.say_goodbye(place);
            self.drop_socket(place);
        }
    }

    /// A socket is gone: forget it and tell the node.
    pub(super) fn close(&mut self, place: usize, cause: CloseCause) {
        let now = self.clock.now();
        let conn = self.sockets[place].as_ref().and_then(|socket| socket.conn);
        // Who has said all may still listen.
        if cause != CloseCause::ByPeer || !self.leave(now, place) {
            self.drop_socket(place);
        }
        if let Some(conn) = conn {
            self.by_conn.remove(&conn);
            self.node.handle_closed(now, conn, cause);
        }
    }

    /// Lets a connection without TLS go on until what is pending is written; false if nothing is.
    fn leave(&mut self, now: Instant, place: usize) -> bool {
        let Some(socket) = &mut self.sockets[place] else { return false };
        let is_plain = matches!(socket.transport, Transport::Plain(_));
        let held_bytes = socket.outgoing().held_bytes();
        if !is_plain || socket.stage != Stage::Open || held_bytes == 0 {
            return false;
        }
        // The node forgets it, and with it what it holds: whoever lets many wait so is not waited for.
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

    /// One attempt at the last pending bytes of a socket that is about to be closed.
    pub(super) fn say_goodbye(&mut self, place: usize) {
        if let Some(socket) = &mut self.sockets[place] {
            socket.wants_flush = false;
            let _ = socket.flush(&mut self.buffers, &mut [], |_, _| 0);
        }
    }

    pub(super) fn drop_socket(&mut self, place: usize) {
        self.set_deadline(place, None);
        self.newcomers.remove(place);
        let Some(mut socket) = self.sockets[place].take() else { return };
        self.leaving_bytes -= socket.left_with_bytes;
        if let Transport::Tls(session) = &mut socket.transport {
            session.give_incoming_back(&mut self.buffers);
        }
        // Closing the descriptor would do it, too; failure means that it is not watched.
        let _ = self.poll.registry().deregister(&mut socket.stream);
        self.free.push(place);
    }

    /// Ends what has had its time.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(place) = self.deadlines.due(now) {
            self.close(place, CloseCause::TimedOut);
        }
    }
}
