//! Counts table lookups, for tests of the cost of events.

use core::cell::Cell;

std::thread_local! {
    static LOOKUPS: Cell<u64> = const { Cell::new(0) };
}

/// Adds to the count.
pub(super) fn add(entries: usize) {
    LOOKUPS.set(LOOKUPS.get() + entries as u64);
}

/// The lookups that `body` performs on this thread.
pub(super) fn during(done: impl FnOnce()) -> u64 {
    let before = LOOKUPS.get();
    done();
    LOOKUPS.get() - before
}
