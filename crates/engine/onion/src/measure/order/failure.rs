use crate::measure::protocol::ErrorCode;
use crate::node::CloseCause;
use alloc::string::String;
use core::fmt;

/// Why an order failed, or a measurement lost its target's reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderFailure {
    /// There is no link to the target.
    NoLink {
        /// The reason.
        problem: String,
    },
    /// There is no link to the target, since its certificates are not valid at this time.
    NotValidNow {
        /// The certificate.
        problem: String,
    },
    /// The link was not open in time.
    LinkTimedOut,
    /// The link is open, but the order is not answered.
    NotAnswered,
    /// The target refused the measurement or ended it early.
    Refused {
        /// Its code.
        code: ErrorCode,
        /// Its own words, if any.
        text: String,
    },
    /// The target violated the protocol.
    Violation(OrderViolation),
    /// The link was closed.
    Closed {
        /// Whether the order had been accepted by then.
        was_accepted: bool,
        /// How it went.
        cause: CloseCause,
    },
}

/// A protocol violation of a target towards its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderViolation {
    /// A malformed message.
    Malformed(&'static str),
    /// A message that a target must not send, or not at this time.
    OutOfOrder,
    /// It accepts another order than it was given.
    OtherNonce,
    /// A second other than the next: a repeated one, or one after a gap.
    WrongSecond {
        /// The one that is next.
        expected: u32,
        /// The one reported.
        found: u32,
    },
}

impl fmt::Display for OrderViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(problem) => write!(f, "sends a malformed message: {problem}"),
            Self::OutOfOrder => f.write_str("sends a message that is not allowed here or now"),
            Self::OtherNonce => f.write_str("accepts another order than it was given"),
            Self::WrongSecond { expected, found } => {
                write!(f, "reports second {found} where second {expected} is next")
            }
        }
    }
}

impl fmt::Display for OrderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLink { problem } | Self::NotValidNow { problem } => {
                write!(f, "no link to the relay: {problem}")
            }
            Self::LinkTimedOut => f.write_str("no link to the relay in time"),
            Self::NotAnswered => f.write_str(
                "the relay does not answer the order to be measured: it does not speak FlashFlow. \
                 Such a relay can only be measured in transit",
            ),
            Self::Refused { code, text } => write_refusal(f, *code, text),
            Self::Violation(violation) => write!(f, "the relay {violation}"),
            Self::Closed { was_accepted: false, cause } => {
                write!(f, "the link to the relay was lost before it accepted the order: {cause}")
            }
            Self::Closed { was_accepted: true, cause } => {
                write!(f, "the coordinator's link to the relay was lost: {cause}")
            }
        }
    }
}

impl core::error::Error for OrderFailure {}

/// Writes the reason for which a target ends a measurement.
pub(crate) fn write_refusal(
    f: &mut fmt::Formatter<'_>,
    code: ErrorCode,
    text: &str,
) -> fmt::Result {
    write!(f, "the relay ends the measurement: {code} (error {})", code.get())?;
    if text.is_empty() { Ok(()) } else { write!(f, "; its reason: {text}") }
}
