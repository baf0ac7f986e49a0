//! The random decisions for each packet.

use super::path::{Jitter, Loss, WanPath};
use onion::{Duration, Instant};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The minimum time in which the correlated delay moves from one drawn value to the next.
const SEGMENT: Duration = Duration::from_millis(10);

/// The random decisions for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) is_lost: bool,
    pub(super) is_held_back: bool,
    pub(super) is_duplicated: bool,
    /// The delay beyond the latency, if each packet has its own.
    pub(super) own_delay: Duration,
}

/// The random decisions of one path. The same numbers are drawn for each packet whatever the parameters are, so
/// the n-th packet has the same fate in each run with this seed, also after a change.
#[derive(Clone, Debug)]
pub(super) struct Fates {
    packets: ChaCha8Rng,
    /// The number of a value is its position in this stream.
    delays: ChaCha8Rng,
    was_lost: bool,
}

impl Fates {
    /// The generator of the path between two hosts, by their numbers, independent of other hosts.
    pub(super) fn new(seed: u64, from: usize, to: usize) -> Self {
        let [from, to] = [from, to].map(|number| u64::try_from(number).unwrap_or(u64::MAX));
        let path = (from << 20) | to;
        let stream = |number: u64| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(number);
            rng
        };
        Self { packets: stream(2 * path), delays: stream(2 * path + 1), was_lost: false }
    }

    /// The decisions for the next packet.
    pub(super) fn next(&mut self, path: &WanPath) -> Fate {
        let mut draw = || f64::from(self.packets.next_u32()) / (f64::from(u32::MAX) + 1.0);
        let (loss, held_back, duplicated, delay) = (draw(), draw(), draw(), draw());
        let is_lost = match path.loss {
            Loss::Random { share } => loss < share,
            Loss::Bursts { .. } => {
                let (to_lost, to_good) = path.loss.transitions();
                if self.was_lost { loss >= to_good } else { loss < to_lost }
            }
        };
        self.was_lost = is_lost;
        Fate {
            is_lost,
            is_held_back: held_back < path.reordering.share,
            is_duplicated: duplicated < path.duplicate_share,
            own_delay: match path.jitter {
                Jitter { up_to, reorders: true } => up_to.mul_f64(delay),
                Jitter { reorders: false, .. } => Duration::ZERO,
            },
        }
    }

    /// The correlated delay at a time: it moves linearly from one drawn value to the next, over at least twice
    /// the largest step, so that no packet overtakes another.
    pub(super) fn correlated_delay(&mut self, up_to: Duration, now: Instant) -> Duration {
        if up_to.is_zero() {
            return Duration::ZERO;
        }
        let step = u64::try_from(SEGMENT.max(up_to * 2).as_nanos()).unwrap_or(u64::MAX);
        let (number, into) = (now.as_nanos() / step, now.as_nanos() % step);
        self.delays.set_word_pos(u128::from(number));
        let [from, to] = [self.delays.next_u32(), self.delays.next_u32()].map(u64::from);
        // In units of 2⁻³²: the product stays below 2⁹⁶.
        let (from, to, into, step) =
            (u128::from(from), u128::from(to), u128::from(into), u128::from(step));
        let part = (from * (step - into) + to * into) / step;
        let nanos = (up_to.as_nanos() * part) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
