//! Paths that fail from time to time: a path's relays lose their connections, and with them its circuits.

use onion::{Duration, Instant};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The mean time between two failures of a path: about that of the paper's longest downloads over plain Tor.
pub(super) const MEAN: Duration = Duration::from_secs(30);

/// When paths fail: a Poisson process for each.
#[derive(Debug)]
pub(super) struct Failures {
    rng: StdRng,
    /// The next failure of each path.
    next: Vec<Instant>,
}

impl Failures {
    /// From now on. Equal seeds fail at equal times.
    pub(super) fn new(seed: u64, paths: usize, now: Instant) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let next = (0..paths).map(|_| now + pause(&mut rng)).collect();
        Self { rng, next }
    }

    /// A path that fails now, if there is one.
    pub(super) fn poll(&mut self, now: Instant) -> Option<usize> {
        let path = self.next.iter().position(|at| *at <= now)?;
        self.next[path] = now + pause(&mut self.rng);
        Some(path)
    }
}

fn pause(rng: &mut StdRng) -> Duration {
    let uniform: f64 = rng.random_range(f64::MIN_POSITIVE..1.0);
    MEAN.mul_f64(-uniform.ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_their_mean_distance_and_repeat() {
        let count = |seed| {
            let mut failures = Failures::new(seed, 3, Instant::ORIGIN);
            let mut found = Vec::new();
            for second in 0..10_000 {
                let now = Instant::from_millis(1000 * second);
                while let Some(path) = failures.poll(now) {
                    found.push((second, path));
                }
            }
            found
        };
        let found = count(1);
        assert_eq!(found, count(1));
        // Three paths, 10,000 s, one failure in 30 s.
        assert!((900..1100).contains(&found.len()), "{}", found.len());
        assert!((0..3).all(|path| found.iter().any(|failure| failure.1 == path)));
    }
}
