//! Between messages and what they mean. What comes from outside is checked field by field.

mod account;

use crate::messages::{
    self, Echo, FromMeasurer, Hello, Instruction, Load, Prepare, Ready, Refused, Start, Transit,
    WayBack, Word,
};
use crate::refusal::{Refusal, RefusalCode};
use coordinator::Account;
use link::Traffic;
use measurer::Defences;
use measurer::member::{
    FailureKind, MemberReport, Nonce, RoundOrder, RoundWayBack, Target, WorkerLoad,
};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::Second;
use onion::measure::pump::Pace;
use onion::{Duration, Rate};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

/// Longest text that is passed on; the rest is cut off.
const TEXT_MAX_CHARS: usize = 400;

/// The parameters' own bound (`coordinator::Params`).
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
const LONGEST_RTT: Duration = Duration::from_secs(60);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// The least that C tor takes (`relay.c`); with less, no window would be left.
const QUEUE_LIMIT_MIN_CELLS: u32 = 50;

/// A message with a field that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct MessageError {
    field: &'static str,
    problem: String,
}

const fn bad(field: &'static str, problem: String) -> MessageError {
    MessageError { field, problem }
}

fn within<T: PartialOrd + std::fmt::Debug + Copy>(
    field: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<T, MessageError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (range.start(), range.end());
    Err(bad(field, format!("is {value:?}, but must lie in {least:?} to {most:?}")))
}

fn array<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], MessageError> {
    bytes.try_into().map_err(|_| bad(field, format!("has {} bytes instead of {N}", bytes.len())))
}

fn not_zero(field: &'static str, value: u32) -> Result<NonZeroU32, MessageError> {
    NonZeroU32::new(value).ok_or_else(|| bad(field, "is zero".to_owned()))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time(
    field: &'static str,
    nanos: u64,
    range: RangeInclusive<Duration>,
) -> Result<Duration, MessageError> {
    within(field, Duration::from_nanos(nanos), range)
}

/// Text from the other side, fit for a line of a log: bounded, and without control characters.
pub(crate) fn plain(text: &str) -> String {
    let shown = text.chars().take(TEXT_MAX_CHARS);
    shown.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl From<&RoundOrder> for Prepare {
    fn from(order: &RoundOrder) -> Self {
        let address = match order.target.address.ip() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let way_back = match order.way_back {
            RoundWayBack::Transit { always_authenticate } => {
                WayBack::Transit(Transit { always_authenticate })
            }
            RoundWayBack::Echo { nonce } => WayBack::Echo(Echo { nonce: nonce.0.to_vec() }),
        };
        Self {
            address,
            port: order.target.address.port().into(),
            rsa_id: order.target.ids.rsa.0.to_vec(),
            ed25519_id: order.target.ids.ed25519.map(|id| id.0.to_vec()),
            way_back: Some(way_back),
            defences: Some(order.defences.into()),
            sockets: order.sockets,
            rate_bit_per_s: order.rate.as_bit_per_s(),
            seconds: order.seconds,
            check_one_in: order.check_one_in.get(),
            rtt_ns: order.rtt.map(nanos),
            sharing: order.sharing,
            setup_timeout_ns: nanos(order.setup_timeout),
            stall_timeout_ns: nanos(order.stall_timeout),
            held_back_s: order.held_back_s,
        }
    }
}

impl From<Defences> for messages::Defences {
    fn from(defences: Defences) -> Self {
        Self {
            queue_limit_cells: defences.queue_limit_cells,
            max_connections: defences.max_connections,
            connect_burst: defences.connect.burst,
            connect_per_s: defences.connect.per_s.get(),
            max_client_circuits: defences.max_client_circuits,
        }
    }
}

impl TryFrom<messages::Defences> for Defences {
    type Error = MessageError;

    fn try_from(message: messages::Defences) -> Result<Self, MessageError> {
        let limit = message.queue_limit_cells;
        Ok(Self {
            queue_limit_cells: within("queue limit", limit, QUEUE_LIMIT_MIN_CELLS..=u32::MAX)?,
            max_connections: message.max_connections,
            connect: Pace {
                burst: message.connect_burst,
                per_s: not_zero("connections per second", message.connect_per_s)?,
            },
            max_client_circuits: message.max_client_circuits,
        })
    }
}

impl TryFrom<Prepare> for RoundOrder {
    type Error = MessageError;

    fn try_from(message: Prepare) -> Result<Self, MessageError> {
        let absent = |field| bad(field, "is absent".to_owned());
        let ip: IpAddr = match message.address.len() {
            4 => array::<4>("address", &message.address)?.into(),
            _ => array::<16>("address", &message.address)?.into(),
        };
        let port = within("port", message.port, 1..=u32::from(u16::MAX))?;
        let port = u16::try_from(port).map_err(|_| absent("port"))?;
        let ed25519 = message.ed25519_id.as_deref().map(|id| array("Ed25519 identity", id));
        let ids = RelayIds {
            rsa: RsaId(array("RSA identity", &message.rsa_id)?),
            ed25519: ed25519.transpose()?.map(Ed25519Id),
        };
        let way_back = match message.way_back.ok_or_else(|| absent("way_back"))? {
            WayBack::Transit(Transit { always_authenticate }) => {
                RoundWayBack::Transit { always_authenticate }
            }
            WayBack::Echo(Echo { nonce }) => {
                RoundWayBack::Echo { nonce: Nonce(array("nonce", &nonce)?) }
            }
        };
        let rate = within("rate", message.rate_bit_per_s, 1..=u64::MAX)?;
        let rtt = message.rtt_ns.map(|rtt| time("round trip", rtt, Duration::ZERO..=LONGEST_RTT));
        let held_back = message.held_back_s.map(|it| within("held back", it, 0..=600));
        let timeouts = Duration::from_nanos(1)..=LONGEST_TIMEOUT;
        Ok(Self {
            target: Target { address: SocketAddr::new(ip, port), ids },
            way_back,
            defences: message.defences.ok_or_else(|| absent("defences"))?.try_into()?,
            sockets: within("sockets", message.sockets, 1..=10_000)?,
            rate: Rate::from_bit_per_s(rate),
            seconds: within("seconds", message.seconds, 1..=600)?,
            held_back_s: held_back.transpose()?,
            check_one_in: not_zero("cells to each checked one", message.check_one_in)?,
            rtt: rtt.transpose()?,
            sharing: within("sharing", message.sharing, 1..=1000)?,
            setup_timeout: time("setup timeout", message.setup_timeout_ns, timeouts.clone())?,
            stall_timeout: time("stall timeout", message.stall_timeout_ns, timeouts)?,
        })
    }
}

/// The start of a round, a while from now.
pub(crate) fn start(delay: Duration) -> Instruction {
    Instruction::Start(Start { delay_ns: nanos(delay.min(LONGEST_DELAY)) })
}

pub(crate) fn delay_of(start: Start) -> Result<Duration, MessageError> {
    time("delay", start.delay_ns, Duration::ZERO..=LONGEST_DELAY)
}

/// Message of a report on this round.
pub(crate) fn report_message(measurement: u64, report: MemberReport) -> FromMeasurer {
    let word = match report {
        MemberReport::Ready { sockets } => Word::Ready(Ready { sockets }),
        MemberReport::Second(Second { index, bytes, checked_cells }, account) => {
            let account = account.as_deref().map(Into::into);
            Word::Second(messages::Second { index, bytes, checked_cells, account })
        }
        MemberReport::Load(load) => Word::Load(Load {
            cpu_ns: nanos(load.cpu),
            waited_ns: nanos(load.waited),
            busiest_ns: nanos(load.busiest),
            wall_ns: nanos(load.wall),
            sent_bytes: load.traffic.sent_bytes,
            sent_records: load.traffic.sent_records,
            received_bytes: load.traffic.received_bytes,
            received_records: load.traffic.received_records,
        }),
        MemberReport::Failed { kind, detail } => {
            Word::Failed(messages::Failed { kind: kind_number(kind), detail: plain(&detail) })
        }
    };
    FromMeasurer { measurement, word: Some(word) }
}

pub(crate) fn refused_message(measurement: u64, refusal: &Refusal) -> FromMeasurer {
    let refused = Refused { code: refusal.code.number(), reason: plain(&refusal.reason) };
    FromMeasurer { measurement, word: Some(Word::Refused(refused)) }
}

/// What a coordinator's side makes of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The first message.
    Hello(Hello),
    /// A word on a round.
    Report(MemberReport),
}

/// What a message from a measurer means.
///
/// # Errors
/// A message that says nothing, or what cannot be.
pub fn told(message: FromMeasurer) -> Result<Told, MessageError> {
    let word =
        message.word.ok_or_else(|| bad("message", "says nothing that we know".to_owned()))?;
    let report = match word {
        Word::Hello(hello) => {
            return Ok(Told::Hello(Hello { version: plain(&hello.version), ..hello }));
        }
        Word::Ready(Ready { sockets }) => MemberReport::Ready { sockets },
        Word::Second(messages::Second { index, bytes, checked_cells, account }) => {
            let account: Option<Account> = account.map(TryInto::try_into).transpose()?;
            MemberReport::Second(Second { index, bytes, checked_cells }, account.map(Box::new))
        }
        Word::Load(load) => MemberReport::Load(WorkerLoad {
            cpu: Duration::from_nanos(load.cpu_ns),
            waited: Duration::from_nanos(load.waited_ns),
            busiest: Duration::from_nanos(load.busiest_ns),
            wall: Duration::from_nanos(load.wall_ns),
            traffic: Traffic {
                sent_bytes: load.sent_bytes,
                sent_records: load.sent_records,
                received_bytes: load.received_bytes,
                received_records: load.received_records,
            },
        }),
        Word::Failed(failed) => {
            MemberReport::Failed { kind: kind_of(failed.kind), detail: plain(&failed.detail) }
        }
        Word::Refused(Refused { code, reason }) => {
            let kind = match RefusalCode::of(code) {
                Some(RefusalCode::NoConsent) => FailureKind::Refused,
                _ => FailureKind::Broken,
            };
            let detail = format!("it refuses (code {code}): {}", plain(&reason));
            MemberReport::Failed { kind, detail }
        }
    };
    Ok(Told::Report(report))
}

/// By their numbers. A number keeps its meaning: a measurer that does not know [`FailureKind::Stalled`] says 3 of each silence, and shows nothing by it.
const KINDS: [FailureKind; 8] = [
    FailureKind::Unreachable,
    FailureKind::Closed,
    FailureKind::Silent,
    FailureKind::WrongContent,
    FailureKind::Refused,
    FailureKind::Broken,
    FailureKind::Stalled,
    FailureKind::NothingCame,
];

fn kind_number(kind: FailureKind) -> u32 {
    (1..).zip(KINDS).find(|(_, known)| *known == kind).map_or(0, |(number, _)| number)
}

/// A kind that a newer measurer knows is taken for its own failure: blame for the relay needs words
/// that are understood.
fn kind_of(number: u32) -> FailureKind {
    let found = (1..).zip(KINDS).find(|(known, _)| *known == number);
    found.map_or(FailureKind::Broken, |(_, kind)| kind)
}

#[cfg(test)]
mod tests;
