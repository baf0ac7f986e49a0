//! The reason why a measurer refuses an order.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a refusal, which never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// 1: the order has a field that is out of range.
    Malformed,
    /// 2: its capacity is in use by other rounds.
    Busy,
    /// 3: this measurer's own consent rule does not allow the target.
    NoConsent,
    /// 4: there is no such round in this session, or it is over.
    UnknownRound,
    /// 5: an order at the wrong time, such as a start before the round is ready.
    OutOfOrder,
    /// 6: the number of this round, or a higher one, has been used before.
    Duplicate,
    /// 7: the measurer cannot measure.
    Unable,
}

impl RefusalCode {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Malformed,
        Self::Busy,
        Self::NoConsent,
        Self::UnknownRound,
        Self::OutOfOrder,
        Self::Duplicate,
        Self::Unable,
    ];

    /// Its name in messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Busy => "busy",
            Self::NoConsent => "no_consent",
            Self::UnknownRound => "unknown_round",
            Self::OutOfOrder => "out_of_order",
            Self::Duplicate => "duplicate",
            Self::Unable => "unable",
        }
    }

    /// The text for logs and messages.
    #[must_use]
    pub fn number(self) -> u32 {
        (1..).zip(Self::ALL).find(|(_, code)| *code == self).map_or(0, |(number, _)| number)
    }
}

/// A refusal with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: RefusalCode,
    pub(crate) reason: String,
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode, reason: impl fmt::Display) -> Self {
        Self { code, reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_the_number_in_its_documentation() {
        for (number, code) in (1..).zip(RefusalCode::ALL) {
            assert_eq!(code.number(), number);
        }
        assert_eq!(RefusalCode::Unable.number(), 7);
    }
}
