//! One side's account of a circuit on a link with hop-by-hop windows.

use super::HopWindow;
use crate::time::{Duration, Instant};
use alloc::boxed::Box;
use core::fmt;

/// A peer is silent if it holds cells of a circuit and has reported none for this time: longer than a slow link
/// needs for a cell.
const SILENCE: Duration = Duration::from_secs(3);

/// The next hop reported more forwarded cells than it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess;

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reported more forwarded cells than it received")
    }
}

/// One side's account of a circuit's cells on a link with hop-by-hop windows, in one direction. The cells come
/// from the *previous* hop and go to the *next* one. A client has one account for both directions: it consumes
/// what arrives and originates what leaves.
#[derive(Debug, Default)]
pub(crate) struct HopAccount {
    /// The window to the next hop; `None` if it sends no feedback.
    window: Option<Box<dyn HopWindow>>,
    /// Cells that the next hop received and has not reported as forwarded.
    in_flight: u32,
    /// When the next hop last reported cells, or received the first of those in flight.
    feedback_at: Instant,
    /// Whether forwarded cells are reported to the previous hop.
    reports: bool,
    /// Cells from the previous hop that are still here.
    owed: u32,
    /// Forwarded cells that have not been reported to the previous hop.
    unreported: u32,
    /// Whether the pending report has been noted.
    is_noted: bool,
}

impl HopAccount {
    /// The account of a circuit at its client.
    pub(crate) fn of_client(window: Option<Box<dyn HopWindow>>) -> Self {
        Self { window, reports: true, ..Self::default() }
    }

    pub(crate) fn set_window(&mut self, window: Option<Box<dyn HopWindow>>) {
        self.window = window;
        self.in_flight = 0;
    }

    pub(crate) const fn enable_reports(&mut self) {
        self.reports = true;
    }

    /// Cells that may be sent to the next hop now.
    #[inline]
    pub(crate) fn room_cells(&self, now: Instant) -> usize {
        self.window.as_ref().map_or(usize::MAX, |window| window.room_cells(now) as usize)
    }

    /// Cells were given to the link to the next hop.
    #[inline]
    pub(crate) fn handle_left(&mut self, now: Instant, cells: u32) {
        if let Some(window) = &mut self.window {
            window.handle_sent(now, cells);
            if self.in_flight == 0 {
                self.feedback_at = now;
            }
            self.in_flight += cells;
        }
        self.pass_on(cells);
    }

    /// A cell has arrived from the previous hop.
    #[inline]
    pub(crate) fn handle_arrived(&mut self) {
        self.owed += u32::from(self.reports);
    }

    /// Cells have been forwarded or consumed. Some may be the relay's own; reports cover only received cells,
    /// never more, and in the end all of them.
    #[inline]
    pub(crate) fn pass_on(&mut self, cells: u32) {
        let forwarded = cells.min(self.owed);
        self.owed -= forwarded;
        self.unreported = self.unreported.saturating_add(forwarded);
    }

    /// The next hop reports this number of forwarded cells.
    pub(crate) fn handle_feedback(&mut self, now: Instant, cells: u32) -> Result<(), Excess> {
        self.in_flight = self.in_flight.checked_sub(cells).ok_or(Excess)?;
        self.feedback_at = now;
        if let Some(window) = &mut self.window {
            window.handle_feedback(now, cells);
        }
        Ok(())
    }

    /// Whether the next hop holds cells and has not reported any for several seconds.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.in_flight > 0 && now - self.feedback_at >= SILENCE
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether there is something to report that has not been noted: true once, until it is taken.
    #[inline]
    pub(crate) const fn has_report(&mut self) -> bool {
        self.unreported > 0 && !core::mem::replace(&mut self.is_noted, true)
    }

    /// Takes the number to report, at most as many as one entry can hold. Only a peer that exceeds its window
    /// has more; the rest is reported with the next entry.
    pub(crate) fn take_unreported(&mut self) -> u16 {
        let reported = u16::try_from(self.unreported).unwrap_or(u16::MAX);
        self.is_noted = false;
        self.unreported -= u32::from(reported);
        reported
    }

    /// The remaining account after the next hop is cut off and its queued cells are dropped: for the previous
    /// hop they count as forwarded. `None` if nothing remains.
    pub(crate) fn cut(&self) -> Option<Self> {
        let (unreported, is_noted) = (self.unreported + self.owed, self.is_noted);
        self.reports.then(|| Self { reports: true, unreported, is_noted, ..Self::default() })
    }

    /// The previous hop is gone.
    pub(crate) const fn forget_before(&mut self) {
        (self.reports, self.owed, self.unreported, self.is_noted) = (false, 0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::hop::FixedHopWindow;
    use proptest::prelude::*;

    const NOW: Instant = Instant::ORIGIN;

    proptest! {
        /// With cells of the relay's own among them, in any mixture.
        #[test]
        fn all_forwarded_cells_are_reported_and_no_others(
            steps in prop::collection::vec((0u32..5, 0u32..3, 0u32..9, any::<bool>()), 0..200),
        ) {
            let mut hops = HopAccount::default();
            hops.enable_reports();
            let (mut received, mut waiting, mut reported) = (0, 0, 0);
            for (arrives, own, leaves, reports) in steps {
                (0..arrives).for_each(|_| hops.handle_arrived());
                received += arrives;
                waiting += arrives + own;
                let leaves = leaves.min(waiting);
                hops.handle_left(NOW, leaves);
                waiting -= leaves;
                if reports {
                    reported += u32::from(hops.take_unreported());
                }
                prop_assert!(reported <= received);
            }
            hops.handle_left(NOW, waiting);
            prop_assert_eq!(reported + u32::from(hops.take_unreported()), received);
        }

        #[test]
        fn feedback_for_unsent_cells_is_rejected(
            steps in prop::collection::vec((0u32..9, 0u32..9), 0..100),
        ) {
            let mut hops = HopAccount::default();
            hops.set_window(Some(Box::new(FixedHopWindow::new(1000))));
            let mut in_flight = 0;
            for (sent, passed) in steps {
                hops.handle_left(NOW, sent);
                in_flight += sent;
                let outcome = hops.handle_feedback(NOW, passed);
                prop_assert_eq!(outcome.is_ok(), passed <= in_flight);
                in_flight -= if outcome.is_ok() { passed } else { 0 };
                prop_assert_eq!(hops.in_flight(), in_flight);
            }
        }
    }

    #[test]
    fn a_report_is_announced_once_until_it_is_taken() {
        let mut hops = HopAccount::default();
        hops.handle_arrived();
        hops.pass_on(1);
        assert!(!hops.has_report(), "reports are not enabled");
        hops.enable_reports();
        (0..2).for_each(|_| hops.handle_arrived());
        hops.pass_on(1);
        assert!(hops.has_report() && !hops.has_report());
        assert_eq!((hops.take_unreported(), hops.has_report()), (1, false));
        let mut cut = hops.cut().expect("reports are enabled");
        assert!(cut.has_report());
        assert_eq!(cut.take_unreported(), 1, "what was dropped");
    }
}
