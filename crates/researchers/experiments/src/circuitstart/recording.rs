//! Hop-by-hop windows that record their sizes.

use super::chain::Sizes;
use onion::flow::control::{Agreed, CircuitFlow, CongestionParams, FlowFactory};
use onion::flow::hop::{HopFlows, HopWindow};
use onion::{Duration, Instant};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The records of all windows of a relay, in the order of their first cells.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowLog(Arc<Mutex<Vec<WindowRecord>>>);

/// The record of one window.
#[derive(Debug, Default)]
struct WindowRecord {
    sizes: Sizes,
    /// When the next hop forwarded each cell, and how long after it was sent.
    round_trips: Vec<(Instant, Duration)>,
}

impl WindowLog {
    fn lock(&self) -> MutexGuard<'_, Vec<WindowRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of windows that have sent cells.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The time of the latest window's first cell, and its sizes, with times since then.
    pub(super) fn latest(&self) -> Option<(Instant, Sizes)> {
        let log = self.lock();
        let WindowRecord { sizes, .. } = log.last()?;
        let (begun, _) = *sizes.first()?;
        let since = |(at, size): &(Instant, u32)| (Instant::ORIGIN + (*at - begun), *size);
        Some((begun, sizes.iter().map(since).collect()))
    }

    /// The median round trip of the latest window's cells that were forwarded in this period.
    pub(super) fn round_trip(&self, period: Range<Instant>) -> Option<Duration> {
        let log = self.lock();
        let all = log.last()?.round_trips.iter().filter(|(at, _)| period.contains(at));
        let mut sorted: Vec<Duration> = all.map(|(_, took)| *took).collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// A flow control whose windows record their sizes.
#[derive(Debug)]
pub(super) struct RecordingFlows {
    pub(super) flows: HopFlows,
    pub(super) log: WindowLog,
}

impl FlowFactory for RecordingFlows {
    fn end(&self, params: &Arc<CongestionParams>, agreed: Agreed) -> Box<dyn CircuitFlow> {
        self.flows.end(params, agreed)
    }

    fn hop(&self) -> Option<Box<dyn HopWindow>> {
        let window = self.flows.hop()?;
        Some(Box::new(RecordingWindow {
            window,
            log: self.log.clone(),
            place: None,
            sent: VecDeque::new(),
        }))
    }
}

#[derive(Debug)]
struct RecordingWindow {
    window: Box<dyn HopWindow>,
    log: WindowLog,
    /// The index of its record, once it has sent a cell.
    place: Option<usize>,
    /// The send times of the cells in flight.
    sent: VecDeque<Instant>,
}

impl RecordingWindow {
    fn record(&mut self, now: Instant) {
        let size = self.window.size_cells();
        let mut log = self.log.lock();
        let place = *self.place.get_or_insert_with(|| {
            log.push(WindowRecord::default());
            log.len() - 1
        });
        let own = &mut log[place].sizes;
        if own.last().is_none_or(|(_, last)| *last != size) {
            own.push((now, size));
        }
    }
}

impl HopWindow for RecordingWindow {
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
            self.record(now);
        }
    }

    fn handle_feedback(&mut self, now: Instant, cells: u32) {
        self.window.handle_feedback(now, cells);
        self.record(now);
        let forwarded = self.sent.drain(..self.sent.len().min(cells as usize));
        let mut log = self.log.lock();
        if let Some(own) = self.place.and_then(|place| log.get_mut(place)) {
            own.round_trips.extend(forwarded.map(|sent| (now, now - sent)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::flow::hop::HopWindows;

    #[test]
    fn a_window_records_its_changes_once_it_has_sent_a_cell() {
        let log = WindowLog::default();
        let flows = HopWindows::CircuitStart.flows(Duration::ZERO);
        let flows = RecordingFlows { flows, log: log.clone() };
        let _unused = flows.hop();
        assert_eq!((log.count(), log.latest()), (0, None));
        for _ in 0..2 {
            let mut window = flows.hop().expect("it has some");
            let at = Instant::from_millis;
            window.handle_sent(at(100), window.room_cells(at(100)));
            window.handle_feedback(at(120), 1);
            window.handle_feedback(at(121), 1);
            let (begun, sizes) = log.latest().expect("it has sent");
            assert_eq!((begun, sizes), (at(100), vec![(at(0), 2), (at(21), 4)]));
            let round_trip = |from, to| log.round_trip(at(from)..at(to));
            assert_eq!(round_trip(121, 122), Some(Duration::from_millis(21)));
            assert_eq!(round_trip(0, 120), None);
        }
        assert_eq!(log.count(), 2);
    }
}
