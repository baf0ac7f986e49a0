use crate::measure::check::Mismatch;
use crate::measure::order::write_refusal;
use crate::measure::protocol::ErrorCode;
use alloc::string::String;
use core::fmt;

/// Why a load generator has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadFailure {
    /// Too few sockets or circuits could be opened, or stayed open.
    TooFewOpen {
        /// Sockets with an open circuit.
        open: u32,
        /// Planned sockets.
        wanted: u32,
        /// The latest reason.
        last_problem: String,
    },
    /// Too few sockets had an open circuit when the set-up time was over.
    SetUpTimedOut {
        /// Sockets with an open circuit.
        open: u32,
        /// Planned sockets.
        wanted: u32,
        /// The latest reason.
        last_problem: String,
    },
    /// Too few sockets could be opened, since the relay's certificates are not valid at this time.
    NotValidNow {
        /// Sockets with an open circuit.
        open: u32,
        /// Planned sockets.
        wanted: u32,
        /// The certificate.
        problem: String,
    },
    /// Too few sockets or circuits, and the relay destroyed most of the missing ones for lack of resources.
    NoRoom {
        /// Sockets with an open circuit.
        open: u32,
        /// Planned sockets.
        wanted: u32,
    },
    /// The relay sends more unsolicited cells than padding explains: they occupy the path of the answers.
    Unsolicited {
        /// Unsolicited cells.
        cells: u64,
        /// Returned cells.
        load_cells: u64,
    },
    /// No cell returned for too long, although cells were in flight.
    Stalled {
        /// The length of the silence.
        silent_ms: u64,
    },
    /// A cell differs from an honest relay's result.
    CheckFailed {
        /// The circuit's index.
        circuit: u32,
        /// The cell's index on its circuit.
        cell: u64,
        /// The manipulation.
        mismatch: Mismatch,
    },
    /// The target refused the measurement or ended it early. Only in echo.
    Refused {
        /// The error code.
        code: ErrorCode,
        /// The target's text, if any.
        text: String,
    },
    /// More cells returned on a circuit than were sent: the target has fabricated them.
    AnsweredEarly {
        /// The circuit's index.
        circuit: u32,
        /// Cells sent on it.
        sent: u64,
    },
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewOpen { open, wanted, last_problem }
            | Self::NotValidNow { open, wanted, problem: last_problem } => {
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
            Self::Unsolicited { cells, load_cells } => {
                write!(f, "the relay sent {cells} unsolicited cells and {load_cells} answers")
            }
            Self::Stalled { silent_ms } => {
                write!(f, "the relay stalled: no cell for {silent_ms} ms with cells in flight")
            }
            Self::CheckFailed { circuit, cell, mismatch } => {
                write!(f, "cell {cell} of circuit {circuit} fails its check: {mismatch}")
            }
            Self::Refused { code, text } => write_refusal(f, *code, text),
            Self::AnsweredEarly { circuit, sent } => write!(
                f,
                "circuit {circuit} returned more than the {sent} cells sent on it: the relay fabricates answers"
            ),
        }
    }
}

impl core::error::Error for LoadFailure {}
