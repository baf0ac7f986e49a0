//! What a link keeps for its padding.

use crate::time::Instant;

/// What a client's link has been used for so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// At most for circuits that end here: for directory requests.
    Nothing,
    /// For circuits that go on from here.
    Circuits,
    /// They have carried something.
    Traffic,
}

/// When a link is in the set of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    None,
    /// Then it is looked at whether it is idle.
    Look(Instant),
    /// It has been idle; then a cell is sent.
    Due(Instant),
}

/// What a link keeps for its padding.
#[derive(Debug)]
#[repr(C)]
pub(in crate::router) struct Padding {
    /// When something has passed on it, either way.
    pub(super) active_at: Instant,
    pub(super) entry: Entry,
    pub(super) used_for: Use,
    /// Its protocol has padding.
    pub(in crate::router) is_possible: bool,
    /// The peer has not stopped it.
    pub(super) is_wanted: bool,
    /// Limits that the peer has asked for; zero if none.
    pub(super) low_ms: u16,
    pub(super) high_ms: u16,
}

impl Padding {
    pub(in crate::router) const fn new(now: Instant) -> Self {
        Self {
            active_at: now,
            entry: Entry::None,
            used_for: Use::Nothing,
            is_possible: true,
            is_wanted: true,
            low_ms: 0,
            high_ms: 0,
        }
    }
}
