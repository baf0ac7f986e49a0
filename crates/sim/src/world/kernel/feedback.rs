//! FEEDBACK cells (windows from hop to hop) among the cells of a link, whose way they take.
//!
//! They are part of the same stream of bytes: one leaves when all cells that were written before it have left, in a record and a segment of its own, and is heard when all these have come. So
//! it waits where they wait: in the socket, for TCP's window, for its socket's turn on the way up, on the way down, and for what got lost before it. Its bytes count on both ways. They do not count for TCP's window, and it
//! does not get lost itself: it is small.

use super::{Event, Kernel, RECORD};
use crate::world::message::What;
use crate::world::socket::Phase;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Circuit ID, command and length of a cell of variable length.
const HEAD: u64 = 7;

/// FEEDBACK cells of a link that are not where they belong yet, each with the byte of the stream that it stands before.
#[derive(Debug, Default)]
pub(in crate::world) struct Feedback {
    unsent: VecDeque<(u64, Box<[u8]>)>,
    /// What has come before all that was written before it.
    early: VecDeque<(u64, Box<[u8]>)>,
}

impl Feedback {
    /// Whether nothing stands before the first of them any more, if so many bytes are sent.
    pub(in crate::world) fn has_some_before(&self, sent: u64) -> bool {
        self.unsent.front().is_some_and(|(place, _)| *place <= sent)
    }
}

/// Bytes of its record.
pub(super) fn record_bytes(body: &[u8]) -> u64 {
    HEAD + body.len() as u64 + RECORD
}

impl Kernel {
    /// Takes a FEEDBACK cell. It leaves behind all cells that were written before.
    pub(in crate::world) fn tell(&mut self, index: u32, body: Box<[u8]>) {
        let socket = &mut self.sockets[index as usize];
        let place = socket.tx.written();
        socket.feedback.get_or_insert_default().unsent.push_back((place, body));
        self.send(index);
    }

    /// Sends those that nothing stands before any more. Their socket has its turn.
    pub(super) fn send_feedback(&mut self, index: u32) {
        while self.socket(index).has_feedback_to_send() {
            let feedback = self.socket_mut(index).feedback.as_mut();
            let Some((place, body)) = feedback.and_then(|it| it.unsent.pop_front()) else { return };
            let wire = record_bytes(&body) + self.headers;
            self.post(index, What::Feedback { place, body }, wire);
        }
    }

    /// One has come.
    pub(super) fn receive_feedback(&mut self, index: u32, place: u64, body: Box<[u8]>) {
        let socket = &mut self.sockets[index as usize];
        socket.feedback.get_or_insert_default().early.push_back((place, body));
        self.hear_feedback(index);
    }

    /// Tells the application of those before which all has come.
    pub(super) fn hear_feedback(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        let received = socket.rx.received();
        let is_heard = socket.phase == Phase::Open;
        let Some(feedback) = &mut socket.feedback else { return };
        while feedback.early.front().is_some_and(|(place, _)| *place <= received) {
            if let Some((_, body)) = feedback.early.pop_front()
                && is_heard
            {
                self.scratch.events.push_back(Event::Feedback(index, body));
            }
        }
    }
}

#[cfg(test)]
mod tests;
