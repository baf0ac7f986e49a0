//! Moves bytes between sockets and the node.

use super::Driver;
use super::socket::{self, Stage, Transport};
use crate::tls::Progress;
use onion::node::{CloseCause, Node};
use std::io;

/// Reads from one socket before the next is served.
const READS_PER_TURN: usize = 4;

impl<N: Node> Driver<N> {
    /// Performs the reads and writes for which a socket is ready.
    pub(super) fn run_socket(&mut self, place: usize) {
        let Some(socket) = &mut self.sockets[place] else { return };
        socket.is_queued = false;
        if socket.stage == Stage::Connecting && !self.continue_connecting(place) {
            return;
        }
        self.flush(place);
        let Some(socket) = &mut self.sockets[place] else { return };
        if !socket.is_readable || socket.stage == Stage::Leaving {
            return;
        }
        match &mut socket.transport {
            Transport::Tls(session) => {
                session.borrow_incoming(&mut self.buffers);
                self.read_tls(place);
                if let Some(socket) = &mut self.sockets[place]
                    && let Transport::Tls(session) = &mut socket.transport
                {
                    session.give_incoming_back(&mut self.buffers);
                }
            }
            Transport::Plain(_) => self.read_plain(place),
        }
    }

    /// Reads no more than the node permits. The rest stays in the kernel, whose receive window then
    /// slows the peer down.
    fn read_tls(&mut self, place: usize) {
        for _ in 0..READS_PER_TURN {
            let Some(socket) = &mut self.sockets[place] else { return };
            if !socket.is_readable {
                return;
            }
            let conn = if socket.is_in_handshake() { None } else { socket.conn };
            let len_max = self.node.poll_read_limit(self.clock.now(), conn);
            if len_max == 0 {
                if conn.is_none() {
                    break; // to the end of the queue
                }
                return; // until the node requests a read
            }
            let result = socket.read_session(len_max);
            match self.handle_read(place, result) {
                Some(0) => {}
                Some(len) => {
                    self.node.handle_read(self.clock.now(), conn, len);
                    if !self.process(place) {
                        return;
                    }
                }
                None => return,
            }
        }
        self.enqueue(place); // there may be more: after the other sockets
    }

    /// Reads no more than the node accepts. The rest stays in the kernel, whose receive window then
    /// slows the peer down.
    fn read_plain(&mut self, place: usize) {
        for _ in 0..READS_PER_TURN {
            let Some(socket) = &mut self.sockets[place] else { return };
            let Some(conn) = socket.conn.filter(|_| socket.is_readable) else { return };
            let limit = self.node.receive_limit(conn);
            if limit == 0 {
                return; // until the node requests a read
            }
            let room = self.buffers.scratch();
            let len = limit.min(room.len());
            let result = socket.read(&mut room[..len]);
            match self.handle_read(place, result) {
                Some(0) => {}
                Some(len) => {
                    self.traffic.note_received(len);
                    let bytes = &self.buffers.scratch()[..len];
                    self.node.handle_bytes(self.clock.now(), conn, bytes);
                }
                None => return,
            }
        }
        self.enqueue(place);
    }

    /// Handles the result of a read: the number of bytes to process, or `None` if there is nothing
    /// to do. Closes the socket at the end of the stream.
    fn handle_read(&mut self, place: usize, result: io::Result<usize>) -> Option<usize> {
        match result {
            Ok(0) => {
                self.flush_final_answer(place);
                let broken = self.sockets[place].as_mut().and_then(|socket| socket.broken.take());
                self.close(place, broken.unwrap_or(CloseCause::ByPeer));
                None
            }
            Ok(len) => Some(len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(0),
            Err(error) => {
                self.close(place, socket::cause(&error));
                None
            }
        }
    }

    /// Called when the peer of a connection without TLS has closed its sending direction. The peer
    /// may still receive, so the node's pending answer is written before the node learns of the
    /// end.
    fn flush_final_answer(&mut self, place: usize) {
        if let Some(socket) = &mut self.sockets[place]
            && matches!(socket.transport, Transport::Plain(_))
        {
            socket.wants_flush = true;
            self.flush(place);
        }
    }

    /// Passes received TLS data to the node. Returns false if the socket is gone.
    pub(super) fn process(&mut self, place: usize) -> bool {
        loop {
            let now = self.clock.now();
            let Some(socket) = &mut self.sockets[place] else { return false };
            let Transport::Tls(session) = &mut socket.transport else { return false };
            let (node, conn, traffic) = (&mut self.node, socket.conn, &mut self.traffic);
            let progress = session.process(&mut |plaintext| {
                traffic.note_received(plaintext.len());
                if let Some(conn) = conn {
                    node.handle_bytes(now, conn, plaintext);
                }
            });
            match progress {
                Ok(Progress::Waiting) => break,
                Ok(Progress::Established) => {
                    if !self.announce(now, place) {
                        return false;
                    }
                }
                Ok(Progress::PeerClosed) => {
                    self.close(place, CloseCause::ByPeer);
                    return false;
                }
                Err(error) => {
                    self.flush_alert(place); // the alert
                    self.close(place, CloseCause::Tls(error.to_string()));
                    return false;
                }
            }
        }
        self.flush(place);
        self.sockets[place].is_some()
    }

    /// Writes pending bytes, and further data of the node until the socket blocks.
    pub(super) fn flush(&mut self, place: usize) {
        let now = self.clock.now();
        let Some(socket) = &mut self.sockets[place] else { return };
        if socket.broken.is_some() {
            return;
        }
        let (node, traffic) = (&mut self.node, &mut self.traffic);
        let result = socket.flush(&mut self.buffers, &mut self.record[..], |conn, out| {
            let len = node.poll_transmit(now, conn, out);
            traffic.note_sent(len);
            len
        });
        let is_plain = matches!(socket.transport, Transport::Plain(_));
        if let Some(conn) = socket.conn
            && let Some(unwritten) = socket.unwritten_report()
        {
            node.handle_unwritten(now, conn, unwritten);
        }
        match result {
            Ok(()) => {
                if socket.stage == Stage::Leaving && socket.outgoing().pending().is_empty() {
                    self.drop_socket(place);
                }
            }
            // A server may answer and close without reading the rest of the request; its answer may
            // still be unread.
            Err(cause) if is_plain && socket.stage == Stage::Open => {
                socket.outgoing().clear();
                socket.outgoing().give_back(&mut self.buffers);
                if let Some(conn) = socket.conn
                    && let Some(unwritten) = socket.unwritten_report()
                {
                    node.handle_unwritten(now, conn, unwritten);
                }
                socket.broken = Some(cause);
                socket.is_readable = true;
                self.enqueue(place);
            }
            Err(cause) => self.close(place, cause),
        }
    }
}
