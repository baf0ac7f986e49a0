//! Windows that write down their sizes.

use super::chain::Sizes;
use onion::flow::control::{Agreed, CircuitFlow, CongestionParams, FlowFactory};
use onion::flow::hop::{HopFlows, HopWindow};
use onion::{Duration, Instant};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all windows of a relay have written down, in the order in which they first sent something.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowLog(Arc<Mutex<Vec<Noted>>>);

/// What one window has written down.
#[derive(Debug, Default)]
struct Noted {
    sizes: Sizes,
    /// When cells were passed on, and how long after they were sent.
    round_trips: Vec<(Instant, Duration)>,
}

impl WindowLog {
    fn lock(&self) -> MutexGuard<'_, Vec<Noted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Windows that have sent something.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The latest of them: when it first sent something, and its sizes, with times since then.
    pub(super) fn latest(&self) -> Option<(Instant, Sizes)> {
        let notes = self.lock();
        let Noted { sizes, .. } = notes.last()?;
        let (begun, _) = *sizes.first()?;
        let since = |(at, size): &(Instant, u32)| (Instant::ORIGIN + (*at - begun), *size);
        Some((begun, sizes.iter().map(since).collect()))
    }

    /// The median round trip of the latest one's cells that were passed on in this time.
    pub(super) fn round_trip(&self, time: Range<Instant>) -> Option<Duration> {
        let notes = self.lock();
        let all = notes.last()?.round_trips.iter().filter(|(at, _)| time.contains(at));
        let mut sorted: Vec<Duration> = all.map(|(_, took)| *took).collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// A flow control whose windows record their sizes.
#[derive(Debug)]
pub(super) struct NotedFlows {
    pub(super) flows: HopFlows,
    pub(super) notes: WindowLog,
}

impl FlowFactory for NotedFlows {
    fn end(&self, params: &Arc<CongestionParams>, agreed: Agreed) -> Box<dyn CircuitFlow> {
        self.flows.end(params, agreed)
    }

    fn hop(&self) -> Option<Box<dyn HopWindow>> {
        let window = self.flows.hop()?;
        Some(Box::new(NotedWindow {
            window,
            notes: self.notes.clone(),
            place: None,
            sent: VecDeque::new(),
        }))
    }
}

#[derive(Debug)]
struct NotedWindow {
    window: Box<dyn HopWindow>,
    notes: WindowLog,
    /// Where its own notes are, once it has sent something.
    place: Option<usize>,
    /// When each of the cells under way was sent.
    sent: VecDeque<Instant>,
}

impl NotedWindow {
    fn note(&mut self, now: Instant) {
        let size = self.window.size_cells();
        let mut notes = self.notes.lock();
        let place = *self.place.get_or_insert_with(|| {
            notes.push(Noted::default());
            notes.len() - 1
        });
        let own = &mut notes[place].sizes;
        if own.last().is_none_or(|(_, last)| *last != size) {
            own.push((now, size));
        }
    }
}

impl HopWindow for NotedWindow {
    fn size_cells(&self) -> u32 {
        self.window.size_cells()
    }

    fn room_cells(&self, now: Instant) -> u32 {
        self.window.room_cells(now)
    }

    fn handle_sent(&mut self, now: Instant, cells: u32) {
        self.window.handle_sent(now, cells);
        if cells > 0 {
            self.sent.extend((0..cells).map(|_| now));
            self.note(now);
        }
    }

    fn handle_feedback(&mut self, now: Instant, cells: u32) {
        self.window.handle_feedback(now, cells);
        self.note(now);
        let passed = self.sent.drain(..self.sent.len().min(cells as usize));
        let mut notes = self.notes.lock();
        if let Some(own) = self.place.and_then(|place| notes.get_mut(place)) {
            own.round_trips.extend(passed.map(|sent| (now, now - sent)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::flow::hop::HopWindows;

    #[test]
    fn a_window_writes_down_when_it_changes_and_one_that_is_not_used_nothing() {
        let notes = WindowLog::default();
        let flows = HopWindows::CircuitStart.flows(Duration::ZERO);
        let noted = NotedFlows { flows, notes: notes.clone() };
        let _unused = noted.hop();
        assert_eq!((notes.count(), notes.latest()), (0, None));
        for _ in 0..2 {
            let mut window = noted.hop().expect("it has some");
            let at = Instant::from_millis;
            window.handle_sent(at(100), window.room_cells(at(100)));
            window.handle_feedback(at(120), 1);
            window.handle_feedback(at(121), 1);
            let (begun, sizes) = notes.latest().expect("it has sent");
            assert_eq!((begun, sizes), (at(100), vec![(at(0), 2), (at(21), 4)]));
            let round_trip = |from, to| notes.round_trip(at(from)..at(to));
            assert_eq!(round_trip(121, 122), Some(Duration::from_millis(21)));
            assert_eq!(round_trip(0, 120), None);
        }
        assert_eq!(notes.count(), 2);
    }
}
