//! The node of a thread that only carries: plaintext to the hub, and from it.

use super::messages::{CHUNK_LEN, Chunk, Errand, Event, Load, Serial, Spare};
use onion::link::TlsSession;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security, Unwritten};
use onion::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;

/// How long a connection without TLS that is to be closed may take to get rid of its last bytes.
const LINGER: Duration = Duration::from_secs(30);

/// Connections that do so at a time; each holds up to four chunks.
const LINGERING_MAX: usize = 256;

/// One connection.
struct Slot {
    serial: Serial,
    security: Security,
    to_send: VecDeque<Chunk>,
    /// Bytes of the first chunk that are gone.
    sent: usize,
    /// What was encrypted since the hub was told.
    room: Load,
    /// Bytes that may be read, without TLS.
    granted: usize,
    is_closing: bool,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Porter {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    by_serial: BTreeMap<Serial, u32>,
    accepted: u64,
    to_dial: VecDeque<Dial>,
    writable: VecDeque<ConnId>,
    readable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    /// Those that linger, and until when.
    lingering: VecDeque<(Instant, Serial)>,
    /// Connections with room to tell of.
    with_room: Vec<Serial>,
    events: VecDeque<Event>,
    spare: Spare,
}

impl Porter {
    /// Does as the hub says.
    pub(super) fn handle_errand(&mut self, now: Instant, errand: Errand) {
        match errand {
            Errand::Dial { serial, to, security } => {
                let conn = self.add(serial, security);
                self.to_dial.push_back(Dial { conn, to, security });
            }
            Errand::Send(serial, chunk) => match self.slot(serial) {
                Some((conn, slot)) => {
                    slot.to_send.push_back(chunk);
                    self.writable.push_back(conn);
                }
                None => self.spare.give(chunk),
            },
            Errand::Grant(serial, bytes) => {
                if let Some((conn, slot)) = self.slot(serial) {
                    slot.granted += bytes;
                    self.readable.push_back(conn);
                }
            }
            Errand::Tls(_) | Errand::StopListening => {} // the driver's business
            Errand::Close(serial) => {
                if let Some((conn, slot)) = self.slot(serial) {
                    slot.is_closing = true;
                    // What is to be said on a link gets one attempt; a destination gets all its bytes.
                    if slot.to_send.is_empty() || slot.security == Security::Tls {
                        self.to_close.push_back(conn);
                    } else {
                        self.lingering.push_back((now + LINGER, serial));
                        self.bound_lingering();
                    }
                }
            }
        }
    }

    /// Whoever lets more connections linger is waited for no longer.
    fn bound_lingering(&mut self) {
        if self.lingering.len() <= LINGERING_MAX {
            return;
        }
        let known = &self.by_serial;
        self.lingering.retain(|(_, serial)| known.contains_key(serial));
        while self.lingering.len() > LINGERING_MAX
            && let Some((_, first)) = self.lingering.pop_front()
        {
            self.to_close.extend(self.by_serial.get(&first).copied().map(ConnId));
        }
    }

    /// The next thing to tell the hub. `socket` duplicates a connection's socket.
    pub(super) fn poll_event(
        &mut self,
        socket: impl FnOnce(ConnId) -> Option<OwnedFd>,
    ) -> Option<Event> {
        while let Some(serial) = self.with_room.pop() {
            if let Some((_, slot)) = self.slot(serial) {
                let room = std::mem::take(&mut slot.room);
                return Some(Event::Room(serial, room));
            }
        }
        let mut event = self.events.pop_front()?;
        if let Event::Connected { serial, socket: of_it, .. }
        | Event::Accepted { serial, socket: of_it, .. } = &mut event
        {
            *of_it = self.by_serial.get(serial).and_then(|place| socket(ConnId(*place)));
        }
        Some(event)
    }

    fn add(&mut self, serial: Serial, security: Security) -> ConnId {
        let slot = Slot {
            serial,
            security,
            to_send: VecDeque::new(),
            sent: 0,
            room: Load::default(),
            granted: 0,
            is_closing: false,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.slots[place as usize] = Some(slot);
        self.by_serial.insert(serial, place);
        ConnId(place)
    }

    fn slot(&mut self, serial: Serial) -> Option<(ConnId, &mut Slot)> {
        let place = *self.by_serial.get(&serial)?;
        Some((ConnId(place), self.slots.get_mut(place as usize)?.as_mut()?))
    }

    fn of_conn(&mut self, conn: ConnId) -> Option<&mut Slot> {
        self.slots.get_mut(conn.0 as usize)?.as_mut()
    }

    fn remove(&mut self, conn: ConnId) -> Option<Slot> {
        let slot = self.slots.get_mut(conn.0 as usize)?.take()?;
        self.by_serial.remove(&slot.serial);
        self.free.push(conn.0);
        Some(slot)
    }
}

impl Node for Porter {
    fn handle_connected(&mut self, _: Instant, conn: ConnId, tls: &dyn TlsSession) {
        if let Some(slot) = self.of_conn(conn) {
            let serial = slot.serial;
            self.events.push_back(Event::Connected { serial, tls: tls.detached(), socket: None });
        }
    }

    fn handle_plain_connected(&mut self, _: Instant, conn: ConnId) {
        if let Some(slot) = self.of_conn(conn) {
            let serial = slot.serial;
            self.events.push_back(Event::Connected { serial, tls: None, socket: None });
        }
    }

    fn handle_accepted(
        &mut self,
        _: Instant,
        listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        let tls = tls.detached()?;
        let serial = Serial(2 * self.accepted + 1);
        self.accepted += 1;
        self.events.push_back(Event::Accepted { serial, listener, tls, socket: None });
        Some(self.add(serial, Security::Tls))
    }

    fn handle_bytes(&mut self, _: Instant, conn: ConnId, mut plaintext: &[u8]) {
        let Some(slot) = self.slots.get_mut(conn.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        slot.granted = slot.granted.saturating_sub(plaintext.len());
        if slot.is_closing {
            return;
        }
        let serial = slot.serial;
        let mut wanted = plaintext.len();
        if let Some(Event::Bytes(last, chunk)) = self.events.back_mut()
            && *last == serial
        {
            plaintext = &plaintext[chunk.append(plaintext)..];
            // Much comes on it, in small pieces.
            wanted = CHUNK_LEN;
        }
        while !plaintext.is_empty() {
            let mut chunk = self.spare.take_for(wanted);
            plaintext = &plaintext[chunk.append(plaintext)..];
            self.events.push_back(Event::Bytes(serial, chunk));
        }
    }

    fn handle_closed(&mut self, _: Instant, conn: ConnId, cause: CloseCause) {
        if let Some(slot) = self.remove(conn) {
            self.events.push_back(Event::Closed(slot.serial, cause));
        }
    }

    fn handle_unwritten(&mut self, _: Instant, conn: ConnId, unwritten: Unwritten) {
        if let Some(slot) = self.of_conn(conn) {
            let serial = slot.serial;
            self.events.push_back(Event::Unwritten(serial, unwritten));
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((until, serial)) = self.lingering.front().copied()
            && until <= now
        {
            self.lingering.pop_front();
            if let Some((conn, _)) = self.slot(serial) {
                self.to_close.push_back(conn);
            }
        }
    }

    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.writable.pop_front()
    }

    fn poll_transmit(&mut self, _: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(slot) = self.slots.get_mut(conn.0 as usize).and_then(Option::as_mut) else {
            return 0;
        };
        let Some(first) = slot.to_send.front() else { return 0 };
        let rest = &first.bytes()[slot.sent..];
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        slot.sent += len;
        if slot.room == Load::default() {
            self.with_room.push(slot.serial);
        }
        slot.room.bytes += len;
        if slot.sent == first.bytes().len() {
            slot.sent = 0;
            if let Some(chunk) = slot.to_send.pop_front() {
                slot.room.held_bytes += chunk.held_bytes();
                self.spare.give(chunk);
            }
            if slot.is_closing && slot.to_send.is_empty() && slot.security == Security::Plain {
                self.to_close.push_back(conn);
            }
        }
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.to_close.pop_front()?;
            // It may have been named twice, or be gone since.
            if self.of_conn(conn).is_some_and(|slot| slot.is_closing) {
                self.remove(conn);
                return Some(conn);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lingering.front().map(|(until, _)| *until)
    }

    fn receive_limit(&self, conn: ConnId) -> usize {
        let slot = self.slots.get(conn.0 as usize).and_then(Option::as_ref);
        match slot {
            Some(slot) if slot.security == Security::Plain => slot.granted,
            _ => usize::MAX,
        }
    }

    fn poll_readable(&mut self) -> Option<ConnId> {
        self.readable.pop_front()
    }
}
