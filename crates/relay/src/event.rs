use crate::publish::Answer;
use crate::self_test::Reachability;
use netdoc::consensus::Flags;
use netdoc::write::date_time;
use onion::measure::target::TargetParams;
use onion::router::RouterEvent;
use std::fmt;
use std::net::SocketAddr;

/// What a running relay has to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum RelayEvent {
    /// An authority answered to our descriptor.
    Answered {
        /// Its directory address.
        authority: SocketAddr,
        /// What it said.
        answer: Answer,
    },
    /// An authority did not answer; it will be tried again.
    Unanswered {
        /// Its directory address.
        authority: SocketAddr,
        /// What was wrong.
        problem: String,
    },
    /// The relay goes by another consensus than before: by its parameters, and by the relays that it lists.
    Consensus {
        /// When it began to hold, in Unix seconds.
        valid_after_unix_s: u64,
        /// How many relays it lists.
        relays: usize,
    },
    /// The consensus lists the relay with other flags than before; `None` if it no longer does.
    Listed(Option<Flags>),
    /// The consensus, or its absence, says otherwise than before who may measure.
    TargetParams(TargetParams),
    /// No authority gives a consensus; told once, until one does again.
    NoConsensus(String),
    /// Whether others reach the relay: told when they do, and each time that a test of it fails.
    Reachability(Reachability),
    /// Padding has gone through the relay: it has shown that it carries something.
    BandwidthTested,
    /// Something has been renewed, as it has to be now and then.
    Renewed(Renewed),
    /// Something went wrong that the relay can do without; it will be tried again.
    Trouble(String),
    /// From the engine.
    Router(RouterEvent),
    /// Once a second: what has passed and waited since the relay began.
    Load(Load),
    /// After [`Relay::shut_down`](crate::Relay::shut_down): nothing is left that could be broken off.
    Drained,
    /// The relay has ended by itself: the operating system fails it, or there is a mistake of ours.
    Ended(String),
}

/// What a relay would break off if it ended now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Circuits that are open.
    pub circuits: usize,
    /// Streams that are open, or still to be written out.
    pub streams: usize,
}

impl Unfinished {
    /// Whether that is nothing.
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

/// What has passed through a relay, and how long it waited there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Bytes of clients' cells sent, either way.
    pub client_bytes: u64,
    /// Seconds that cells have waited in circuits' queues, all together.
    pub waited_cell_s: f64,
}

/// What a relay renews by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The onion key; the one before is accepted for a week more.
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
                write!(f, "goes by the consensus of {since} UTC, which lists {relays} relays")
            }
            Self::Listed(Some(flags)) => write!(f, "listed in the consensus: {flags}"),
            Self::Listed(None) => f.write_str("not listed in the consensus any more"),
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
                    "may be measured by {verdict}, {} times in {} s, for {} s at most, with {} ‰ of \
                     client traffic",
                    params.measurements_per_period,
                    params.period.as_secs(),
                    params.max_duration.as_secs(),
                    params.client_share.as_permille()
                )
            }
            Self::NoConsensus(problem) => write!(f, "no consensus: {problem}"),
            Self::Reachability(found) => found.fmt(f),
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
            Self::Router(RouterEvent::MemoryReclaimed { bytes }) => write!(
                f,
                "too much memory in use: dropped {bytes} B of what had waited longest for peers to read it"
            ),
            Self::Router(RouterEvent::Evicted { circuits, links }) => write!(
                f,
                "too many circuits and links for the memory of this relay: ended {circuits} circuits and {links} idle links of the neighbours that have most, the longest idle first"
            ),
            Self::Router(RouterEvent::FeedbackRefused { peer, violation }) => {
                match peer {
                    Some(peer) => write!(f, "link to relay {peer} closed: ")?,
                    None => f.write_str("link of a client closed: ")?,
                }
                write!(f, "hop-by-hop windows: {violation}")
            }
            Self::Router(RouterEvent::CircuitStalled { peer }) => {
                f.write_str("windows from hop to hop: a circuit ended with a full queue, since ")?;
                match peer {
                    Some(peer) => write!(f, "relay {peer}")?,
                    None => f.write_str("its client")?,
                }
                f.write_str(" does not say that it passes cells on")
            }
            Self::Router(RouterEvent::MeasurementOver(None)) => f.write_str("measurement over"),
            Self::Router(RouterEvent::MeasurementOver(Some(reason))) => {
                write!(f, "measurement broken off: {reason}")
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
