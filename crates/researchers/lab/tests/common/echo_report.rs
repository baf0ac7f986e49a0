//! The result of a measurement of a router that takes part.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use crate::common::measurer_result::MeasurerResult;
use crate::common::stage::NodeHandle;
use coordinator::{Assignment, MeasurerId, Mode, Schedule, SecondReport, Series, Summary};
use onion::measure::Second;
use onion::measure::load::LoadFailure;
use onion::measure::order::OrderFailure;
use onion::measure::protocol::ClientSecond;
use onion::{Instant, Rate};

/// One measurer and its results.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) node: NodeHandle,
    pub(crate) found: MeasurerResult,
}

/// The result of a measurement.
#[derive(Debug)]
pub(crate) struct Report {
    /// The outcome for the coordinator; `None` if there was none.
    pub(crate) order: Option<Result<(), OrderFailure>>,
    pub(crate) parts: Vec<Part>,
    /// The relay's reports.
    pub(crate) client_seconds: Vec<ClientSecond>,
    /// When the measurers began.
    pub(crate) began: Instant,
}

impl Report {
    /// The summary of a measurement without failures.
    #[track_caller]
    pub(crate) fn summary(&self) -> Summary {
        assert_eq!(self.order, Some(Ok(())), "{:?}", self.parts);
        let seconds = u32::try_from(self.client_seconds.len()).unwrap();
        let rate = Rate::from_mbit_per_s(100_000.0);
        let assignments = (0..self.parts.len()).map(|place| Assignment {
            measurer: MeasurerId(place),
            rate,
            sockets: 1,
        });
        let mut series = Series::new(Mode::Echo, 0.25, seconds, Schedule::PLAIN, assignments);
        for (place, part) in self.parts.iter().enumerate() {
            assert_eq!(part.found.result, Some(Ok(())), "measurer {place}");
            for Second { index, bytes, checked_cells } in part.found.seconds.iter().copied() {
                let report =
                    SecondReport { round: 1, second: index, bytes, checked_cells, account: None };
                series.record(MeasurerId(place), report).unwrap();
            }
        }
        for second in &self.client_seconds {
            let bytes = second.received_bytes.min(second.sent_bytes);
            series.record_client(second.second.into(), bytes).unwrap();
        }
        series.summary().expect("complete")
    }

    /// The estimate divided by the relay's capacity.
    #[track_caller]
    pub(crate) fn estimate_over(&self, truth: Rate) -> f64 {
        Rate::from_byte_per_s(self.summary().median).as_mbit_per_s() / truth.as_mbit_per_s()
    }

    /// The first measurer's failure; there must be one.
    #[track_caller]
    pub(crate) fn failure(&self) -> &LoadFailure {
        let failures =
            self.parts.iter().filter_map(|part| part.found.result.as_ref()?.as_ref().err());
        failures.into_iter().next().expect("it is detected")
    }
}
