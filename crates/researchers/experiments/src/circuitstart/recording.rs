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

    /// The number of windows that have sent data.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The time of the latest window's first data cell, and its sizes, with times since then.
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

    /// The shortest round trip of all cells of all windows.
    pub(super) fn least_round_trip(&self) -> Option<Duration> {
        let log = self.lock();
        log.iter().flat_map(|record| &record.round_trips).map(|(_, took)| *took).min()
    }
}

/// A flow control whose windows record their sizes.
#[derive(Debug)]
pub(super) struct RecordingFlows {
    pub(super) flows: HopFlows,
    pub(super) log: WindowLog,
    /// Cells of a circuit before its data, which are not recorded: one CONNECTED cell for each stream.
    pub(super) cells_before_data: u64,
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
            before_data: self.cells_before_data,
            sent: VecDeque::new(),
        }))
    }
}

#[derive(Debug)]
struct RecordingWindow {
    window: Box<dyn HopWindow>,
    log: WindowLog,
    /// The index of its record, once it has sent data.
    place: Option<usize>,
    /// Cells that will be sent before the first data cell.
    before_data: u64,
    /// The send times of the cells in flight.
    sent: VecDeque<Instant>,
}

impl RecordingWindow {
    fn begin_record(&mut self) {
        let mut log = self.log.lock();
        log.push(WindowRecord::default());
        self.place = Some(log.len() - 1);
    }

    fn record(&self, now: Instant) {
        let size = self.window.size_cells();
        let mut log = self.log.lock();
        let Some(record) = self.place.and_then(|place| log.get_mut(place)) else { return };
        if record.sizes.last().is_none_or(|(_, last)| *last != size) {
            record.sizes.push((now, size));
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
        self.sent.extend((0..cells).map(|_| now));
        let data = u64::from(cells).saturating_sub(self.before_data);
        self.before_data = self.before_data.saturating_sub(cells.into());
        if self.place.is_none() && data > 0 {
            self.begin_record();
        }
        self.record(now);
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

    fn recording(cells_before_data: u64) -> (WindowLog, RecordingFlows) {
        let log = WindowLog::default();
        let flows = HopWindows::CircuitStart.flows(Duration::ZERO);
        (log.clone(), RecordingFlows { flows, log, cells_before_data })
    }

    #[test]
    fn cells_before_the_data_are_not_recorded() {
        let (log, flows) = recording(2);
        let mut window = flows.hop().expect("it has some");
        let at = Instant::from_millis;
        window.handle_sent(at(100), 2);
        window.handle_feedback(at(120), 2);
        assert_eq!((log.count(), log.latest()), (0, None));
        window.handle_sent(at(500), 1);
        window.handle_sent(at(501), 3);
        window.handle_feedback(at(530), 4);
        assert_eq!(log.latest(), Some((at(500), vec![(at(0), 4), (at(30), 8)])));
    }

    #[test]
    fn a_window_records_its_changes_once_it_has_sent_a_cell() {
        let (log, flows) = recording(0);
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
            assert_eq!(log.least_round_trip(), Some(Duration::from_millis(20)));
        }
        assert_eq!(log.count(), 2);
    }
}
