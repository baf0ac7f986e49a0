//! What a relay prints with `--json`, one object per line.

use link::Clock;
use onion::router::RouterEvent;
use relay::publish::Answer;
use relay::{Reachability, RelayEvent};
use schemars::JsonSchema;
use serde::Serialize;
use std::net::SocketAddr;

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The relay is ready.
    Listening {
        /// Its address, with the port that was taken.
        address: SocketAddr,
        /// Its RSA fingerprint.
        fingerprint: String,
        /// Its Ed25519 identity in hex.
        ed25519: String,
    },
    /// Prometheus can read metrics.
    Metrics {
        /// The address.
        address: SocketAddr,
    },
    /// With `--check`: what the relay would do.
    Check {
        /// Its nickname.
        nickname: String,
        /// Its public address.
        address: SocketAddr,
        /// The address at which it listens.
        listen: SocketAddr,
        /// Its RSA fingerprint; `null` if it has no keys yet.
        fingerprint: Option<String>,
        /// The number of authorities to which it publishes.
        authorities: usize,
        /// Its rate limit; `null` without one.
        rate_mbit_per_s: Option<f64>,
        /// Whether it is an exit.
        exit: bool,
        /// The number of coordinators that may measure it.
        coordinators: usize,
    },
    /// The configuration was reloaded, or is wrong.
    Reloaded {
        /// Changed settings that are in effect.
        #[serde(skip_serializing_if = "Option::is_none")]
        changed: Option<Vec<&'static str>>,
        /// Changed settings that need a restart.
        #[serde(skip_serializing_if = "Option::is_none")]
        needs_restart: Option<Vec<&'static str>>,
        /// The reason if the previous configuration stays in effect.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The relay ends when its circuits have ended.
    ShuttingDown {
        /// Circuits that continue.
        circuits: usize,
        /// Streams that continue.
        streams: usize,
        /// The time limit.
        wait_s: u64,
    },
    /// The last line after a request to stop.
    Ended {
        /// Circuits that were aborted.
        circuits: usize,
        /// Streams that were aborted.
        streams: usize,
    },
    /// An authority was contacted.
    Published {
        /// Its address.
        authority: SocketAddr,
        /// `accepted`, `not_new`, `refused`, or `null` if there was no answer.
        answer: Option<&'static str>,
        /// The status by HTTP, if it refused.
        status: Option<u16>,
        /// The reason, if it refused or did not answer.
        reason: Option<String>,
    },
    /// The relay uses another consensus.
    Consensus {
        /// When it became valid.
        valid_after_unix_s: u64,
        /// The number of its relays.
        relays: usize,
    },
    /// The relay's flags have changed.
    Listed {
        /// The flags; `null` if it is no longer listed.
        flags: Option<Vec<&'static str>>,
    },
    /// Who may measure the relay, and how often.
    Measurements {
        /// Whether anybody may.
        allowed: bool,
        /// The keys of the coordinators.
        coordinators: Vec<String>,
        /// The length of a period.
        period_s: u64,
        /// The number of measurements in it.
        per_period: u32,
        /// The share of client traffic, in thousandths.
        client_share_permille: u16,
        /// The longest measurement.
        max_duration_s: u64,
    },
    /// A self-test has ended.
    Reachability {
        /// The tested address.
        address: SocketAddr,
        /// Whether it was reached.
        reached: bool,
        /// Whether the directory answered; `null` without one. If it was reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        directory: Option<Option<bool>>,
        /// The reason if it was not reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Whether a descriptor is published anyway. If it was not reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        published: Option<bool>,
    },
    /// Padding has passed through circuits with the relay in the middle.
    BandwidthTested,
    /// No authority has a usable consensus.
    NoConsensus {
        /// The reason.
        reason: String,
    },
    /// A key or certificates were renewed.
    Renewed {
        /// `onion key` or `certificates`.
        what: String,
    },
    /// The machine's clock was set.
    ClockJumped {
        /// By how many seconds, forward if positive.
        by_s: i64,
    },
    /// A problem that does not stop the relay.
    Trouble {
        /// The problem.
        reason: String,
    },
    /// An order was accepted.
    Accepted,
    /// A coordinator or measurer was refused.
    Refused {
        /// The reason.
        reason: String,
    },
    /// A second of a measurement is complete. Cells count 514 bytes.
    Second {
        /// Its end, in microseconds since 1970.
        ended_unix_us: u64,
        /// Returned to the measurers.
        measured_bytes: u64,
        /// Sent to clients.
        client_bytes: u64,
    },
    /// Memory exceeded `max_mem_in_queues_mib`.
    Shed {
        /// Dropped from the oldest queues.
        bytes: u64,
    },
    /// There were too many circuits and links for the relay's memory.
    Evicted {
        /// Closed circuits.
        circuits: u64,
        /// Closed links.
        links: u64,
    },
    /// A link was closed because the peer broke the rules of hop-by-hop windows.
    FeedbackRefused {
        /// Its fingerprint; `null` for a client.
        relay: Option<String>,
        /// The violation.
        problem: String,
    },
    /// A client's link was closed because of far too much padding.
    PaddingRefused {
        /// Its fingerprint; `null` for a client.
        relay: Option<String>,
    },
    /// A circuit ended with a full queue, because the next hop acknowledged nothing.
    CircuitStalled {
        /// The fingerprint of the next hop; `null` for a client.
        relay: Option<String>,
    },
    /// A measurement has ended.
    Over {
        /// The reason if it was aborted.
        reason: Option<String>,
    },
    /// The load since the start; with `--print-load` only.
    Load {
        /// Sent to clients.
        client_bytes: u64,
        /// The sum of the waiting times of cells.
        waited_cell_s: f64,
    },
    /// No circuits or streams are left.
    Drained,
}

impl Line {
    /// The line of an event; `None` for the relay's end, which is an error of the command.
    pub(super) fn new(event: &RelayEvent, clock: Clock) -> Option<Self> {
        Some(match event {
            RelayEvent::Answered { authority, answer } => {
                let (answer, status, reason) = match answer {
                    Answer::Accepted => ("accepted", None, None),
                    Answer::NotNew => ("not_new", None, None),
                    Answer::Refused { status, reason } => {
                        ("refused", Some(*status), Some(reason.to_string()))
                    }
                };
                Self::Published { authority: *authority, answer: Some(answer), status, reason }
            }
            RelayEvent::Unanswered { authority, problem } => Self::Published {
                authority: *authority,
                answer: None,
                status: None,
                reason: Some(problem.clone()),
            },
            RelayEvent::Consensus { valid_after_unix_s, relays } => {
                Self::Consensus { valid_after_unix_s: *valid_after_unix_s, relays: *relays }
            }
            RelayEvent::Listed(flags) => Self::Listed {
                flags: flags.map(|flags| flags.iter().map(|flag| flag.name()).collect()),
            },
            RelayEvent::TargetParams(params) => Self::Measurements {
                allowed: params.is_allowed,
                coordinators: params.coordinators.iter().map(ToString::to_string).collect(),
                period_s: params.period.as_secs(),
                per_period: params.measurements_per_period,
                client_share_permille: params.client_share.as_permille(),
                max_duration_s: params.max_duration.as_secs(),
            },
            RelayEvent::Reachability(Reachability::Reached { address, directory }) => {
                Self::Reachability {
                    address: *address,
                    reached: true,
                    directory: Some(*directory),
                    reason: None,
                    published: None,
                }
            }
            RelayEvent::Reachability(Reachability::Unreached {
                address,
                problem,
                is_published,
            }) => Self::Reachability {
                address: *address,
                reached: false,
                directory: None,
                reason: Some(problem.to_string()),
                published: Some(*is_published),
            },
            RelayEvent::BandwidthTested => Self::BandwidthTested,
            RelayEvent::NoConsensus(problem) => Self::NoConsensus { reason: problem.clone() },
            RelayEvent::Renewed(what) => Self::Renewed { what: what.to_string() },
            RelayEvent::ClockJumped(jump) => Self::ClockJumped { by_s: jump.by_s },
            RelayEvent::Trouble(problem) => Self::Trouble { reason: problem.clone() },
            RelayEvent::Router(event) => Self::of_router(event, clock),
            RelayEvent::Load(load) => {
                Self::Load { client_bytes: load.client_bytes, waited_cell_s: load.waited_cell_s }
            }
            RelayEvent::Drained => Self::Drained,
            RelayEvent::Ended(_) => return None,
        })
    }

    fn of_router(event: &RouterEvent, clock: Clock) -> Self {
        match event {
            RouterEvent::MeasurementAccepted(_) => Self::Accepted,
            RouterEvent::MeasurementRefused(refusal) => {
                Self::Refused { reason: refusal.to_string() }
            }
            RouterEvent::MeasuredSecond { ended, measured_bytes, client_bytes } => Self::Second {
                ended_unix_us: clock.unix_us(*ended),
                measured_bytes: *measured_bytes,
                client_bytes: *client_bytes,
            },
            RouterEvent::MemoryReclaimed { bytes } => Self::Shed { bytes: *bytes },
            RouterEvent::Evicted { circuits, links } => {
                Self::Evicted { circuits: *circuits, links: *links }
            }
            RouterEvent::FeedbackRefused { peer, violation } => Self::FeedbackRefused {
                relay: peer.map(|peer| peer.to_string()),
                problem: violation.to_string(),
            },
            RouterEvent::PaddingRefused { peer } => {
                Self::PaddingRefused { relay: peer.map(|peer| peer.to_string()) }
            }
            RouterEvent::CircuitStalled { peer } => {
                Self::CircuitStalled { relay: peer.map(|peer| peer.to_string()) }
            }
            RouterEvent::MeasurementOver(refusal) => {
                Self::Over { reason: refusal.as_ref().map(ToString::to_string) }
            }
        }
    }
}
