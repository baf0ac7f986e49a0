use super::content::Content;
use crate::cell::BODY_LEN;
use crate::crypto::Keystream;
use core::fmt;
use core::num::NonZeroU32;
use rand_core::Rng;

/// The distance within which a wrong cell is searched for in the content, to name the manipulation.
const SEARCH_CELLS: u64 = 64;

/// Chooses the cells to check: one at a random place in each bucket of `n` (proposal 316, appendix A).
///
/// The target cannot predict the places, so `k` forged cells escape with a probability of at most `(1 −
/// 1/n)^k`; and at most `2n` consecutive cells are unchecked, which matters for slow relays.
#[derive(Clone, Debug)]
pub struct CheckSampler {
    bucket_cells: NonZeroU32,
    /// Cells until the next check, zero for the very next cell.
    until_check: u32,
    /// Cells left in this bucket after that check.
    after_check: u32,
}

impl CheckSampler {
    /// Checks one cell in `bucket_cells`.
    pub fn new(bucket_cells: NonZeroU32, rng: &mut impl Rng) -> Self {
        let mut sampler = Self { bucket_cells, until_check: 0, after_check: 0 };
        sampler.begin_bucket(0, rng);
        sampler
    }

    fn begin_bucket(&mut self, left_of_last: u32, rng: &mut impl Rng) {
        let bucket = self.bucket_cells.get();
        // The bias of a 64-bit remainder is below 2^-32.
        let place = u32::try_from(rng.next_u64() % u64::from(bucket)).unwrap_or(0);
        self.until_check = left_of_last + place;
        self.after_check = bucket - 1 - place;
    }

    /// Handles the arrival of one cell: whether to check it.
    #[inline]
    pub fn handle_cell(&mut self, rng: &mut impl Rng) -> bool {
        if self.until_check > 0 {
            self.until_check -= 1;
            return false;
        }
        self.begin_bucket(self.after_check, rng);
        true
    }
}

/// The manipulation of a cell that fails its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The relay has not decrypted it.
    NotDecrypted,
    /// It is another cell of the circuit.
    Displaced {
        /// Which one.
        found: u64,
    },
    /// It is not a cell that was sent.
    Forged,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDecrypted => f.write_str("it was forwarded without decryption"),
            Self::Displaced { found } => write!(
                f,
                "cell {found} of the circuit arrived instead: cells were replayed, reordered or dropped"
            ),
            Self::Forged => f.write_str("its content was never sent: altered or forged"),
        }
    }
}

/// Compares a body that arrived as cell `index` with an honest relay's result.
///
/// `forward` is the forward keystream of the layer shared with the relay, of which `cells_before` cells were
/// used before the first cell that counts: one, if the circuit was extended.
///
/// # Errors
/// The manipulation.
pub fn compare(
    content: &mut Content,
    forward: &mut Keystream,
    cells_before: u64,
    index: u64,
    arrived: &[u8],
) -> Result<(), Mismatch> {
    let mut honest = |index: u64| {
        let mut body = content.body(index);
        forward.seek((cells_before + index) * BODY_LEN as u64);
        forward.apply(&mut body);
        body
    };
    if arrived == honest(index) {
        return Ok(());
    }
    let around = index.saturating_sub(SEARCH_CELLS)..=index.saturating_add(SEARCH_CELLS);
    let is_displaced = |place: &u64| arrived == honest(*place);
    if let Some(found) = around.clone().find(is_displaced) {
        return Err(Mismatch::Displaced { found });
    }
    if around.into_iter().any(|place| arrived == content.body(place)) {
        return Err(Mismatch::NotDecrypted);
    }
    Err(Mismatch::Forged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    proptest! {
        #[test]
        fn each_bucket_has_one_check(bucket in 1u32..300, seed: u64) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let bucket_cells = NonZeroU32::new(bucket).expect("not zero");
            let mut sampler = CheckSampler::new(bucket_cells, &mut rng);
            for _ in 0..20 {
                let checks = (0..bucket).filter(|_| sampler.handle_cell(&mut rng)).count();
                prop_assert_eq!(checks, 1);
            }
        }
    }

    /// An honest relay's result for cell `index`.
    fn relayed(index: u64) -> [u8; BODY_LEN] {
        let mut body = Content::new(&[1; 16]).body(index);
        let mut forward = Keystream::new(&[2; 16]);
        forward.seek((index + 1) * BODY_LEN as u64);
        forward.apply(&mut body);
        body
    }

    fn check(index: u64, arrived: &[u8]) -> Result<(), Mismatch> {
        compare(&mut Content::new(&[1; 16]), &mut Keystream::new(&[2; 16]), 1, index, arrived)
    }

    #[test]
    fn each_manipulation_of_a_cell_is_identified() {
        assert_eq!(check(1000, &relayed(1000)), Ok(()));
        assert_eq!(check(1000, &relayed(1001)), Err(Mismatch::Displaced { found: 1001 }));
        assert_eq!(check(1000, &relayed(990)), Err(Mismatch::Displaced { found: 990 }));
        let undecrypted = Content::new(&[1; 16]).body(1000);
        assert_eq!(check(1000, &undecrypted), Err(Mismatch::NotDecrypted));
        let mut altered = relayed(1000);
        altered[508] ^= 1;
        assert_eq!(check(1000, &altered), Err(Mismatch::Forged));
        assert_eq!(check(1000, &[]), Err(Mismatch::Forged));
    }
}
