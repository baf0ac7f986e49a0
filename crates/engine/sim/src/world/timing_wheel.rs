//! Mail in transit, by window and recipient.

use super::message::Mail;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Windows with a slot in the wheel; mail for later windows is kept separately.
const WINDOWS: u64 = 512;

/// Hosts whose mail of a window is adjacent. So few that it stays in the processor's cache, however large the
/// network is.
pub(super) const GROUP_HOSTS: usize = 256;

/// Mails per batch. A batch is 2 KB.
pub(super) const BATCH_MAILS: usize = 32;

/// The mail of some hosts in some window, in batches: memory is proportional to the mail in transit, and no
/// window keeps its peak.
#[derive(Debug, Default)]
struct Day {
    full: Vec<Vec<Mail>>,
    last: Vec<Mail>,
}

/// Mail by window and by groups of hosts.
#[derive(Debug)]
pub(super) struct TimingWheel {
    groups: usize,
    days: Vec<Day>,
    /// Mail for later windows, with the group.
    later: BTreeMap<u64, Vec<(usize, Mail)>>,
    /// Empty batches. The one emptied last is reused first: it is in the cache.
    empty: Vec<Vec<Mail>>,
}

impl TimingWheel {
    pub(super) fn new(hosts: usize) -> Self {
        let groups = hosts.div_ceil(GROUP_HOSTS).max(1);
        let windows = usize::try_from(WINDOWS).unwrap_or(0);
        Self {
            groups,
            days: (0..windows * groups).map(|_| Day::default()).collect(),
            later: BTreeMap::new(),
            empty: Vec::new(),
        }
    }

    pub(super) const fn groups(&self) -> usize {
        self.groups
    }

    fn day(&mut self, window: u64, group: usize) -> &mut Day {
        let window = usize::try_from(window % WINDOWS).unwrap_or(0);
        &mut self.days[window * self.groups + group]
    }

    /// Adds mail for the host with this index, for `window`. The next window to run is `now`.
    pub(super) fn put(&mut self, now: u64, window: u64, place: usize, mail: Mail) {
        let group = place / GROUP_HOSTS;
        // The previous window may still be running: its slot is not free yet.
        if window + 1 < now + WINDOWS {
            self.put_near(window, group, mail);
        } else {
            self.later.entry(window).or_default().push((group, mail));
        }
    }

    fn put_near(&mut self, window: u64, group: usize, mail: Mail) {
        let place = usize::try_from(window % WINDOWS).unwrap_or(0) * self.groups + group;
        let day = &mut self.days[place];
        if day.last.capacity() == 0 || day.last.len() >= BATCH_MAILS {
            let room = || Vec::with_capacity(BATCH_MAILS);
            let full = core::mem::replace(&mut day.last, self.empty.pop().unwrap_or_else(room));
            if !full.is_empty() {
                day.full.push(full);
            }
        }
        day.last.push(mail);
    }

    /// Begins this window: mail that was kept separately moves into the wheel.
    pub(super) fn begin(&mut self, window: u64) {
        while let Some(first) = self.later.first_entry().filter(|entry| *entry.key() <= window) {
            for (group, mail) in first.remove() {
                self.put_near(window, group, mail);
            }
        }
    }

    /// A group's mail of this window, unsorted.
    pub(super) fn take(&mut self, window: u64, group: usize, into: &mut Vec<Vec<Mail>>) {
        let day = self.day(window, group);
        into.append(&mut day.full);
        if !day.last.is_empty() {
            into.push(core::mem::take(&mut day.last));
        }
    }

    /// Returns batches.
    pub(super) fn give_back(&mut self, batches: &mut Vec<Vec<Mail>>) {
        for mut batch in batches.drain(..) {
            batch.clear();
            self.empty.push(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_delivered_in_their_window() {
        let mut wheel = TimingWheel::new(2 * GROUP_HOSTS);
        let (mut sent, mut come) = (0, 0);
        for window in 0..4 * WINDOWS {
            wheel.begin(window);
            for group in 0..wheel.groups() {
                let mut today = Vec::new();
                wheel.take(window, group, &mut today);
                assert!(today.iter().flatten().all(|mail| mail.at == window));
                come += today.iter().map(Vec::len).sum::<usize>();
                wheel.give_back(&mut today);
                for ahead in [1, 2, WINDOWS - 1, WINDOWS, WINDOWS + 1].iter().cycle().take(50) {
                    let at = window + ahead;
                    let place = GROUP_HOSTS * usize::from(at % 2 == 0);
                    wheel.put(window + 1, at, place, Mail { at, ..Mail::NONE });
                    sent += usize::from(at < 4 * WINDOWS);
                }
            }
        }
        assert_eq!(come, sent);
    }
}
