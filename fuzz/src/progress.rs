use onion::cell::CELL_LEN;
use onion::measure::load::Event;

/// The progress that a load generator has reported.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) is_ready: bool,
    pub(crate) is_started: bool,
    pub(crate) seconds: u32,
    pub(crate) bytes: u64,
    pub(crate) is_over: bool,
    pub(crate) is_finished: bool,
}

impl Progress {
    /// Takes an event, which must be consistent with the earlier ones.
    pub(crate) fn take(&mut self, event: &Event) {
        assert!(!self.is_over, "an event after the end: {event:?}");
        match *event {
            Event::Ready { sockets, circuits } => {
                assert!(!self.is_ready && sockets > 0 && circuits >= sockets);
                self.is_ready = true;
            }
            Event::Lost { circuits, of, .. } => assert!(circuits < of),
            Event::Second(second) => {
                assert!(self.is_started && second.index == self.seconds);
                assert_eq!(second.bytes % CELL_LEN as u64, 0);
                assert!(second.checked_cells <= second.bytes / CELL_LEN as u64);
                self.seconds += 1;
                self.bytes += second.bytes;
            }
            Event::Finished => {
                assert!(self.is_started);
                self.is_over = true;
                self.is_finished = true;
            }
            Event::Failed(ref failure) => {
                assert!(!failure.to_string().is_empty());
                self.is_over = true;
            }
        }
    }
}
