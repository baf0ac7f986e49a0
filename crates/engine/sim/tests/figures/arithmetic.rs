//! Statistical functions.

use onion::Duration;
use onion::cell::CELL_LEN;
use onion::cell::relay::MAX_DATA_LEN;

/// The smallest of the sorted values that this percentage does not exceed, in milliseconds.
#[track_caller]
pub(crate) fn percentile_ms(times: &[Duration], percent: usize) -> f64 {
    assert!(!times.is_empty(), "no samples");
    let mut times = times.to_vec();
    times.sort_unstable();
    let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times[place].as_nanos() as f64 * 1e-6
}

/// Jain's index: 1 if all are equal, 1/n if one has everything.
pub(crate) fn jain(values: &[u64]) -> f64 {
    let sum: f64 = values.iter().map(|value| *value as f64).sum();
    let squares: f64 = values.iter().map(|value| *value as f64 * *value as f64).sum();
    sum * sum / (values.len() as f64 * squares)
}

/// Stream bytes as cells on the wire.
pub(crate) fn cells_mbit_per_s(stream_bytes: u64, time: Duration) -> f64 {
    let cells = stream_bytes as f64 / MAX_DATA_LEN as f64;
    cells * (CELL_LEN * 8) as f64 * 1e-6 / time.as_secs_f64()
}

#[test]
fn percentiles_are_elements_of_the_sample() {
    let times: Vec<Duration> = (1..=10).rev().map(Duration::from_millis).collect();
    let found = [0, 10, 50, 51, 90, 100].map(|percent| percentile_ms(&times, percent));
    assert_eq!(found, [1.0, 1.0, 5.0, 6.0, 9.0, 10.0]);
}

#[test]
fn jains_index_is_one_for_equal_shares_and_small_for_a_monopoly() {
    assert_eq!((jain(&[7; 4]), jain(&[9, 0, 0, 0])), (1.0, 0.25));
}
