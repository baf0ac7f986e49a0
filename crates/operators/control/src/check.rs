//! Checks of the input from the other side. Types rule out most invalid values; the rest is checked here, field by
//! field.

use crate::messages::FromMeasurer;
use crate::refusal::RefusalCode;
use coordinator::Account;
use measurer::member::{FailureKind, MemberReport, RoundOrder};
use onion::Duration;
use std::ops::RangeInclusive;

/// Maximum length of a text that is logged or passed on; the rest is cut off.
const TEXT_MAX_CHARS: usize = 400;

/// The bound of `coordinator::Params`.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
const RTT_MAX: Duration = Duration::from_secs(60);
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(60);

/// The minimum that C tor accepts (`relay.c`). With a lower limit, no window would be left.
const QUEUE_LIMIT_MIN_CELLS: u32 = 50;

const SOCKETS_MAX: u32 = 100_000;
/// The maximum time of a single socket or pump in one second, and of a round trip.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// A message with a value that is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct MessageError {
    field: &'static str,
    problem: String,
}

fn within<T: PartialOrd + std::fmt::Debug + Copy>(
    field: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), MessageError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    let problem = format!("is {value:?}, but must lie in {least:?} to {most:?}");
    Err(MessageError { field, problem })
}

/// Text from the other side for a line of a log: bounded, and without control characters.
pub(crate) fn plain(text: &str) -> String {
    let shown = text.chars().take(TEXT_MAX_CHARS);
    shown.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Checks a coordinator's order.
///
/// # Errors
/// The first field that is out of range.
pub(crate) fn order(order: &RoundOrder) -> Result<(), MessageError> {
    let timeouts = Duration::from_nanos(1)..=TIMEOUT_MAX;
    within("port", order.target.address.port(), 1..=u16::MAX)?;
    let queue_limit = order.defences.queue_limit_cells;
    within("queue limit", queue_limit, QUEUE_LIMIT_MIN_CELLS..=u32::MAX)?;
    within("sockets", order.sockets, 1..=10_000)?;
    within("rate", order.rate.as_bit_per_s(), 1..=u64::MAX)?;
    within("seconds", order.seconds, 1..=600)?;
    within("held back", order.held_back_s.unwrap_or(0), 0..=600)?;
    within("few circuits", order.few_circuits_s, 0..=600)?;
    within("round trip", order.rtt.unwrap_or_default(), Duration::ZERO..=RTT_MAX)?;
    within("sharing", order.sharing, 1..=1000)?;
    within("setup timeout", order.setup_timeout, timeouts.clone())?;
    within("stall timeout", order.stall_timeout, timeouts)
}

/// Checks the time from an order to the start of its round.
pub(crate) fn delay(delay: Duration) -> Result<(), MessageError> {
    within("delay", delay, Duration::ZERO..=DELAY_MAX)
}

/// Checks a measurer's account of its sockets, so that sums over a round cannot overflow.
fn account(account: &Account) -> Result<(), MessageError> {
    let single = |field, time| within(field, time, Duration::ZERO..=TIME_MAX);
    let summed = |field, time| within(field, time, Duration::ZERO..=TIME_MAX * SOCKETS_MAX);
    within("sockets", account.sockets, 0..=SOCKETS_MAX)?;
    single("elapsed time", account.elapsed)?;
    single("time of the busiest thread", account.busiest)?;
    single("silence", account.silent)?;
    single("least round trip", account.min_rtt.unwrap_or_default())?;
    single("mean round trip", account.mean_rtt.unwrap_or_default())?;
    single("time until an answer", account.answered_after.unwrap_or_default())?;
    summed("pumps' time", account.pump_time)?;
    summed("sockets' time", account.socket_time)?;
    summed("busy time", account.busy)?;
    summed("window-limited time", account.rwnd_limited)?;
    summed("buffer-limited time", account.sndbuf_limited)?;
    summed("application-limited time", account.app_limited)?;
    summed("throttled time", account.throttled)
}

/// Checks a measurer's report, and makes its text fit for a log.
///
/// # Errors
/// The first field that is out of range.
pub(crate) fn report(report: MemberReport) -> Result<MemberReport, MessageError> {
    match report {
        MemberReport::Second(second, Some(of)) => {
            account(&of)?;
            Ok(MemberReport::Second(second, Some(of)))
        }
        MemberReport::Failed { kind, detail } => {
            Ok(MemberReport::Failed { kind, detail: plain(&detail) })
        }
        MemberReport::Second(_, None) | MemberReport::Ready { .. } | MemberReport::Load(_) => {
            Ok(report)
        }
    }
}

/// The report that a message is, and the number of its round. A refusal ends the round. `None` of other messages.
///
/// # Errors
/// The first field that is out of range.
pub(crate) fn report_in(
    message: FromMeasurer,
) -> Result<Option<(u64, MemberReport)>, MessageError> {
    Ok(match message {
        FromMeasurer::Report { round, report: received } => Some((round, report(received)?)),
        FromMeasurer::Refused { round, code, reason } => {
            let kind = match code {
                RefusalCode::NoConsent => FailureKind::Refused,
                _ => FailureKind::Broken,
            };
            let detail = format!("it refuses (code {}): {}", code.number(), plain(&reason));
            Some((round, MemberReport::Failed { kind, detail }))
        }
        FromMeasurer::Hello(_)
        | FromMeasurer::CapacityListening { .. }
        | FromMeasurer::Capacity(_)
        | FromMeasurer::End(_) => None,
    })
}

#[cfg(test)]
mod tests;
