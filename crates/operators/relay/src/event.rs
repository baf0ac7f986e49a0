use crate::publish::Answer;
use crate::self_test::Reachability;
use link::ClockJump;
use netdoc::consensus::Flags;
use netdoc::write::date_time;
use onion::measure::target::TargetParams;
use onion::router::{RouterEvent, Violation};
use std::fmt;
use std::net::SocketAddr;

/// An event of a running relay.
#[derive(Clone, Debug, PartialEq)]
pub enum RelayEvent {
    /// An authority answered a published descriptor.
    Answered {
        /// Its directory address.
        authority: SocketAddr,
        /// Its answer.
        answer: Answer,
    },
    /// An authority did not answer; the relay tries again.
    Unanswered {
        /// Its directory address.
        authority: SocketAddr,
        /// The reason.
        problem: String,
    },
    /// The relay uses another consensus: its parameters, and its list of relays.
    Consensus {
        /// When it became valid, in Unix seconds.
        valid_after_unix_s: u64,
        /// The number of listed relays.
        relays: usize,
    },
    /// The relay's flags in the consensus have changed; `None` if it is no longer listed.
    Listed(Option<Flags>),
    /// The parameters of measurements have changed, because the consensus has.
    TargetParams(TargetParams),
    /// No authority has a usable consensus. Reported once, until one has.
    NoConsensus(String),
    /// Reachability: reported on success, and after each failed test.
    Reachability(Reachability),
    /// The calendar clock was set. The relay makes a new descriptor.
    ClockJumped(ClockJump),
    /// Padding has passed through the relay, as a bandwidth test.
    BandwidthTested,
    /// A key or certificates were renewed.
    Renewed(Renewed),
    /// A problem that does not stop the relay; it tries again.
    Trouble(String),
    /// An event of the engine.
    Router(RouterEvent),
    /// The load since start, once a second.
    Load(Load),
    /// After [`Relay::shut_down`](crate::Relay::shut_down): no circuits or streams are left.
    Drained,
    /// The relay has failed: an operating system call failed, or there is a bug.
    Ended(String),
}

/// What would be aborted if the relay ended now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Open circuits.
    pub circuits: usize,
    /// Streams that are open, or have data to be written.
    pub streams: usize,
}

impl Unfinished {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Self { circuits, streams } = *self;
        let (of_circuits, of_streams) = (plural(circuits), plural(streams));
        write!(f, "{circuits} circuit{of_circuits} and {streams} stream{of_streams}")
    }
}

/// Traffic of a relay, and queueing delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Bytes of clients' cells sent, in both directions.
    pub client_bytes: u64,
    /// Sum of the seconds that cells have waited in circuit queues.
    pub waited_cell_s: f64,
}

/// What a relay renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The onion key; the previous one is accepted for another week.
    OnionKey,
    /// The signing key, and all certificates.
    Certificates,
}

impl fmt::Display for Renewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnionKey => "onion key",
            Self::Certificates => "certificates",
        })
    }
}

impl fmt::Display for RelayEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { authority, answer } => write!(f, "authority {authority}: {answer}"),
            Self::Unanswered { authority, problem } => {
                write!(f, "authority {authority}: {problem}")
            }
            Self::Consensus { valid_after_unix_s, relays } => {
                let since = date_time(*valid_after_unix_s);
                write!(f, "uses the consensus of {since} UTC, which lists {relays} relays")
            }
            Self::Listed(Some(flags)) => write!(f, "listed in the consensus: {flags}"),
            Self::Listed(None) => f.write_str("no longer listed in the consensus"),
            Self::TargetParams(params) => {
                let verdict = match (params.is_allowed, params.coordinators.len()) {
                    (false, _) => return f.write_str("may not be measured"),
                    (true, 0) => {
                        return f.write_str("may not be measured: no coordinator is allowed");
                    }
                    (true, 1) => "one coordinator",
                    (true, _) => "several coordinators",
                };
                write!(
                    f,
                    "may be measured by {verdict}, {} times in {} s, for {} s at most, with {} % of \
                     client traffic",
                    params.measurements_per_period,
                    params.period.as_secs(),
                    params.max_duration.as_secs(),
                    f64::from(params.client_share.as_permille()) / 10.0
                )
            }
            Self::NoConsensus(problem) => write!(f, "no consensus: {problem}"),
            Self::Reachability(found) => found.fmt(f),
            Self::ClockJumped(jump) => write!(f, "{jump}: a new descriptor follows"),
            Self::BandwidthTested => {
                f.write_str("bandwidth tested: padding has gone through circuits of other relays")
            }
            Self::Renewed(what) => write!(f, "renewed: {what}"),
            Self::Trouble(problem) => f.write_str(problem),
            Self::Router(RouterEvent::MeasurementAccepted(_)) => {
                f.write_str("measurement accepted")
            }
            Self::Router(RouterEvent::MeasurementRefused(refusal)) => {
                write!(f, "measurement refused: {refusal}")
            }
            Self::Router(RouterEvent::MeasuredSecond { measured_bytes, client_bytes, .. }) => {
                write!(
                    f,
                    "measured second: {measured_bytes} B sent back, {client_bytes} B for clients"
                )
            }
            Self::Router(RouterEvent::MemoryReclaimed { bytes }) => {
                write!(f, "out of memory: dropped {bytes} B from the oldest queues")
            }
            Self::Router(RouterEvent::Evicted { circuits, links }) => write!(
                f,
                "too many circuits and links for the memory of this relay: closed {circuits} circuits and {links} links of the neighbours with the most, those idle for longest first"
            ),
            Self::Router(RouterEvent::FeedbackRefused { peer, violation }) => {
                match peer {
                    Some(peer) => write!(f, "link to relay {peer} closed: ")?,
                    None => f.write_str("link of a client closed: ")?,
                }
                write!(f, "hop-by-hop windows: {violation}")
            }
            Self::Router(RouterEvent::PaddingRefused { peer }) => {
                match peer {
                    Some(peer) => write!(f, "link to relay {peer} closed: ")?,
                    None => f.write_str("link of a client closed: ")?,
                }
                Violation::ExcessPadding.fmt(f)
            }
            Self::Router(RouterEvent::CircuitStalled { peer }) => {
                f.write_str("hop-by-hop windows: a circuit ended with a full queue, because ")?;
                match peer {
                    Some(peer) => write!(f, "relay {peer}")?,
                    None => f.write_str("its client")?,
                }
                f.write_str(" does not acknowledge cells")
            }
            Self::Router(RouterEvent::MeasurementOver(None)) => f.write_str("measurement over"),
            Self::Router(RouterEvent::MeasurementOver(Some(reason))) => {
                write!(f, "measurement aborted: {reason}")
            }
            Self::Load(load) => write!(
                f,
                "{} B for clients so far, {:.3} cell seconds waited",
                load.client_bytes, load.waited_cell_s
            ),
            Self::Drained => f.write_str("no circuit is left"),
            Self::Ended(reason) => write!(f, "the relay has ended: {reason}"),
        }
    }
}
