//! The events of a period as the operator's output.

use coordinator::period::{Event, Period};
use coordinator::{Counts, Failure, MeasurerId, Record};
use report::RelayReport;
use std::net::SocketAddr;
use terminal::{Output, measuring};

/// A line of a daemon's log, with fields; a step of the progress of other commands.
macro_rules! show_line {
    ($output:expr, $level:ident, [$($field:tt)*], $($text:tt)+) => {
        if $output.is_log() {
            tracing::$level!($($field)* $($text)+)
        } else {
            $output.step(format!($($text)+))
        }
    };
}

/// Shows the operator an event. `address` gives a measurer's address.
pub fn show(
    period: &Period,
    event: Event,
    address: impl Fn(MeasurerId) -> Option<SocketAddr>,
    output: &Output,
) {
    let address = |id| address(id).map(|address| address.to_string()).unwrap_or_default();
    match event {
        Event::Measurer(id, Ok(capacity)) => {
            let measurer = address(id);
            show_line!(output, info, [measurer,], "measurer {measurer}: {capacity}");
        }
        Event::Measurer(id, Err(problem)) => {
            let measurer = address(id);
            show_line!(output, warn, [measurer,], "without a measurer: {problem}");
        }
        Event::MeasurerBack(id, capacity) => {
            let measurer = address(id);
            show_line!(output, info, [measurer,], "{id} is back, with {capacity}");
        }
        Event::MeasurerLost(id, record) => {
            let (measurer, relay) = (address(id), fingerprint(&record));
            let name = &record.relay.nickname;
            show_line!(output, warn, [measurer, relay,], "{id} ({name}) has failed: {record}");
        }
        Event::MeasurerLeftOut(id, record) => {
            let (measurer, relay) = (address(id), fingerprint(&record));
            let name = &record.relay.nickname;
            let text = match record.failure() {
                Some(Failure::OutOfReach { detail }) => {
                    format!("{name}: {id} does not reach it, and another does: {detail}")
                }
                _ => format!("{name}: it is measured without {id}: {record}"),
            };
            show_line!(output, warn, [measurer, relay,], "{text}");
        }
        Event::Planned { at_once_max, .. } => {
            if at_once_max < u32::MAX {
                show_line!(output, info, [], "at most {at_once_max} relays are measured at once");
            }
        }
        Event::Counts(counts) => show_line!(output, info, [], "{}", describe(counts)),
        Event::Progress(relay, progress) => {
            if let Some(relay) = period.relay(relay) {
                let id = relay.id().to_string();
                measuring::show_progress(&relay.nickname, &id, progress, output);
            }
        }
        Event::Loads(..) => {}
        Event::MeasurementEnded(record) => measuring::show_accounts(&record, output),
        Event::RelayDone(record) => {
            let report = RelayReport::from(&*record);
            let (relay, rounds, line) =
                (fingerprint(&record), report.rounds, report::line(&report));
            match report.error {
                None => show_line!(output, info, [relay, rounds,], "{line}"),
                Some(_) => show_line!(output, warn, [relay, rounds,], "{line}"),
            }
            output.record(|| report.value("relay"));
        }
        Event::LeftOut(relay, reason) => {
            if let Some(relay) = period.relay(relay) {
                let (name, relay) = (&relay.nickname, relay.id().to_string());
                show_line!(output, warn, [relay,], "{name} is not measured now: {reason}");
            }
        }
        Event::ConsensusRefused(reason) => {
            show_line!(
                output,
                warn,
                [],
                "the newer consensus is not used, and the previous one stays: {reason}"
            );
        }
        Event::NotMeasured(left) => {
            show_line!(output, error, [], "no measurer is left: {left} relays are not measured");
        }
    }
}

fn fingerprint(record: &Record) -> String {
    record.relay.ids.rsa.to_string()
}

/// The progress of the period; never the future schedule.
fn describe(counts: Counts) -> String {
    let Counts { waiting, running, done, without_slot } = counts;
    format!(
        "relays that wait for their slots: {waiting}; being measured: {running}; done: {done}; without a slot in this period: {without_slot}"
    )
}
