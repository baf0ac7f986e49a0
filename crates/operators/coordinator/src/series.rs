//! From the measurers' per-second reports to an estimate (§4.1).

use crate::account::{Account, Waited};
use crate::allocation::{Assignment, MeasurerId};
use crate::bottleneck::{MeasurerResult, Queue};
use crate::failure::{Failure, Violation};
use crate::mode::Mode;
use crate::second::{SecondRecord, SecondReport, SecondTotals};
use crate::socket_ramp::Schedule;
use crate::stats::{Spread, median, median_rate};
use alloc::vec;
use alloc::vec::Vec;
use onion::{Duration, Rate};

/// A cell on a link (tor-spec §3).
const CELL_BYTES: u64 = 514;

/// The source of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A measurer: measurement traffic.
    Measurer(MeasurerId),
    /// The relay: client traffic.
    Relay,
}

/// A missing report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// *j*, counted from zero.
    pub second: u32,
    /// The source.
    pub source: Source,
}

/// The results of a complete series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Every second that counts, in order.
    pub seconds: Vec<SecondTotals>,
    /// The median of all *zⱼ*, bytes per second; see [`median`].
    pub median: u64,
    /// The mean of all *zⱼ*, rounded up.
    pub mean: u64,
    /// The spread of the *zⱼ*.
    pub spread: Spread,
}

/// The reports of one round. Seconds may arrive in any order, each once from each source.
///
/// No second is left out: the initial burst of a relay's token bucket is one second of many and has no effect on a
/// median (E.4 found no gain in ignoring the first seconds).
#[derive(Clone, Debug)]
pub struct Series {
    ratio: f64,
    schedule: Schedule,
    /// *xⱼ* as far as reported and [counted](Assignment::most_counted).
    sums: Vec<u64>,
    measurers: Vec<Reported>,
    /// *yⱼ*, in echo mode.
    client: Option<Vec<Option<u64>>>,
    checked_cells: u64,
}

#[derive(Clone, Debug)]
struct Reported {
    assignment: Assignment,
    /// *xⱼⁱ*, as far as reported.
    seconds: Vec<Option<u64>>,
    /// The cells checked in the same seconds.
    accounts: Vec<Option<Account>>,
    bytes: u64,
    checked_cells: u64,
    /// The total that the relay reports to have sent to it; `None` without such reports.
    sent_bytes: Option<u64>,
    /// The latest reported second.
    latest: u32,
}

impl Reported {
    /// The minimum round trip of its sockets.
    fn rtt(&self) -> Option<Duration> {
        self.accounts.iter().flatten().filter_map(|account| account.min_rtt).min()
    }

    fn account(&self, index: usize) -> Option<&Account> {
        self.accounts.get(index)?.as_ref()
    }
}

impl Series {
    /// An empty series of `seconds` seconds, to be reported by each assigned measurer, and by the relay in echo mode.
    /// `ratio` is *r*, below 1.
    #[must_use]
    pub fn new(
        mode: Mode,
        ratio: f64,
        seconds: u32,
        schedule: Schedule,
        assignments: impl IntoIterator<Item = Assignment>,
    ) -> Self {
        let count = seconds as usize;
        let reported = |assignment| Reported {
            assignment,
            seconds: vec![None; count],
            accounts: vec![None; count],
            bytes: 0,
            checked_cells: 0,
            sent_bytes: None,
            latest: 0,
        };
        Self {
            ratio,
            schedule,
            sums: vec![0; count],
            measurers: assignments.into_iter().map(reported).collect(),
            client: (mode == Mode::Echo).then(|| vec![None; count]),
            checked_cells: 0,
        }
    }

    /// Adds a measurer's report; the caller has checked the round.
    ///
    /// # Errors
    /// A measurer without a part, a second that does not exist or was already reported. The series is then unchanged.
    pub fn record(&mut self, measurer: MeasurerId, report: SecondReport) -> Result<(), Violation> {
        let (second, outside) = (report.second, self.no_such(report.second));
        let place =
            self.measurers.iter_mut().find(|reported| reported.assignment.measurer == measurer);
        let reported = place.ok_or(Violation::NotAssigned)?;
        let index = second as usize;
        let seen = reported.seconds.get_mut(index).ok_or(outside)?;
        let sum = self.sums.get_mut(index).ok_or(outside)?;
        if seen.is_some() {
            return Err(Violation::DuplicateSecond { second });
        }
        *seen = Some(report.bytes);
        if let Some(place) = reported.accounts.get_mut(index) {
            *place = report.account;
        }
        *sum = sum.saturating_add(report.bytes.min(reported.assignment.most_counted()));
        reported.bytes = reported.bytes.saturating_add(report.bytes);
        reported.checked_cells = reported.checked_cells.saturating_add(report.checked_cells);
        reported.latest = reported.latest.max(second);
        self.checked_cells = self.checked_cells.saturating_add(report.checked_cells);
        Ok(())
    }

    /// Whether a measurer's reports of returned bytes do not exceed what it may have sent.
    ///
    /// In transit nothing more can be verified. The measurer alone knows in which seconds the bytes arrived, and is
    /// trusted in this respect (§5). A participating relay reports what it has sent back; see
    /// [`disagreement`](Self::disagreement).
    ///
    /// # Errors
    /// [`Violation::TooMuch`].
    pub fn check(&self, measurer: MeasurerId) -> Result<(), Violation> {
        let is_it = |reported: &&Reported| reported.assignment.measurer == measurer;
        let Some(reported) = self.measurers.iter().find(is_it) else { return Ok(()) };
        let (second, bytes) = (reported.latest, reported.bytes);
        let allowed = reported.assignment.most_returned(second);
        if bytes <= allowed { Ok(()) } else { Err(Violation::TooMuch { second, bytes, allowed }) }
    }

    /// Adds the relay's report of *yⱼ*, in bytes.
    ///
    /// # Errors
    /// Transit mode, or a second that does not exist or was already reported. The series is then unchanged.
    pub fn record_client(&mut self, second: u32, bytes: u64) -> Result<(), Violation> {
        let outside = self.no_such(second);
        let client = self.client.as_mut().ok_or(Violation::NotAssigned)?;
        let slot = client.get_mut(second as usize).ok_or(outside)?;
        if slot.is_some() {
            return Err(Violation::DuplicateSecond { second });
        }
        *slot = Some(bytes);
        Ok(())
    }

    /// Adds the relay's report of the bytes sent to a measurer in a second. [`record_client`](Self::record_client)
    /// checks the order of seconds. Does nothing for a measurer without a part.
    pub fn record_sent(&mut self, measurer: MeasurerId, bytes: u64) {
        let is_it = |reported: &&mut Reported| reported.assignment.measurer == measurer;
        if let Some(reported) = self.measurers.iter_mut().find(is_it) {
            let sum = reported.sent_bytes.unwrap_or(0).saturating_add(bytes);
            reported.sent_bytes = Some(sum);
        }
    }

    /// The first measurer whose count of returned bytes differs from the relay's. `None` if they agree, or if the relay
    /// does not report. Only of a complete series.
    #[must_use]
    pub fn disagreement(&self) -> Option<(MeasurerId, Failure)> {
        self.measurers.iter().find_map(|measurer| {
            let (returned_bytes, sent_bytes) = (measurer.bytes, measurer.sent_bytes?);
            let agrees = measurer.assignment.agrees(returned_bytes, sent_bytes, self.len());
            let failure = Failure::CountsDiffer { returned_bytes, sent_bytes };
            (!agrees).then_some((measurer.assignment.measurer, failure))
        })
    }

    /// The first measurer that checked no cell although it received enough cells to have checked some. `check_share` is
    /// *p*. Only of a complete series.
    #[must_use]
    pub fn unchecked(&self, check_share: f64) -> Option<(MeasurerId, Failure)> {
        /// One cell is checked in each bucket of 1/*p*: with fewer buckets than this on many circuits, none may be
        /// full.
        const CHECKS_MIN: f64 = 20.0;
        self.measurers.iter().find_map(|measurer| {
            let cells = measurer.bytes / CELL_BYTES;
            let should_check = cells as f64 * check_share >= CHECKS_MIN;
            let failure = Failure::MeasurerViolation(Violation::Unchecked { cells });
            (measurer.checked_cells == 0 && should_check)
                .then_some((measurer.assignment.measurer, failure))
        })
    }

    /// A second, once all have reported it.
    #[must_use]
    pub fn second(&self, second: u32) -> Option<SecondTotals> {
        let index = second as usize;
        let measured = *self.sums.get(index)?;
        let is_there =
            |reported: &Reported| reported.seconds.get(index).is_some_and(Option::is_some);
        if !self.measurers.iter().all(is_there) {
            return None;
        }
        let client_reported = match &self.client {
            Some(client) => Some((*client.get(index)?)?),
            None => None,
        };
        Some(SecondTotals::new(second, measured, client_reported, self.ratio))
    }

    /// The kernel's account of a measurer's sockets in a second, if any.
    #[must_use]
    pub fn account(&self, measurer: MeasurerId, second: u32) -> Option<&Account> {
        let reported =
            self.measurers.iter().find(|reported| reported.assignment.measurer == measurer)?;
        reported.account(second as usize)
    }

    /// The reports of each source for each second, up to the last with any report.
    #[must_use]
    pub fn records(&self) -> Vec<SecondRecord> {
        let client =
            |index: usize| self.client.as_ref().and_then(|client| client.get(index).copied()?);
        let second = |second: u32| {
            let index = second as usize;
            let returned = |reported: &Reported| reported.seconds.get(index).copied().flatten();
            SecondRecord {
                second,
                returned_bytes: self.measurers.iter().map(returned).collect(),
                client_bytes: client(index),
                relay_reported: None,
                accounts: self.accounts(index),
            }
        };
        let mut seconds: Vec<SecondRecord> = (0..self.len()).map(second).collect();
        while seconds.pop_if(|second| second.is_silent()).is_some() {}
        seconds
    }

    /// The seconds that count and that all have reported so far, in order.
    pub fn complete(&self) -> impl Iterator<Item = SecondTotals> {
        (self.schedule.lead_s..self.len()).filter_map(|second| self.second(second))
    }

    /// The earliest report that is still missing.
    #[must_use]
    pub fn first_missing(&self) -> Option<Missing> {
        let measurers = self.measurers.iter().filter_map(|reported| {
            let second = first(&reported.seconds, Option::is_none)?;
            Some(Missing { second, source: Source::Measurer(reported.assignment.measurer) })
        });
        let client = self.client.as_ref().and_then(|client| {
            let second = first(client, Option::is_none)?;
            Some(Missing { second, source: Source::Relay })
        });
        measurers.chain(client).min_by_key(|missing| missing.second)
    }

    /// The results. A second that was not reported is never counted as zero.
    ///
    /// # Errors
    /// The earliest missing report.
    pub fn summary(&self) -> Result<Summary, Missing> {
        if let Some(missing) = self.first_missing() {
            return Err(missing);
        }
        let seconds: Vec<SecondTotals> = self.complete().collect();
        let sorted = sorted_totals(&seconds);
        Ok(Summary {
            median: median(&sorted).unwrap_or_default(),
            mean: mean(&sorted, sorted.len()),
            spread: Spread::from_sorted(&sorted).unwrap_or_default(),
            seconds,
        })
    }

    /// The median of the seconds that are complete so far, bytes per second; zero without any.
    #[must_use]
    pub fn median_so_far(&self) -> u64 {
        let seconds: Vec<SecondTotals> = self.complete().collect();
        median(&sorted_totals(&seconds)).unwrap_or_default()
    }

    /// The mean of all seconds that count, with zero for those that are not reported yet, in bytes per second.
    #[must_use]
    pub fn least_mean(&self) -> u64 {
        let seconds: Vec<SecondTotals> = self.complete().collect();
        mean(&sorted_totals(&seconds), self.counted())
    }

    /// Whether more than half of *all* seconds are known to reach `limit` already: then the median
    /// will too, whatever the others are.
    ///
    /// Proof. Let *k* > *t*/2 of the *t* totals be ≥ *L*; fewer than *t*/2 are below. If *t* is
    /// odd, at most (*t*−1)/2 are below, so the (*t*+1)/2-th smallest, the median, is ≥ *L*. If
    /// *t* is even, at most *t*/2−1 are below, so the *t*/2-th smallest and the next one are both
    /// ≥ *L*, and so is their mean; rounding it down does not pass the smaller of the two.
    #[must_use]
    pub fn median_must_reach(&self, limit: Rate) -> bool {
        let reach = |totals: &SecondTotals| Rate::from_byte_per_s(totals.total()) >= limit;
        self.complete().filter(reach).count() > self.counted() / 2
    }

    /// Whether, from this second to the last, the relay had taken cells and returned none, [though it was
    /// reachable](Account::shows_stalled_relay), by the latest report of this measurer, or of any if `None`. A measurer
    /// whose machine was suspended samples its sockets late or not at all, and the next interval is short. A pump that
    /// gave up at the end of a second sampled at the end of the previous one.
    #[must_use]
    pub fn shows_stalled_relay(&self, at: Option<MeasurerId>, from: u32) -> bool {
        const TIMELY: core::ops::Range<Duration> =
            Duration::from_millis(500)..Duration::from_millis(2000);
        let is_asked =
            |reported: &&Reported| at.is_none_or(|at| reported.assignment.measurer == at);
        self.measurers.iter().filter(is_asked).any(|measurer| {
            let reports = measurer.seconds.iter().zip(&measurer.accounts).skip(from as usize).rev();
            let latest = reports.skip_while(|(bytes, _)| bytes.is_none());
            let silent = latest.take_while(|(bytes, _)| **bytes == Some(0));
            let mut accounts = silent.filter_map(|(_, account)| account.as_ref());
            accounts.find(|account| account.elapsed >= TIMELY.start).is_some_and(|account| {
                TIMELY.contains(&account.elapsed) && account.shows_stalled_relay()
            })
        })
    }

    /// Whether, from this second on, anything came back to a measurer other than `except`.
    #[must_use]
    pub fn others_were_served(&self, except: Option<MeasurerId>, from: u32) -> bool {
        let others =
            self.measurers.iter().filter(|measurer| Some(measurer.assignment.measurer) != except);
        let mut seconds =
            others.flat_map(|other| other.seconds.iter().skip(from as usize).flatten());
        seconds.any(|second| *second > 0)
    }

    /// Whether the relay's host was reachable in at least half of the seconds in which nothing came back to any
    /// measurer: it answered a new connection, and the relay had data to send back.
    #[must_use]
    pub fn was_idle_in_reach(&self) -> bool {
        let shows =
            |account: &Account| account.taken_bytes() > 0 && account.answered_after.is_some();
        let is_in_reach = |second: usize| {
            self.measurers.iter().filter_map(|measurer| measurer.account(second)).any(shows)
        };
        let idle = || (0..).zip(&self.sums).filter(|(_, sum)| **sum == 0).map(|(second, _)| second);
        let in_reach = idle().filter(|second| is_in_reach(*second)).count();
        in_reach > 0 && 2 * in_reach >= idle().count()
    }

    /// Whether all returned traffic ended with this second or the next, as far as reported, and no report shows that
    /// the relay was still reachable. A measurer that does not report this second may be cut off: it sends the report
    /// when the next one has begun.
    #[must_use]
    pub fn is_cut_off_after(&self, second: u32) -> bool {
        let index = second as usize + 1;
        let later = |measurer: &Reported| {
            let reported = measurer.seconds.iter().skip(index).flatten();
            reported.copied().collect::<Vec<u64>>()
        };
        let reports: Vec<Vec<u64>> = self.measurers.iter().map(later).collect();
        let is_over = |bytes: &Vec<u64>| {
            bytes.last().is_none_or(|last| *last == 0)
                && bytes.iter().skip(1).all(|count| *count == 0)
        };
        reports.iter().any(|report| !report.is_empty())
            && reports.iter().all(is_over)
            && !self.shows_stalled_relay(None, second.saturating_add(1))
    }

    /// Correct cells among those checked, over all measurers and seconds.
    #[must_use]
    pub const fn checked_cells(&self) -> u64 {
        self.checked_cells
    }

    /// Whether this measurer got at least a byte back, in any second reported so far.
    #[must_use]
    pub fn got_anything(&self, measurer: MeasurerId) -> bool {
        self.measurers
            .iter()
            .any(|reported| reported.assignment.measurer == measurer && reported.bytes > 0)
    }

    /// The maximum, over the measurers, of the minimum round trip to the relay; `None` if unknown.
    #[must_use]
    pub fn farthest(&self) -> Option<Duration> {
        self.measurers.iter().filter_map(Reported::rtt).max()
    }

    /// The bytes that came back to a measurer in the median second of those that count and that it has reported; zero
    /// if it has no part.
    #[must_use]
    pub fn got(&self, measurer: MeasurerId) -> Rate {
        let Some(reported) =
            self.measurers.iter().find(|reported| reported.assignment.measurer == measurer)
        else {
            return Rate::ZERO;
        };
        let counted = reported.seconds.iter().skip(self.schedule.lead_s as usize).flatten();
        let most = reported.assignment.most_counted();
        median_rate(counted.map(|bytes| Rate::from_byte_per_s((*bytes).min(most))))
            .unwrap_or(Rate::ZERO)
    }

    /// The measurers whose processors were busy in at least half of the counted seconds that have an account.
    pub(crate) fn mostly_busy(&self) -> impl Iterator<Item = MeasurerId> {
        let lead = self.schedule.lead_s as usize;
        let is_busy = move |reported: &&Reported| {
            let waited = || reported.accounts.iter().skip(lead).flatten().map(Account::waited);
            let busy = waited().filter(|waited| *waited == Waited::Processor).count();
            busy > 0 && 2 * busy >= waited().count()
        };
        self.measurers.iter().filter(is_busy).map(|share| share.assignment.measurer)
    }

    /// Each measurer's results in the seconds that count.
    pub(crate) fn measurer_results(&self) -> Vec<MeasurerResult> {
        let lead = self.schedule.lead_s as usize;
        let result = |reported: &Reported| {
            let got = self.got(reported.assignment.measurer);
            MeasurerResult::new(
                reported.assignment,
                got,
                reported.accounts.iter().skip(lead).flatten(),
            )
        };
        self.measurers.iter().map(result).collect()
    }

    /// The bytes that came back to some of the measurers, in the seconds that count, once all have reported.
    pub(crate) fn measured_by(&self, is_one: impl Fn(MeasurerId) -> bool) -> Vec<SecondTotals> {
        let some: Vec<&Reported> =
            self.measurers.iter().filter(|measurer| is_one(measurer.assignment.measurer)).collect();
        let total = |second: u32| {
            let bytes = some.iter().map(|reported| {
                let bytes = reported.seconds.get(second as usize).copied().flatten();
                bytes.unwrap_or(0).min(reported.assignment.most_counted())
            });
            SecondTotals::new(second, bytes.sum(), None, self.ratio)
        };
        (self.schedule.lead_s..self.len()).map(total).collect()
    }

    /// The queueing delay on each measurer's path, for those that got anything back and have accounts.
    pub(crate) fn queues(&self) -> Vec<Queue> {
        let lead = self.schedule.lead_s as usize;
        let queue = |reported: &Reported| {
            Queue::from_accounts(
                reported.assignment.measurer,
                reported.accounts.iter().skip(lead).flatten(),
            )
        };
        self.measurers.iter().filter(|measurer| measurer.bytes > 0).filter_map(queue).collect()
    }

    /// The accounts of all measurers, in order; empty if there are none.
    fn accounts(&self, index: usize) -> Vec<Option<Account>> {
        let accounts: Vec<_> =
            self.measurers.iter().map(|measurer| measurer.account(index).copied()).collect();
        if accounts.iter().all(Option::is_none) { Vec::new() } else { accounts }
    }

    /// *t*.
    fn counted(&self) -> usize {
        self.sums.len().saturating_sub(self.schedule.lead_s as usize)
    }

    /// All seconds, including those that do not count.
    fn len(&self) -> u32 {
        u32::try_from(self.sums.len()).unwrap_or(u32::MAX)
    }

    fn no_such(&self, second: u32) -> Violation {
        Violation::NoSuchSecond { second, seconds: self.len() }
    }
}

fn first<T>(items: &[T], is_it: impl FnMut(&T) -> bool) -> Option<u32> {
    items.iter().position(is_it).and_then(|index| u32::try_from(index).ok())
}

/// The mean of `count` totals, with zero for missing ones; rounded up, so that it is zero only if all are.
fn mean(totals: &[u64], count: usize) -> u64 {
    let sum: u128 = totals.iter().map(|total| u128::from(*total)).sum();
    u64::try_from(sum.div_ceil(count.max(1) as u128)).unwrap_or(u64::MAX)
}

/// The spread of the seconds' totals; zero without any.
pub(crate) fn spread(seconds: &[SecondTotals]) -> Spread {
    Spread::from_sorted(&sorted_totals(seconds)).unwrap_or_default()
}

fn sorted_totals(seconds: &[SecondTotals]) -> Vec<u64> {
    let mut totals: Vec<u64> = seconds.iter().map(SecondTotals::total).collect();
    totals.sort_unstable();
    totals
}

#[cfg(test)]
mod tests;
