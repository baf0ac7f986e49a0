//! Bandwidth events of the control port.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::client::{Control, ControlError};

/// The bytes that a tor process moved within about one second, by its own count.
///
/// These are bytes of TLS records on OR connections and directory connections. Loopback traffic counts, since a
/// testing network sets `CountPrivateBandwidth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BwEvent {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl BwEvent {
    /// Parses a `BW` event; `None` if it is another event or malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        if words.next() != Some("BW") {
            return None;
        }
        let mut number = || words.next()?.parse().ok();
        Some(Self { read_bytes: number()?, written_bytes: number()? })
    }
}

/// A [`BwEvent`] and its arrival time.
#[derive(Clone, Copy, Debug)]
pub struct BwSample {
    /// When the event was read from the connection: the end of its second.
    pub at: Instant,
    /// The bytes of that second.
    pub event: BwEvent,
}

/// The bandwidth events of one tor process, one each second, until this is dropped.
#[derive(Debug)]
pub struct BwWatch {
    control: Control,
}

impl BwWatch {
    /// Subscribes to bandwidth events on a separate connection.
    ///
    /// # Errors
    /// [`ControlError`] if tor does not answer or refuses.
    pub fn new(mut control: Control) -> Result<Self, ControlError> {
        control.set_events(&["BW"])?;
        Ok(Self { control })
    }

    /// The next sample, or `None` if there is none within `timeout`.
    ///
    /// # Errors
    /// [`ControlError::Closed`] once tor has ended and all earlier samples were taken.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<BwSample>, ControlError> {
        match self.control.events().recv_timeout(timeout) {
            Ok(event) => match BwEvent::parse(event.message.text()) {
                Some(bw) => Ok(Some(BwSample { at: event.at, event: bw })),
                None => Err(ControlError::Unexpected(event.message.text().to_owned())),
            },
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.control.why_closed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bandwidth_events_are_parsed() {
        let event = BwEvent { read_bytes: 12, written_bytes: 34 };
        assert_eq!(BwEvent::parse("BW 12 34"), Some(event));
        assert_eq!(BwEvent::parse("BW 12 34 DIR=0,0 OR=12,34"), Some(event));
        assert_eq!(BwEvent::parse("BW 12"), None);
        assert_eq!(BwEvent::parse("BW -1 2"), None);
        assert_eq!(BwEvent::parse("CONN_BW 12 34"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*") {
            let _ = BwEvent::parse(&text);
        }
    }
}
