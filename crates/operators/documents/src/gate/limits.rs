//! The limits of the gate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The limits, which an operator can set in the section `[gate]` of a coordinator's configuration. The manual gives the reason for
/// each default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Lines that violate the specification, or that tor leaves out.
    pub bad_lines_max: f64,
    /// Age of the newest result, in hours.
    pub age_max_h: f64,
    /// Relays with a vote, in per cent of those that could have one.
    pub measured_min_percent: f64,
    /// Relays with a vote, in per cent of the median number of other authorities.
    pub compared_min_percent: f64,
    /// Relays that others measured and the file does not, in per cent.
    pub missing_max_percent: f64,
    /// Fall of the sum since the previous file, in per cent.
    pub total_fall_max_percent: f64,
    /// Rise of the sum since the previous file, in per cent.
    pub total_rise_max_percent: f64,
    /// Factor, in either direction, between our sum and that of the others, over relays that both have.
    pub scale_max_factor: f64,
    /// A relay whose share differs by more than this from its share of the others' medians is a deviating one, in per cent. The same holds
    /// for the ratio to another place.
    pub deviation_percent: f64,
    /// Deviating relays, in per cent.
    pub deviating_max_percent: f64,
    /// Bandwidth of one relay, in per cent of the sum.
    pub largest_share_max_percent: f64,
    /// The number of the largest relays that are looked at individually.
    pub largest_relays: usize,
    /// One of them has lost if its bandwidth fell by more than this since the previous file, in per cent.
    pub large_loss_percent: f64,
    /// One of them has gained if its bandwidth rose by more than this since the previous file, in per cent.
    pub large_gain_percent: f64,
    /// Relays that lost, and those that gained, in per cent of the largest.
    pub large_changed_max_percent: f64,
    /// Lower bounds among the largest relays for reasons other than their clients, in per cent.
    pub lower_bounds_max_percent: f64,
    /// Probability below which a difference by location is no chance.
    pub bias_level: f64,
    /// Difference by location in either direction, in per cent of the smaller value.
    pub bias_max_percent: f64,
    /// Factor, in either direction, between our weights and those of another place: the median of relays that both have.
    pub place_ratio_max_factor: f64,
    /// Relays that differ by more than `deviation_percent` from that ratio, in per cent of the weights.
    pub place_deviating_max_percent: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bad_lines_max: 0.0,
            age_max_h: 36.0,
            measured_min_percent: 60.0,
            compared_min_percent: 90.0,
            missing_max_percent: 10.0,
            total_fall_max_percent: 20.0,
            total_rise_max_percent: 25.0,
            scale_max_factor: 3.0,
            deviation_percent: 50.0,
            deviating_max_percent: 50.0,
            largest_share_max_percent: 5.0,
            largest_relays: 50,
            large_loss_percent: 33.0,
            large_gain_percent: 50.0,
            large_changed_max_percent: 10.0,
            lower_bounds_max_percent: 20.0,
            bias_level: 0.01,
            bias_max_percent: 50.0,
            // ε₁ of the paper: one place measures correctly, the other 20 % too little.
            place_ratio_max_factor: 1.25,
            place_deviating_max_percent: 10.0,
        }
    }
}

impl Limits {
    /// Checks that each limit is a number that can be compared with.
    ///
    /// # Errors
    /// The name of the wrong setting, and what to write.
    pub fn validate(&self) -> Result<(), String> {
        let Self {
            bad_lines_max,
            age_max_h,
            measured_min_percent,
            compared_min_percent,
            missing_max_percent,
            total_fall_max_percent,
            total_rise_max_percent,
            scale_max_factor,
            deviation_percent,
            deviating_max_percent,
            largest_share_max_percent,
            largest_relays: _,
            large_loss_percent,
            large_gain_percent,
            large_changed_max_percent,
            lower_bounds_max_percent,
            bias_level,
            bias_max_percent,
            place_ratio_max_factor,
            place_deviating_max_percent,
        } = *self;
        for (name, value) in [
            ("bad_lines_max", bad_lines_max),
            ("age_max_h", age_max_h),
            ("measured_min_percent", measured_min_percent),
            ("compared_min_percent", compared_min_percent),
            ("missing_max_percent", missing_max_percent),
            ("total_fall_max_percent", total_fall_max_percent),
            ("total_rise_max_percent", total_rise_max_percent),
            ("deviation_percent", deviation_percent),
            ("deviating_max_percent", deviating_max_percent),
            ("largest_share_max_percent", largest_share_max_percent),
            ("large_loss_percent", large_loss_percent),
            ("large_gain_percent", large_gain_percent),
            ("large_changed_max_percent", large_changed_max_percent),
            ("lower_bounds_max_percent", lower_bounds_max_percent),
            ("bias_max_percent", bias_max_percent),
            ("place_deviating_max_percent", place_deviating_max_percent),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(format!("`{name}` is {value}: write a number from 0 on"));
            }
        }
        for (name, factor) in [
            ("scale_max_factor", scale_max_factor),
            ("place_ratio_max_factor", place_ratio_max_factor),
        ] {
            if !(factor.is_finite() && factor >= 1.0) {
                return Err(format!("`{name}` is {factor}: write 1 or more"));
            }
        }
        if !(bias_level > 0.0 && bias_level < 1.0) {
            return Err(format!("`bias_level` is {bias_level}: write a probability, such as 0.01"));
        }
        Ok(())
    }
}
