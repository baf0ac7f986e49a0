use crate::measure::check::Mismatch;
use crate::measure::order::write_refusal;
use crate::measure::protocol::ErrorCode;
use alloc::string::String;
use core::fmt;

/// Why a measurer gets no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadFailure {
    /// Too few sockets or circuits could be opened, or stayed open.
    TooFewOpen {
        /// Sockets with a circuit that works.
        open: u32,
        /// Sockets asked for.
        wanted: u32,
        /// The latest reason why one is missing.
        last_problem: String,
    },
    /// Too few sockets had a circuit that works when the time for set-up was over.
    SetUpTimedOut {
        /// Sockets with a circuit that works.
        open: u32,
        /// Sockets asked for.
        wanted: u32,
        /// The latest reason why one is missing.
        last_problem: String,
    },
    /// Too few sockets or circuits, and the relay ended most of those that are missing for lack of room.
    NoRoom {
        /// Sockets with a circuit that works.
        open: u32,
        /// Sockets asked for.
        wanted: u32,
    },
    /// The relay sends more cells that answer nothing than padding explains: they fill the path that answers need.
    Unsolicited {
        /// Cells that answer nothing.
        cells: u64,
        /// Cells that came back.
        load_cells: u64,
    },
    /// Nothing arrived for too long, though cells were under way.
    Stalled {
        /// Length of the silence.
        silent_ms: u64,
    },
    /// A cell is not what an honest relay makes of what we sent.
    CheckFailed {
        /// The circuit, counted from zero.
        circuit: u32,
        /// The cell's place on its circuit, counted from zero.
        cell: u64,
        /// What was found instead.
        mismatch: Mismatch,
    },
    /// The target says that the measurement is impossible, or over before its time. Only in echo.
    Refused {
        /// Its code.
        code: ErrorCode,
        /// Its own words, if any.
        text: String,
    },
    /// More cells arrived on a circuit than we had sent: made up by the target.
    AnsweredEarly {
        /// The circuit, counted from zero.
        circuit: u32,
        /// Cells that we had sent on it.
        sent: u64,
    },
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewOpen { open, wanted, last_problem } => {
                write!(f, "only {open} of a measurer's {wanted} sockets work: {last_problem}")
            }
            Self::SetUpTimedOut { open, wanted, last_problem } => {
                write!(
                    f,
                    "set-up timed out with {open} of a measurer's {wanted} sockets: {last_problem}"
                )
            }
            Self::NoRoom { open, wanted } => write!(
                f,
                "the relay has no room for more circuits: only {open} of a measurer's {wanted} sockets work"
            ),
            Self::Unsolicited { cells, load_cells } => write!(
                f,
                "the relay sent {cells} cells that answer nothing, next to {load_cells} that do"
            ),
            Self::Stalled { silent_ms } => {
                write!(f, "the relay stalled: no cell for {silent_ms} ms with cells under way")
            }
            Self::CheckFailed { circuit, cell, mismatch } => {
                write!(f, "cell {cell} of circuit {circuit} fails its check: {mismatch}")
            }
            Self::Refused { code, text } => write_refusal(f, *code, text),
            Self::AnsweredEarly { circuit, sent } => write!(
                f,
                "circuit {circuit} brought more than the {sent} cells sent on it: the relay makes up answers"
            ),
        }
    }
}

impl core::error::Error for LoadFailure {}
