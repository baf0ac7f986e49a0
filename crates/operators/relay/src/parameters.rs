//! The parameters of proposal 316 (§3.1.1): their names, defaults and ranges.

use std::ops::RangeInclusive;

/// A parameter of proposal 316.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    /// Its name in the proposal, and in a consensus.
    name: &'static str,
    /// Its name in FlashFlow's configuration.
    pub(crate) key: &'static str,
    default: i32,
    least: i32,
    most: i32,
}

pub(crate) const MEASUREMENTS_ALLOWED: Parameter = Parameter {
    name: "FFMeasurementsAllowed",
    key: "measurements_allowed",
    default: 0,
    least: 0,
    most: 1,
};
/// In seconds. The proposal's "1 month" is tor's definition of a month.
pub(crate) const MEASUREMENT_PERIOD: Parameter = Parameter {
    name: "FFMeasurementPeriod",
    key: "measurement_period_s",
    default: 86_400,
    least: 3_600,
    most: 2_629_728,
};
pub(crate) const BACKGROUND_TRAFFIC_PERCENT: Parameter = Parameter {
    name: "FFBackgroundTrafficPercent",
    key: "background_traffic_percent",
    default: 25,
    least: 0,
    most: 99,
};
/// In seconds.
pub(crate) const MAX_MEASUREMENT_DURATION: Parameter = Parameter {
    name: "FFMaxMeasurementDuration",
    key: "max_measurement_duration_s",
    default: 45,
    least: 10,
    most: 120,
};

impl Parameter {
    const fn range(&self) -> RangeInclusive<i32> {
        self.least..=self.most
    }

    /// The value in force. Configured values have been checked; values of the consensus are clamped
    /// to the range, as in tor.
    pub(crate) fn resolve(
        &self,
        configured: Option<u32>,
        consensus: &dyn Fn(&str) -> Option<i32>,
    ) -> u32 {
        let otherwise = || consensus(self.name).unwrap_or(self.default);
        let value =
            configured.map_or_else(otherwise, |value| i32::try_from(value).unwrap_or(i32::MAX));
        // No range includes negative numbers.
        value.clamp(self.least, self.most).unsigned_abs()
    }

    /// Why a configured value is refused, if it is.
    pub(crate) fn check(&self, configured: Option<u32>) -> Result<(), String> {
        let is_within = |value| i32::try_from(value).is_ok_and(|v| self.range().contains(&v));
        match configured {
            Some(value) if !is_within(value) => Err(format!(
                "{value} is not from {} to {} (proposal 316, {})",
                self.least, self.most, self.name
            )),
            _ => Ok(()),
        }
    }
}
