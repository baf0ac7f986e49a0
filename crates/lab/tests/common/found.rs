//! What a measurer finds.

use onion::measure::Second;
use onion::measure::load::{Event, LoadFailure};

/// What one measurer has found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Sockets and circuits, if it came so far.
    pub(crate) ready: Option<(u32, u32)>,
    pub(crate) seconds: Vec<Second>,
    /// None while it goes on.
    pub(crate) result: Option<Result<(), LoadFailure>>,
}

impl Found {
    /// Takes an event, which must make sense after those before.
    pub(crate) fn gather(&mut self, event: Event) {
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
