use super::HopWindow;
use crate::time::{Duration, Instant};
use alloc::boxed::Box;
use core::fmt;

/// Who has cells of a circuit, and has said nothing of them for so long, is silent: longer than a slow link takes for a cell.
const SILENCE: Duration = Duration::from_secs(3);

/// The next hop says that it has passed on more cells than it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess;

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reported more forwarded cells than it received")
    }
}

/// What one side of a link keeps of one circuit's cells, one way, for windows from hop to hop. The cells come from the hop *before*, and go to
/// the *next* one. A client has one for both ways: what comes is for it, and what goes is its own.
#[derive(Debug, Default)]
pub(crate) struct HopAccount {
    /// What may be under way to the next hop; none if that one gives no feedback.
    window: Option<Box<dyn HopWindow>>,
    /// Cells that the next hop got and has not passed on, as far as it says.
    in_flight: u32,
    /// When the next hop has last said that it passed some on, or has got the first of those that it has.
    heard_at: Instant,
    /// The hop before is told of cells that are passed on.
    tells: bool,
    /// Cells from the hop before that are still here.
    owed: u32,
    /// Cells from there that are passed on, and it has not been told.
    untold: u32,
    /// It is known that there is something to tell.
    is_noted: bool,
}

impl HopAccount {
    /// That of a circuit at the client that has built it.
    pub(crate) fn of_client(window: Option<Box<dyn HopWindow>>) -> Self {
        Self { window, tells: true, ..Self::default() }
    }

    pub(crate) fn set_window(&mut self, window: Option<Box<dyn HopWindow>>) {
        self.window = window;
        self.in_flight = 0;
    }

    pub(crate) const fn tell(&mut self) {
        self.tells = true;
    }

    /// Cells that may go to the next hop now.
    #[inline]
    pub(crate) fn room_cells(&self, now: Instant) -> usize {
        self.window.as_ref().map_or(usize::MAX, |window| window.room_cells(now) as usize)
    }

    /// So many cells were given to the link to the next hop.
    #[inline]
    pub(crate) fn handle_left(&mut self, now: Instant, cells: u32) {
        if let Some(window) = &mut self.window {
            window.handle_sent(now, cells);
            if self.in_flight == 0 {
                self.heard_at = now;
            }
            self.in_flight += cells;
        }
        self.pass_on(cells);
    }

    /// A cell has come from the hop before.
    #[inline]
    pub(crate) fn handle_came(&mut self) {
        self.owed += u32::from(self.tells);
    }

    /// So many cells have gone on, or were for this relay. Some may be of its own making, and only what came is told: never more, and
    /// in the end all of it.
    #[inline]
    pub(crate) fn pass_on(&mut self, cells: u32) {
        let came = cells.min(self.owed);
        self.owed -= came;
        self.untold = self.untold.saturating_add(came);
    }

    /// The next hop has passed so many on.
    pub(crate) fn handle_feedback(&mut self, now: Instant, cells: u32) -> Result<(), Excess> {
        self.in_flight = self.in_flight.checked_sub(cells).ok_or(Excess)?;
        self.heard_at = now;
        if let Some(window) = &mut self.window {
            window.handle_feedback(now, cells);
        }
        Ok(())
    }

    /// Whether the next hop has cells, and has not said for some seconds that it has passed any on.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.in_flight > 0 && now - self.heard_at >= SILENCE
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// There is something to tell the hop before, and nobody knows yet: true once, until it is told.
    #[inline]
    pub(crate) const fn has_news(&mut self) -> bool {
        self.untold > 0 && !core::mem::replace(&mut self.is_noted, true)
    }

    /// What is to be told, as far as one entry says it. More is under way only from who keeps to no window: the rest goes with the next.
    pub(crate) fn take_untold(&mut self) -> u16 {
        let told = u16::try_from(self.untold).unwrap_or(u16::MAX);
        self.is_noted = false;
        self.untold -= u32::from(told);
        told
    }

    /// What is left of it when the way to the next hop is cut, and the cells that waited for it are dropped: for the hop before they have
    /// passed. None if nothing is.
    pub(crate) fn cut(&self) -> Option<Self> {
        let (untold, is_noted) = (self.untold + self.owed, self.is_noted);
        self.tells.then(|| Self { tells: true, untold, is_noted, ..Self::default() })
    }

    /// The hop before is no more.
    pub(crate) const fn forget_before(&mut self) {
        (self.tells, self.owed, self.untold, self.is_noted) = (false, 0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::hop::FixedHopWindow;
    use proptest::prelude::*;

    const NOW: Instant = Instant::ORIGIN;

    proptest! {
        /// Cells of the relay's own among them, however they are mixed.
        #[test]
        fn no_more_is_told_than_came_and_in_the_end_all_of_it(
            steps in prop::collection::vec((0u32..5, 0u32..3, 0u32..9, any::<bool>()), 0..200),
        ) {
            let mut hops = HopAccount::default();
            hops.tell();
            let (mut came, mut waiting, mut told) = (0, 0, 0);
            for (comes, own, leaves, tells) in steps {
                (0..comes).for_each(|_| hops.handle_came());
                came += comes;
                waiting += comes + own;
                let leaves = leaves.min(waiting);
                hops.handle_left(NOW, leaves);
                waiting -= leaves;
                if tells {
                    told += u32::from(hops.take_untold());
                }
                prop_assert!(told <= came);
            }
            hops.handle_left(NOW, waiting);
            prop_assert_eq!(told + u32::from(hops.take_untold()), came);
        }

        #[test]
        fn what_the_next_hop_was_not_given_it_cannot_have_passed_on(
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
    fn there_is_news_once_until_it_is_told() {
        let mut hops = HopAccount::default();
        hops.handle_came();
        hops.pass_on(1);
        assert!(!hops.has_news(), "nobody is to be told");
        hops.tell();
        (0..2).for_each(|_| hops.handle_came());
        hops.pass_on(1);
        assert!(hops.has_news() && !hops.has_news());
        assert_eq!((hops.take_untold(), hops.has_news()), (1, false));
        let mut cut = hops.cut().expect("it tells");
        assert!(cut.has_news());
        assert_eq!(cut.take_untold(), 1, "what was dropped");
    }
}
