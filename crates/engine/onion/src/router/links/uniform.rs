use rand_core::Rng;

/// A uniformly distributed number below `below`; zero if that is zero.
pub(crate) fn uniform_below(rng: &mut impl Rng, below: u32) -> u32 {
    let product = u64::from(rng.next_u32()) * u64::from(below);
    u32::try_from(product >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    proptest! {
        #[test]
        fn a_random_number_is_below_its_bound(seed: u64, below in 1..=u32::MAX) {
            prop_assert!(uniform_below(&mut ChaCha8Rng::seed_from_u64(seed), below) < below);
        }
    }

    #[test]
    fn random_numbers_are_uniform() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for below in [1, 2, 3, 16, 1000, 1 << 31, u32::MAX] {
            let parts = below.min(16);
            let mut counts = alloc::vec![0_u32; parts as usize];
            for _ in 0..10_000 * parts {
                let part =
                    u64::from(uniform_below(&mut rng, below)) * u64::from(parts) / u64::from(below);
                counts[usize::try_from(part).unwrap()] += 1;
            }
            // Five times the standard deviation of 100, and 1000 is not a multiple of 16.
            assert!(
                counts.iter().all(|count| (9_400..10_600).contains(count)),
                "{below}: {counts:?}"
            );
        }
        assert_eq!(uniform_below(&mut rng, 0), 0, "an empty range gives zero");
    }
}
