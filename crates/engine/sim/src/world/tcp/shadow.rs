//! The differences of TCP in Shadow 3.3 (`tcp.c`, `tcp_cong_reno.c`, `tcp_retransmit_tally.cc` there), as far
//! as they were found to matter:
//!
//! - A window counts packets, and separate writes are not merged: on links packets are shorter than a segment.
//!   It begins at the first missing byte, whatever has arrived after it.
//! - Everything that the window allows is sent to the line at once, whatever other sockets have there; it waits
//!   there behind earlier packets.
//! - The initial window is two packets, and ten after an RTO. It is not reset after a pause, and grows even if
//!   it is not used.
//! - The loss of the first missing byte is detected by three duplicate acknowledgements, and the next loss by
//!   three more, if they arrive. Each halves the window, and each later duplicate acknowledgement inflates it
//!   by a packet until new data is acknowledged (Reno's fast recovery). The loss of a retransmission is not
//!   detected: it takes an RTO.
//! - No round-trip time is ever measured (`tcp.c` clears the timestamp before it is echoed). So the RTO is one
//!   second at first and doubles after each, for the lifetime of the connection, up to two minutes; it returns
//!   to one second after three in a row.

use super::{Control, Flight, MSS, Sender};
use crate::rto::RTO_INITIAL_NS;

/// The average number of tor's bytes in a packet between relays: 990 to 1,227 by pcap.
const PACKET_OF_LINK: u32 = 1_200;

/// Elsewhere packets are whole segments.
const SEGMENT: u32 = 1_448;
const _: () = assert!(SEGMENT as u64 == MSS, "one segment size in both units");

const PACKETS_FIRST: u64 = 2;
const PACKETS_AFTER_RTO: u64 = 10;

/// Its packets are sent one by one; this number share their fate here.
pub(super) const FLIGHT_MAX: u64 = 4 * PACKET_OF_LINK as u64;

const RTO_MAX_NS: u64 = 120_000_000_000;

/// The number of duplicate acknowledgements that indicate a loss.
const DUPLICATES: u32 = 3;

/// After more consecutive RTOs than this, earlier state is forgotten.
const RTOS_FORGOTTEN: u32 = 2;

/// The additional state of a sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShadowTcp {
    timeout_ns: u64,
    packet_bytes: u32,
    /// Packets acknowledged since the last one with new data.
    duplicates: u16,
    /// Whether three duplicate acknowledgements have arrived since new data was acknowledged.
    is_recovering: bool,
}

impl ShadowTcp {
    pub(super) const NEW: Self = Self {
        timeout_ns: RTO_INITIAL_NS,
        packet_bytes: SEGMENT,
        duplicates: 0,
        is_recovering: false,
    };
}

impl Sender {
    /// Whether it is a link, whose records are written one by one.
    pub(crate) const fn carry_cells(&mut self) {
        self.shadow.packet_bytes = PACKET_OF_LINK;
        if self.is_shadows() {
            self.cwnd = PACKETS_FIRST * PACKET_OF_LINK as u64;
        }
    }

    pub(super) const fn is_shadows(&self) -> bool {
        matches!(self.control, Control::Shadow)
    }

    /// The unit of windows.
    pub(super) const fn packet_bytes(&self) -> u64 {
        if self.is_shadows() { self.shadow.packet_bytes as u64 } else { MSS }
    }

    pub(super) const fn first_window_of_shadow() -> u64 {
        PACKETS_FIRST * MSS
    }

    pub(super) const fn timeout_of_shadow(&self) -> u64 {
        self.shadow.timeout_ns
    }

    /// A flight is acknowledged; `is_news` if the acknowledgement is a new cumulative one. Otherwise each of
    /// its packets causes a duplicate acknowledgement.
    pub(super) fn count_duplicates(&mut self, number: u32, is_news: bool) {
        if is_news {
            self.shadow.duplicates = 0;
            return;
        }
        // Packets in flight at an RTO are retransmitted, and arrive nevertheless.
        let given_up = || {
            self.retransmits
                .iter()
                .flat_map(|retransmit| retransmit.iter())
                .find(|flight| flight.2 == number)
        };
        let flight = self.flights.iter().find(|flight| flight.number == number);
        let Some((start, bytes)) = flight
            .map(|flight| (flight.start, flight.bytes))
            .or_else(|| given_up().map(|given_up| (given_up.0, given_up.1)))
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
            (self.shadow.is_recovering, self.is_after_rto) = (true, false);
        }
    }

    /// Everything cumulatively acknowledged is no longer in flight, even if another copy was acknowledged.
    pub(super) fn forget_acknowledged(&mut self) {
        let (acked, mut gone) = (self.acked, 0);
        self.flights.retain(|flight| {
            let has_come = flight.is_retransmit && flight.start + u64::from(flight.bytes) <= acked;
            gone += if has_come { u64::from(flight.bytes) } else { 0 };
            !has_come
        });
        self.in_flight -= gone;
    }

    /// Whether the loss of a flight before an acknowledged one goes undetected: only that of the first missing
    /// byte is detected.
    pub(super) const fn overlooks(&self, flight: &Flight) -> bool {
        flight.is_retransmit
            || flight.start > self.acked
            || (self.shadow.duplicates as u32) < DUPLICATES
    }

    /// This number of bytes was newly cumulatively acknowledged: all of them let the window grow, including
    /// those that waited behind a gap. In slow start by their number up to the threshold, and beyond it by a
    /// packet per window.
    pub(super) fn handle_shadow_ack(&mut self, newly_acked: u64) {
        if core::mem::take(&mut self.shadow.is_recovering) {
            self.cwnd = self.threshold;
        }
        let mut rest = newly_acked;
        // Slow start ends at the threshold, even if an RTO had left a larger window.
        if self.cwnd < self.threshold || self.is_after_rto {
            let grown = self.cwnd.saturating_add(newly_acked);
            rest = grown.saturating_sub(self.threshold);
            self.cwnd = grown.min(self.threshold);
            self.is_after_rto &= grown < self.threshold;
        }
        while rest >= self.cwnd {
            rest -= self.cwnd;
            self.cwnd += self.packet_bytes();
        }
        self.cwnd += self.packet_bytes() * rest / self.cwnd;
        if self.timeouts > RTOS_FORGOTTEN {
            self.shadow.timeout_ns = RTO_INITIAL_NS;
        }
    }

    /// Everything in flight is retransmitted in order: the window ends a few packets after the first missing
    /// byte.
    pub(super) fn handle_rto_of_shadow(&mut self) {
        self.cwnd = PACKETS_AFTER_RTO * self.packet_bytes();
        if let Some(retransmits) = &mut self.retransmits {
            retransmits.make_contiguous().sort_unstable();
        }
        let shadow = &mut self.shadow;
        (shadow.duplicates, shadow.is_recovering) = (0, false);
        shadow.timeout_ns = (2 * shadow.timeout_ns).min(RTO_MAX_NS);
    }
}
