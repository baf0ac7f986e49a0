//! What TCP in Shadow 3.3 does otherwise (`tcp.c`, `tcp_cong_reno.c`, `tcp_retransmit_tally.cc` there), as far as it was found to matter beside it:
//!
//! - A window counts packets, and what was written one by one is not merged: on links they are shorter than a segment. It begins at the first byte that is missing, whatever has come after it.
//! - All that the window allows goes to the line at once, whatever other sockets have there: there it waits for what was sent before.
//! - It begins with two of them, and with ten after a time-out. It does not rest after a pause, and need not be used to grow.
//! - The loss of the first byte that is missing is noticed by three acknowledgements of what came after it, and then that of the next one by three more, if they come. Each costs half of the window, and each
//!   acknowledgement without news after it makes it longer by a packet, until there are news (Reno's fast recovery).
//!   That of what was sent again is not noticed: it takes a time-out.
//! - No round trip is ever measured (`tcp.c` clears the time stamp before it is to be echoed). So a time-out is a second long at first, twice as long after each, for as
//!   long as the connection lasts, up to two minutes; it is a second again after three in a row.

use super::{Control, Flight, MSS, SILENCE_FIRST_NS, Sender};

/// Bytes of tor's in a packet between relays, on average: 990 to 1,227 by pcap.
const PACKET_OF_LINK: u32 = 1_200;

/// Elsewhere packets are whole segments.
const SEGMENT: u32 = 1_448;
const _: () = assert!(SEGMENT as u64 == MSS, "the same, in what a packet is counted in");

const PACKETS_FIRST: u64 = 2;
const PACKETS_AFTER_SILENCE: u64 = 10;

/// Its packets are sent one by one; so few share their fate here.
pub(super) const FLIGHT_MAX: u64 = 4 * PACKET_OF_LINK as u64;

const SILENCE_MAX_NS: u64 = 120_000_000_000;

/// So many acknowledgements without news tell of a loss.
const DUPLICATES: u32 = 3;

/// After more time-outs in a row than these nothing is thought of before.
const SILENCES_FORGOTTEN: u32 = 2;

/// What a sender knows besides.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShadowTcp {
    timeout_ns: u64,
    packet_bytes: u32,
    /// Packets that were acknowledged since the last of them that brought news.
    duplicates: u16,
    /// Three of them have come, and no news since.
    is_recovering: bool,
}

impl ShadowTcp {
    pub(super) const NEW: Self = Self {
        timeout_ns: SILENCE_FIRST_NS,
        packet_bytes: SEGMENT,
        duplicates: 0,
        is_recovering: false,
    };
}

impl Sender {
    /// It is to carry cells, in records that are written one by one.
    pub(in crate::world) const fn carry_cells(&mut self) {
        self.shadow.packet_bytes = PACKET_OF_LINK;
        if self.is_shadows() {
            self.cwnd = PACKETS_FIRST * PACKET_OF_LINK as u64;
        }
    }

    pub(super) const fn is_shadows(&self) -> bool {
        matches!(self.control, Control::Shadow)
    }

    /// What windows are counted in.
    pub(super) const fn packet_bytes(&self) -> u64 {
        if self.is_shadows() { self.shadow.packet_bytes as u64 } else { MSS }
    }

    pub(super) const fn first_window_of_shadow() -> u64 {
        PACKETS_FIRST * MSS
    }

    pub(super) const fn timeout_of_shadow(&self) -> u64 {
        self.shadow.timeout_ns
    }

    /// A flight has come; `is_news` if all before it have, too, for the first time. If not, each of its packets is answered by an acknowledgement without news.
    pub(super) fn count_duplicates(&mut self, number: u32, is_news: bool) {
        if is_news {
            self.shadow.duplicates = 0;
            return;
        }
        // What was under way at a time-out is to be sent again, and comes nevertheless.
        let given_up =
            || self.retransmits.iter().flat_map(|it| it.iter()).find(|it| it.2 == number);
        let flight = self.flights.iter().find(|it| it.number == number);
        let Some((start, bytes)) =
            flight.map(|it| (it.start, it.bytes)).or_else(|| given_up().map(|it| (it.0, it.1)))
        else {
            return;
        };
        if start <= self.acked {
            return;
        }
        if self.shadow.is_recovering {
            self.cwnd += u64::from(bytes);
            return;
        }
        let packets = bytes.div_ceil(self.shadow.packet_bytes);
        let duplicates = u32::from(self.shadow.duplicates) + packets;
        self.shadow.duplicates = u16::try_from(duplicates).unwrap_or(u16::MAX);
        if duplicates >= DUPLICATES {
            self.reduce();
            self.cwnd = self.threshold + u64::from(duplicates) * self.packet_bytes();
            (self.shadow.is_recovering, self.is_after_silence) = (true, false);
        }
    }

    /// All that has come without a gap is under way no more, though what acknowledged it was for another copy of it.
    pub(super) fn forget_what_has_come(&mut self) {
        let (acked, mut gone) = (self.acked, 0);
        self.flights.retain(|it| {
            let has_come = it.is_retransmit && it.start + u64::from(it.bytes) <= acked;
            gone += if has_come { u64::from(it.bytes) } else { 0 };
            !has_come
        });
        self.in_flight -= gone;
    }

    /// Whether the loss of a flight, before one that has come, is not noticed: it is only of the first byte that is missing.
    pub(super) const fn overlooks(&self, flight: &Flight) -> bool {
        flight.is_retransmit
            || flight.start > self.acked
            || (self.shadow.duplicates as u32) < DUPLICATES
    }

    /// So many bytes more have come without a gap: all of them let the window grow, those that had waited behind a gap, too. In slow start by as much up to the threshold,
    /// and for the rest by a packet for each window.
    pub(super) fn hear_news_of_shadow(&mut self, news: u64) {
        if core::mem::take(&mut self.shadow.is_recovering) {
            self.cwnd = self.threshold;
        }
        let mut rest = news;
        // Slow start ends at the threshold, even if a time-out had left more than that.
        if self.cwnd < self.threshold || self.is_after_silence {
            let grown = self.cwnd.saturating_add(news);
            rest = grown.saturating_sub(self.threshold);
            self.cwnd = grown.min(self.threshold);
            self.is_after_silence &= grown < self.threshold;
        }
        while rest >= self.cwnd {
            rest -= self.cwnd;
            self.cwnd += self.packet_bytes();
        }
        self.cwnd += self.packet_bytes() * rest / self.cwnd;
        if self.silences > SILENCES_FORGOTTEN {
            self.shadow.timeout_ns = SILENCE_FIRST_NS;
        }
    }

    /// All that is under way is to be sent again, in its order: the window ends a few packets after the first byte that is missing.
    pub(super) fn handle_silence_of_shadow(&mut self) {
        self.cwnd = PACKETS_AFTER_SILENCE * self.packet_bytes();
        if let Some(retransmits) = &mut self.retransmits {
            retransmits.make_contiguous().sort_unstable();
        }
        let it = &mut self.shadow;
        (it.duplicates, it.is_recovering) = (0, false);
        it.timeout_ns = (2 * it.timeout_ns).min(SILENCE_MAX_NS);
    }
}
