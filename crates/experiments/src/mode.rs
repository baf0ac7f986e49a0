//! How relays are measured.

use clap::ValueEnum;

/// How relays are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Mode {
    /// Relays of ours, which take part.
    Echo,
    /// Stock tor, which knows nothing of it.
    Transit,
}

impl Mode {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Transit => "transit",
        }
    }
}
