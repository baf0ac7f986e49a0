//! What a router reports to its shell: events and counters.

use super::Violation;
use crate::identity::RsaId;
use crate::measure::target::{Accepted, Refusal};
use crate::time::Instant;

/// Something that a router reports. If the shell does not poll, the oldest events are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterEvent {
    /// A coordinator's order was accepted. A shell that stores it can pass it to
    /// `Router::remember_measurement` after a restart.
    MeasurementAccepted(Accepted),
    /// A coordinator or measurer was refused.
    MeasurementRefused(Refusal),
    /// A second of a measurement has ended.
    MeasuredSecond {
        /// The end of the second; the event may be later.
        ended: Instant,
        /// Measurement traffic returned, in bytes.
        measured_bytes: u64,
        /// Client traffic sent, in bytes.
        client_bytes: u64,
    },
    /// Peers occupied more memory than allowed: this many bytes of the oldest queued data were dropped.
    MemoryReclaimed {
        /// The number of bytes.
        bytes: u64,
    },
    /// Circuits, links and streams occupied all the memory that they may: circuits and idle links of the
    /// addresses that have most were closed, the longest idle first. Frequent evictions are not all reported;
    /// [`RouterTotals::evicted_circuits`] counts them.
    Evicted {
        /// Circuits destroyed.
        circuits: u64,
        /// Links without circuits closed.
        links: u64,
    },
    /// A link was closed because its peer violated the rules of hop-by-hop windows. Frequent ones are not all
    /// reported; [`RouterTotals::feedback_refused`] counts them.
    FeedbackRefused {
        /// The peer, if it has authenticated as a relay.
        peer: Option<RsaId>,
        /// The violation.
        violation: Violation,
    },
    /// A link was closed because its peer sent far more padding than padding-spec permits. Frequent ones are not
    /// all reported; [`RouterTotals::padding_refused`] counts them.
    PaddingRefused {
        /// The peer, if it has authenticated as a relay.
        peer: Option<RsaId>,
    },
    /// A circuit with a full queue was destroyed, and its next hop has not reported forwarded cells for three
    /// seconds.
    ///
    /// That hop may be honest and blocked by a hop behind it. Frequent ones are not all reported;
    /// [`RouterTotals::stalled_circuits`] counts them.
    CircuitStalled {
        /// The next hop, if it has authenticated as a relay.
        peer: Option<RsaId>,
    },
    /// A measurement has ended, with the reason if it ended early.
    MeasurementOver(Option<Refusal>),
}

/// Counters since the router started. Cells count 514 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterTotals {
    /// Measurement cells returned, in bytes.
    pub measured_bytes: u64,
    /// Clients' cells sent in both directions, in bytes.
    pub client_bytes: u64,
    /// Circuits opened.
    pub circuits: u64,
    /// Circuits among them with Counter Galois Onion at this relay.
    pub cgo_circuits: u64,
    /// Conflux sets created (proposal 329).
    pub conflux_sets: u64,
    /// Circuits in them.
    pub conflux_legs: u64,
    /// Switches from one leg to another, by clients and this relay.
    pub conflux_switches: u64,
    /// Messages retransmitted because their leg was lost.
    pub conflux_resent: u64,
    /// Streams opened and names resolved for clients.
    pub streams: u64,
    /// Links refused because of too many from one address.
    pub refused_links: u64,
    /// Circuits refused for that reason.
    pub refused_circuits: u64,
    /// Streams and lookups refused because their circuit requested too many.
    pub refused_streams: u64,
    /// Handshakes refused because the queue was full, or because they were queued for too long.
    pub refused_handshakes: u64,
    /// Cells that next hops have reported as forwarded: nonzero if hop-by-hop windows are in use.
    pub passed_on_cells: u64,
    /// Links closed because of a violation of the rules of hop-by-hop windows.
    pub feedback_refused: u64,
    /// Circuits destroyed with a full queue whose next hop reported no forwarded cells.
    pub stalled_circuits: u64,
    /// Links closed because of too much padding.
    pub padding_refused: u64,
    /// How often a link with cells had to wait for the rate limit.
    pub limited: u64,
    /// How often a link, or TLS handshakes, had to wait for the rate limit to be read.
    pub limited_reads: u64,
    /// Runs of the OOM handler.
    pub oom_runs: u64,
    /// Bytes of memory that it reclaimed.
    pub reclaimed_bytes: u64,
    /// Circuits evicted to make space for new ones.
    pub evicted_circuits: u64,
    /// Links without circuits that were evicted for that.
    pub evicted_links: u64,
}
