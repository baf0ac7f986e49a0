//! Upload: sockets are served round-robin.

use super::{Kernel, RECORD, UP_AHEAD_NS};
use crate::world::message::{Mail, MailContent};
use crate::world::socket::Phase;
use crate::world::tcp::{Control, MSS};

impl Kernel {
    /// Sends what a socket may send; it waits if others wait. (With Shadow's TCP everything waits on the line.)
    pub(crate) fn send(&mut self, index: u32) {
        loop {
            let others_wait = self.control != Control::Shadow
                && (!self.ready.is_empty() || self.up_at() > self.now);
            let socket = &mut self.sockets[index as usize];
            let is_open = matches!(socket.phase, Phase::Open | Phase::Closing);
            if !is_open || socket.is_ready {
                return;
            }
            // The query also informs TCP that there was data to send.
            if !socket.tx.may_send(socket.unit()) && !socket.has_feedback_to_send() {
                return;
            }
            if others_wait {
                socket.is_ready = true;
                self.ready.push_back(index);
                return;
            }
            self.send_flight(index);
        }
    }

    /// Serves a socket: a flight, and FEEDBACK cells before and after it.
    pub(crate) fn send_flight(&mut self, index: u32) {
        let now = self.now;
        self.send_feedback(index);
        let socket = &mut self.sockets[index as usize];
        let unit = socket.unit();
        let Some(flight) = socket.tx.take_flight(now, unit) else { return };
        let (number, start, bytes) = (flight.number, flight.start, flight.bytes);
        let content = if flight.is_retransmit {
            MailContent::Retransmit { number, start, bytes }
        } else if unit == 1 {
            MailContent::Bytes { number, start, bytes }
        } else {
            let count = (bytes / 514) as usize;
            let cells = socket.unsent.take(count, &mut self.scratch.pool);
            self.backlog.handle_left(now, u64::from(bytes));
            if self.up_ahead_ns > UP_AHEAD_NS {
                self.backlog.handle_queued(bytes.into(), self.up_free_at.saturating_sub(now));
            }
            MailContent::Cells { number, start, cells }
        };
        self.watch(index);
        let segments = u64::from(bytes).div_ceil(MSS);
        let wire = u64::from(bytes) + segments * self.headers + RECORD;
        self.post(index, content, wire);
        self.send_feedback(index);
    }

    pub(crate) fn post_small(&mut self, index: u32, content: MailContent) {
        self.post(index, content, self.headers);
    }

    pub(super) fn post(&mut self, index: u32, content: MailContent, wire_bytes: u64) {
        let takes = wire_bytes * self.up_ps_per_byte / 1000;
        // Acknowledgements and other small packets do not wait: a fair queue lets them pass.
        let leaves_at = if wire_bytes == self.headers {
            self.now + takes
        } else {
            self.up_free_at = self.up_free_at.max(self.now) + takes;
            self.up_free_at
        };
        let second = usize::try_from(self.now / 1_000_000_000).unwrap_or(0);
        if self.sent_bytes.len() <= second {
            self.sent_bytes.resize(second + 1, 0);
        }
        self.sent_bytes[second] += wire_bytes;
        let socket = &self.sockets[index as usize];
        let mail = Mail {
            at: leaves_at + u64::from(socket.latency_ns),
            from: self.id,
            number: self.mails,
            to: socket.peer_host,
            socket: socket.peer,
            is_lost: false,
            content,
        };
        self.mails = self.mails.wrapping_add(1);
        self.scratch.out.push(mail);
    }
}
