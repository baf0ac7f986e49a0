//! FEEDBACK cells (hop-by-hop windows) in the byte stream of a link.
//!
//! They are part of the byte stream: a FEEDBACK cell leaves when all cells written before it have left, in its
//! own record and segment, and is received when all of these have arrived. So it waits where they wait: in the
//! socket for TCP's window and for the upload, in the download queue, and for retransmissions. Its bytes count
//! for both rates. They do not count for TCP's window, and the cell is never lost: it is small.

use super::{Event, Kernel, RECORD};
use crate::world::message::MailContent;
use crate::world::socket::Phase;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Circuit ID, command and length of a variable-length cell.
const HEAD: u64 = 7;

/// FEEDBACK cells of a link in order, each with its stream offset.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    unsent: VecDeque<(u64, Box<[u8]>)>,
    /// Received cells whose predecessors have all arrived.
    early: VecDeque<(u64, Box<[u8]>)>,
}

impl Feedback {
    /// Whether the first of them may be sent, after this number of bytes.
    pub(crate) fn has_any_before(&self, sent: u64) -> bool {
        self.unsent.front().is_some_and(|(place, _)| *place <= sent)
    }
}

/// The length of its record, in bytes.
pub(super) fn record_bytes(body: &[u8]) -> u64 {
    HEAD + body.len() as u64 + RECORD
}

impl Kernel {
    /// Queues a FEEDBACK cell behind all cells written before.
    pub(crate) fn notify(&mut self, index: u32, body: Box<[u8]>) {
        let socket = &mut self.sockets[index as usize];
        let place = socket.tx.written();
        socket.feedback.get_or_insert_default().unsent.push_back((place, body));
        self.send(index);
    }

    /// Sends those whose predecessors have been sent. Their socket is being served.
    pub(super) fn send_feedback(&mut self, index: u32) {
        while self.socket(index).has_feedback_to_send() {
            let feedback = self.socket_mut(index).feedback.as_mut();
            let Some((place, body)) = feedback.and_then(|feedback| feedback.unsent.pop_front())
            else {
                return;
            };
            let wire = record_bytes(&body) + self.headers;
            self.post(index, MailContent::Feedback { place, body }, wire);
        }
    }

    /// A FEEDBACK cell has arrived.
    pub(super) fn receive_feedback(&mut self, index: u32, place: u64, body: Box<[u8]>) {
        let socket = &mut self.sockets[index as usize];
        socket.feedback.get_or_insert_default().early.push_back((place, body));
        self.deliver_feedback(index);
    }

    /// Notifies the application of those whose predecessors have all arrived.
    pub(super) fn deliver_feedback(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        let received = socket.rx.received();
        let is_open = socket.phase == Phase::Open;
        let Some(feedback) = &mut socket.feedback else { return };
        while feedback.early.front().is_some_and(|(place, _)| *place <= received) {
            if let Some((_, body)) = feedback.early.pop_front()
                && is_open
            {
                self.scratch.events.push_back(Event::Feedback(index, body));
            }
        }
    }
}

#[cfg(test)]
mod tests;
