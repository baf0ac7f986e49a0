use std::time::Instant;

use super::parse::Message;

/// An asynchronous event and its arrival time.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it was read from the connection.
    pub at: Instant,
    /// The event.
    pub message: Message,
}

impl Event {
    /// The event's kind, such as `BW` or `NEWCONSENSUS`.
    #[must_use]
    pub fn keyword(&self) -> &str {
        self.message.text().split(' ').next().unwrap_or("")
    }
}
