use crate::measure::protocol::{ClientShare, CoordinatorKey};
use crate::time::Duration;
use alloc::vec::Vec;

/// The permissions and limits of a relay's operator and the consensus (proposal 316 §3.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetParams {
    /// `FFMeasurementsAllowed`: whether the relay may be measured at all.
    pub is_allowed: bool,
    /// `FFAllowedCoordinators`: the permitted coordinators.
    pub coordinators: Vec<CoordinatorKey>,
    /// `FFMeasurementPeriod`: the period of [`measurements_per_period`](Self::measurements_per_period).
    pub period: Duration,
    /// Maximum number of measurements of each coordinator in any such period.
    pub measurements_per_period: u32,
    /// `FFBackgroundTrafficPercent`: *r*, unless the order states less.
    pub client_share: ClientShare,
    /// `FFMaxMeasurementDuration`: from the order to the end.
    pub max_duration: Duration,
}

impl Default for TargetParams {
    /// The defaults of proposal 316: no measurements.
    fn default() -> Self {
        Self {
            is_allowed: false,
            coordinators: Vec::new(),
            period: Duration::from_secs(24 * 60 * 60),
            measurements_per_period: 2,
            client_share: ClientShare::DEFAULT,
            max_duration: Duration::from_secs(45),
        }
    }
}
