//! The maximum of ten seconds, from which a descriptor's observed bandwidth is derived.

use std::collections::VecDeque;

/// Seconds in the window: tor's `NUM_SECS_ROLLING_MEASURE`.
pub(crate) const WINDOW_S: u64 = 10;

/// The last seconds of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct RollingWindow(VecDeque<u64>);

impl RollingWindow {
    /// Adds the bytes of a second. Returns the sum of the last ten seconds, once there are ten.
    pub(crate) fn note_second(&mut self, bytes: u64) -> Option<u64> {
        self.0.push_back(bytes);
        if self.0.len() as u64 > WINDOW_S {
            self.0.pop_front();
        }
        let sum = self.0.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        (self.0.len() as u64 == WINDOW_S).then_some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_windows_count() {
        let mut window = RollingWindow::default();
        for _ in 0..9 {
            assert_eq!(window.note_second(7), None);
        }
        assert_eq!(window.note_second(8), Some(71));
        assert_eq!(window.note_second(8), Some(72));
        window.note_second(u64::MAX);
        assert_eq!(window.note_second(u64::MAX), Some(u64::MAX));
    }
}
