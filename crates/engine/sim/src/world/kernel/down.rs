//! Download: the queue, and the handling of arrivals.

use super::feedback::record_bytes;
use super::{Event, Kernel, RECORD};
use crate::world::message::{Mail, MailContent, Purpose, SocketKey};
use crate::world::socket::Phase;
use crate::world::tcp::{Control, MSS, Payload};
use onion::cell_model::Cell;

/// The unit of fractions of segments.
const WHOLE: f64 = 4_294_967_296.0;

/// Steps of the handshakes: TCP's three, TLS 1.3's, VERSIONS to NETINFO; all are small.
const STEPS_OF_LINK: u8 = 6;

/// Whether loss with this rate, in 2⁻³² per segment, hits a flight of this length. `drawn` is a random number
/// below 2³².
///
/// The segments of a busy connection are full, so the last segment of one flight contains the first bytes of
/// the next: fractions count.
fn is_hit(drawn: u64, loss: u32, bytes: u64) -> bool {
    // The union bound on the segments' losses: nearly exact.
    let bytes = bytes.max(MSS);
    if drawn * MSS >= u64::from(loss) * bytes {
        return false;
    }
    #[expect(clippy::cast_precision_loss, reason = "32 bits")]
    let (drawn, loss) = (drawn as f64 / WHOLE, f64::from(loss) / WHOLE);
    #[expect(clippy::cast_precision_loss, reason = "a flight is small")]
    let segments = bytes as f64 / MSS as f64;
    drawn < 1.0 - libm::pow(1.0 - loss, segments)
}
impl Kernel {
    /// Reads what this mail needs: its socket, its cells or the flight that it acknowledges, and the timers.
    pub(crate) fn read_ahead(&self, mail: &Mail) -> u64 {
        let Some(socket) = self.sockets.get(mail.socket.index as usize) else { return 0 };
        let content = match &mail.content {
            MailContent::Cells { cells, .. } => {
                cells.first().map_or(0, |cell| u64::from(cell.circ_id().get()))
            }
            MailContent::Ack { .. } => socket.tx.read_ahead(),
            _ => 0,
        };
        content ^ u64::from(socket.uses) ^ socket.watched_at ^ self.next_at()
    }

    /// Mail arrives at this host's download queue, in order.
    pub(crate) fn admit(&mut self, mut mail: Mail) {
        let at = mail.at;
        let (bytes, segments) = match &mail.content {
            MailContent::Cells { cells, .. } => {
                let bytes = cells.len() as u64 * 514 + RECORD;
                (bytes, bytes.div_ceil(MSS))
            }
            MailContent::Bytes { bytes, .. } | MailContent::Retransmit { bytes, .. } => {
                (u64::from(*bytes), u64::from(*bytes).div_ceil(MSS))
            }
            MailContent::Feedback { body, .. } => (record_bytes(body), 0),
            _ => (0, 0),
        };
        let wire = bytes + self.headers * segments.max(1);
        let takes_ns = wire * self.down_ps_per_byte / 1000;
        let mut is_lost = false;
        if segments > 0 {
            let socket = self.sockets.get(mail.socket.index as usize);
            let loss = socket.map_or(0, |socket| socket.loss);
            is_lost = loss > 0 && is_hit(self.rng.next() >> 32, loss, bytes);
            self.counts.lost_flights += u64::from(is_lost);
            // Mail lost in transit does not arrive at the queue.
            if !is_lost && self.overflows(at, mail.socket.index, takes_ns) {
                is_lost = true;
                self.counts.dropped_flights += 1;
            }
        }
        if !is_lost {
            self.down_free_at = self.down_free_at.max(at) + takes_ns;
        }
        let before = self.scratch.arriving.back().map_or(0, |last| last.at);
        mail.at = before.max(self.down_free_at).max(at);
        mail.is_lost = is_lost;
        self.scratch.arriving.push_back(mail);
    }

    /// Whether the queue has no space for this arrival. A flight's segments arrive at once; on a real path they
    /// would arrive one by one.
    ///
    /// So if there is space for a part of a flight, the whole flight is accepted with the probability of one of
    /// its segments. And the space that becomes free while a connection with a dropped flight is about to send
    /// more is not for others: a queue that one connection keeps full is full for low-rate connections, too.
    fn overflows(&mut self, at: u64, socket: u32, takes_ns: u64) -> bool {
        let waits_ns = self.down_free_at.saturating_sub(at);
        if self.control == Control::Shadow {
            return self.codel.drops(at + waits_ns, waits_ns);
        }
        if waits_ns == 0 {
            return false;
        }
        let (until, filled_by) = self.full;
        if at < until && socket != filled_by {
            return true;
        }
        let room_ns = self.queue_ns.saturating_sub(waits_ns);
        let is_full = takes_ns > room_ns && self.rng.below(takes_ns) >= room_ns;
        if is_full {
            self.full = (at + 2 * takes_ns, socket);
        }
        is_full
    }

    pub(crate) fn receive(&mut self, mail: Mail) {
        let is_lost = mail.is_lost;
        if let MailContent::Open(open) = mail.content {
            let (back, purpose) = *open;
            let index = self.new_socket(mail.from, purpose);
            self.sockets[index as usize].peer = back;
            let back = self.key(index);
            self.post_small(index, MailContent::Step { back, step: 1 });
            if purpose != Purpose::Link {
                self.open(index, false);
            }
            return;
        }
        let index = mail.socket.index;
        let is_there = self
            .sockets
            .get(index as usize)
            .is_some_and(|socket| socket.uses == mail.socket.uses && socket.phase != Phase::Free);
        if !is_there {
            return;
        }
        match mail.content {
            MailContent::Open(_) => {}
            MailContent::Step { back, step } => self.handle_step(index, back, step),
            MailContent::Cells { number, start, cells } => {
                self.handle_flight(index, number, start, Payload::Cells(cells), is_lost);
            }
            MailContent::Bytes { number, start, bytes } => {
                self.handle_flight(index, number, start, Payload::Bytes(bytes), is_lost);
            }
            MailContent::Retransmit { number, start, .. } => {
                if is_lost {
                    return;
                }
                match self.sockets[index as usize].rx.find(start) {
                    Some(payload) => self.handle_flight(index, number, start, payload, false),
                    None => self.acknowledge(index, number),
                }
            }
            MailContent::Ack { number, next, window_end } => {
                let now = self.now;
                let socket = &mut self.sockets[index as usize];
                socket.tx.handle_ack(now, number, next, window_end);
                self.wake_writer(index);
                self.send(index);
                if self.has_notsent_lowat {
                    // The acknowledgement may have sent the rest (`tcp_check_space` follows `tcp_data_snd_check`).
                    self.wake_writer(index);
                }
                self.watch(index);
                self.end_if_done(index);
            }
            MailContent::Feedback { place, body } => self.receive_feedback(index, place, body),
            MailContent::Window { window_end } => {
                self.sockets[index as usize].tx.handle_window(window_end);
                self.send(index);
            }
            MailContent::Close { end } => {
                self.sockets[index as usize].rx.end = end;
                self.handle_end(index);
            }
        }
    }

    fn handle_step(&mut self, index: u32, back: SocketKey, step: u8) {
        let socket = &mut self.sockets[index as usize];
        socket.peer = back;
        let is_link = socket.is_link();
        if socket.phase == Phase::Closing {
            socket.phase = Phase::Open;
            self.close(index);
            return;
        }
        let last = if is_link { STEPS_OF_LINK } else { 1 };
        if step < last {
            let back = self.key(index);
            self.post_small(index, MailContent::Step { back, step: step + 1 });
        }
        // The dialler has steps 1, 3, 5.
        if step == last || step + 1 == last && is_link {
            self.open(index, step % 2 == 1);
        }
    }

    fn open(&mut self, index: u32, has_dialled: bool) {
        let socket = &mut self.sockets[index as usize];
        socket.phase = Phase::Open;
        // A connection that asked for its establishment is notified.
        socket.wants_room = false;
        let event = if has_dialled { Event::Opened(index) } else { Event::Accepted(index) };
        self.scratch.events.push_back(event);
    }

    fn handle_flight(
        &mut self,
        index: u32,
        number: u32,
        start: u64,
        payload: Payload,
        is_lost: bool,
    ) {
        let socket = &mut self.sockets[index as usize];
        if is_lost {
            socket.rx.lose(start, payload);
            return;
        }
        let (events, counts) = (&mut self.scratch.events, &mut self.counts);
        let is_open = socket.phase == Phase::Open;
        let is_link = socket.is_link();
        socket.rx.receive(start, payload, |payload| {
            if let Payload::Cells(cells) = payload
                && is_open
            {
                counts.cells += cells.len() as u64;
                events.push_back(Event::Cells(index, cells));
            }
        });
        if is_link || !is_open {
            socket.rx.read = socket.rx.received();
            self.deliver_feedback(index);
        } else {
            self.scratch.events.push_back(Event::Bytes(index));
        }
        self.acknowledge(index, number);
        self.handle_end(index);
    }

    fn acknowledge(&mut self, index: u32, number: u32) {
        let ack = self.sockets[index as usize].rx.ack(number);
        self.post_small(index, ack);
    }

    fn handle_end(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        if socket.rx.is_over() {
            if matches!(socket.phase, Phase::Open) {
                // The application may still read remaining data; the number stays until it was notified.
                self.scratch.events.push_back(Event::Closed(index));
            } else {
                self.release(index);
            }
        }
    }
}
