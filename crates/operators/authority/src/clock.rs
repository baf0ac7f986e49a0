//! Jumps of the calendar clock.

use super::lines::Line;
use super::{Common, reload_if_asked};
use link::{Clock, unix_time_s};
use onion::Duration;

/// Interval at which the clock is checked for a jump between periods.
const CLOCK_LOOK: Duration = Duration::from_secs(2);

/// Whether the calendar clock was set since the last call, which is logged.
pub(super) fn has_jumped(Common { clock, output, .. }: Common<'_>) -> bool {
    let jump = clock.poll();
    if let Some(jump) = jump {
        tracing::warn!("{jump}: is NTP running?");
        output.record(|| Line::ClockJumped { by_s: jump.by_s });
    }
    jump.is_some()
}

/// Waits, at most until the operator requests the end or the clock is set. Reloads what the operator asks for meanwhile. With
/// `is_well`, also records progress, which shows readers of the store that the coordinator runs.
pub(super) fn wait(common: Common<'_>, longest: Duration, is_well: bool) {
    let clock = Clock::start();
    let end = clock.now() + longest;
    while clock.now() < end && !has_jumped(common) {
        let left = end.saturating_since(clock.now());
        if common.interrupt.wait(left.min(CLOCK_LOOK)) {
            return;
        }
        reload_if_asked(common);
        if is_well {
            common.journal.repeat_progress(unix_time_s());
        }
    }
}
