use serde::{Deserialize, Serialize};

/// How the relay is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The relay returns each cell, and reports its client traffic (§4.1). Estimates are of its
    /// capacity.
    Echo,
    /// The relay forwards each cell, and is unaware of FlashFlow (§3.4). Its client traffic is
    /// unknown, so estimates are lower bounds of its capacity.
    Transit,
}
