//! Random numbers of the model of flows.

use sim::world::SplitMix64;

/// The value at this share of a sorted sample, with the logarithm of values between its elements interpolated.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low * (high / low).powf(at.fract())
}

/// A number with the Poisson distribution; from 50 on by the normal distribution.
pub(super) fn poisson(mean: f64, rng: &mut SplitMix64) -> f64 {
    if mean >= 50.0 {
        return (mean + mean.sqrt() * normal(rng)).round().max(0.0);
    }
    let (limit, mut product, mut count) = ((-mean).exp(), rng.unit(), 0.0);
    while product > limit {
        product *= rng.unit();
        count += 1.0;
    }
    count
}

/// A number with the normal distribution (Box and Muller).
fn normal(rng: &mut SplitMix64) -> f64 {
    let (radius, angle) = (1.0 - rng.unit(), rng.unit());
    (-2.0 * radius.ln()).sqrt() * (core::f64::consts::TAU * angle).cos()
}

/// The noise of an observation, as in MLEFlow's simulator: normal with mean 1 and deviation 0.5, without values beyond 0.7 and
/// 1.3.
pub(super) fn noise(rng: &mut SplitMix64) -> f64 {
    loop {
        let factor = 1.0 + 0.5 * normal(rng);
        if (0.7..=1.3).contains(&factor) {
            return factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_their_means() {
        let mut rng = SplitMix64::new(1);
        let mean =
            |mut draw: Box<dyn FnMut() -> f64>| (0..20_000).map(|_| draw()).sum::<f64>() / 2e4;
        for expected in [0.3, 7.0, 300.0] {
            let mut rng = SplitMix64::new(2);
            let found = mean(Box::new(move || poisson(expected, &mut rng)));
            assert!((found / expected - 1.0).abs() < 0.05, "{found} instead of {expected}");
        }
        let found = mean(Box::new(move || noise(&mut rng)));
        assert!((found - 1.0).abs() < 0.01, "{found}");
    }
}
