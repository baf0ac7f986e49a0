//! What a client has to tell.

use netdoc::Fingerprint;
use netdoc::Nickname;
use onion::Duration;
use std::fmt;

/// A relay of a path, for people and programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its RSA identity.
    pub fingerprint: Fingerprint,
    /// Its name.
    pub nickname: Nickname,
}

/// What a leg of linked circuits has carried: messages of streams, most of them a cell of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegTraffic {
    /// Which leg of its set.
    pub leg: u8,
    /// Those that have come.
    pub received_messages: u64,
    /// Those that were sent.
    pub sent_messages: u64,
    /// Its round trip to the exit, once it was measured.
    pub rtt: Option<Duration>,
}

/// What a client has to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It knows the network: circuits can be built.
    Bootstrapped {
        /// Relays that it may use.
        relays: usize,
        /// Exits among them.
        exits: usize,
        /// Members of its sample of guards.
        guards: usize,
        /// When it must stop using what it knows, in Unix seconds.
        valid_until: u64,
        /// Time since its start.
        took: Duration,
    },
    /// A later consensus is used from now on.
    Updated {
        /// Relays that it may use.
        relays: usize,
        /// When it must stop using what it knows, in Unix seconds.
        valid_until: u64,
    },
    /// A circuit of a set stands; its exit is still to link it.
    LegBuilt {
        /// The set's number.
        circuit: u64,
        /// Which leg of it.
        leg: u8,
        /// First hop first.
        path: Vec<Hop>,
        /// Time since its first cell.
        took: Duration,
    },
    /// A circuit of a set is gone; the set goes on.
    LegLost {
        /// The set's number.
        circuit: u64,
        /// Which leg of it.
        leg: u8,
        /// First hop first.
        path: Vec<Hop>,
        /// Why.
        reason: String,
    },
    /// A circuit stands, or a set of them that are linked.
    CircuitBuilt {
        /// Its number.
        circuit: u64,
        /// First hop first; of a set, its first leg's.
        path: Vec<Hop>,
        /// How many circuits it is.
        legs: usize,
        /// Time since its first cell; of a set, since it was wanted.
        took: Duration,
        /// Nobody waited for it any longer; it is closed.
        is_late: bool,
    },
    /// A circuit is gone, or has not come to stand.
    CircuitClosed {
        /// Its number.
        circuit: u64,
        /// First hop first.
        path: Vec<Hop>,
        /// Whether it ever stood.
        was_built: bool,
        /// Why.
        reason: String,
    },
    /// A circuit's last hop has answered a question for the round trip.
    CircuitAnswered {
        /// Its number.
        circuit: u64,
        /// There and back.
        rtt: Duration,
    },
    /// A stream leads to its destination.
    StreamOpened {
        /// Its number.
        stream: u64,
        /// The circuit that carries it.
        circuit: u64,
        /// Name or address, and port.
        target: String,
        /// Time since the program asked for it.
        took: Duration,
    },
    /// A stream is over, or has not come to be; so is a question to the domain name system.
    StreamClosed {
        /// Its number.
        stream: u64,
        /// The circuit that has carried it, if any has.
        circuit: Option<u64>,
        /// Name or address, and port.
        target: String,
        /// Bytes from the program.
        sent_bytes: u64,
        /// Bytes to the program.
        received_bytes: u64,
        /// What its circuit's legs have carried until now, for all streams; none if it is one circuit.
        legs: Vec<LegTraffic>,
        /// Time since the program asked for it.
        took: Duration,
        /// How it ended.
        reason: String,
        /// It ended as it should.
        is_ok: bool,
    },
    /// A program's request is not carried out: it is malformed, not supported, or leads where no stream may.
    RequestRefused {
        /// Name or address, and port, if the request was understood that far.
        target: Option<String>,
        /// What is wrong with it.
        reason: String,
    },
    /// Something is wrong that may pass.
    Trouble(String),
    /// It can do no more, and says who is to blame: the machine, the configuration, a mistake of ours.
    Ended(String),
}

/// What stands in place of a destination: C tor's word, with its `SafeLogging`.
const SCRUBBED: &str = "[scrubbed]";

impl Event {
    /// Takes out where streams lead.
    pub(crate) fn scrub(&mut self) {
        match self {
            Self::StreamOpened { target, .. } | Self::StreamClosed { target, .. } => {
                SCRUBBED.clone_into(target);
            }
            Self::RequestRefused { target, .. } => *target = None,
            _ => {}
        }
    }
}

fn names(path: &[Hop]) -> String {
    let all: Vec<&str> = path.iter().map(|hop| hop.nickname.as_str()).collect();
    all.join(" > ")
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bootstrapped { relays, exits, guards, took, .. } => write!(
                f,
                "the network is known: {relays} relays, {exits} exits, {guards} sampled guards, \
                 after {} ms",
                took.as_millis()
            ),
            Self::Updated { relays, .. } => write!(f, "a later consensus: {relays} relays"),
            Self::LegBuilt { circuit, leg, path, took } => {
                let time_ms = took.as_millis();
                write!(f, "leg {leg} of circuit {circuit}: {} in {time_ms} ms", names(path))
            }
            Self::LegLost { circuit, leg, path, reason } => {
                write!(f, "leg {leg} of circuit {circuit} lost: {}: {reason}", names(path))
            }
            Self::CircuitBuilt { circuit, path, legs, took, is_late } => {
                let late = if *is_late { ", too late to be used" } else { "" };
                let linked =
                    if *legs > 1 { format!(", {legs} legs linked") } else { String::new() };
                let time_ms = took.as_millis();
                write!(f, "circuit {circuit} stands: {} in {time_ms} ms{linked}{late}", names(path))
            }
            Self::CircuitClosed { circuit, path, was_built, reason } => {
                let what = if *was_built { "closed" } else { "failed" };
                write!(f, "circuit {circuit} {what}: {}: {reason}", names(path))
            }
            Self::CircuitAnswered { circuit, rtt } => {
                write!(f, "circuit {circuit} answers in {} ms", rtt.as_millis())
            }
            Self::StreamOpened { stream, circuit, target, took } => {
                let time_ms = took.as_millis();
                write!(f, "stream {stream} to {target} by circuit {circuit} after {time_ms} ms")
            }
            Self::StreamClosed { stream, target, sent_bytes, received_bytes, reason, .. } => {
                write!(
                    f,
                    "stream {stream} to {target} over: {sent_bytes} bytes out, {received_bytes} \
                     bytes in: {reason}"
                )
            }
            Self::RequestRefused { target, reason } => {
                let target = target.as_deref().map(|it| format!(" to {it}")).unwrap_or_default();
                write!(f, "a SOCKS request{target} is refused: {reason}")
            }
            Self::Trouble(problem) => f.write_str(problem),
            Self::Ended(problem) => write!(f, "ended: {problem}"),
        }
    }
}
