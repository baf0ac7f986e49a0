//! Mail that is under way, by when and to whom it comes.

use super::message::Mail;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Windows for which mail has a place here; what comes later waits apart.
const WINDOWS: u64 = 512;

/// Hosts whose mail of a window lies together. So few that it stays in the processor's cache, however large the network is.
pub(super) const GROUP_HOSTS: usize = 256;

/// Mails of a batch. It is 2 KB.
pub(super) const BATCH_MAILS: usize = 32;

/// Mail of some hosts in some window, in batches: what is under way takes as much room as there is of it, and no window keeps what it needed once.
#[derive(Debug, Default)]
struct Day {
    full: Vec<Vec<Mail>>,
    last: Vec<Mail>,
}

/// Mail by window, and by groups of hosts.
#[derive(Debug)]
pub(super) struct TimingWheel {
    groups: usize,
    days: Vec<Day>,
    /// By window, with the group.
    later: BTreeMap<u64, Vec<(usize, Mail)>>,
    /// Batches that are empty. The one that was emptied last is used first: the processor still has it at hand.
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

    /// Takes mail for the host in this place, which comes in `window`. The next one that is passed is `now`.
    pub(super) fn put(&mut self, (now, window): (u64, u64), place: usize, mail: Mail) {
        let group = place / GROUP_HOSTS;
        // The window before may be under way still: its place is not to be had yet.
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

    /// This window is passed now: what has waited apart for it comes to its place.
    pub(super) fn begin(&mut self, window: u64) {
        while let Some(first) = self.later.first_entry().filter(|it| *it.key() <= window) {
            for (group, mail) in first.remove() {
                self.put_near(window, group, mail);
            }
        }
    }

    /// A group's mail of this window, in no order.
    pub(super) fn take(&mut self, window: u64, group: usize, into: &mut Vec<Vec<Mail>>) {
        let day = self.day(window, group);
        into.append(&mut day.full);
        if !day.last.is_empty() {
            into.push(core::mem::take(&mut day.last));
        }
    }

    /// Batches are not needed any more.
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
    fn mail_comes_in_its_window_however_far_that_is_also_while_one_is_passed() {
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
                    wheel.put((window + 1, at), place, Mail { at, ..Mail::NONE });
                    sent += usize::from(at < 4 * WINDOWS);
                }
            }
        }
        assert_eq!(come, sent);
    }
}
