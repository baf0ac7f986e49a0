//! The section `[flashflow]`: who may measure the relay.

use super::{ConfigError, invalid};
use crate::parameters::{BACKGROUND_TRAFFIC_PERCENT, MAX_MEASUREMENT_DURATION, MEASUREMENT_PERIOD};
use ed25519_dalek::VerifyingKey;
use onion::measure::protocol::CoordinatorKey;
use serde::{Deserialize, Deserializer};

/// The section `[flashflow]`: proposal 316's options, by their names there or by FlashFlow's. Unset
/// options come from the consensus, or else from the proposal's defaults; see
/// [`target_params`](crate::target_params).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashFlowConfig {
    /// Whether the relay may be measured at all.
    #[serde(alias = "FFMeasurementsAllowed")]
    pub measurements_allowed: Option<bool>,
    /// Public keys of the coordinators that may measure it.
    #[serde(default, alias = "FFAllowedCoordinators", deserialize_with = "coordinator_keys")]
    pub allowed_coordinators: Option<Vec<CoordinatorKey>>,
    /// The period in which each coordinator may make
    /// [`measurements_per_period`](Self::measurements_per_period), in seconds.
    #[serde(alias = "FFMeasurementPeriod")]
    pub measurement_period_s: Option<u32>,
    /// The number of measurements; two by default, as in the proposal. Each round of a repeated
    /// measurement counts.
    pub measurements_per_period: Option<u32>,
    /// The maximum share of client traffic during a measurement, in percent of all traffic.
    #[serde(alias = "FFBackgroundTrafficPercent")]
    pub background_traffic_percent: Option<u32>,
    /// Time limit from the announcement of a measurement to its end, in seconds.
    #[serde(alias = "FFMaxMeasurementDuration")]
    pub max_measurement_duration_s: Option<u32>,
}

impl FlashFlowConfig {
    pub(super) fn overridden_by(self, over: Self) -> Self {
        Self {
            measurements_allowed: over.measurements_allowed.or(self.measurements_allowed),
            allowed_coordinators: over.allowed_coordinators.or(self.allowed_coordinators),
            measurement_period_s: over.measurement_period_s.or(self.measurement_period_s),
            measurements_per_period: over.measurements_per_period.or(self.measurements_per_period),
            background_traffic_percent: over
                .background_traffic_percent
                .or(self.background_traffic_percent),
            max_measurement_duration_s: over
                .max_measurement_duration_s
                .or(self.max_measurement_duration_s),
        }
    }

    /// Refuses numbers that the proposal does not permit.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let numbers = [
            (MEASUREMENT_PERIOD, self.measurement_period_s),
            (BACKGROUND_TRAFFIC_PERCENT, self.background_traffic_percent),
            (MAX_MEASUREMENT_DURATION, self.max_measurement_duration_s),
        ];
        numbers.into_iter().try_for_each(|(parameter, value)| {
            let refused = |reason| invalid(&format!("flashflow.{}", parameter.key), reason);
            parameter.check(value).map_err(refused)
        })
    }
}

/// Parses a coordinator's public key: 64 hexadecimal digits.
///
/// # Errors
/// A message that describes what is wrong.
pub fn coordinator_key(text: &str) -> Result<CoordinatorKey, String> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|_| format!("{text:?} is no public key: expected 64 hex digits"))?;
    // This check detects about half of all mistyped keys.
    VerifyingKey::from_bytes(&bytes)
        .map_err(|_| format!("{text:?} is no public key of Ed25519: is a digit wrong?"))?;
    Ok(CoordinatorKey(bytes))
}

fn coordinator_keys<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<CoordinatorKey>>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let keys: Result<_, _> = texts.iter().map(|text| coordinator_key(text)).collect();
    keys.map(Some).map_err(serde::de::Error::custom)
}
