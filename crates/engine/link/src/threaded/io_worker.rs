//! The node of an I/O thread: passes plaintext to and from the hub.

use super::messages::{
    CHUNK_LEN, Chunk, ChunkPool, FIRST_GRANT, InFlight, IoCommand, IoEvent, Serial,
};
use onion::link::TlsSession;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security, Unwritten};
use onion::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;

/// Time limit for writing the last bytes of a closed connection without TLS.
const LINGER: Duration = Duration::from_secs(30);

/// Limit on connections that do so at a time; each holds up to four chunks.
const LINGERING_MAX: usize = 256;

/// One connection.
struct Slot {
    serial: Serial,
    security: Security,
    to_send: VecDeque<Chunk>,
    /// Bytes of the first chunk that were sent.
    sent: usize,
    /// Data encrypted since the last report to the hub.
    room: InFlight,
    /// Bytes read from the socket since the last report to the hub, with TLS.
    read_bytes: usize,
    /// Bytes that may be read: of plaintext without TLS, from the socket with TLS.
    granted: usize,
    is_closing: bool,
}

/// The node of an I/O thread.
pub(super) struct IoWorker {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    by_serial: BTreeMap<Serial, u32>,
    accepted: u64,
    to_dial: VecDeque<Dial>,
    writable: VecDeque<ConnId>,
    readable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    /// Lingering connections with their deadlines.
    lingering: VecDeque<(Instant, Serial)>,
    /// Connections with room to report.
    with_report: Vec<Serial>,
    /// Connections with bytes read to report.
    with_read: Vec<Serial>,
    /// Bytes that TLS handshakes may read.
    handshakes_granted: usize,
    /// Bytes that they have read since the last report to the hub.
    handshakes_read: usize,
    events: VecDeque<IoEvent>,
    pool: ChunkPool,
}

impl Default for IoWorker {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_serial: BTreeMap::new(),
            accepted: 0,
            to_dial: VecDeque::new(),
            writable: VecDeque::new(),
            readable: VecDeque::new(),
            to_close: VecDeque::new(),
            lingering: VecDeque::new(),
            with_report: Vec::new(),
            with_read: Vec::new(),
            handshakes_granted: FIRST_GRANT,
            handshakes_read: 0,
            events: VecDeque::new(),
            pool: ChunkPool::default(),
        }
    }
}

impl IoWorker {
    /// Executes a command of the hub.
    pub(super) fn handle_command(&mut self, now: Instant, command: IoCommand) {
        match command {
            IoCommand::Dial { serial, to, security } => {
                let conn = self.add(serial, security);
                self.to_dial.push_back(Dial { conn, to, security });
            }
            IoCommand::Send(serial, chunk) => match self.slot(serial) {
                Some((conn, slot)) => {
                    slot.to_send.push_back(chunk);
                    self.writable.push_back(conn);
                }
                None => self.pool.give(chunk),
            },
            IoCommand::Grant(serial, bytes) => {
                if let Some((conn, slot)) = self.slot(serial) {
                    slot.granted += bytes;
                    self.readable.push_back(conn);
                }
            }
            IoCommand::GrantHandshakes(bytes) => self.handshakes_granted += bytes,
            IoCommand::Tls(_) | IoCommand::StopListening => {} // handled by the driver
            IoCommand::Close(serial) => {
                if let Some((conn, slot)) = self.slot(serial) {
                    slot.is_closing = true;
                    // The last data of a link gets one attempt; a destination gets all its bytes.
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

    /// Closes the oldest lingering connections beyond the limit.
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

    /// The next event for the hub. `socket` duplicates a connection's socket.
    pub(super) fn poll_event(
        &mut self,
        socket: impl FnOnce(ConnId) -> Option<OwnedFd>,
    ) -> Option<IoEvent> {
        while let Some(serial) = self.with_report.pop() {
            if let Some((_, slot)) = self.slot(serial) {
                let room = std::mem::take(&mut slot.room);
                return Some(IoEvent::Room(serial, room));
            }
        }
        let Some(mut event) = self.events.pop_front() else { return self.poll_read() };
        if let IoEvent::Connected { serial, socket: of_it, .. }
        | IoEvent::Accepted { serial, socket: of_it, .. } = &mut event
        {
            *of_it = self.by_serial.get(serial).and_then(|place| socket(ConnId(*place)));
        }
        Some(event)
    }

    /// The next report of bytes read: after all other events, since the hub must know the connection.
    fn poll_read(&mut self) -> Option<IoEvent> {
        while let Some(serial) = self.with_read.pop() {
            if let Some((_, slot)) = self.slot(serial) {
                return Some(IoEvent::Read(Some(serial), std::mem::take(&mut slot.read_bytes)));
            }
        }
        let bytes = std::mem::take(&mut self.handshakes_read);
        (bytes > 0).then_some(IoEvent::Read(None, bytes))
    }

    fn add(&mut self, serial: Serial, security: Security) -> ConnId {
        let slot = Slot {
            serial,
            security,
            to_send: VecDeque::new(),
            sent: 0,
            room: InFlight::default(),
            read_bytes: 0,
            granted: if security == Security::Tls { FIRST_GRANT } else { 0 },
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
        if slot.read_bytes > 0 {
            self.events.push_back(IoEvent::Read(Some(slot.serial), slot.read_bytes));
        }
        Some(slot)
    }
}

impl Node for IoWorker {
    fn handle_connected(&mut self, _: Instant, conn: ConnId, tls: &dyn TlsSession) {
        if let Some(slot) = self.of_conn(conn) {
            let serial = slot.serial;
            self.events.push_back(IoEvent::Connected { serial, tls: tls.detached(), socket: None });
        }
    }

    fn handle_plain_connected(&mut self, _: Instant, conn: ConnId) {
        if let Some(slot) = self.of_conn(conn) {
            let serial = slot.serial;
            self.events.push_back(IoEvent::Connected { serial, tls: None, socket: None });
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
        self.events.push_back(IoEvent::Accepted { serial, listener, tls, socket: None });
        Some(self.add(serial, Security::Tls))
    }

    fn handle_bytes(&mut self, _: Instant, conn: ConnId, mut plaintext: &[u8]) {
        let Some(slot) = self.slots.get_mut(conn.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        if slot.security == Security::Plain {
            slot.granted = slot.granted.saturating_sub(plaintext.len());
        }
        if slot.is_closing {
            return;
        }
        let serial = slot.serial;
        let mut wanted = plaintext.len();
        if let Some(IoEvent::Bytes(last, chunk)) = self.events.back_mut()
            && *last == serial
        {
            plaintext = &plaintext[chunk.append(plaintext)..];
            // The hub sends many small pieces.
            wanted = CHUNK_LEN;
        }
        while !plaintext.is_empty() {
            let mut chunk = self.pool.take_for(wanted);
            plaintext = &plaintext[chunk.append(plaintext)..];
            self.events.push_back(IoEvent::Bytes(serial, chunk));
        }
    }

    fn handle_closed(&mut self, _: Instant, conn: ConnId, cause: CloseCause) {
        if let Some(slot) = self.remove(conn) {
            self.events.push_back(IoEvent::Closed(slot.serial, cause));
        }
    }

    fn handle_unwritten(&mut self, _: Instant, conn: ConnId, unwritten: Unwritten) {
        if let Some(slot) = self.of_conn(conn) {
            let serial = slot.serial;
            self.events.push_back(IoEvent::Unwritten(serial, unwritten));
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
        if slot.room == InFlight::default() {
            self.with_report.push(slot.serial);
        }
        slot.room.bytes += len;
        if slot.sent == first.bytes().len() {
            slot.sent = 0;
            if let Some(chunk) = slot.to_send.pop_front() {
                slot.room.held_bytes += chunk.held_bytes();
                self.pool.give(chunk);
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
            // The connection may have been queued twice, or be gone.
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

    fn poll_read_limit(&mut self, _: Instant, conn: Option<ConnId>) -> usize {
        match conn {
            None => self.handshakes_granted,
            Some(conn) => self.of_conn(conn).map_or(0, |slot| slot.granted),
        }
    }

    fn handle_read(&mut self, _: Instant, conn: Option<ConnId>, bytes: usize) {
        let Some(conn) = conn else {
            self.handshakes_granted = self.handshakes_granted.saturating_sub(bytes);
            self.handshakes_read += bytes;
            return;
        };
        let Some(slot) = self.slots.get_mut(conn.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        if slot.read_bytes == 0 {
            self.with_read.push(slot.serial);
        }
        slot.granted = slot.granted.saturating_sub(bytes);
        slot.read_bytes += bytes;
    }

    fn poll_readable(&mut self) -> Option<ConnId> {
        self.readable.pop_front()
    }
}
