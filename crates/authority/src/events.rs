//! The events of a period as the operator's output.

use coordinator::period::{Event, Period};
use coordinator::{Counts, Failure, MeasurerId};
use report::RelayReport;
use std::net::SocketAddr;
use terminal::{Output, measuring};

/// Shows the operator an event. `address` gives a measurer's address, and `seconds` is the length of a measurement.
pub fn show(
    period: &Period,
    event: Event,
    address: impl Fn(MeasurerId) -> Option<SocketAddr>,
    seconds: u32,
    output: &Output,
) {
    match event {
        Event::Measurer(id, Ok(capacity)) => {
            let address = address(id).map(|it| it.to_string()).unwrap_or_default();
            output.step(format!("measurer {address}: {capacity}"));
        }
        Event::Measurer(_, Err(problem)) => output.step(format!("without a measurer: {problem}")),
        Event::MeasurerBack(measurer, capacity) => {
            output.step(format!("{measurer} is back, with {capacity}"));
        }
        Event::MeasurerLost(measurer, record) => {
            let name = &record.relay.nickname;
            output.step(format!("{measurer} ({name}) has failed: {record}"));
        }
        Event::MeasurerLeftOut(measurer, record) => {
            let name = &record.relay.nickname;
            output.step(match record.failure() {
                Some(Failure::OutOfReach { detail }) => {
                    format!("{name}: {measurer} does not reach it, and another does: {detail}")
                }
                _ => format!("{name}: it is measured without {measurer}: {record}"),
            });
        }
        Event::Planned { at_once_max, .. } => {
            if at_once_max < u32::MAX {
                output.step(format!("at most {at_once_max} relays are measured at once"));
            }
        }
        Event::Counts(counts) => output.step(in_words(counts)),
        Event::Progress(relay, progress) => {
            if let Some(relay) = period.relay(relay) {
                let id = relay.id().to_string();
                measuring::show_progress(&relay.nickname, &id, progress, seconds, output);
            }
        }
        Event::MeasurementEnded(record) => measuring::show_accounts(&record, output),
        Event::RelayDone(record) => {
            let report = RelayReport::from(&*record);
            output.step(report::line(&report));
            output.record(|| report.value("relay"));
        }
        Event::NotMeasured(left) => {
            output.step(format!("no measurer is left: {left} relays are not measured"));
        }
    }
}

/// The progress of the period; never the future schedule.
fn in_words(counts: Counts) -> String {
    let Counts { waiting, running, done, without_slot } = counts;
    format!(
        "{waiting} relays wait for their slots, {running} are being measured, {done} are done with for this period; \
         {without_slot} have no slot in it"
    )
}
