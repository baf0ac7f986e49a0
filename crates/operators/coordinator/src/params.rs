//! The parameters of a measurement, with the values that the paper derives in appendix E.

use alloc::format;
use alloc::string::String;
use core::fmt::Debug;
use core::ops::RangeInclusive;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// One cell in 125 is checked (proposal 316, appendix A). The paper has 1 in 100,000. A check needs no stored state, so
/// it costs almost nothing, and a relay that forges answers is detected at once.
pub const CHECK_SHARE: f64 = 1.0 / 125.0;

/// How to measure a relay. The defaults are the paper's, except for [`CHECK_SHARE`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// *s*: TCP sockets to the relay over all measurers (§4.1, E.1).
    pub sockets: u32,
    /// *t*: seconds that a round lasts (E.3).
    pub seconds: u32,
    /// *m*: the multiple of a relay's capacity that a good measurement needs (E.2).
    pub multiplier: f64,
    /// ε₁: an estimate lies at most this share below the true capacity (E.5).
    pub epsilon_below: f64,
    /// ε₂: an estimate lies at most this share above the true capacity (E.5).
    pub epsilon_above: f64,
    /// *r*: largest share of client traffic in all that the relay forwards meanwhile (§4.1).
    pub ratio: f64,
    /// *p*: share of the cells whose content is checked (§4.1).
    pub check_share: f64,
    /// The number of rounds after which an inconclusive result is accepted as a lower bound. Not in the paper; 12
    /// rounds reach 2048 times the first guess.
    pub max_rounds: u32,
    /// Time from the order to prepare until every measurer must be ready.
    pub setup_timeout: Duration,
    /// Time after the end of a second within which its reports must arrive.
    pub report_grace: Duration,
    /// Whether the relay may have clients while it is measured. False only if the caller knows that it has none, such as
    /// a relay of a private network. In transit clients' traffic is not counted, so an estimate of a relay that may have
    /// clients is a lower bound ([`Inconclusive::ClientsUnknown`](crate::Inconclusive)). Not in the paper.
    #[serde(default = "yes")]
    pub may_have_clients: bool,
    /// The requirements of the path to the relay.
    #[serde(default)]
    pub path: PathParams,
}

const fn yes() -> bool {
    true
}

/// The requirements of the path to a relay: those of the paper's loopback, unless the path is known to be long. Not in
/// the paper, which opens 160 sockets to each relay wherever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathParams {
    /// Sockets of the first round over all measurers, at most [`Params::sockets`]. Later ones have more if the path
    /// limited this one ([`Attempt::widened`](crate::Attempt::widened)).
    pub first_sockets: u32,
    /// Seconds of load before those that count, for TCP's slow start.
    pub lead_s: u32,
    /// Every other socket starts only in the middle of the round: if more comes back then, the path and not the relay
    /// was the limit ([`SocketRampTest`](crate::SocketRampTest)).
    pub probes: bool,
    /// Seconds, of those before the ones that count, in which only the circuits that carry the load send. The others, which give
    /// the measurement a larger share of a relay that other circuits use, begin afterwards: if more comes back then,
    /// other circuits had their share ([`Schedule::competition`](crate::Schedule::competition)). Zero if all circuits start
    /// with their sockets.
    #[serde(default)]
    pub few_circuits_s: u32,
}

impl Default for PathParams {
    fn default() -> Self {
        Self { first_sockets: 160, lead_s: 0, probes: false, few_circuits_s: 0 }
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            sockets: 160,
            seconds: 30,
            multiplier: 2.25,
            epsilon_below: 0.20,
            epsilon_above: 0.05,
            ratio: 0.25,
            check_share: CHECK_SHARE,
            max_rounds: 12,
            setup_timeout: Duration::from_secs(30),
            report_grace: Duration::from_secs(5),
            may_have_clients: true,
            path: PathParams::default(),
        }
    }
}

/// A parameter that lies outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, but must lie in {allowed}")]
pub struct ParamsError {
    /// The field of [`Params`].
    pub name: &'static str,
    /// What it was set to.
    pub value: String,
    /// The permitted range, both ends included.
    pub allowed: String,
}

impl Params {
    /// Checks that every parameter lies within its range.
    ///
    /// # Errors
    /// The first parameter that is out of range. NaN is out of every range.
    pub fn validate(&self) -> Result<(), ParamsError> {
        let times = Duration::from_millis(1)..=Duration::from_secs(3600);
        within("sockets", self.sockets, 1..=10_000)?;
        within("seconds", self.seconds, 1..=600)?;
        within("multiplier", self.multiplier, 1.0..=100.0)?;
        within("epsilon_below", self.epsilon_below, 0.0..=0.9)?;
        within("epsilon_above", self.epsilon_above, 0.0..=1.0)?;
        within("ratio", self.ratio, 0.0..=0.9)?;
        // With the paper's share, a round of a slow relay might have no check at all.
        within("check_share", self.check_share, 1e-5..=1.0)?;
        within("max_rounds", self.max_rounds, 1..=64)?;
        within("setup_timeout", self.setup_timeout, times.clone())?;
        within("report_grace", self.report_grace, times)?;
        within("first_sockets", self.path.first_sockets, 1..=10_000)?;
        within("lead_s", self.path.lead_s, 0..=60)?;
        within("few_circuits_s", self.path.few_circuits_s, 0..=self.path.lead_s)
    }

    /// Limits the number of rounds to the relay's quota for a period.
    #[must_use]
    pub fn within_quota(self, rounds_allowed: u32) -> Self {
        Self { max_rounds: self.max_rounds.min(rounds_allowed.max(1)), ..self }
    }

    /// The duration of a round, in seconds: *t* and the seconds before it.
    #[must_use]
    pub const fn round_s(&self) -> u32 {
        self.seconds + self.path.lead_s
    }

    /// *f* = m(1+ε₂)/(1−ε₁): capacity of measurers to allocate per capacity expected (§4.2).
    #[must_use]
    pub fn excess_factor(&self) -> f64 {
        self.multiplier * (1.0 + self.epsilon_above) / (1.0 - self.epsilon_below)
    }

    /// Σaᵢ(1−ε₁)/m: with `allocated` = Σaᵢ, an estimate below this is conclusive (§4.2).
    #[must_use]
    pub fn conclusive_limit(&self, allocated: Rate) -> Rate {
        allocated.scaled((1.0 - self.epsilon_below) / self.multiplier)
    }
}

fn within<T: PartialOrd + Debug>(
    name: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), ParamsError> {
    if range.contains(&value) {
        return Ok(());
    }
    let allowed = format!("{:?} to {:?}", range.start(), range.end());
    Err(ParamsError { name, value: format!("{value:?}"), allowed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn the_defaults_are_valid_and_give_the_papers_excess_factor() {
        let params = Params::default();
        assert_eq!(params.validate(), Ok(()));
        assert!((params.excess_factor() - 2.953).abs() < 0.001);
    }

    /// Appendix F: to measure 800 Mbit/s of relays takes 2362.5 Mbit/s of measurers.
    #[test]
    fn a_guess_that_is_right_is_conclusive() {
        let params = Params::default();
        let allocated = Rate::from_mbit_per_s(800.0).scaled(params.excess_factor());
        assert!((allocated.as_mbit_per_s() - 2362.5).abs() < 0.001);
        let limit = params.conclusive_limit(allocated).as_mbit_per_s();
        assert!((limit - 840.0).abs() < 0.001, "z0(1+ε₂), was {limit}");
    }

    #[test]
    fn a_quota_limits_the_rounds_and_does_not_add_any() {
        let params = Params { max_rounds: 12, ..Params::default() };
        assert_eq!(params.within_quota(2), Params { max_rounds: 2, ..params });
        assert_eq!(params.within_quota(20), params);
        assert_eq!(params.within_quota(0).max_rounds, 1, "at least one round");
    }

    #[test]
    fn a_bad_parameter_is_named_with_its_value_and_range() {
        let error = Params { ratio: 1.0, ..Params::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "ratio is 1.0, but must lie in 0.0 to 0.9");
        let error = Params { seconds: 0, ..Params::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "seconds is 0, but must lie in 1 to 600");
        let grace = Duration::ZERO;
        let error = Params { report_grace: grace, ..Params::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "report_grace is 0ns, but must lie in 1ms to 3600s");
    }

    #[test]
    fn a_share_of_checked_cells_that_is_too_small_is_refused() {
        let params = |check_share| Params { check_share, ..Params::default() };
        assert!(
            [1e-5, CHECK_SHARE, 1.0].map(params).iter().all(|params| params.validate().is_ok())
        );
        let error = params(1e-6).validate().unwrap_err();
        assert_eq!(error.to_string(), "check_share is 1e-6, but must lie in 1e-5 to 1.0");
    }

    #[test]
    fn not_a_number_is_never_valid() {
        let default = Params::default();
        let all = [
            Params { multiplier: f64::NAN, ..default },
            Params { epsilon_below: f64::NAN, ..default },
            Params { epsilon_above: f64::NAN, ..default },
            Params { ratio: f64::NAN, ..default },
            Params { check_share: f64::NAN, ..default },
            Params { multiplier: f64::INFINITY, ..default },
        ];
        assert!(all.iter().all(|params| params.validate().is_err()));
    }
}
