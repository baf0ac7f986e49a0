//! The results of a measurer.

use onion::measure::Second;
use onion::measure::load::{Event, LoadFailure};

/// The results of one measurer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MeasurerResult {
    /// Sockets and circuits, once ready.
    pub(crate) ready: Option<(u32, u32)>,
    pub(crate) seconds: Vec<Second>,
    /// `None` while it runs.
    pub(crate) result: Option<Result<(), LoadFailure>>,
}

impl MeasurerResult {
    /// Handles an event, which must be consistent with earlier ones.
    pub(crate) fn record(&mut self, event: Event) {
        assert_eq!(self.result, None, "{event:?} after the end");
        match event {
            Event::Ready { sockets, circuits } => {
                assert_eq!(self.ready, None, "ready twice");
                self.ready = Some((sockets, circuits));
            }
            Event::Second(second) => {
                assert_eq!(second.index as usize, self.seconds.len());
                self.seconds.push(second);
            }
            Event::Lost { .. } => {}
            Event::Finished => self.result = Some(Ok(())),
            Event::Failed(failure) => self.result = Some(Err(failure)),
        }
    }
}
