//! Draws that follow from a seed, equal in all processes and on all machines.

use super::Seed;
use core::fmt;
use core::ops::Range;
use hmac::{Hmac, Mac};
use onion::identity::RsaId;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use sha2::Sha256;

/// The number of failed draws before the free slots are counted.
const MISSES_MAX: u32 = 64;

/// A separate generator for each machine, team and draw.
#[derive(Clone)]
pub(super) struct Draws(Hmac<Sha256>);

impl Draws {
    pub(super) fn new(seed: &Seed) -> Self {
        Self(seed.keyed().chain_update(b"flashflow plan: slots"))
    }

    pub(super) fn of(&self, machine: RsaId, team: usize, draw: u32) -> ChaCha12Rng {
        let mut mac = self.0.clone();
        mac.update(&machine.0);
        mac.update(&(team as u64).to_be_bytes());
        mac.update(&draw.to_be_bytes());
        ChaCha12Rng::from_seed(mac.finalize().into_bytes().into())
    }

    /// The number of slots of a machine in a period: Poisson-distributed.
    pub(super) fn count(&self, machine: RsaId, team: usize) -> u32 {
        poisson(&mut self.of(machine, team, u32::MAX))
    }

    /// The position of a machine among others.
    pub(super) fn rank(&self, machine: RsaId) -> u64 {
        self.of(machine, 0, u32::MAX - 1).next_u64()
    }
}

/// The mean number of slots of a machine in a period, without those at its deadline. With 0.92, relays are measured
/// 1.10 times a period in total (`slot_schedule/tests/strategies.rs`).
const MEAN: f64 = 0.92;

/// e^(-[`MEAN`]): the chance that there is none.
const NONE: f64 = 0.398_519_041_084_514_14;

/// A draw from the Poisson distribution with this mean, at most 12 (more has a probability of 10⁻¹⁰), by inversion.
fn poisson(rng: &mut impl Rng) -> u32 {
    const MOST: u32 = 12;
    const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
    let mut left = rng.next_u64() as f64 / TWO_TO_64;
    let (mut count, mut chance) = (0, NONE);
    while left >= chance && count < MOST {
        left -= chance;
        count += 1;
        chance *= MEAN / f64::from(count);
    }
    count
}

impl fmt::Debug for Draws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Draws(secret)")
    }
}

/// Draws one of the free slots, uniformly.
///
/// Draws among all slots until one is free, which is uniform over the free ones. After many failed draws, when few
/// slots are free, the free ones are counted.
pub(super) fn one_of(
    slots: Range<u32>,
    is_free: impl Fn(u32) -> bool,
    rng: &mut impl Rng,
) -> Option<u32> {
    let count = u32::try_from(slots.len()).ok().filter(|count| *count > 0)?;
    for _ in 0..MISSES_MAX {
        let slot = slots.start + below(count, rng);
        if is_free(slot) {
            return Some(slot);
        }
    }
    let free = slots.clone().filter(|slot| is_free(*slot)).count();
    let free = u32::try_from(free).ok().filter(|free| *free > 0)?;
    let chosen = below(free, rng) as usize;
    slots.filter(|slot| is_free(*slot)).nth(chosen)
}

/// An unbiased number below a nonzero bound: Lemire's method. Libraries have it too, but none guarantees the same draws
/// in its next version.
fn below(bound: u32, rng: &mut impl Rng) -> u32 {
    let unfair = bound.wrapping_neg() % bound;
    loop {
        let wide = u64::from(rng.next_u32()) * u64::from(bound);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half, and the upper one")]
        let (low, high) = (wide as u32, (wide >> 32) as u32);
        if low >= unfair {
            return high;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn few_free_slots_among_many_are_equally_likely() {
        let rng = &mut ChaCha12Rng::from_seed([3; 32]);
        // Of 2880 slots two are free: nearly all draws fail.
        let free = [17, 2000];
        let counts = free.map(|slot| {
            let draws = (0..400).map(|_| one_of(0..2880, |drawn| free.contains(&drawn), rng));
            draws.filter(|drawn| *drawn == Some(slot)).count()
        });
        assert!(counts.iter().all(|count| (150..250).contains(count)), "{counts:?}");
        assert_eq!(one_of(0..2880, |_| false, rng), None);
        assert_eq!(one_of(5..5, |_| true, rng), None);
    }

    #[test]
    fn counts_are_as_likely_as_events_of_a_poisson_process() {
        let rng = &mut ChaCha12Rng::from_seed([5; 32]);
        let mut counts = [0u32; 13];
        (0..100_000).for_each(|_| counts[poisson(rng) as usize] += 1);
        // e^(-λ)·λ^k/k! of all, and six standard deviations.
        for (count, expected) in counts.into_iter().zip([39_852u32, 36_664, 16_865, 5_172, 1_190]) {
            assert!(count.abs_diff(expected) < 920, "{count} of {expected}");
        }
    }

    #[test]
    fn numbers_below_a_bound_are_equally_likely() {
        let rng = &mut ChaCha12Rng::from_seed([4; 32]);
        let mut counts: Vec<u32> = vec![0; 7];
        (0..70_000).for_each(|_| counts[below(7, rng) as usize] += 1);
        // Six standard deviations.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 6 * 93), "{counts:?}");
    }
}
