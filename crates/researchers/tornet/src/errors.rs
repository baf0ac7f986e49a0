//! Errors of estimates and weights (paper, equations 2, 3, 5 and 6).
//!
//! Relays have the same index in all lists; surplus entries are ignored.

/// *RCE* = 1 − *A*/*C*: the part of a relay's capacity that its estimate lacks; negative if it is too high
/// (equation 2). `None` for a relay without capacity.
#[must_use]
pub fn relay_capacity_error(estimate: f64, capacity: f64) -> Option<f64> {
    (capacity > 0.0).then(|| 1.0 - estimate / capacity)
}

/// *NCE* = 1 − Σ*A* / Σ*C*: the same error of the whole network (equation 3). `None` without any capacity.
#[must_use]
pub fn network_capacity_error(estimates: &[f64], capacities: &[f64]) -> Option<f64> {
    let (estimates, capacities) = both(estimates, capacities);
    relay_capacity_error(estimates.iter().sum(), capacities.iter().sum())
}

/// *RWE* = *W* / *C̄* of each relay, both normalised: below 1 it is chosen too rarely, above 1 too often
/// (equation 5). `None` for relays without capacity.
///
/// Empty if all weights or all capacities are zero.
#[must_use]
pub fn relay_weight_errors(weights: &[f64], capacities: &[f64]) -> Vec<Option<f64>> {
    let (weights, capacities) = both(weights, capacities);
    let (Some(weights), Some(capacities)) = (normalised(weights), normalised(capacities)) else {
        return Vec::new();
    };
    let error = |(weight, capacity): (f64, f64)| (capacity > 0.0).then(|| weight / capacity);
    weights.zip(capacities).map(error).collect()
}

/// *NWE* = ½ Σ|*W* − *C̄*|: the share of all choices that would have to change (equation 6), from 0 to 1.
/// `None` if all weights or all capacities are zero.
#[must_use]
pub fn network_weight_error(weights: &[f64], capacities: &[f64]) -> Option<f64> {
    let (weights, capacities) = both(weights, capacities);
    let differences = normalised(weights)?.zip(normalised(capacities)?);
    Some(differences.map(|(weight, capacity)| (weight - capacity).abs()).sum::<f64>() / 2.0)
}

/// The share of the weight that some relays have, over their share of the capacity: *RWE* of all of them as one. `None` if they
/// have no capacity, or all weights are zero.
#[must_use]
pub fn group_weight_error(weights: &[f64], capacities: &[f64], is_member: &[bool]) -> Option<f64> {
    let (weights, capacities) = both(weights, capacities);
    let share = |of: &[f64]| -> Option<f64> {
        let members = normalised(of)?.zip(is_member).filter(|(_, is_member)| **is_member);
        Some(members.map(|(share, _)| share).sum())
    };
    let (weight, capacity) = (share(weights)?, share(capacities)?);
    (capacity > 0.0).then(|| weight / capacity)
}

fn both<'a>(one: &'a [f64], other: &'a [f64]) -> (&'a [f64], &'a [f64]) {
    let len = one.len().min(other.len());
    (&one[..len], &other[..len])
}

/// The share of each in the sum.
fn normalised(all: &[f64]) -> Option<impl Iterator<Item = f64>> {
    let sum: f64 = all.iter().sum();
    (sum > 0.0).then(|| all.iter().map(move |value| value / sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_underestimated_relay_has_a_positive_error() {
        assert_eq!(relay_capacity_error(75.0, 100.0), Some(0.25));
        assert_eq!(
            relay_capacity_error(110.0, 100.0)
                .map(|relay_capacity_error| (relay_capacity_error * 100.0).round()),
            Some(-10.0)
        );
        assert_eq!(relay_capacity_error(1.0, 0.0), None);
    }

    /// Errors of relays add up by their size: 10 of 110, not the mean of 100 % and 0 %.
    #[test]
    fn the_networks_capacity_error_weighs_relays_by_their_size() {
        let error = network_capacity_error(&[100.0, 0.0], &[100.0, 10.0]);
        assert!((error.expect("it has capacity") - 10.0 / 110.0).abs() < 1e-12);
        assert_eq!(network_capacity_error(&[], &[]), None);
    }

    #[test]
    fn weights_in_proportion_have_no_error_whatever_their_unit() {
        let capacities = [10.0, 30.0, 60.0];
        let weights = capacities.map(|capacity| capacity * 12.5);
        assert!(network_weight_error(&weights, &capacities).expect("there are some") < 1e-12);
        let each = relay_weight_errors(&weights, &capacities);
        assert!(
            each.iter().all(|error| error.is_some_and(|error| (error - 1.0).abs() < 1e-12)),
            "{each:?}"
        );
    }

    /// A quarter of the weight, but half of the capacity.
    #[test]
    fn a_group_that_is_chosen_too_rarely_has_less_than_its_share() {
        let error = |is_member: [bool; 3]| {
            group_weight_error(&[1.0, 1.0, 6.0], &[10.0, 30.0, 40.0], &is_member)
        };
        assert_eq!(error([true, true, false]), Some(0.5));
        assert_eq!(error([true; 3]), Some(1.0));
        assert_eq!(error([false; 3]), None);
        assert_eq!(group_weight_error(&[0.0], &[1.0], &[true]), None);
    }

    /// Half of all choices use the wrong one of two equal relays.
    #[test]
    fn all_weight_on_one_of_two_equal_relays_is_an_error_of_a_half() {
        assert_eq!(network_weight_error(&[7.0, 0.0], &[5.0, 5.0]), Some(0.5));
        assert_eq!(relay_weight_errors(&[7.0, 0.0], &[5.0, 5.0]), [Some(2.0), Some(0.0)]);
        assert_eq!(network_weight_error(&[0.0, 0.0], &[5.0, 5.0]), None);
        assert_eq!(relay_weight_errors(&[1.0, 1.0], &[5.0, 0.0]), [Some(0.5), None]);
    }

    /// It is a metric: from 0 to 1, and symmetric.
    #[test]
    fn disjoint_weights_and_capacities_have_the_largest_error() {
        let (one, other) = ([1.0, 0.0], [0.0, 3.0]);
        assert_eq!(network_weight_error(&one, &other), Some(1.0));
        assert_eq!(network_weight_error(&other, &one), Some(1.0));
    }
}
