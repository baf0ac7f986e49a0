//! How often the tables of a relay are asked for an entry: for tests of what an event costs.

use core::cell::Cell;

std::thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// So many entries are looked at.
pub(super) fn note(entries: usize) {
    LOOKS.set(LOOKS.get() + entries as u64);
}

/// Entries that were looked at meanwhile, on this thread.
pub(super) fn during(done: impl FnOnce()) -> u64 {
    let before = LOOKS.get();
    done();
    LOOKS.get() - before
}
