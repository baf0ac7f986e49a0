//! The padding state of a link.

use crate::time::Instant;

/// The use of a client's link so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// At most circuits that end here: directory requests.
    Nothing,
    /// Circuits that are extended.
    Circuits,
    /// Extended circuits that have carried relay cells.
    Traffic,
}

/// When a link is in the timer's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    None,
    /// Checked for idleness then.
    Look(Instant),
    /// Idle; a cell is sent then.
    Due(Instant),
}

/// The padding state of a link.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Padding {
    /// When data last passed in either direction.
    pub(super) active_at: Instant,
    pub(super) entry: Entry,
    pub(super) used_for: Use,
    /// Whether its protocol has padding.
    pub(crate) is_possible: bool,
    /// Whether the peer has not stopped it.
    pub(super) is_wanted: bool,
    /// The limits that the peer has requested; zero if none.
    pub(super) low_ms: u16,
    pub(super) high_ms: u16,
}

impl Padding {
    pub(crate) const fn new(now: Instant) -> Self {
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
