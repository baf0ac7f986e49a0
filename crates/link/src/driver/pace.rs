//! How soon the driver looks at its sockets again.

use super::DriverOptions;
use onion::Instant;

/// When it last looked, and what had come until then.
#[derive(Debug, Default)]
pub(super) struct Pace {
    looked_at: Instant,
    received_bytes: u64,
}

impl Pace {
    /// When the next look is due at the earliest, with so many bytes of plaintext received in all.
    pub(super) fn next_look(&self, options: &DriverOptions, received_bytes: u64) -> Instant {
        let came = received_bytes.saturating_sub(self.received_bytes);
        let is_worth_it = came >= options.coalesce_from_bytes;
        if is_worth_it { self.looked_at + options.coalesce } else { self.looked_at }
    }

    /// It looks now, and has received so much until now.
    pub(super) const fn handle_look(&mut self, now: Instant, received_bytes: u64) {
        self.looked_at = now;
        self.received_bytes = received_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Duration;

    #[test]
    fn the_next_look_waits_only_after_one_that_has_brought_enough() {
        let [looked, soon, later] = [10, 11, 13].map(Instant::from_millis);
        let coalesce = Duration::from_millis(3);
        let always = DriverOptions { coalesce, ..DriverOptions::default() };
        let bulk = DriverOptions { coalesce_from_bytes: 1000, ..always };
        let mut pace = Pace::default();
        pace.handle_look(looked, 5000);
        for (options, received_bytes, due) in [
            (&always, 5000, later),
            (&bulk, 5000, looked),
            (&bulk, 5999, looked),
            (&bulk, 6000, later),
        ] {
            assert_eq!(pace.next_look(options, received_bytes), due, "{received_bytes}");
        }
        // What an earlier look has brought does not count again.
        pace.handle_look(soon, 6000);
        assert_eq!(pace.next_look(&bulk, 6999), soon);
    }
}
