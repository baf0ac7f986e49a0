//! One second of a round: as reported, as recorded, and its totals.

use crate::account::Account;
use crate::allocation::Assignment;
use crate::mode::Mode;
use alloc::vec::Vec;
use core::iter;
use onion::Rate;
use serde::{Deserialize, Serialize};

/// One measurer's results in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondReport {
    /// The round, as in [`Action::Prepare`](crate::Action).
    pub round: u32,
    /// *j*, counted from zero.
    pub second: u32,
    /// *xⱼⁱ*: bytes that the relay relayed to this measurer, over all its processes.
    pub bytes: u64,
    /// Correct cells among those checked.
    pub checked_cells: u64,
    /// The kernel's account of its sockets, if any.
    pub account: Option<Account>,
}

/// The reports of all sources for a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondRecord {
    /// *j*, counted from zero.
    pub second: u32,
    /// *xⱼⁱ*: bytes that came back to each measurer, in the order of the round's assignments; `None` without a report.
    pub returned_bytes: Vec<Option<u64>>,
    /// *yⱼ*: bytes of its clients, as the relay reported. `None` in transit, or without a report.
    pub client_bytes: Option<u64>,
    /// The traffic that the relay, or its control port, reported to another party. It is for comparison and is not part
    /// of the estimate.
    #[serde(alias = "relay_said")]
    pub relay_reported: Option<Rate>,
    /// The kernel's account of each measurer's sockets, in the order of the round's assignments; empty if there is
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<Option<Account>>,
}

impl SecondRecord {
    /// *xⱼ* and *ȳⱼ*, once all reports have arrived. `ratio` is *r*. Each measurer's bytes count as far as its
    /// [assignment allows](Assignment::most_counted).
    #[must_use]
    pub fn totals(
        &self,
        mode: Mode,
        ratio: f64,
        assignments: &[Assignment],
    ) -> Option<SecondTotals> {
        let most = assignments.iter().map(Assignment::most_counted).chain(iter::repeat(u64::MAX));
        let mut returned = self.returned_bytes.iter().zip(most);
        let measured = returned
            .try_fold(0u64, |sum, (bytes, most)| Some(sum.saturating_add((*bytes)?.min(most))))?;
        let is_whole = mode == Mode::Transit || self.client_bytes.is_some();
        is_whole.then(|| SecondTotals::new(self.second, measured, self.client_bytes, ratio))
    }

    /// Whether there is no report.
    pub(crate) fn is_silent(&self) -> bool {
        self.client_bytes.is_none() && self.returned_bytes.iter().all(Option::is_none)
    }
}

/// One second over all measurers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondTotals {
    /// *j*, counted from zero.
    pub second: u32,
    /// *xⱼ*: bytes of measurement traffic.
    pub measured: u64,
    /// *yⱼ*: bytes of client traffic, as the relay reports; `None` in transit mode.
    pub client_reported: Option<u64>,
    /// *ȳⱼ* = min(*yⱼ*, *xⱼ·r/(1−r)*): bytes of client traffic that are counted; zero in transit
    /// mode.
    pub client_counted: u64,
}

impl SecondTotals {
    /// With *ȳⱼ* = min(*yⱼ*, *xⱼ·r/(1−r)*), rounded down; `ratio` is *r*, below 1.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "saturating is intended; NaN is zero")]
    pub fn new(second: u32, measured: u64, client_reported: Option<u64>, ratio: f64) -> Self {
        let largest_client = (measured as f64 * ratio / (1.0 - ratio)) as u64;
        let client_counted = client_reported.unwrap_or(0).min(largest_client);
        Self { second, measured, client_reported, client_counted }
    }

    /// *zⱼ* = *xⱼ* + *ȳⱼ*: bytes counted in all.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.measured.saturating_add(self.client_counted)
    }
}
