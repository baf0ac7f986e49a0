use crate::identity::RsaId;
use crate::measure::target::Accepted;
use crate::time::Instant;
use alloc::string::String;

/// What a router has to tell. A shell that does not ask misses the oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterEvent {
    /// A coordinator's order was accepted. A shell that keeps it can give it back to
    /// [`Router::remember_measurement`](super::Router::remember_measurement) when the relay starts again.
    MeasurementAccepted(Accepted),
    /// A coordinator or measurer was refused, with this reason.
    Refused(String),
    /// A second of a measurement is over.
    MeasuredSecond {
        /// When it was over; however late that is told.
        ended: Instant,
        /// Measurement traffic that was sent back, in bytes.
        measured_bytes: u64,
        /// Client traffic that really was sent, in bytes.
        client_bytes: u64,
    },
    /// Peers had it hold more than it may: so many bytes of what had waited longest are dropped.
    Shed {
        /// How many.
        bytes: u64,
    },
    /// Circuits, links and streams filled the memory that they may take: circuits and idle links of the neighbours that
    /// have most were ended, the longest idle first. Frequent evictions are not all reported; [`RouterTotals::evicted_circuits`] counts
    /// them.
    Evicted {
        /// Circuits that were destroyed.
        circuits: u64,
        /// Links without circuits that were closed.
        links: u64,
    },
    /// A link was closed, since the other end breaks the rules of windows from hop to hop. Not each is told, where there are many:
    /// [`RouterTotals::feedback_refused`] counts them.
    FeedbackRefused {
        /// The relay there, if it has proved to be one.
        peer: Option<RsaId>,
        /// What it does.
        problem: &'static str,
    },
    /// A circuit was destroyed with a full queue, since the next hop had not said for three seconds that it passes its cells on.
    ///
    /// That hop may be honest, and wait for another one behind it. Not each is told, where there are many: [`RouterTotals::stalled_circuits`]
    /// counts them.
    CircuitStalled {
        /// The relay there, if it has proved to be one.
        peer: Option<RsaId>,
    },
    /// A measurement is over; the reason if before its time.
    MeasurementOver(Option<String>),
}

/// What has passed through a router since it began: cells of 514 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterTotals {
    /// Bytes of measurement cells sent back.
    pub measured_bytes: u64,
    /// Bytes of clients' cells sent, either way.
    pub client_bytes: u64,
    /// Circuits opened.
    pub circuits: u64,
    /// Of them, those with Counter Galois Onion for our layer.
    pub cgo_circuits: u64,
    /// Sets of circuits that were linked here (proposal 329).
    pub conflux_sets: u64,
    /// Circuits in them.
    pub conflux_legs: u64,
    /// Times that clients or we went over from one leg to another.
    pub conflux_switches: u64,
    /// Messages that were sent again, since the leg was lost that had them.
    pub conflux_resent: u64,
    /// Streams opened, and names looked up, for clients.
    pub streams: u64,
    /// Links that were refused, since too many come from one address.
    pub refused_links: u64,
    /// Circuits that were refused for that reason.
    pub refused_circuits: u64,
    /// Streams and lookups that were refused, since their circuit asked for too many.
    pub refused_streams: u64,
    /// Handshakes that were refused, since too many waited, or for too long.
    pub refused_handshakes: u64,
    /// Cells that next hops have said to have passed on: windows from hop to hop are in use.
    pub passed_on_cells: u64,
    /// Links that were closed, since the other end broke the rules of windows from hop to hop.
    pub feedback_refused: u64,
    /// Circuits that were destroyed with a full queue while the next hop did not say that it passes cells on.
    pub stalled_circuits: u64,
    /// Times that a link had to wait for the rate limit.
    pub limited: u64,
    /// Times that memory was looked through, since there was too much in it.
    pub sheds: u64,
    /// Bytes of memory that were dropped then.
    pub shed_bytes: u64,
    /// Circuits that were ended so that others could begin.
    pub evicted_circuits: u64,
    /// Links without circuits that were closed for that.
    pub evicted_links: u64,
}
