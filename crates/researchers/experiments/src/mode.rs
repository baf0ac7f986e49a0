//! How relays are measured.

use clap::ValueEnum;
use serde::Serialize;

/// How relays are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// FlashFlow relays, which take part.
    Echo,
    /// C tor relays, which do not take part.
    Transit,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Transit => "transit",
        }
    }
}
