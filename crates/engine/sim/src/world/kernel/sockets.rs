//! Sockets: the application's interface.

use super::{Event, Kernel};
use crate::world::message::{MailContent, Purpose, SocketKey};
use crate::world::socket::{Phase, Socket};
use crate::world::unsent::{Unsent, pool_back};
use alloc::boxed::Box;
use alloc::vec::Vec;
use onion::cell_model::HeaderOnlyCell;
use onion::node::SocketState;

/// The receive buffer of a socket that is not read. Links are always read.
const RECEIVE_WINDOW: u64 = 1 << 20;
const LINK_WINDOW: u64 = 6 << 20;

impl Kernel {
    pub(crate) fn new_socket(&mut self, peer_host: u32, purpose: Purpose) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(Socket::new(self.control, 0));
            u32::try_from(self.sockets.len() - 1).unwrap_or(u32::MAX)
        });
        let uses = self.sockets[index as usize].uses;
        let window = if purpose == Purpose::Link { LINK_WINDOW } else { RECEIVE_WINDOW };
        let (latency_ns, _) = self.net.between(self.id, peer_host);
        let (_, loss) = self.net.between(peer_host, self.id);
        self.sockets[index as usize] = Socket {
            uses,
            phase: Phase::Opening,
            peer_host,
            purpose,
            latency_ns,
            loss,
            ..Socket::new(self.control, window)
        };
        let tx = &mut self.sockets[index as usize].tx;
        tx.widen(self.segment_memory_bytes);
        if purpose == Purpose::Link {
            tx.carry_cells();
        }
        index
    }

    pub(crate) fn key(&self, index: u32) -> SocketKey {
        SocketKey { index, uses: self.sockets[index as usize].uses }
    }

    /// Dials a connection; `conn` is the application's number for it.
    pub(crate) fn dial(&mut self, to: u32, purpose: Purpose, conn: u32) -> u32 {
        let index = self.new_socket(to, purpose);
        self.sockets[index as usize].conn = conn;
        let back = self.key(index);
        self.post_small(index, MailContent::Open(Box::new((back, purpose))));
        index
    }

    /// The application closes it. Written data is still sent; the number must not be used any longer.
    pub(crate) fn close(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        match socket.phase {
            Phase::Open => {
                socket.phase = Phase::Closing;
                socket.wants_room = false;
                let end = socket.tx.written();
                self.post_small(index, MailContent::Close { end });
                self.end_if_done(index);
            }
            // Its peer is notified when it is known.
            Phase::Opening => socket.phase = Phase::Closing,
            Phase::Free | Phase::Closing => {}
        }
    }

    pub(crate) fn end_if_done(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        if socket.phase == Phase::Closing && socket.tx.is_done() {
            self.release(index);
        }
    }

    pub(crate) fn release(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if socket.phase == Phase::Free {
            return;
        }
        socket.phase = Phase::Free;
        if socket.is_link() {
            self.backlog.handle_left(self.now, socket.tx.unsent());
        }
        socket.uses = socket.uses.wrapping_add(1);
        socket.unsent = Unsent::default();
        socket.feedback = None;
        if core::mem::take(&mut socket.is_ready) {
            self.ready.retain(|ready| *ready != index);
        }
        self.free.push(index);
    }

    /// The socket state for KIST.
    pub(crate) fn state(&self, index: u32) -> SocketState {
        self.sockets[index as usize].tx.state()
    }

    /// Cells that a socket accepts now. After a refusal, the application waits for [`Event::Room`], like a
    /// process that waits for a socket to be writable.
    pub(crate) fn room_cells(&self, index: u32) -> usize {
        let socket = &self.sockets[index as usize];
        if socket.phase != Phase::Open || socket.wants_room {
            return 0;
        }
        let has_lowat = self.has_notsent_lowat && socket.is_link();
        let room = if has_lowat { socket.tx.room_of_piece() } else { socket.tx.room() };
        usize::try_from(room / 514).unwrap_or(0)
    }

    /// Wakes a writer whose cells were refused, if there is room again.
    pub(super) fn wake_writer(&mut self, index: u32) {
        let has_lowat = self.has_notsent_lowat;
        let socket = &mut self.sockets[index as usize];
        if !socket.wants_room {
            return;
        }
        socket.tx.widen(self.segment_memory_bytes);
        let is_all_sent = socket.tx.unsent() == 0;
        if socket.tx.is_writable() && (is_all_sent || !has_lowat || !socket.is_link()) {
            socket.wants_room = false;
            self.scratch.events.push_back(Event::Room(index));
        }
    }

    /// Accepts cells; they leave with [`send`](Self::send).
    pub(crate) fn write_cells(&mut self, index: u32, cells: &mut [HeaderOnlyCell]) {
        let socket = &mut self.sockets[index as usize];
        let bytes = cells.len() as u64 * 514;
        socket.tx.write(bytes);
        self.backlog.handle_written(self.now, bytes);
        socket.unsent.push(cells, &mut self.scratch.pool);
    }

    /// Accepts the first cells of the scratch buffer.
    pub(crate) fn write_record(&mut self, index: u32, count: usize) {
        let socket = &mut self.sockets[index as usize];
        let bytes = count as u64 * 514;
        socket.tx.write(bytes);
        self.backlog.handle_written(self.now, bytes);
        socket.unsent.push(&mut self.scratch.record[..count], &mut self.scratch.pool);
    }

    /// Accepts bytes, and sends what may be sent.
    pub(crate) fn write_bytes(&mut self, index: u32, bytes: u64) {
        self.sockets[index as usize].tx.write(bytes);
        self.send(index);
    }

    /// Bytes were read.
    pub(crate) fn read_bytes(&mut self, index: u32, bytes: u64) {
        let socket = &mut self.sockets[index as usize];
        socket.rx.read += bytes;
        if let Some(window_update) = socket.rx.window_update() {
            self.post_small(index, window_update);
        }
    }

    /// Recycles a cell buffer.
    pub(crate) fn recycle(&mut self, cells: Vec<HeaderOnlyCell>) {
        pool_back(cells, &mut self.scratch.pool);
    }

    /// The application has been notified that the peer has closed it.
    pub(crate) fn forget(&mut self, index: u32) {
        self.release(index);
    }
}

#[cfg(test)]
mod tests;
