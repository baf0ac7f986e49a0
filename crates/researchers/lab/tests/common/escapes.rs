//! The statistics of forgers that escape detection.

/// Asserts that forgers were detected as late as a check of one cell in 125 predicts, by the number of cells
/// that each had forged before.
#[track_caller]
pub(crate) fn assert_escapes_as_predicted(escaped: &[usize]) {
    let runs = escaped.len() as f64;
    for forged in [10_u16, 50, 125, 250, 400] {
        let escapes = escaped.iter().filter(|count| **count >= usize::from(forged)).count();
        let observed = escapes as f64 / runs;
        let predicted = (1.0 - 1.0 / 125.0_f64).powi(i32::from(forged));
        // Three standard deviations; the seeds are fixed, so the result is always the same.
        let tolerance = 3.0 * (predicted * (1.0 - predicted) / runs).sqrt();
        let difference = (observed - predicted).abs();
        assert!(difference <= tolerance, "{forged}: {observed} for {predicted}");
    }
}
