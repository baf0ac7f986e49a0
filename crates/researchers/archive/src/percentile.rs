//! Percentiles.

/// The interpolated percentile of ascending values; `None` without values.
#[must_use]
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    #[expect(clippy::cast_possible_truncation, reason = "a place in the list")]
    let below = place.floor() as usize;
    let low = values.get(below)?;
    let high = values.get(below + 1).unwrap_or(low);
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated() {
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(percentile(&[1.0, 2.0, 4.0], 0.5), Some(2.0));
        assert_eq!(percentile(&[1.0, 2.0, 4.0], 0.75), Some(3.0));
        assert_eq!(percentile(&[1.0, 2.0], 1.0), Some(2.0));
    }
}
