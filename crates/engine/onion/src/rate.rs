//! Data rates with explicit units in each constructor and getter.

use crate::time::Duration;
use core::fmt;
use core::iter::Sum;
use core::ops::{Add, Sub};

/// A data rate, stored in bits per second.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    bit_per_s: u64,
}

impl Rate {
    /// No data at all.
    pub const ZERO: Self = Self { bit_per_s: 0 };
    /// More than any link carries.
    pub const MAX: Self = Self { bit_per_s: u64::MAX };

    /// A rate of `bits` bits per second.
    #[must_use]
    pub const fn from_bit_per_s(bits: u64) -> Self {
        Self { bit_per_s: bits }
    }

    /// A rate of `bytes` bytes per second, as in tor's `BandwidthRate` and in server descriptors.
    #[must_use]
    pub const fn from_byte_per_s(bytes: u64) -> Self {
        Self { bit_per_s: bytes.saturating_mul(8) }
    }

    /// A rate of `mbit` million bits per second. Negative and non-finite values become zero.
    #[must_use]
    pub fn from_mbit_per_s(mbit: f64) -> Self {
        // A float-to-integer cast saturates and maps NaN to zero, as needed.
        #[expect(clippy::cast_possible_truncation, reason = "saturating is intended")]
        Self { bit_per_s: (mbit * 1e6) as u64 }
    }

    /// The rate at which `bytes` bytes pass in `time`; zero for an empty time.
    #[must_use]
    pub fn from_bytes_over(bytes: u64, time: Duration) -> Self {
        let nanos = time.as_nanos();
        if nanos == 0 {
            return Self::ZERO;
        }
        let bits = u128::from(bytes) * 8 * 1_000_000_000 / nanos;
        Self { bit_per_s: u64::try_from(bits).unwrap_or(u64::MAX) }
    }

    /// Bits per second.
    #[must_use]
    pub const fn as_bit_per_s(self) -> u64 {
        self.bit_per_s
    }

    /// Whole bytes per second, rounded down.
    #[must_use]
    pub const fn as_byte_per_s(self) -> u64 {
        self.bit_per_s / 8
    }

    /// Millions of bits per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "53 bits of mantissa hold 9 Pbit/s exactly")]
    pub fn as_mbit_per_s(self) -> f64 {
        self.bit_per_s as f64 / 1e6
    }

    /// Bytes that pass at this rate in `time`, rounded down.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.bit_per_s) * time.as_nanos() / 8 / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Time that `bytes` bytes take at this rate; [`Duration::MAX`] at rate zero.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.bit_per_s == 0 {
            return Duration::MAX;
        }
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.bit_per_s);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// This rate times a factor, saturating; a negative factor gives zero.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a factor is never exact to the bit")]
    pub fn scaled(self, factor: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "saturating is intended")]
        Self { bit_per_s: (self.bit_per_s as f64 * factor) as u64 }
    }

    /// The difference, or zero where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self { bit_per_s: self.bit_per_s.saturating_sub(other.bit_per_s) }
    }
}

impl Add for Rate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { bit_per_s: self.bit_per_s.saturating_add(other.bit_per_s) }
    }
}

impl Sub for Rate {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} Mbit/s", self.as_mbit_per_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_and_bytes_convert() {
        assert_eq!(Rate::from_byte_per_s(125_000), Rate::from_mbit_per_s(1.0));
        assert_eq!(Rate::from_mbit_per_s(10.0).as_byte_per_s(), 1_250_000);
        assert_eq!(Rate::from_mbit_per_s(f64::NAN), Rate::ZERO);
        assert_eq!(Rate::from_mbit_per_s(-1.0), Rate::ZERO);
    }

    #[test]
    fn zero_rates_and_times_do_not_divide_by_zero() {
        assert_eq!(Rate::from_bytes_over(1, Duration::ZERO), Rate::ZERO);
        assert_eq!(Rate::ZERO.time_for(1), Duration::MAX);
    }

    proptest! {
        #[test]
        fn bytes_divided_by_their_time_give_the_rate(
            mbit in 1u64..10_000, bytes in 1_000_000u64..1_000_000_000,
        ) {
            let rate = Rate::from_bit_per_s(mbit * 1_000_000);
            let back = Rate::from_bytes_over(bytes, rate.time_for(bytes));
            let error = back.as_bit_per_s().abs_diff(rate.as_bit_per_s());
            prop_assert!(error <= rate.as_bit_per_s() / 1_000_000 + 1);
        }
    }
}
