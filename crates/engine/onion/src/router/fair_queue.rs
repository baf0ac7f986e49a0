//! A queue in which nobody waits behind everything that one other party has queued.

use alloc::collections::{BTreeMap, VecDeque};

/// A queue that serves its sources round-robin, and the entries of each source in order of arrival.
///
/// A source with many entries delays only its own: a new one waits behind one entry of each other source.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    /// The entries of each source. None of them is empty.
    by_source: BTreeMap<K, VecDeque<T>>,
    order: VecDeque<K>,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self { by_source: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Copy + Ord, T: PartialEq> FairQueue<K, T> {
    /// Adds an entry of a source.
    pub fn push(&mut self, source: K, entry: T) {
        let entries = self.by_source.entry(source).or_default();
        if entries.is_empty() {
            self.order.push_back(source);
        }
        entries.push_back(entry);
    }

    /// The next entry.
    pub fn pop(&mut self) -> Option<T> {
        let source = self.order.pop_front()?;
        let entries = self.by_source.get_mut(&source)?;
        let entry = entries.pop_front();
        if entries.is_empty() {
            self.by_source.remove(&source);
        } else {
            self.order.push_back(source);
        }
        entry
    }

    /// Removes the entries of a source that are equal to this one.
    pub fn remove(&mut self, source: K, entry: &T) {
        let Some(entries) = self.by_source.get_mut(&source) else { return };
        entries.retain(|other| other != entry);
        if entries.is_empty() {
            self.by_source.remove(&source);
            self.order.retain(|other| *other != source);
        }
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_new_entry_waits_behind_one_of_each_source() {
        let mut queue = FairQueue::default();
        for entry in 0..100 {
            queue.push(entry % 2, entry);
        }
        queue.push(7, 200);
        queue.push(7, 201);
        queue.remove(0, &2);
        queue.remove(9, &2);
        let order: Vec<usize> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order[..7], [0, 1, 200, 4, 3, 201, 6]);
        assert_eq!(order.len(), 101);
        assert!(queue.is_empty() && queue.by_source.is_empty());
        queue.push(1, 5);
        queue.remove(1, &5);
        assert!(queue.is_empty() && queue.by_source.is_empty());
    }
}
