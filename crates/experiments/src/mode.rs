//! How relays are measured.

use clap::ValueEnum;
use serde::Serialize;

/// How relays are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Relays of ours, which take part.
    Echo,
    /// C tor, which does not know of it.
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
