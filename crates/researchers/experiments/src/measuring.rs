//! Measures one relay by the shell that operators run.

use crate::error::{Error, Result};
use authority::one_relay::{self, Request};
use authority::shell::Team;
use coordinator::period::{Event, Period};
use coordinator::{Progress, Record, WorkerLoad};
use std::sync::atomic::AtomicBool;

/// The result of a measurement.
pub(crate) struct Measured {
    pub(crate) record: Record,
    /// The first turn that failed.
    pub(crate) failed: Option<Record>,
    /// The loads of the measurers that finished the last round.
    pub(crate) loads: Vec<WorkerLoad>,
}

/// Measures one relay; `None` if `stop` was set.
///
/// # Errors
/// This machine or the measurers are to blame. A failed measurement is a result.
pub(crate) fn measure(
    team: &dyn Team,
    request: Request,
    on_progress: &mut dyn FnMut(Progress),
    stop: &AtomicBool,
) -> Result<Option<Measured>> {
    let on_event = &mut |_: &Period, event| {
        if let Event::Progress(_, progress) = event {
            on_progress(progress);
        }
    };
    measure_with_events(team, request, on_event, stop)
}

/// As [`measure`], with all events of the period.
pub(crate) fn measure_with_events(
    team: &dyn Team,
    request: Request,
    on_event: &mut dyn FnMut(&Period, Event),
    stop: &AtomicBool,
) -> Result<Option<Measured>> {
    let (mut loads, mut failed) = (Vec::new(), None);
    let mut on_event = |period: &Period, event| {
        match &event {
            Event::Loads(_, of_round) => loads.clone_from(of_round),
            Event::MeasurementEnded(record) if record.failure().is_some() => {
                failed.get_or_insert_with(|| (**record).clone());
            }
            _ => {}
        }
        on_event(period, event);
    };
    let record = one_relay::measure(team, request, &mut on_event, stop);
    let record = record.map_err(|error| Error::Failed(error.to_string()))?;
    Ok(record.map(|record| Measured { record, failed, loads }))
}
