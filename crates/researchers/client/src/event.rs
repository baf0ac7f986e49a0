//! Events of a client.

use netdoc::Nickname;
use netdoc::RsaId;
use onion::Duration;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;

/// A relay of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Hop {
    /// Its RSA identity.
    #[schemars(with = "String")]
    pub fingerprint: RsaId,
    /// Its name.
    #[schemars(with = "String")]
    pub nickname: Nickname,
}

/// Stream messages that a leg of linked circuits has transferred, most of them a cell of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LegTraffic {
    /// The leg's number in its set.
    pub leg: u8,
    /// Messages received.
    pub received_messages: u64,
    /// Messages sent.
    pub sent_messages: u64,
    /// Its RTT to the exit, once measured.
    #[serde(rename = "rtt_ms", serialize_with = "optional_ms")]
    #[schemars(with = "Option<f64>")]
    pub rtt: Option<Duration>,
}

/// An event of a client. As JSON, it has its name as `type`, and times in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The network is known: circuits can be built.
    Bootstrapped {
        /// Usable relays.
        relays: usize,
        /// Exits among them.
        exits: usize,
        /// Members of the guard sample.
        guards: usize,
        /// When the consensus expires, in Unix seconds.
        #[serde(rename = "valid_until_unix_s")]
        valid_until: u64,
        /// Time since start.
        #[serde(rename = "took_ms", serialize_with = "ms")]
        #[schemars(with = "f64")]
        took: Duration,
    },
    /// A later consensus is in use.
    Updated {
        /// Usable relays.
        relays: usize,
        /// When the consensus expires, in Unix seconds.
        #[serde(rename = "valid_until_unix_s")]
        valid_until: u64,
    },
    /// A leg of a set is open, but not linked by its exit yet.
    LegBuilt {
        /// The set's number.
        circuit: u64,
        /// The leg's number.
        leg: u8,
        /// First hop first.
        path: Vec<Hop>,
        /// Time since its first cell.
        #[serde(rename = "took_ms", serialize_with = "ms")]
        #[schemars(with = "f64")]
        took: Duration,
    },
    /// A leg of a set is closed; the set stays open.
    LegLost {
        /// The set's number.
        circuit: u64,
        /// The leg's number.
        leg: u8,
        /// First hop first.
        path: Vec<Hop>,
        /// The reason.
        reason: String,
    },
    /// A circuit or a set of linked circuits is open.
    CircuitBuilt {
        /// Its number.
        circuit: u64,
        /// The path, first hop first; for a set, that of its first leg.
        path: Vec<Hop>,
        /// The number of legs; 1 for a single circuit.
        legs: usize,
        /// Time since its first cell; for a set, since it was requested.
        #[serde(rename = "took_ms", serialize_with = "ms")]
        #[schemars(with = "f64")]
        took: Duration,
        /// It was built after its timeout and is closed.
        #[serde(rename = "late")]
        is_late: bool,
    },
    /// A circuit is closed, or could not be built.
    CircuitClosed {
        /// Its number.
        circuit: u64,
        /// First hop first.
        path: Vec<Hop>,
        /// Whether it was ever open.
        was_built: bool,
        /// The reason.
        reason: String,
    },
    /// A latency probe of a circuit was answered.
    CircuitAnswered {
        /// Its number.
        circuit: u64,
        /// The RTT.
        #[serde(rename = "rtt_ms", serialize_with = "ms")]
        #[schemars(with = "f64")]
        rtt: Duration,
    },
    /// A stream is open.
    StreamOpened {
        /// Its number.
        stream: u64,
        /// Its circuit.
        circuit: u64,
        /// Destination host and port.
        target: String,
        /// Time since the program's request.
        #[serde(rename = "took_ms", serialize_with = "ms")]
        #[schemars(with = "f64")]
        took: Duration,
    },
    /// A stream or a DNS query has ended or failed.
    StreamClosed {
        /// Its number.
        stream: u64,
        /// Its circuit, if it had one.
        circuit: Option<u64>,
        /// Destination host and port.
        target: String,
        /// Bytes from the program.
        sent_bytes: u64,
        /// Bytes to the program.
        received_bytes: u64,
        /// Traffic of the legs of its circuit so far, over all streams; empty for a single circuit.
        legs: Vec<LegTraffic>,
        /// Time since the program's request.
        #[serde(rename = "took_ms", serialize_with = "ms")]
        #[schemars(with = "f64")]
        took: Duration,
        /// The outcome.
        reason: String,
        /// Whether it ended as requested.
        #[serde(rename = "ok")]
        is_ok: bool,
    },
    /// A program's request is refused: malformed, unsupported, or to a forbidden destination.
    RequestRefused {
        /// Destination host and port, if they could be parsed.
        target: Option<String>,
        /// The reason.
        reason: String,
    },
    /// A problem that may be temporary.
    Trouble {
        /// The reason.
        reason: String,
    },
    /// The client has failed. The message names who is to blame: the host, the configuration, or a
    /// bug.
    #[serde(rename = "error")]
    #[schemars(skip)] // as the line of each command that fails
    Ended {
        /// The reason.
        error: String,
    },
}

/// Milliseconds with three digits after the point.
fn as_ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn ms<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(as_ms(*time))
}

#[expect(clippy::ref_option, reason = "serde passes references")]
fn optional_ms<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(as_ms).serialize(serializer)
}

/// Replaces a destination, as in C tor with `SafeLogging`.
const SCRUBBED: &str = "[scrubbed]";

impl Event {
    /// Replaces destinations.
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
                write!(
                    f,
                    "circuit {circuit} is open: {} in {time_ms} ms{linked}{late}",
                    names(path)
                )
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
                let target =
                    target.as_deref().map(|target| format!(" to {target}")).unwrap_or_default();
                write!(f, "a SOCKS request{target} is refused: {reason}")
            }
            Self::Trouble { reason } => f.write_str(reason),
            Self::Ended { error } => write!(f, "ended: {error}"),
        }
    }
}
