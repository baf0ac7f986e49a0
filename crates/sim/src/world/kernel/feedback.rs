//! FEEDBACK cells (windows from hop to hop) among the cells of a link, whose way they take.
//!
//! They are part of the same stream of bytes: one leaves when all cells that were written before it have left, in a record and a segment of its own, and is heard when all these have come. So
//! it waits where they wait: in the socket, for TCP's window, on the way up and down, and for what got lost before it. Its bytes count on both ways. They do not count for TCP's window, and it does not
//! get lost itself: it is small. Among the sockets of a host it does not wait for its turn on the way up: where many have cells to send, that is up to a flight of each sooner than by a real kernel, in favour of
//! these windows.

use super::{Event, HEADERS, Kernel, RECORD};
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
        self.send_feedback(index);
    }

    /// Sends those that nothing stands before any more.
    pub(super) fn send_feedback(&mut self, index: u32) {
        loop {
            let socket = &mut self.sockets[index as usize];
            let sent = socket.tx.sent();
            let Some(feedback) = &mut socket.feedback else { return };
            if feedback.unsent.front().is_none_or(|(place, _)| *place > sent) {
                return;
            }
            let Some((place, body)) = feedback.unsent.pop_front() else { return };
            let wire = record_bytes(&body) + HEADERS;
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
                self.events.push_back(Event::Feedback(index, body));
            }
        }
    }
}

#[cfg(test)]
mod tests;
