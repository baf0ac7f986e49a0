use super::messages::{Chunk, FIRST_GRANT, InFlight, Serial};
use crate::driver::PENDING_LEN;
use crate::sockopt::{self, TcpAccount};
use onion::node::{CloseCause, Security, SocketState, Unwritten};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// A connection, as seen by the hub.
pub(super) struct Conn {
    pub(super) worker: usize,
    pub(super) serial: Serial,
    pub(super) security: Security,
    pub(super) is_connected: bool,
    /// Data given to the I/O thread that it has not reported as encrypted.
    pub(super) in_flight: InFlight,
    /// Data that the I/O thread has encrypted and the kernel has not accepted, as last reported.
    pub(super) unwritten: Unwritten,
    /// Memory in the last report to the node.
    pub(super) reported_held_bytes: usize,
    /// Bytes written since that report.
    pub(super) unreported_written_bytes: usize,
    /// The node may have data to send.
    pub(super) wants_flush: bool,
    /// Bytes that the I/O thread may still read: of plaintext without TLS, from the socket with TLS.
    pub(super) granted: usize,
    /// Data received without TLS that the node does not accept yet: its limit may shrink after the
    /// grant.
    pub(super) held: VecDeque<Chunk>,
    /// Bytes of the first chunk that the node has taken.
    pub(super) taken: usize,
    /// Why it is closed; reported to the node after all earlier data.
    pub(super) closed: Option<CloseCause>,
    /// A duplicate of the socket, for kernel counters.
    pub(super) socket: Option<OwnedFd>,
}

impl Conn {
    pub(super) fn new(worker: usize, serial: Serial, security: Security) -> Self {
        Self {
            worker,
            serial,
            security,
            is_connected: false,
            in_flight: InFlight::default(),
            unwritten: Unwritten::default(),
            reported_held_bytes: 0,
            unreported_written_bytes: 0,
            wants_flush: false,
            granted: if security == Security::Tls { FIRST_GRANT } else { 0 },
            held: VecDeque::new(),
            taken: 0,
            closed: None,
            socket: None,
        }
    }

    /// The kernel's view of the send direction.
    pub(super) fn state(&self) -> Option<SocketState> {
        let unwritten = self.in_flight.bytes + self.unwritten.pending_bytes;
        sockopt::socket_state(self.socket.as_ref()?, unwritten)
    }

    /// The report of unwritten bytes for the node, if one is due. `written_bytes` were written
    /// since the last call.
    pub(super) fn unwritten_report(&mut self, written_bytes: usize) -> Option<Unwritten> {
        let pending_bytes = self.in_flight.bytes + self.unwritten.pending_bytes;
        let held_bytes = self.in_flight.held_bytes + self.unwritten.held_bytes;
        if held_bytes == 0 && self.reported_held_bytes == 0 {
            return None;
        }
        self.unreported_written_bytes += written_bytes;
        // The memory is unchanged, and the age of the data is known well enough.
        if held_bytes == self.reported_held_bytes && self.unreported_written_bytes < PENDING_LEN {
            return None;
        }
        self.reported_held_bytes = held_bytes;
        let written_bytes = std::mem::take(&mut self.unreported_written_bytes);
        Some(Unwritten { pending_bytes, written_bytes, held_bytes })
    }

    /// The kernel's counters.
    pub(super) fn account(&self) -> Option<TcpAccount> {
        sockopt::tcp_account(self.socket.as_ref()?)
    }
}
